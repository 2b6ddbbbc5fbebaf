//! The last reads of a run: every key, from its beginning to its end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use history::{Draft, Function, Key, Kind, MicroOp, Process, Value};
use rdkafka::consumer::Consumer as _;
use rdkafka::error::KafkaResult;
use rdkafka::{Offset, TopicPartitionList};
use workloads::ConsumerPlan;

use crate::closing::ClosingWrites;
use crate::config;
use crate::consumer::Setting;
use crate::group::GroupContext;
use crate::outcome::{Aftermath, error_text};
use crate::queue::{ClientError, QueueClients, on_thread};
use crate::reader::{Batch, Reader};
use crate::stop::Stop;

/// Most topics read at the same time.
const PARALLEL: usize = 4;
/// Most records of one poll.
const POLL_RECORDS: usize = 5_000;
/// How long a poll waits for its first record.
const POLL_WAIT: Duration = Duration::from_millis(200);
/// How long to wait before a fresh client follows one that was lost.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Keys that were not read to their end, and why.
pub type UnreadKeys = BTreeMap<Key, String>;

/// One key being read.
#[derive(Debug)]
struct Progress {
    /// The closing value that must be seen, where there is one.
    closing: Option<i64>,
    closing_seen: bool,
    at_end: bool,
    /// It holds something that cannot be read past.
    unreadable: bool,
}

impl Progress {
    /// Nothing more to do: the closing value was seen and nothing follows for now, or it cannot
    /// be read.
    const fn is_over(&self) -> bool {
        self.unreadable || (self.at_end && (self.closing.is_none() || self.closing_seen))
    }
}

impl QueueClients {
    /// Reads each of `keys` from its beginning until its closing value has been seen and the
    /// end of the partition reached; where `closing` has none, to the end of the partition.
    /// Stops at `limit` or `stop`. Returns the keys that were not read to their end; one without
    /// a closing value is always among them, because nobody can say where its end should be.
    ///
    /// # Errors
    /// librdkafka refuses the settings, or a thread cannot be started or panicked. A cluster
    /// that does not answer is a result, not an error.
    pub async fn final_reads(
        &self,
        keys: &[Key],
        closing: &ClosingWrites,
        limit: Duration,
        stop: &Stop,
    ) -> Result<UnreadKeys, ClientError> {
        let mut unread = UnreadKeys::new();
        let mut topics: BTreeMap<String, BTreeMap<i32, Progress>> = BTreeMap::new();
        for key in keys {
            let Some((topic, partition)) = key.split() else {
                unread.insert(key.clone(), "it is not of the form topic-partition".to_owned());
                continue;
            };
            let closing = closing.get(key).and_then(|result| result.as_ref().ok());
            topics.entry(topic.to_owned()).or_default().insert(
                partition,
                Progress {
                    closing: closing.map(|write| write.value),
                    closing_seen: false,
                    at_end: false,
                    unreadable: false,
                },
            );
        }
        // One client a topic, since the end of a partition comes without the topic's name.
        let until = Instant::now() + limit;
        let mut shares: Vec<Vec<(String, BTreeMap<i32, Progress>)>> = Vec::new();
        shares.resize_with(PARALLEL.min(topics.len()), Vec::new);
        let parallel = shares.len();
        for (place, topic) in topics.into_iter().enumerate() {
            shares[place % parallel].push(topic);
        }
        let mut readers = Vec::new();
        for (number, share) in shares.into_iter().enumerate() {
            let (setting, stop) = (self.setting.clone(), stop.clone());
            readers.push(on_thread(&format!("final-reads-{number}"), move || {
                let mut unread = UnreadKeys::new();
                for (topic, keys) in share {
                    let reader = TopicReader::new(&setting, topic, keys);
                    unread.extend(reader.read(until, &stop));
                }
                unread
            })?);
        }
        for reader in readers {
            unread.extend(reader.joined().await?);
        }
        Ok(unread)
    }
}

/// Reads one topic to its end.
struct TopicReader<'a> {
    setting: &'a Setting,
    topic: String,
    keys: BTreeMap<i32, Progress>,
    process: u64,
    client: Option<Reader>,
    incarnation: u32,
    last_error: Option<String>,
}

impl<'a> TopicReader<'a> {
    fn new(setting: &'a Setting, topic: String, keys: BTreeMap<i32, Progress>) -> Self {
        Self {
            setting,
            topic,
            keys,
            process: setting.journal.fresh_process(),
            client: None,
            incarnation: 0,
            last_error: None,
        }
    }

