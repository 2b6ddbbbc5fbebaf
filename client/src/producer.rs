//! One producer client: sends that are recorded, and delivery reports that complete them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use history::{Draft, Function, Kind, MicroOp, Process, Value};
use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};

use crate::config::is_acknowledged;
use crate::consumer::Setting;
use crate::journal::{Journal, ProcessPool, send_value};
use crate::keys::KeyTable;
use crate::logs;
use crate::outcome::{self, Outcome};
use crate::room::Room;

/// A send that has been invoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenSend {
    pub(crate) process: u64,
    /// Index into the key table.
    pub(crate) key: usize,
    pub(crate) value: i64,
    /// When it was invoked.
    pub(crate) since_ns: u64,
}

/// How a send ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EndedSend {
    pub(crate) send: OpenSend,
    /// The offset of an acknowledged one, or why it is not.
    pub(crate) result: Result<Option<i64>, String>,
}

/// What completes sends: everything a delivery report needs.
pub(crate) struct Completion {
    journal: Arc<Journal>,
    keys: Arc<KeyTable>,
    pool: Arc<ProcessPool>,
    room: Arc<Room>,
    /// Who else wants to know.
    report: Option<mpsc::Sender<EndedSend>>,
    /// Do brokers answer sends at all?
    acknowledged: bool,
    /// The sends of this client that are open: since when, and of which process.
    open: Mutex<BTreeSet<(u64, u64)>>,
    /// The client is given up because of a send that has been open for too long.
    timed_out: AtomicBool,
}

impl Completion {
    pub(crate) fn new(
        journal: &Arc<Journal>,
        keys: &Arc<KeyTable>,
        pool: &Arc<ProcessPool>,
        room: &Arc<Room>,
        report: Option<mpsc::Sender<EndedSend>>,
    ) -> Self {
        Self {
            journal: Arc::clone(journal),
            keys: Arc::clone(keys),
            pool: Arc::clone(pool),
            room: Arc::clone(room),
            report,
            acknowledged: true,
            open: Mutex::default(),
            timed_out: AtomicBool::new(false),
        }
    }

    /// For a client with processes of its own and room for any number of sends.
    pub(crate) fn alone(setting: &Setting, report: mpsc::Sender<EndedSend>) -> Self {
        let journal = &setting.journal;
        let pool = Arc::new(ProcessPool::new(Arc::clone(journal)));
        let room = Arc::new(Room::new(usize::MAX));
        Self::new(journal, &setting.keys, &pool, &room, Some(report))
    }

    fn open(&self) -> MutexGuard<'_, BTreeSet<(u64, u64)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, send: OpenSend, kind: Kind, value: Value, error: Option<String>) {
        let mut event = Draft::new(Process::Client(send.process), kind, Function::Send, value);
        event.error = error;
        self.open().remove(&(send.since_ns, send.process));
        self.journal.record(event);
        if kind != Kind::Info {
            self.pool.give_back(send.process);
        }
        self.room.leave();
    }

    fn report(&self, send: OpenSend, result: Result<Option<i64>, String>) {
        if let Some(report) = &self.report {
            // Nobody listens any more: the phase is over, and the event is recorded.
            let _unheard = report.send(EndedSend { send, result });
        }
    }

    fn acknowledged(&self, send: OpenSend, offset: i64) {
        let Some(target) = self.keys.get(send.key) else {
            return;
        };
        if !self.acknowledged {
            let error = "not-acknowledged".to_owned();
            let value = send_value(&target.key, send.value);
            self.record(send, Kind::Info, value, Some(error.clone()));
            return self.report(send, Err(error));
        }
        // Negative where the broker knew a retry by its sequence number, not by its offset.
        let offset = Some(offset).filter(|offset| *offset >= 0);
        let value =
            Value::Ops(vec![MicroOp::Sent { key: target.key.clone(), offset, value: send.value }]);
        self.record(send, Kind::Ok, value, None);
        self.report(send, Ok(offset));
    }

    fn failed(&self, send: OpenSend, mut outcome: Outcome) {
        if self.timed_out.load(Ordering::Acquire) && outcome.error.starts_with("purge-") {
            outcome.error = format!("message-timed-out: {}", outcome.error);
        }
        let Some(target) = self.keys.get(send.key) else {
            return;
        };
        let value = send_value(&target.key, send.value);
        self.record(send, outcome.kind, value, Some(outcome.error.clone()));
        self.report(send, Err(outcome.error));
    }
}

