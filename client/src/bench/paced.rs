//! A fixed rate: from the send to the acknowledgement, and from the send to the read.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
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

/// Longest wait of one poll.
const POLL: Duration = Duration::from_millis(50);
/// How long the reader may take to stand at the end of an empty topic, and the last records to be
/// acknowledged and read.
const PATIENCE: Duration = Duration::from_secs(20);
/// From the reader's word that it stands to the first send.
const HEAD_START: Duration = Duration::from_millis(50);

/// How a fixed rate is driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Records a second, evenly spaced, whether or not earlier ones are answered.
    pub rate_per_s: u32,
    /// Payload of each record, bytes; at least 8, for the time that it carries.
    pub record_bytes: usize,
    /// Sent before anything is measured.
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
    let timing = Timing::new(pace);
    let began = Instant::now();
    let reports = Reports { began, timing, state: Mutex::default() };
    let producer = Polled::start(&settings::paced(&topic.bootstrap), reports)
        .map_err(refused_settings("producer"))?;
    let (ready, standing) = mpsc::sync_channel(1);
    let reading = thread::Builder::new()
        .name("bench-latency-reader".to_owned())
        .spawn({
            let (topic, stop) = (topic.clone(), stop.clone());
            move || read_all(&topic, timing, began, &ready, &stop)
        })
        .map_err(|source| ClientError::Thread {
            thread: "bench-latency-reader".to_owned(),
            source,
        })?;
    let sent = match standing.recv_timeout(PATIENCE) {
        Ok(start_us) => send_all(topic, pace, timing, began, start_us, &producer, stop),
        // The reader has ended, or never got there: it says why.
        Err(_) => Ok(()),
    };
    if sent.is_err() {
        stop.stop();
    }
    let read = reading
        .join()
        .map_err(|_| ClientError::Panicked { thread: "bench-latency-reader".to_owned() })?;
    sent?;
    let Some(reports) = producer.context() else {
        return Err(given_up());
    };
    // What was refused was not read either: the refusal is the better reason.
    reports.refused()?;
    let end_to_end = read?;
    let ack = reports.wait_for_all(stop)?;
    Ok(Paced { ack, end_to_end })
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

fn send_all(
    topic: &BenchTopic,
    pace: Pace,
    timing: Timing,
    began: Instant,
    start_us: u64,
    producer: &Polled<Reports>,
    stop: &Stop,
) -> Result<(), BenchError> {
    let Some(reports) = producer.context() else {
        return Err(given_up());
    };
    reports.state().start_us = start_us;
    let mut filler = payload::filler(pace.seed, pace.record_bytes.max(payload::shortest_stamped()));
    for (number, partition) in (0..timing.in_all).zip((0..topic.partitions).cycle()) {
        let due_us = start_us + timing.due_us(number);
        let early =
            (began + Duration::from_micros(due_us)).saturating_duration_since(Instant::now());
        if !early.is_zero() {
            thread::sleep(early);
        }
        if stop.is_stopped() {
            return Err(given_up());
        }
        payload::stamp(&mut filler, due_us);
        let opaque = usize::try_from(due_us).unwrap_or(usize::MAX);
        producer.send(&topic.name, partition, &filler, opaque).map_err(|error| {
            BenchError::Cluster(format!("a send failed: {}", outcome::error_text(&error)))
        })?;
    }
    Ok(())
}

/// Reads until every record is there; says when the first is due once it stands at the end of the
/// empty topic.
fn read_all(
    topic: &BenchTopic,
    timing: Timing,
    began: Instant,
    ready: &mpsc::SyncSender<u64>,
    stop: &Stop,
) -> Result<Quantiles, BenchError> {
    let consumer = read_back::start(topic)?;
    let result = stand_at_end(topic, &consumer, stop).and_then(|()| {
        let start = began.elapsed() + HEAD_START;
        let start_us = micros(start);
        // Whoever listened has given up; then so does this, by `stop`.
        let _unheard = ready.send(start_us);
        receive(&consumer, timing, began, start_us, stop)
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

fn receive(
    consumer: &Reader,
    timing: Timing,
    began: Instant,
    start_us: u64,
    stop: &Stop,
) -> Result<Quantiles, BenchError> {
    let measured_from_us = start_us + timing.due_us(timing.warm_up);
    let until = began + Duration::from_micros(start_us + timing.due_us(timing.in_all)) + PATIENCE;
    let mut latencies = Latencies::default();
    let mut received = 0;
    while received < timing.in_all {
        match consumer.poll(POLL) {
            Some(Ok(message)) => {
                let now_us = micros(began.elapsed());
                let due_us = message.payload().and_then(payload::stamped).ok_or_else(|| {
                    BenchError::Cluster("a record came back without its payload".to_owned())
                })?;
                if due_us >= measured_from_us {
                    latencies.add(now_us.saturating_sub(due_us));
                }
                received += 1;
            }
            Some(Err(KafkaError::PartitionEOF(_))) | None => {}
            Some(Err(error)) => drop(tolerated(&error)?),
        }
        if stop.is_stopped() {
            return Err(given_up());
        }
        if Instant::now() >= until {
            return Err(BenchError::Cluster(format!(
                "{received} of {} records were read {} s after the last one was due",
                timing.in_all,
                PATIENCE.as_secs()
            )));
        }
    }
    latencies.quantiles().ok_or_else(given_up)
}

/// What librdkafka calls back.
struct Reports {
    began: Instant,
    timing: Timing,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    start_us: u64,
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

    /// Waits for the reports of what was read already: they are on their way.
    fn wait_for_all(&self, stop: &Stop) -> Result<Quantiles, BenchError> {
        let until = Instant::now() + PATIENCE;
        loop {
            self.refused()?;
            let acked = {
                let state = self.state();
                if state.acked >= self.timing.in_all {
                    return state.latencies.quantiles().ok_or_else(given_up);
                }
                state.acked
            };
            if Instant::now() >= until {
                return Err(BenchError::Cluster(format!(
                    "{acked} of {} sends were acknowledged, though all were read",
                    self.timing.in_all
                )));
            }
            if stop.wait(Duration::from_millis(10)) {
                return Err(given_up());
            }
        }
    }
}

impl ClientContext for Reports {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        logs::line(level, facility, text);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        logs::error(&error, reason);
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, due_us: usize) {
        let (now_us, due_us) = (micros(self.began.elapsed()), due_us as u64);
        let mut state = self.state();
        match result {
            Ok(_) => {
                if due_us >= state.start_us + self.timing.due_us(self.timing.warm_up) {
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
}