    fn read(mut self, until: Instant, stop: &Stop) -> UnreadKeys {
        while !self.keys.values().all(Progress::is_over)
            && Instant::now() < until
            && !stop.is_stopped()
        {
            if (self.client.is_some() || self.assign()) && self.poll(until) {
                continue;
            }
            self.retire();
            if stop.wait(RETRY_AFTER.min(until.saturating_duration_since(Instant::now()))) {
                break;
            }
        }
        self.retire();
        let reason = self.last_error.unwrap_or_else(|| "time was over".to_owned());
        let mut unread = UnreadKeys::new();
        for (partition, progress) in &self.keys {
            let why = match progress.closing {
                _ if progress.unreadable => "it holds a record that is no integer".to_owned(),
                None => "it has no acknowledged closing write".to_owned(),
                Some(value) if !progress.closing_seen => {
                    format!("its closing value {value} was not seen: {reason}")
                }
                Some(_) if !progress.at_end => format!("its end was not reached: {reason}"),
                Some(_) => continue,
            };
            unread.insert(self.setting.keys.key(&self.topic, *partition), why);
        }
        unread
    }

    fn event(&self, kind: Kind, function: Function, value: Value) -> Draft {
        Draft::new(Process::Client(self.process), kind, function, value)
    }

    /// Drops the client; a fresh process follows.
    fn retire(&mut self) {
        if let Some(client) = self.client.take() {
            self.setting.graveyard.bury(client);
            self.incarnation += 1;
            self.process = self.setting.journal.fresh_process();
        }
    }

    /// Starts a client and assigns what is not read yet, from the beginning. False where that
    /// failed.
    fn assign(&mut self) -> bool {
        let partitions: BTreeSet<i32> = self
            .keys
            .iter_mut()
            .filter(|(_, progress)| !progress.is_over())
            .map(|(partition, progress)| {
                progress.at_end = false;
                progress.closing_seen = false;
                *partition
            })
            .collect();
        let names =
            partitions.iter().map(|p| self.setting.keys.key(&self.topic, *p).as_str().into());
        let value = Value::Names(names.collect());
        let mut invoke = self.event(Kind::Invoke, Function::Assign, value.clone());
        invoke.seek_to_beginning = true;
        self.setting.journal.record(invoke);
        let done = self.start(&partitions);
        let (kind, error) = match done {
            Ok(client) => {
                self.client = Some(client);
                (Kind::Ok, None)
            }
            Err(error) => (Kind::Fail, Some(error_text(&error))),
        };
        let mut event = self.event(kind, Function::Assign, value);
        event.seek_to_beginning = true;
        event.error.clone_from(&error);
        self.setting.journal.record(event);
        self.last_error = error.or_else(|| self.last_error.take());
        kind == Kind::Ok
    }

    fn start(&self, partitions: &BTreeSet<i32>) -> KafkaResult<Reader> {
        let plan = ConsumerPlan { fetch_min_bytes: 1, ..self.setting.plan.consumer.clone() };
        let (topic, incarnation) = (&self.topic, self.incarnation);
        let client_id = format!("highwater-final-{topic}-{incarnation}");
        let group = format!("{}-final", plan.group);
        let config = config::consumer(&plan, &self.setting.bootstrap, &client_id, &group, None);
        let (journal, keys) = (&self.setting.journal, &self.setting.keys);
        let context = GroupContext::new(&group, journal, keys, false, true);
        let client = Reader::start(&config, &self.setting.keys, context)?;
        let mut list = TopicPartitionList::new();
        for partition in partitions {
            list.add_partition_offset(topic, *partition, Offset::Beginning)?;
        }
        client.consumer().assign(&list)?;
        Ok(client)
    }

    /// One poll. False where the client must be replaced.
    fn poll(&mut self, until: Instant) -> bool {
        let Some(client) = &mut self.client else {
            return false;
        };
        let asked = Value::Ops(vec![MicroOp::Poll]);
        self.setting.journal.invoke(self.process, Function::Poll, asked.clone(), None);
        let wait = POLL_WAIT.min(until.saturating_duration_since(Instant::now()));
        let batch = client.poll(wait, POLL_RECORDS);
        self.note(&batch);
        let Batch { records, fault, .. } = batch;
        let event = match &fault {
            None => {
                let read = Value::Ops(vec![MicroOp::Polled(records)]);
                self.event(Kind::Ok, Function::Poll, read)
            }
            Some(fault) => {
                let kind = match fault.aftermath {
                    Aftermath::GoesOn => Kind::Fail,
                    Aftermath::Lost => Kind::Info,
                };
                self.event(kind, Function::Poll, asked).with_error(fault.error.clone())
            }
        };
        self.setting.journal.record(event);
        let Some(fault) = fault else {
            return true;
        };
        let unreadable = fault.unreadable.and_then(|p| self.keys.get_mut(&p));
        if let Some(progress) = unreadable {
            progress.unreadable = true;
        }
        self.last_error = Some(fault.error);
        fault.aftermath == Aftermath::GoesOn
    }

    fn note(&mut self, batch: &Batch) {
        for (key, pairs) in &batch.records {
            let progress = key.split().and_then(|(_, partition)| self.keys.get_mut(&partition));
            let Some(progress) = progress else {
                continue;
            };
            progress.at_end = false;
            if let Some(closing) = progress.closing {
                progress.closing_seen |= pairs.iter().any(|(_, value)| *value == closing);
            }
        }
        for partition in &batch.at_end {
            if let Some(progress) = self.keys.get_mut(partition) {
                progress.at_end = true;
            }
        }
    }
}
