//! A fixed rate: from the send to the acknowledgement, and from the send to the read.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rdkafka::error::KafkaError;
use rdkafka::message::{DeliveryResult, Message as _};
use rdkafka::producer::ProducerContext;

use super::polled::Polled;
use super::quantiles::{Latencies, Quantiles, micros};
use super::read_back::{self, Reader, tolerated};
use super::{
    BenchError, BenchTopic, driven, given_up, part_with, payload, refused_settings, settings,
};
use crate::logs;
use crate::outcome;
use crate::queue::ClientError;
use crate::stop::Stop;

/// The thread that reads.
const READER: &str = "bench-latency-reader";
/// Longest wait of one poll.
const POLL: Duration = Duration::from_millis(50);
/// How long the reader may take to stand at the end of an empty topic, and the last records to be
/// acknowledged and read.
const PATIENCE: Duration = Duration::from_secs(20);
/// From the last preparation to the first send.
const HEAD_START: Duration = Duration::from_millis(50);

/// How a fixed rate is driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Records a second, evenly spaced, whether or not earlier ones are answered.
    pub rate_per_s: u32,
    /// Payload of each record, bytes; at least 8, for the time that it carries.
    pub record_bytes: usize,
    /// Sent before anything is measured, once the clients are connected.
    pub warm_up: Duration,
    /// Measured.
    pub duration: Duration,
    /// Of the payloads.
    pub seed: u64,
}

/// Latencies at a fixed rate. Both count from the moment a record was due, so that a stalled
/// cluster cannot slow the asking and look better for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paced {
    /// Until it was acknowledged.
    pub ack: Quantiles,
    /// Until a consumer had it.
    pub end_to_end: Quantiles,
}

/// Sends to all partitions of `topic` in turn, idempotent, acks=all, without linger, while one
/// consumer reads. The topic must be empty.
///
/// # Errors
/// [`BenchError::Cluster`] where a record was refused, or not all were acknowledged and read 20 s
/// after the last was due.
pub async fn latency(topic: BenchTopic, pace: Pace) -> Result<Paced, BenchError> {
    driven("bench-latency", move |stop| run(&topic, pace, stop)).await
}

fn run(topic: &BenchTopic, pace: Pace, stop: &Stop) -> Result<Paced, BenchError> {
    let clock = Arc::new(Clock::new(pace));
    let reports = Reports { clock: Arc::clone(&clock), state: Mutex::default() };
    let producer = Polled::start(&settings::paced(&topic.bootstrap), reports)
        .map_err(refused_settings("producer"))?;
    let Some(reports) = producer.context() else {
        return Err(given_up());
    };
    let (ready, standing) = mpsc::sync_channel(1);
    let reading = thread::Builder::new()
        .name(READER.to_owned())
        .spawn({
            let (topic, clock, stop) = (topic.clone(), Arc::clone(&clock), stop.clone());
            move || read_all(&topic, &clock, &ready, &stop)
        })
        .map_err(|source| ClientError::Thread { thread: READER.to_owned(), source })?;
    let sent = match standing.recv_timeout(PATIENCE) {
        Ok(()) => send_all(topic, pace, &producer, reports, stop),
        // The reader has ended, or never got there: it says why.
        Err(_) => Ok(()),
    };
    if sent.is_err() {
        stop.stop();
    }
    let read = reading.join().map_err(|_| ClientError::Panicked { thread: READER.to_owned() })?;
    sent?;
    // What was refused was not read either: the refusal is the better reason.
    reports.refused()?;
    let end_to_end = read?;
    let ack = reports.wait_for(clock.timing.in_all, stop)?;
    Ok(Paced { ack, end_to_end })
}

/// The time that sender, reports and reader share, and when the first record is due in it.
struct Clock {
    began: Instant,
    timing: Timing,
    /// Microseconds since `began`; 0: not known yet.
    start_us: AtomicU64,
}

impl Clock {
    fn new(pace: Pace) -> Self {
        Self { began: Instant::now(), timing: Timing::new(pace), start_us: AtomicU64::new(0) }
    }

    fn now_us(&self) -> u64 {
        micros(self.began.elapsed())
    }

    /// Does a record that was due then count? Those that only connect the client are due at 0.
    fn is_measured(&self, due_us: u64) -> bool {
        let start_us = self.start_us.load(Ordering::Acquire);
        start_us > 0 && due_us >= start_us + self.timing.due_us(self.timing.warm_up)
    }

