//! One consumer of the workload: a process that assigns or subscribes, polls, and crashes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use history::{Draft, Function, Key, Kind, MicroOp, Pair, Process, Rebalance, Value};
use rdkafka::consumer::Consumer as _;
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::{Offset, TopicPartitionList};
use workloads::{ConsumerAction, ConsumerSchedule, QueuePlan};

use crate::config;
use crate::graveyard::Graveyard;
use crate::group::{GroupContext, settle, start_where_committed};
use crate::journal::Journal;
use crate::keys::KeyTable;
use crate::outcome::{Aftermath, error_text};
use crate::reader::{Batch, Reader};
use crate::stop::Stop;

/// A step this much past its time is left out: a process that was busy does not catch up.
const SKIP_AFTER_NS: u64 = 1_000_000_000;
/// How long a consumer rests after its position was lost, or its client could not be started:
/// what caused that may well be there still.
const REST_NS: u64 = 500_000_000;

/// What every consumer of a run shares.
#[derive(Clone)]
pub(crate) struct Setting {
    pub(crate) plan: Arc<QueuePlan>,
    pub(crate) bootstrap: Arc<str>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) keys: Arc<KeyTable>,
    pub(crate) graveyard: Graveyard,
}

/// One consumer, over all its clients.
pub(crate) struct Consumer {
    setting: Setting,
    number: u32,
    process: u64,
    /// How many clients there were before this one.
    incarnation: u32,
    client: Option<Reader>,
    /// Has the client been told what to read?
    ready: bool,
    /// Where each assigned key goes on, by its index.
    positions: BTreeMap<usize, Offset>,
    /// Keys whose first offset the client may still be asking for.
    asking: BTreeSet<usize>,
    /// The last assign or subscribe, to be repeated by a fresh client.
    last_setup: ConsumerAction,
    /// The last position was lost: read from the beginning next.
    from_beginning: bool,
    /// It rests until then.
    rest_until_ns: u64,
    /// What was read and is not committed: one past the last offset of each key, by its index.
    uncommitted: BTreeMap<usize, i64>,
    next_commit_ns: u64,
}

impl Consumer {
    /// Starts the first client of consumer `number`.
    ///
    /// # Errors
    /// librdkafka refuses the settings.
    pub(crate) fn start(setting: Setting, number: u32) -> KafkaResult<Self> {
        let mut consumer = Self {
            process: setting.journal.fresh_process(),
            setting,
            number,
            incarnation: 0,
            client: None,
            ready: false,
            positions: BTreeMap::new(),
            asking: BTreeSet::new(),
            last_setup: ConsumerAction::Crash,
            from_beginning: false,
            rest_until_ns: 0,
            uncommitted: BTreeMap::new(),
            next_commit_ns: 0,
        };
        consumer.client = Some(consumer.fresh_client()?);
        Ok(consumer)
    }

    fn fresh_client(&self) -> KafkaResult<Reader> {
        let plan = &self.setting.plan.consumer;
        let (number, incarnation) = (self.number, self.incarnation);
        let client_id = format!("highwater-consumer-{number}-{incarnation}");
        let subscribes = plan.subscribes(number);
        let group = plan.group_of(number);
        let instance = (subscribes && plan.static_membership).then_some(client_id.as_str());
        let config = config::consumer(plan, &self.setting.bootstrap, &client_id, &group, instance);
        let context = GroupContext::new(
            &group,
            &self.setting.journal,
            &self.setting.keys,
            plan.commits,
            self.from_beginning,
        );
        Reader::start(&config, &self.setting.keys, context)
    }

    /// Follows `schedule`, whose time 0 is `start_ns` of the run's clock, to its end or to
    /// `stop`.
    pub(crate) fn run(mut self, schedule: ConsumerSchedule, start_ns: u64, stop: &Stop) {
        let limit_ns = start_ns + self.setting.plan.time_limit_ms * 1_000_000;
        for step in schedule {
            let scheduled_ns = start_ns + step.time_ns;
            let now_ns = self.setting.journal.now_ns();
            let early = Duration::from_nanos(scheduled_ns.saturating_sub(now_ns));
            if stop.wait(early) || now_ns >= limit_ns {
                break;
            }
            let stale = self.setting.journal.now_ns().saturating_sub(scheduled_ns) > SKIP_AFTER_NS;
            match step.action {
                ConsumerAction::Poll if stale => self.skip_poll(),
                ConsumerAction::Poll => self.poll_or_rest(scheduled_ns),
                _ if stale && self.ready => {}
                ConsumerAction::Crash => self.crash(),
                setup => {
                    self.last_setup = setup;
                    self.set_up();
                }
            }
        }
        self.drop_client();
    }

    fn complete(&self, kind: Kind, function: Function, value: Value) -> Draft {
        Draft::new(Process::Client(self.process), kind, function, value)
    }

