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
    drain_limit: Duration,
    time_limit_ns: u64,
}

impl Sender {
    /// Starts the producer clients of the plan.
    ///
    /// # Errors
    /// librdkafka refuses the settings.
    pub(crate) fn start(setting: &Setting, values: &Arc<NextValues>) -> Result<Self, KafkaError> {
        let plan = &setting.plan;
        let mut sender = Self {
            journal: Arc::clone(&setting.journal),
            keys: Arc::clone(&setting.keys),
            room: Arc::new(Room::new(plan.max_outstanding as usize)),
            values: Arc::clone(values),
            graveyard: setting.graveyard.clone(),
            slots: Vec::new(),
            // Reports of sends that timed out come with the next scan of the queues, once a
            // second, and the client may be busy with a reconnect.
            drain_limit: Duration::from_millis(plan.producer.delivery_timeout_ms.into())
                + Duration::from_secs(5),
            time_limit_ns: plan.time_limit_ms.saturating_mul(1_000_000),
        };
        for number in 0..plan.producers {
            let client_id = format!("highwater-producer-{number}");
            let config = config::producer(&plan.producer, &setting.bootstrap, &client_id);
            let pool = Arc::new(ProcessPool::new(Arc::clone(&setting.journal)));
            let producer = Producer::start(&config, sender.completion(&pool))?;
            sender.slots.push(Slot {
                config,
                pool,
                producer,
            });
        }
        Ok(sender)
    }

    fn completion(&self, pool: &Arc<ProcessPool>) -> Completion {
        Completion {
            journal: Arc::clone(&self.journal),
            keys: Arc::clone(&self.keys),
            pool: Arc::clone(pool),
            room: Arc::clone(&self.room),
            report: None,
            acknowledged: true,
        }
    }

    /// Follows `schedule`, whose time 0 is `start_ns` of the run's clock, to its end or to
    /// `stop`; then waits for what is outstanding. Returns how many sends the client had to give
    /// up on (their end is recorded as info all the same).
    pub(crate) fn run(mut self, schedule: SendSchedule, start_ns: u64, stop: &Stop) -> usize {
        for send in schedule {
            let scheduled_ns = start_ns + send.time_ns;
            let now_ns = self.journal.now_ns();
            if let Some(early_ns) = scheduled_ns.checked_sub(now_ns).filter(|ns| *ns > 0) {
                let sleep = Duration::from_nanos(early_ns).max(SLEEP_MIN);
                if stop.wait(sleep) {
                    break;
                }
            } else if stop.is_stopped() || now_ns - start_ns >= self.time_limit_ns {
                break;
            }
            match self.room.enter(stop) {
                Entry::AtOnce => {}
                Entry::Delayed => {
                    self.journal.live().delayed_sends.fetch_add(1, Relaxed);
                }
                Entry::Stopped => break,
            }
            self.send(send, scheduled_ns);
        }
        let left = self.room.wait_empty(self.drain_limit);
        // All at once, because each may take half a second to give up what is left.
        for slot in self.slots.drain(..) {
            self.graveyard.bury(slot.producer);
        }
        self.room.wait_empty(Duration::from_secs(5));
        left
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
            self.replace(send.producer);
        }
    }

    /// After a fatal error an idempotent client sends nothing more. A new one takes its place.
    fn replace(&mut self, number: usize) {
        let Some(slot) = self.slots.get(number) else {
            return;
        };
        match Producer::start(&slot.config, self.completion(&slot.pool)) {
            Ok(fresh) => {
                tracing::warn!(producer = number, "a fatal error: the client is replaced");
                let old = std::mem::replace(&mut self.slots[number].producer, fresh);
                self.graveyard.bury(old);
            }
            Err(error) => tracing::warn!(
                producer = number,
                %error,
                "a fatal error, and no new client can be started; the next send tries again"
            ),
        }
    }
}
