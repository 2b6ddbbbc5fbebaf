//! The thread that sends, at the times of the open-loop schedule.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use workloads::{PlannedSend, SendSchedule};

use crate::config;
use crate::consumer::Setting;
use crate::graveyard::Graveyard;
use crate::journal::{Journal, ProcessPool};
use crate::keys::KeyTable;
use crate::producer::{Completion, Producer, Queued};
use crate::room::{Entry, Room};
use crate::stop::Stop;
use crate::values::NextValues;

/// Later than this, a send counts as late.
const LATE_NS: u64 = 10_000_000;
/// Shortest sleep: sends that are due within it go out together, up to this much late.
const SLEEP_MIN: Duration = Duration::from_millis(1);
/// How often clients are looked after.
const CHECK_EVERY: Duration = Duration::from_millis(200);

/// One producer client of the run, over all its replacements.
struct Slot {
    config: ClientConfig,
    pool: Arc<ProcessPool>,
    producer: Producer,
}

/// Every producer client of a run, and the schedule they follow.
pub(crate) struct Sender {
    journal: Arc<Journal>,
    keys: Arc<KeyTable>,
    room: Arc<Room>,
    values: Arc<NextValues>,
    graveyard: Graveyard,
    slots: Vec<Slot>,
    /// A client with an older open send is given up.
    overdue_after: Duration,
    time_limit_ns: u64,
    next_check_ns: u64,
}

impl Sender {
    /// Starts the producer clients of the plan.
    ///
    /// # Errors
    /// librdkafka refuses the settings.
    pub(crate) fn start(setting: &Setting, values: &Arc<NextValues>) -> Result<Self, KafkaError> {
        let plan = &setting.plan;
        let mut overdue_after = Duration::from_millis(plan.producer.delivery_timeout_ms.into());
        if !plan.producer.is_idempotent() {
            // These time out by themselves, and say so with the next scan of their queues.
            overdue_after += Duration::from_secs(3);
        }
        let mut sender = Self {
            journal: Arc::clone(&setting.journal),
            keys: Arc::clone(&setting.keys),
            room: Arc::new(Room::new(plan.max_outstanding as usize)),
            values: Arc::clone(values),
            graveyard: setting.graveyard.clone(),
            slots: Vec::new(),
            overdue_after,
            time_limit_ns: plan.time_limit_ms.saturating_mul(1_000_000),
            next_check_ns: 0,
        };
        for number in 0..plan.producers {
            let client_id = format!("highwater-producer-{number}");
            let config = config::producer(&plan.producer, &setting.bootstrap, &client_id);
            let pool = Arc::new(ProcessPool::new(Arc::clone(&setting.journal)));
            let producer = Producer::start(&config, sender.completion(&pool))?;
            sender.slots.push(Slot { config, pool, producer });
        }
        Ok(sender)
    }

    fn completion(&self, pool: &Arc<ProcessPool>) -> Completion {
        Completion::new(&self.journal, &self.keys, pool, &self.room, None)
    }

    /// Follows `schedule`, whose time 0 is `start_ns` of the run's clock, to its end or to
    /// `stop`; then waits for what is outstanding. Returns how many sends the client had to give
    /// up on (their end is recorded as info all the same).
    pub(crate) fn run(mut self, schedule: SendSchedule, start_ns: u64, stop: &Stop) -> usize {
        for send in schedule {
            let scheduled_ns = start_ns + send.time_ns;
            let now_ns = self.journal.now_ns();
            let early = Duration::from_nanos(scheduled_ns.saturating_sub(now_ns));
            if !self.wait(early, stop)
                || now_ns - start_ns >= self.time_limit_ns
                || !self.enter(stop)
            {
                break;
            }
            self.send(send, scheduled_ns);
        }
        let left = self.room.wait_empty(self.overdue_after);
        // All at once, because each may take half a second to give up what is left.
        for slot in self.slots.drain(..) {
            // For the sake of the error that open sends get.
            slot.producer.is_overdue(self.overdue_after);
            self.graveyard.bury(slot.producer);
        }
        self.room.wait_empty(Duration::from_secs(5));
        left
    }

    /// Waits for `early`, looking after the clients meanwhile. False where stop was requested.
    fn wait(&mut self, early: Duration, stop: &Stop) -> bool {
        let until_ns = self.journal.now_ns() + u64::try_from(early.as_nanos()).unwrap_or(u64::MAX);
        loop {
            self.look_after_clients();
            let left_ns = until_ns.saturating_sub(self.journal.now_ns());
            if left_ns == 0 {
                return !stop.is_stopped();
            }
            let sleep = Duration::from_nanos(left_ns).clamp(SLEEP_MIN, CHECK_EVERY);
            if stop.wait(sleep) {
                return false;
            }
        }
    }

    /// Takes a place among the outstanding sends. False where stop was requested first.
    fn enter(&mut self, stop: &Stop) -> bool {
        let mut delayed = false;
        loop {
            match self.room.enter() {
                Entry::Full if stop.is_stopped() => return false,
                Entry::Full => delayed = true,
                entry => {
                    if delayed || entry == Entry::Delayed {
                        self.journal.live().delayed_sends.fetch_add(1, Relaxed);
                    }
                    return true;
                }
            }
            self.look_after_clients();
        }
    }

    /// Replaces clients that have not been answered for too long.
    fn look_after_clients(&mut self) {
        let now_ns = self.journal.now_ns();
        if now_ns < self.next_check_ns {
            return;
        }
        self.next_check_ns = now_ns + u64::try_from(CHECK_EVERY.as_nanos()).unwrap_or(0);
        for number in 0..self.slots.len() {
            if self.slots[number].producer.is_overdue(self.overdue_after) {
                self.replace(number, "a send is overdue");
            }
        }
    }

    fn send(&mut self, send: PlannedSend, scheduled_ns: u64) {
        if self.journal.now_ns().saturating_sub(scheduled_ns) > LATE_NS {
            self.journal.live().late_sends.fetch_add(1, Relaxed);
        }
        self.values.used(send.key, send.value);
        let Some(slot) = self.slots.get(send.producer) else {
            self.room.leave();
            return;
        };
        let queued = slot.producer.send(send.key, send.value, Some(scheduled_ns));
        if queued == Queued::Broken {
            self.replace(send.producer, "it had a fatal error");
        }
    }

    /// Gives up a client and starts another in its place. What the old one has open ends info:
    /// it has a producer id of its own, so nothing is sent again under the new one's.
    fn replace(&mut self, number: usize, why: &str) {
        let Some(slot) = self.slots.get(number) else {
            return;
        };
        match Producer::start(&slot.config, self.completion(&slot.pool)) {
            Ok(fresh) => {
                tracing::info!(producer = number, why, "the client is replaced");
                let old = std::mem::replace(&mut self.slots[number].producer, fresh);
                self.graveyard.bury(old);
            }
            Err(error) => tracing::warn!(
                producer = number,
                why,
                %error,
                "the client should be replaced, but no new one can be started for now"
            ),
        }
    }
}
