//! The last writes of a run: one value to each key that is known to be there.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use history::Key;
use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use workloads::{Acks, ProducerPlan};

use crate::config;
use crate::consumer::Setting;
use crate::producer::{Completion, EndedSend, Producer, Queued};
use crate::queue::{ClientError, QueueClients, on_thread};
use crate::stop::Stop;
use crate::values::NextValues;

/// How long one attempt may take before a fresh value is tried.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(5);
/// How long to wait before a key whose attempt ended at once is tried again.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// The acknowledged last write of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClosingWrite {
    /// Its value: greater than every one before.
    pub value: i64,
    /// Where it landed, unless a retry hid that.
    pub offset: Option<i64>,
}

/// The closing write of each key, or why there is none.
pub type ClosingWrites = BTreeMap<Key, Result<ClosingWrite, String>>;

/// One key on its way to a closing write.
struct Pending {
    in_flight: bool,
    not_before: Instant,
    last_error: String,
}

impl QueueClients {
    /// Writes one closing value to each of `keys`, with acks=all whatever the plan says. An
    /// attempt that is not acknowledged is followed by one with a fresh value, until
    /// `limit` is over or `stop` is requested.
    ///
    /// # Errors
    /// librdkafka refuses the settings, or a thread cannot be started or panicked. A cluster
    /// that does not answer is a result, not an error.
    pub async fn closing_writes(
        &self,
        keys: &[Key],
        limit: Duration,
        stop: &Stop,
    ) -> Result<ClosingWrites, ClientError> {
        let setting = self.setting.clone();
        let values = Arc::clone(&self.values);
        let (keys, stop) = (keys.to_vec(), stop.clone());
        on_thread("closing-writes", move || write(&setting, &values, &keys, limit, &stop))?
            .joined()
            .await?
            .map_err(|reason| ClientError::Settings { client: "producer", reason })
    }
}

/// The plan's producer, made safe.
fn safe(plan: &ProducerPlan) -> ProducerPlan {
    const PINNED: &[&str] = &[
        "acks",
        "request.required.acks",
        "enable.idempotence",
        "enable.gapless.guarantee",
        "message.timeout.ms",
        "delivery.timeout.ms",
        "message.send.max.retries",
        "retries",
        "max.in.flight",
        "max.in.flight.requests.per.connection",
        "linger.ms",
        "queue.buffering.max.ms",
    ];
    let mut extra = plan.extra.clone();
    extra.retain(|key, _| !PINNED.contains(&key.as_str()));
    ProducerPlan {
        acks: Acks::All,
        idempotence: None,
        retries: None,
        max_in_flight: 1,
        linger_ms: 0,
        extra,
        ..plan.clone()
    }
}

/// The producer of closing writes, and what it has still to do.
struct Closer<'a> {
    setting: &'a Setting,
    values: &'a NextValues,
    config: ClientConfig,
    report: mpsc::Sender<EndedSend>,
    pending: BTreeMap<usize, Pending>,
    results: ClosingWrites,
}

fn write(
    setting: &Setting,
    values: &NextValues,
    keys: &[Key],
    limit: Duration,
    stop: &Stop,
) -> Result<ClosingWrites, KafkaError> {
    let until = Instant::now() + limit;
    let plan = safe(&setting.plan.producer);
    let (report, reports) = mpsc::channel();
    let mut closer = Closer {
        setting,
        values,
        config: config::producer(&plan, &setting.bootstrap, "highwater-closing"),
        report,
        pending: BTreeMap::new(),
        results: ClosingWrites::new(),
    };
    closer.take_on(keys);
    let mut producer = closer.start()?;
    while !closer.pending.is_empty() && Instant::now() < until && !stop.is_stopped() {
        if closer.attempt(&producer) == Queued::Broken || producer.is_overdue(ATTEMPT_LIMIT) {
            // The old one ends what it has open, as info, when it is dropped.
            producer = closer.start()?;
        }
        if let Ok(ended) = reports.recv_timeout(Duration::from_millis(20)) {
            closer.settle(&ended);
        }
        for ended in reports.try_iter() {
            closer.settle(&ended);
        }
    }
    // Gives up what is open: its reports come during the drop.
    drop(producer);
    for ended in reports.try_iter() {
        closer.settle(&ended);
    }
    Ok(closer.finish())
}

impl Closer<'_> {
    fn take_on(&mut self, keys: &[Key]) {
        for key in keys {
            if let Some(index) = self.setting.keys.index_of(key) {
                let pending = Pending {
                    in_flight: false,
                    not_before: Instant::now(),
                    last_error: "not-attempted".to_owned(),
                };
                self.pending.insert(index, pending);
            } else {
                let error = format!("unknown-key: `{key}` is not a key of this run");
                self.results.insert(key.clone(), Err(error));
            }
        }
    }

    fn start(&self) -> Result<Producer, KafkaError> {
        let completion = Completion::alone(self.setting, self.report.clone());
        Producer::start(&self.config, completion)
    }

    /// Sends a fresh value to each key that waits for one.
    fn attempt(&mut self, producer: &Producer) -> Queued {
        let now = Instant::now();
        for (index, key) in &mut self.pending {
            if key.in_flight || now < key.not_before {
                continue;
            }
            key.in_flight = true;
            // A refusal is reported like every other end.
            let queued = producer.send(*index, self.values.fresh(*index), None);
            if queued == Queued::Broken {
                return Queued::Broken;
            }
        }
        Queued::Yes
    }

    fn settle(&mut self, ended: &EndedSend) {
        let index = ended.send.key;
        match &ended.result {
            Ok(offset) => {
                if self.pending.remove(&index).is_some()
                    && let Some(target) = self.setting.keys.get(index)
                {
                    let write = ClosingWrite { value: ended.send.value, offset: *offset };
                    self.results.insert(target.key.clone(), Ok(write));
                }
            }
            Err(error) => {
                if let Some(key) = self.pending.get_mut(&index) {
                    key.in_flight = false;
                    key.not_before = Instant::now() + RETRY_AFTER;
                    key.last_error.clone_from(error);
                }
            }
        }
    }

    fn finish(mut self) -> ClosingWrites {
        for (index, key) in self.pending {
            if let Some(target) = self.setting.keys.get(index) {
                self.results.insert(target.key.clone(), Err(key.last_error));
            }
        }
        self.results
    }
}