    fn bury_client(&mut self) {
        if let Some(client) = self.client.take() {
            self.setting.graveyard.bury(client);
        }
        self.asking.clear();
    }

    fn drop_client(&mut self) {
        self.bury_client();
        self.ready = false;
        self.positions.clear();
        self.uncommitted.clear();
    }

    /// The process is over: its client goes, and a fresh process follows.
    fn retire(&mut self) {
        self.drop_client();
        self.incarnation += 1;
        self.process = self.setting.journal.fresh_process();
    }

    fn rest(&mut self) {
        self.rest_until_ns = self.setting.journal.now_ns() + REST_NS;
    }

    fn crash(&mut self) {
        let journal = Arc::clone(&self.setting.journal);
        journal.invoke(self.process, Function::Crash, Value::Null, None);
        self.drop_client();
        journal.record(self.complete(Kind::Info, Function::Crash, Value::Null));
        self.retire();
    }

    /// Repeats the last assign or subscribe, with a fresh client where there is none.
    fn set_up(&mut self) {
        let (function, value, seek) = match &self.last_setup {
            ConsumerAction::Assign { keys, seek_to_beginning } => {
                (Function::Assign, self.names(keys), *seek_to_beginning || self.from_beginning)
            }
            ConsumerAction::Subscribe { topics } => {
                let names = topics.iter().filter_map(|t| self.setting.plan.topics.get(*t));
                let value = Value::Names(names.map(|name| name.as_str().into()).collect());
                (Function::Subscribe, value, self.from_beginning)
            }
            ConsumerAction::Poll | ConsumerAction::Crash => return,
        };
        let mut invoke = self.complete(Kind::Invoke, function.clone(), value.clone());
        invoke.seek_to_beginning = seek;
        self.setting.journal.record(invoke);
        let done = self.apply_setup(seek);
        let kind = match &done {
            Ok(()) => Kind::Ok,
            Err(refused) => refused.kind,
        };
        let mut event = self.complete(kind, function, value);
        event.seek_to_beginning = seek;
        event.error = done.err().map(|refused| error_text(&refused.reason));
        self.setting.journal.record(event);
        match kind {
            Kind::Ok => {
                self.ready = true;
                self.from_beginning = false;
            }
            Kind::Info => {
                self.retire();
                self.rest();
            }
            Kind::Fail | Kind::Invoke => self.rest(),
        }
    }

    fn names(&self, keys: &[usize]) -> Value {
        let targets = keys.iter().filter_map(|key| self.setting.keys.get(*key));
        Value::Names(targets.map(|target| target.key.as_str().into()).collect())
    }

    fn apply_setup(&mut self, seek: bool) -> Result<(), Refused> {
        // librdkafka 2.12 asks again, half a second later, when the answer to "where does this key
        // begin" comes after the key was assigned anew, and then goes back there whatever it reads
        // by then (`rd_kafka_toppar_handle_Offset`, an outdated response).
        if !self.asking.is_empty() {
            self.bury_client();
            self.incarnation += 1;
        }
        let client = match self.client.take() {
            Some(client) => client,
            None => self.fresh_client().map_err(Refused::before)?,
        };
        let client = self.client.insert(client);
        match &self.last_setup {
            ConsumerAction::Subscribe { topics } => {
                let names: Vec<&str> = topics
                    .iter()
                    .filter_map(|topic| self.setting.plan.topics.get(*topic))
                    .map(String::as_str)
                    .collect();
                client.consumer().subscribe(&names).map_err(Refused::midway)
            }
            ConsumerAction::Assign { keys, .. } => {
                let plan = &self.setting.plan.consumer;
                let next = starts(client, &self.setting.keys, keys, |key| {
                    if seek {
                        Some(Offset::Beginning)
                    } else {
                        let other = (!plan.commits).then_some(Offset::End);
                        self.positions.get(&key).copied().or(other)
                    }
                })
                .map_err(Refused::before)?;
                client.consumer().assign(&next).map_err(Refused::midway)?;
                settle(client.consumer());
                let keys_of = &self.setting.keys;
                self.positions = next
                    .elements()
                    .iter()
                    .filter_map(|element| {
                        let index = keys_of.index(element.topic(), element.partition())?;
                        Some((index, element.offset()))
                    })
                    .collect();
                let known = |offset: &Offset| matches!(offset, Offset::Offset(_));
                let asking = self.positions.iter().filter(|(_, offset)| !known(offset));
                self.asking = asking.map(|(key, _)| *key).collect();
                Ok(())
            }
            ConsumerAction::Poll | ConsumerAction::Crash => Ok(()),
        }
    }

    fn skip_poll(&self) {
        let live = self.setting.journal.live();
        live.skipped_polls.fetch_add(1, Relaxed);
    }

