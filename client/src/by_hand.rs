//! Sends and reads that somebody asks for one by one, beside the workload or instead of it.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use history::{EXEMPT, ExemptValue, Key};
use serde_json::json;
use workloads::{Acks, ProducerPlan};

use crate::closing::ClosingWrites;
use crate::config;
use crate::consumer::Setting;
use crate::producer::{Completion, EndedSend, OpenSend, Producer, Queued};
use crate::queue::{ClientError, QueueClients, on_thread};
use crate::stop::Stop;
use crate::values::NextValues;

/// The first value sent by hand: far above those that a workload's schedule sends to the same key.
const FIRST_VALUE: i64 = 1_000_000;

/// What became of some sends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Acknowledged.
    pub acknowledged: usize,
    /// Not acknowledged, and why.
    pub refused: Vec<String>,
    /// Without an answer when time was over; it may still come.
    pub unanswered: usize,
}

/// Sends by hand: one producer for each kind of acknowledgement, from its first send on, so that it
/// believes of the cluster what it was last told.
pub struct Hand {
    setting: Setting,
    values: Arc<NextValues>,
    producers: Vec<(Acks, HandProducer)>,
}

struct HandProducer {
    producer: Producer,
    reports: Receiver<EndedSend>,
}

impl QueueClients {
    /// For sends by hand. What they leave open ends `info` when it is dropped.
    pub fn by_hand(&self) -> Hand {
        Hand {
            setting: self.setting.clone(),
            values: Arc::clone(&self.values),
            producers: Vec::new(),
        }
    }

    /// Reads `key` from its beginning to where its log ends now.
    ///
    /// # Errors
    /// librdkafka refuses the settings, or a thread cannot be started or panicked.
    pub async fn read_once(
        &self,
        key: &Key,
        limit: Duration,
        stop: &Stop,
    ) -> Result<(), ClientError> {
        let keys = std::slice::from_ref(key);
        // Nobody knows where its end should be, so it is always told as unread.
        self.final_reads(keys, &ClosingWrites::new(), limit, stop).await.map(drop)
    }
}

impl Hand {
    /// Sends `count` fresh values to `key` and waits for their answers, no longer than `limit`.
    ///
    /// # Errors
    /// librdkafka refuses the settings, or a thread cannot be started or panicked. What the
    /// cluster answers is a result, not an error.
    pub async fn send(
        &mut self,
        key: &Key,
        count: usize,
        acks: Acks,
        limit: Duration,
    ) -> Result<Sent, ClientError> {
        let Some(index) = self.setting.keys.index_of(key) else {
            let refused = vec![format!("unknown-key: `{key}` is not a key of this run"); count];
            return Ok(Sent { refused, ..Sent::default() });
        };
        let known = self.producers.iter().position(|(its, _)| *its == acks);
        let mut producer = match known {
            Some(place) => self.producers.swap_remove(place).1,
            None => self.start(acks)?,
        };
        self.values.used(index, FIRST_VALUE - 1);
        let values: Vec<i64> = (0..count).map(|_| self.values.fresh(index)).collect();
        if acks != Acks::All
            && let (Some(first), Some(last)) = (values.first(), values.last())
        {
            let value = ExemptValue { key: key.to_string(), first: *first, last: *last };
            self.setting.journal.observe(EXEMPT, json!(value));
        }
        let sending = on_thread("send-by-hand", move || {
            let sent = producer.send(index, &values, limit);
            (producer, sent)
        })?;
        let (producer, (sent, queued)) = sending.joined().await?;
        // A broken one would refuse everything from now on.
        if queued != Queued::Broken {
            self.producers.push((acks, producer));
        }
        Ok(sent)
    }

    fn start(&self, acks: Acks) -> Result<HandProducer, ClientError> {
        let plan = ProducerPlan { acks, ..self.setting.plan.producer.clone() };
        let config = config::producer(&plan, &self.setting.bootstrap, "highwater-by-hand");
        let (report, reports) = mpsc::channel();
        let completion = Completion::alone(&self.setting, report);
        let producer = Producer::start(&config, completion)
            .map_err(|reason| ClientError::Settings { client: "producer", reason })?;
        Ok(HandProducer { producer, reports })
    }
}

impl HandProducer {
    fn send(&mut self, key: usize, values: &[i64], limit: Duration) -> (Sent, Queued) {
        let until = Instant::now() + limit;
        let mut sent = Sent::default();
        let mut queued = Queued::Yes;
        for value in values {
            // A refusal is reported like every other end.
            queued = self.producer.send(key, *value, None);
            if queued == Queued::Broken {
                break;
            }
        }
        let is_ours = |send: &OpenSend| values.contains(&send.value);
        let mut open = values.len();
        while open > 0 {
            let left = until.saturating_duration_since(Instant::now());
            match self.reports.recv_timeout(left) {
                // One of an earlier send, that nobody waits for any more.
                Ok(ended) if !is_ours(&ended.send) => {}
                Ok(ended) => {
                    open -= 1;
                    match ended.result {
                        Ok(_) => sent.acknowledged += 1,
                        Err(error) => sent.refused.push(error),
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        sent.unanswered = open;
        (sent, queued)
    }
}
