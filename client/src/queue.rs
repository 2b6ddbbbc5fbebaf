//! The workload `queue`, from its first send to its last read.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use history::Record;
use rdkafka::error::KafkaError;
use thiserror::Error;
use tokio::sync::oneshot;
use workloads::{ConsumerSchedule, PlanError, QueuePlan, SendSchedule};

use crate::consumer::{Consumer, Setting};
use crate::graveyard::Graveyard;
use crate::journal::Journal;
use crate::keys::KeyTable;
use crate::live::LiveStats;
use crate::sender::Sender;
use crate::stop::Stop;
use crate::values::NextValues;

/// How long consumers may take to end the operation they are in: longer than an assign that
/// asks a coordinator for committed offsets.
const CONSUMER_END_LIMIT: Duration = Duration::from_secs(20);
/// How long dropped clients may take to say good-bye.
const GOOD_BYE_LIMIT: Duration = Duration::from_secs(5);

/// Why clients could not do their work at all. What the cluster does to them is not an error:
/// it is in the history.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The plan cannot be run; change it.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// librdkafka refuses the settings of the plan; change them.
    #[error("{client} clients cannot be started with these settings: {reason}")]
    Settings {
        /// `producer` or `consumer`.
        client: &'static str,
        /// What librdkafka says.
        reason: KafkaError,
    },
    /// The system has no thread left.
    #[error("cannot start the thread `{thread}`: {source}")]
    Thread {
        /// Its name.
        thread: String,
        /// Why not.
        source: io::Error,
    },
    /// A defect of this program: a thread panicked. The history is sound up to there.
    #[error("the thread `{thread}` has panicked")]
    Panicked {
        /// Its name.
        thread: String,
    },
}

/// What a run of the workload left behind, besides the history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueSummary {
    /// Sends without an answer when the time for answers was over; they ended `info`.
    pub given_up_sends: usize,
    /// Consumers that did not come back from their last operation; it stays open.
    pub lost_consumers: usize,
}

/// The clients of one run of the workload `queue`: first [`run`](Self::run), and once faults are
/// healed [`closing_writes`](Self::closing_writes) and [`final_reads`](Self::final_reads).
pub struct QueueClients {
    pub(crate) setting: Setting,
    pub(crate) values: Arc<NextValues>,
    live: Arc<LiveStats>,
}

impl QueueClients {
    /// Clients of `plan` for the cluster at `bootstrap` (`host:port,…`). Nothing connects yet.
    ///
    /// # Errors
    /// The plan is not valid.
    pub fn new(
        plan: QueuePlan,
        bootstrap: &str,
        recorder: Arc<dyn Record>,
    ) -> Result<Self, ClientError> {
        plan.validate()?;
        let keys = plan.keys();
        let live = Arc::new(LiveStats::new(&keys));
        Ok(Self {
            setting: Setting {
                plan: Arc::new(plan),
                bootstrap: bootstrap.into(),
                journal: Arc::new(Journal::new(recorder, Arc::clone(&live))),
                keys: Arc::new(KeyTable::new(&keys)),
                graveyard: Graveyard::default(),
            },
            values: Arc::new(NextValues::new(keys.len())),
            live,
        })
    }

    /// Counters, kept up to date by all phases.
    pub fn live(&self) -> &Arc<LiveStats> {
        &self.live
    }

    /// Sends and polls by the schedules of `seed`, until the plan's time limit or `stop`; then
    /// waits for the answers that are due, no longer than the delivery time-out and some
    /// seconds. Clients that cannot reach the cluster record that; they never fail the run.
    ///
    /// # Errors
    /// librdkafka refuses the settings, or a thread cannot be started or panicked.
    pub async fn run(&self, seed: u64, stop: &Stop) -> Result<QueueSummary, ClientError> {
        let setting = self.setting.clone();
        let values = Arc::clone(&self.values);
        let (sender, consumers) =
            on_thread("queue-start", move || start_clients(&setting, &values))?.joined().await??;
        let plan = &self.setting.plan;
        let start_ns = self.setting.journal.now_ns();
        let sending = on_thread("queue-sender", {
            let (schedule, stop) = (SendSchedule::new(plan, seed), stop.clone());
            move || sender.run(schedule, start_ns, &stop)
        })?;
        let mut consuming = Vec::new();
        for (number, consumer) in (0..).zip(consumers) {
            let (schedule, stop) = (ConsumerSchedule::new(plan, seed, number), stop.clone());
            consuming.push(on_thread(&format!("queue-consumer-{number}"), move || {
                consumer.run(schedule, start_ns, &stop);
            })?);
        }
        let given_up_sends = sending.joined().await?;
        let mut lost_consumers = 0;
        let until = tokio::time::Instant::now() + CONSUMER_END_LIMIT;
        for consumer in consuming {
            match tokio::time::timeout_at(until, consumer.joined()).await {
                Ok(ended) => ended?,
                Err(_) => lost_consumers += 1,
            }
        }
        let graveyard = self.setting.graveyard.clone();
        let undead =
            on_thread("queue-end", move || graveyard.wait(GOOD_BYE_LIMIT))?.joined().await?;
        if undead > 0 {
            tracing::info!(clients = undead, "some clients still wait for brokers to end");
        }
        Ok(QueueSummary { given_up_sends, lost_consumers })
    }
}

fn start_clients(
    setting: &Setting,
    values: &Arc<NextValues>,
) -> Result<(Sender, Vec<Consumer>), ClientError> {
    let sender = Sender::start(setting, values)
        .map_err(|reason| ClientError::Settings { client: "producer", reason })?;
    // Without polls a consumer has nothing to do.
    let consumers = if setting.plan.poll_rate_per_s() > 0.0 { setting.plan.consumers } else { 0 };
    let consumers = (0..consumers)
        .map(|number| Consumer::start(setting.clone(), number))
        .collect::<Result<_, _>>()
        .map_err(|reason| ClientError::Settings { client: "consumer", reason })?;
    Ok((sender, consumers))
}

/// A thread whose result can be awaited. Unlike tokio's blocking threads it cannot hold up the
/// end of the program, should librdkafka never return.
pub(crate) struct Joining<T> {
    name: String,
    result: oneshot::Receiver<T>,
}

/// Runs `work` on a thread of its own.
pub(crate) fn on_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<Joining<T>, ClientError> {
    let (send, result) = oneshot::channel();
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            // Nobody awaits the result any more: fine.
            let _unheard = send.send(work());
        })
        .map_err(|source| ClientError::Thread { thread: name.to_owned(), source })?;
    Ok(Joining { name: name.to_owned(), result })
}

impl<T> Joining<T> {
    /// Waits for the result.
    pub(crate) async fn joined(self) -> Result<T, ClientError> {
        self.result.await.map_err(|_| ClientError::Panicked { thread: self.name })
    }
}