    /// When the last record is due; as long as the first one is not known, the end of the patience
    /// with the client that connects.
    fn last_due(&self) -> Instant {
        let us = match self.start_us.load(Ordering::Acquire) {
            0 => micros(2 * PATIENCE),
            start_us => start_us + self.timing.due_us(self.timing.in_all),
        };
        self.began + Duration::from_micros(us)
    }
}

/// How many records there are, and which of them count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Timing {
    interval_ns: u64,
    warm_up: u64,
    in_all: u64,
}

impl Timing {
    fn new(pace: Pace) -> Self {
        let interval_ns = 1_000_000_000 / u64::from(pace.rate_per_s.max(1));
        let within = |time: Duration| {
            u64::try_from(time.as_nanos()).unwrap_or(u64::MAX) / interval_ns.max(1)
        };
        let warm_up = within(pace.warm_up);
        Self { interval_ns, warm_up, in_all: warm_up + within(pace.duration).max(1) }
    }

    /// How long after the first record number `number` is due.
    fn due_us(self, number: u64) -> u64 {
        number.saturating_mul(self.interval_ns) / 1000
    }
}

/// Connects to every leader, then keeps the pace.
fn send_all(
    topic: &BenchTopic,
    pace: Pace,
    producer: &Polled<Reports>,
    reports: &Reports,
    stop: &Stop,
) -> Result<(), BenchError> {
    let clock = &*reports.clock;
    let mut payload =
        payload::filler(pace.seed, pace.record_bytes.max(payload::shortest_stamped()));
    let mut send = |partition: i32, due_us: u64| {
        payload::stamp(&mut payload, due_us);
        let opaque = usize::try_from(due_us).unwrap_or(usize::MAX);
        producer.send(&topic.name, partition, &payload, opaque).map_err(|error| {
            BenchError::Cluster(format!("a send failed: {}", outcome::error_text(&error)))
        })
    };
    for partition in 0..topic.partitions {
        send(partition, 0)?;
    }
    reports.wait_for_connections(topic.partitions.unsigned_abs().into(), stop)?;
    let start_us = micros(clock.began.elapsed() + HEAD_START);
    clock.start_us.store(start_us, Ordering::Release);
    for (number, partition) in (0..clock.timing.in_all).zip((0..topic.partitions).cycle()) {
        let due_us = start_us + clock.timing.due_us(number);
        let early = Duration::from_micros(due_us.saturating_sub(clock.now_us()));
        if !early.is_zero() {
            thread::sleep(early);
        }
        if stop.is_stopped() {
            return Err(given_up());
        }
        send(partition, due_us)?;
    }
    Ok(())
}

/// Stands at the end of the empty topic, says so, and reads until every record is there.
fn read_all(
    topic: &BenchTopic,
    clock: &Clock,
    ready: &mpsc::SyncSender<()>,
    stop: &Stop,
) -> Result<Quantiles, BenchError> {
    let consumer = read_back::start(topic, &settings::tail_reader(&topic.bootstrap))?;
    let result = stand_at_end(topic, &consumer, stop).and_then(|()| {
        // Whoever listened has given up; then so does this, by `stop`.
        let _unheard = ready.send(());
        receive(&consumer, clock, stop)
    });
    part_with(consumer);
    result
}

fn stand_at_end(topic: &BenchTopic, consumer: &Reader, stop: &Stop) -> Result<(), BenchError> {
    let until = Instant::now() + PATIENCE;
    let mut standing = BTreeSet::new();
    while standing.len() < usize::try_from(topic.partitions).unwrap_or(0) {
        match consumer.poll(POLL) {
            Some(Ok(_)) => {
                return Err(BenchError::Cluster(format!("topic {} is not empty", topic.name)));
            }
            Some(Err(KafkaError::PartitionEOF(partition))) => drop(standing.insert(partition)),
            Some(Err(error)) => drop(tolerated(&error)?),
            None => {}
        }
        if stop.is_stopped() {
            return Err(given_up());
        }
        if Instant::now() >= until {
            return Err(BenchError::Cluster(format!(
                "the consumer stood at the end of only {} of {} partitions after {} s",
                standing.len(),
                topic.partitions,
                PATIENCE.as_secs()
            )));
        }
    }
    Ok(())
}