    fn poll_or_rest(&mut self, scheduled_ns: u64) {
        if self.setting.journal.now_ns() < self.rest_until_ns {
            self.skip_poll();
        } else {
            self.poll(scheduled_ns);
        }
    }

    fn poll(&mut self, scheduled_ns: u64) {
        if !self.ready {
            self.set_up();
        }
        if !self.ready {
            return;
        }
        let Some(client) = &mut self.client else {
            return;
        };
        let plan = &self.setting.plan.consumer;
        let journal = Arc::clone(&self.setting.journal);
        let asked = Value::Ops(vec![MicroOp::Poll]);
        journal.invoke(self.process, Function::Poll, asked.clone(), Some(scheduled_ns));
        let batch = client.poll(
            Duration::from_millis(plan.max_poll_wait_ms.into()),
            plan.max_poll_records as usize,
        );
        let Batch { records, rebalances, fault, .. } = batch;
        let mut event = match &fault {
            None => {
                let read = Value::Ops(vec![MicroOp::Polled(records.clone())]);
                self.complete(Kind::Ok, Function::Poll, read)
            }
            Some(fault) => {
                let kind = match fault.aftermath {
                    Aftermath::GoesOn => Kind::Fail,
                    Aftermath::Lost => Kind::Info,
                };
                self.complete(kind, Function::Poll, asked).with_error(fault.error.clone())
            }
        };
        event.rebalance_log.clone_from(&rebalances);
        journal.record(event);
        match fault {
            None => self.after_records(&records, &rebalances),
            Some(fault) if fault.aftermath == Aftermath::Lost => {
                self.from_beginning = true;
                self.retire();
                self.rest();
            }
            Some(_) => {}
        }
    }

    fn after_records(&mut self, records: &BTreeMap<Key, Vec<Pair>>, rebalances: &[Rebalance]) {
        for (key, pairs) in records {
            if let (Some(index), Some((offset, _))) = (self.index(key), pairs.last()) {
                self.positions.insert(index, Offset::Offset(offset + 1));
                self.asking.remove(&index);
                self.uncommitted.insert(index, offset + 1);
            }
        }
        // What changed hands is no longer this member's to commit.
        for key in rebalances.iter().flat_map(|rebalance| &rebalance.keys) {
            if let Some(index) = self.index(key) {
                self.uncommitted.remove(&index);
            }
        }
        let plan = &self.setting.plan.consumer;
        let now_ns = self.setting.journal.now_ns();
        if plan.commits && !self.uncommitted.is_empty() && now_ns >= self.next_commit_ns {
            self.next_commit_ns = now_ns + plan.commit_every_ms * 1_000_000;
            self.commit();
        }
    }

    fn index(&self, key: &Key) -> Option<usize> {
        let (topic, partition) = key.split()?;
        self.setting.keys.index(topic, partition)
    }

    /// Commits what was read, unless the last commit is still on its way.
    fn commit(&mut self) {
        let Some(client) = self.client.as_ref().filter(|c| !c.is_committing()) else {
            return;
        };
        let uncommitted = std::mem::take(&mut self.uncommitted);
        let targets = uncommitted.into_iter().filter_map(|(index, offset)| {
            let target = self.setting.keys.get(index)?;
            Some((target.topic.as_str(), target.partition, offset))
        });
        if let Err(error) = client.commit(targets) {
            tracing::warn!(consumer = self.number, %error, "a commit could not be made");
        }
    }
}

/// Why an assign or a subscribe did not end ok.
struct Refused {
    kind: Kind,
    reason: KafkaError,
}

impl Refused {
    /// Before anything was changed.
    fn before(reason: KafkaError) -> Self {
        Self { kind: Kind::Fail, reason }
    }

    /// By the client itself, whose state is unknown now.
    fn midway(reason: KafkaError) -> Self {
        Self { kind: Kind::Info, reason }
    }
}

/// The list to assign for `keys`: each at the offset that `start` gives, or where the group
/// stands.
fn starts(
    client: &Reader,
    table: &KeyTable,
    keys: &[usize],
    start: impl Fn(usize) -> Option<Offset>,
) -> KafkaResult<TopicPartitionList> {
    let mut known = TopicPartitionList::new();
    let mut unknown = TopicPartitionList::new();
    for key in keys {
        let Some(target) = table.get(*key) else {
            continue;
        };
        match start(*key) {
            Some(offset) => known.add_partition_offset(&target.topic, target.partition, offset)?,
            None => {
                unknown.add_partition(&target.topic, target.partition);
            }
        }
    }
    if unknown.count() > 0 {
        start_where_committed(client.consumer(), &mut unknown, Offset::Beginning)?;
        for element in unknown.elements() {
            known.add_partition_offset(element.topic(), element.partition(), element.offset())?;
        }
    }
    Ok(known)
}