/// librdkafka calls this.
pub(crate) struct DeliveryContext(Completion);

logs::forwards_logs!(DeliveryContext);

impl ProducerContext for DeliveryContext {
    type DeliveryOpaque = Box<OpenSend>;

    fn delivery(&self, result: &DeliveryResult<'_>, send: Box<OpenSend>) {
        match result {
            Ok(message) => self.0.acknowledged(*send, message.offset()),
            Err((error, _)) => self.0.failed(*send, outcome::of_delivery(error)),
        }
    }
}

/// What became of an attempt to queue a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queued {
    /// Its delivery report will come.
    Yes,
    /// It has been recorded as failed.
    Refused,
    /// The same, and so will be every later one: the client must be replaced.
    Broken,
}

/// A producer client and the thread that serves its delivery reports.
pub(crate) struct Producer {
    client: Arc<BaseProducer<DeliveryContext>>,
    over: Arc<AtomicBool>,
    poller: Option<JoinHandle<()>>,
}

impl Producer {
    /// Starts a client. It need not reach a broker for that.
    ///
    /// # Errors
    /// The settings contradict each other, or the system has no threads or descriptors left.
    pub(crate) fn start(
        config: &ClientConfig,
        mut completion: Completion,
    ) -> Result<Self, KafkaError> {
        completion.acknowledged = is_acknowledged(config);
        let client: BaseProducer<DeliveryContext> =
            config.create_with_context(DeliveryContext(completion))?;
        let client = Arc::new(client);
        let over = Arc::new(AtomicBool::new(false));
        let poller = thread::Builder::new()
            .name("producer-reports".to_owned())
            .spawn({
                let (client, over) = (Arc::clone(&client), Arc::clone(&over));
                move || {
                    while !over.load(Ordering::Acquire) {
                        client.poll(Duration::from_millis(100));
                    }
                }
            })
            .map_err(|error| KafkaError::ClientCreation(error.to_string()))?;
        Ok(Self { client, over, poller: Some(poller) })
    }

    /// Records a send of `value` to key number `key`, and queues it. `room` must have been
    /// entered for it.
    pub(crate) fn send(&self, key: usize, value: i64, scheduled_ns: Option<u64>) -> Queued {
        let completion = &self.client.context().0;
        let Some(target) = completion.keys.get(key) else {
            completion.room.leave();
            return Queued::Refused;
        };
        let process = completion.pool.take();
        let since_ns = completion.journal.now_ns();
        completion.open().insert((since_ns, process));
        completion.journal.invoke(
            process,
            Function::Send,
            send_value(&target.key, value),
            scheduled_ns,
        );
        let send = OpenSend { process, key, value, since_ns };
        let payload = value.to_string();
        let record: BaseRecord<'_, (), String, Box<OpenSend>> =
            BaseRecord::with_opaque_to(&target.topic, Box::new(send))
                .partition(target.partition)
                .payload(&payload);
        let Err((error, _)) = self.client.send(record) else {
            return Queued::Yes;
        };
        completion.failed(send, outcome::of_enqueue(&error));
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::Fatal) {
            Queued::Broken
        } else {
            Queued::Refused
        }
    }
}

impl Producer {
    /// Has a send been open for longer than `limit`? Then the client is to be given up: what is
    /// open ends `info`, as timed out, when it is dropped.
    pub(crate) fn is_overdue(&self, limit: Duration) -> bool {
        let completion = &self.client.context().0;
        let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let oldest_ns = completion.open().first().map(|(since_ns, _)| *since_ns);
        let overdue = oldest_ns.is_some_and(|since_ns| {
            completion.journal.now_ns().saturating_sub(since_ns) > limit_ns
        });
        if overdue {
            completion.timed_out.store(true, Ordering::Release);
        }
        overdue
    }
}

impl Drop for Producer {
    /// Gives up what is outstanding: its reports come now, as `info`.
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(poller) = self.poller.take()
            && poller.join().is_err()
        {
            tracing::error!("the thread that serves delivery reports has panicked");
        }
    }
}