fn receive(consumer: &Reader, clock: &Clock, stop: &Stop) -> Result<Quantiles, BenchError> {
    let mut latencies = Latencies::default();
    let mut received = 0;
    while received < clock.timing.in_all {
        match consumer.poll(POLL) {
            Some(Ok(message)) => {
                let now_us = clock.now_us();
                let due_us = message.payload().and_then(payload::stamped).ok_or_else(|| {
                    BenchError::Cluster("a record came back without its payload".to_owned())
                })?;
                if clock.is_measured(due_us) {
                    latencies.add(now_us.saturating_sub(due_us));
                }
                received += u64::from(due_us > 0);
            }
            Some(Err(KafkaError::PartitionEOF(_))) | None => {}
            Some(Err(error)) => drop(tolerated(&error)?),
        }
        if stop.is_stopped() {
            return Err(given_up());
        }
        if Instant::now() >= clock.last_due() + PATIENCE {
            return Err(BenchError::Cluster(format!(
                "{received} of {} records were read {} s after the last one was due",
                clock.timing.in_all,
                PATIENCE.as_secs()
            )));
        }
    }
    latencies.quantiles().ok_or_else(given_up)
}

/// What librdkafka calls back.
struct Reports {
    clock: Arc<Clock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Records that only connected the client.
    connected: u64,
    acked: u64,
    latencies: Latencies,
    first_error: Option<String>,
}

impl Reports {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first send that failed, as an error.
    fn refused(&self) -> Result<(), BenchError> {
        match &self.state().first_error {
            Some(error) => Err(BenchError::Cluster(format!("a send failed: {error}"))),
            None => Ok(()),
        }
    }

    fn wait_for_connections(&self, partitions: u64, stop: &Stop) -> Result<(), BenchError> {
        self.wait(stop, partitions, |state| state.connected)
    }

    /// Waits for the reports of what was read already: they are on their way.
    fn wait_for(&self, sends: u64, stop: &Stop) -> Result<Quantiles, BenchError> {
        self.wait(stop, sends, |state| state.acked)?;
        self.state().latencies.quantiles().ok_or_else(given_up)
    }

    fn wait(
        &self,
        stop: &Stop,
        wanted: u64,
        count: impl Fn(&State) -> u64,
    ) -> Result<(), BenchError> {
        let until = Instant::now() + PATIENCE;
        loop {
            self.refused()?;
            let acked = count(&self.state());
            if acked >= wanted {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(BenchError::Cluster(format!(
                    "{acked} of {wanted} sends were acknowledged after {} s",
                    PATIENCE.as_secs()
                )));
            }
            if stop.wait(Duration::from_millis(5)) {
                return Err(given_up());
            }
        }
    }
}

logs::forwards_logs!(Reports);

impl ProducerContext for Reports {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, due_us: usize) {
        let (now_us, due_us) = (self.clock.now_us(), due_us as u64);
        let mut state = self.state();
        match result {
            Ok(_) if due_us == 0 => state.connected += 1,
            Ok(_) => {
                if self.clock.is_measured(due_us) {
                    state.latencies.add(now_us.saturating_sub(due_us));
                }
                state.acked += 1;
            }
            Err((error, _)) => {
                state.first_error.get_or_insert_with(|| outcome::error_text(error));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_evenly_spaced_and_the_warm_up_comes_before_what_counts() {
        let pace = Pace {
            rate_per_s: 500,
            record_bytes: 1024,
            warm_up: Duration::from_secs(1),
            duration: Duration::from_secs(2),
            seed: 1,
        };
        let timing = Timing::new(pace);
        assert_eq!((timing.warm_up, timing.in_all), (500, 1500));
        assert_eq!([0, 1, 500].map(|number| timing.due_us(number)), [0, 2_000, 1_000_000]);
        let short = Timing::new(Pace { warm_up: Duration::ZERO, duration: Duration::ZERO, ..pace });
        assert_eq!((short.warm_up, short.in_all), (0, 1), "something is always measured");
    }

    #[test]
    fn records_of_the_warm_up_and_those_that_only_connect_do_not_count() {
        let second = Duration::from_secs(1);
        let clock = Clock::new(Pace {
            rate_per_s: 10,
            record_bytes: 8,
            warm_up: second,
            duration: second,
            seed: 1,
        });
        assert!(!clock.is_measured(u64::MAX), "nothing is due yet");
        clock.start_us.store(50_000, Ordering::Release);
        assert!(!clock.is_measured(0));
        assert!(!clock.is_measured(950_000), "the last of the warm-up");
        assert!(clock.is_measured(1_050_000));
        assert_eq!(clock.last_due(), clock.began + Duration::from_millis(2_050));
    }
}
