//! As many acknowledged records as go in a given time.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;
use rdkafka::message::DeliveryResult;
use rdkafka::producer::ProducerContext;

use super::polled::Polled;
use super::quantiles::{Latencies, Quantiles, micros};
use super::window::Window;
use super::{BenchError, BenchTopic, driven, given_up, payload, refused_settings, settings};
use crate::logs;
use crate::outcome;
use crate::stop::Stop;

/// How long the last sends may take to be answered.
const DRAIN_LIMIT: Duration = Duration::from_secs(20);

/// How a producer at full speed is driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// Payload of each record, bytes.
    pub record_bytes: usize,
    /// Sent before anything is measured.
    pub warm_up: Duration,
    /// Measured.
    pub duration: Duration,
    /// Of the payloads.
    pub seed: u64,
}

/// What a producer at full speed achieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Produced {
    /// Records acknowledged within the measured time.
    pub acked_records: u64,
    /// Their payloads, bytes.
    pub acked_bytes: u64,
    /// The measured time.
    pub measured: Duration,
    /// From send to acknowledgement, of records sent within the measured time. The client's own
    /// queue is part of it.
    pub ack: Quantiles,
    /// All that were acknowledged, those of the warm-up and of the end included: what a reader
    /// must find.
    pub acked_records_in_all: u64,
}

/// Writes to all partitions of `topic` in turn, idempotent, acks=all, with as much in flight as
/// librdkafka can use.
///
/// # Errors
/// [`BenchError::Cluster`] where a record was refused, none was acknowledged, or some were without
/// an answer 20 s after the last send.
pub async fn produce(topic: BenchTopic, how: Full) -> Result<Produced, BenchError> {
    driven("bench-produce", move |stop| run(&topic, how, stop)).await
}

fn run(topic: &BenchTopic, how: Full, stop: &Stop) -> Result<Produced, BenchError> {
    let began = Instant::now();
    let (from, until) = (began + how.warm_up, began + how.warm_up + how.duration);
    let reports = Reports {
        began,
        measured_us: (micros(how.warm_up), micros(how.warm_up + how.duration)),
        window: Window::of_this_thread(settings::open_records(how.record_bytes)),
        tally: Mutex::default(),
    };
    let producer = Polled::start(&settings::full_speed(&topic.bootstrap), reports)
        .map_err(refused_settings("producer"))?;
    let Some(reports) = producer.context() else {
        return Err(given_up());
    };
    let refused = send_all(topic, how, until, &producer, reports, stop);
    let drained_by = Instant::now() + DRAIN_LIMIT;
    let open = reports.window.drain(drained_by, || stop.is_stopped() || reports.has_failed());
    if stop.is_stopped() {
        return Err(given_up());
    }
    let tally = reports.tally.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = refused.or_else(|| tally.first_error.clone()) {
        return Err(BenchError::Cluster(format!(
            "a send failed: {error} ({} records had been acknowledged)",
            tally.acked_in_all
        )));
    }
    if open > 0 {
        return Err(BenchError::Cluster(format!(
            "{open} sends had no answer {} s after the last one; {} were acknowledged",
            DRAIN_LIMIT.as_secs(),
            tally.acked_in_all
        )));
    }
    let Some(ack) = tally.latencies.quantiles().filter(|_| tally.acked > 0) else {
        return Err(BenchError::Cluster(format!(
            "no send was acknowledged within the measured {} ms",
            (until - from).as_millis()
        )));
    };
    Ok(Produced {
        acked_records: tally.acked,
        acked_bytes: tally.acked * how.record_bytes as u64,
        measured: how.duration,
        ack,
        acked_records_in_all: tally.acked_in_all,
    })
}

/// Sends until the time is over; why it ended before, if it did.
fn send_all(
    topic: &BenchTopic,
    how: Full,
    until: Instant,
    producer: &Polled<Reports>,
    reports: &Reports,
    stop: &Stop,
) -> Option<String> {
    let payload = payload::filler(how.seed, how.record_bytes);
    let over = || stop.is_stopped() || reports.has_failed();
    for partition in (0..topic.partitions).cycle() {
        let now = Instant::now();
        if now >= until || !reports.window.enter(until, over) {
            return None;
        }
        let sent_us = usize::try_from(micros(now - reports.began)).unwrap_or(usize::MAX);
        if let Err(error) = producer.send(&topic.name, partition, &payload, sent_us) {
            reports.window.leave();
            return Some(outcome::error_text(&error));
        }
    }
    None
}

/// What librdkafka calls back.
struct Reports {
    began: Instant,
    /// From and until when is measured, since `began`.
    measured_us: (u64, u64),
    window: Window,
    tally: Mutex<Tally>,
}

#[derive(Default)]
struct Tally {
    acked: u64,
    acked_in_all: u64,
    latencies: Latencies,
    first_error: Option<String>,
}

impl Tally {
    /// Adds an acknowledgement; all in microseconds since the beginning.
    fn acknowledged(&mut self, sent_us: u64, now_us: u64, (from_us, until_us): (u64, u64)) {
        self.acked_in_all += 1;
        if (from_us..until_us).contains(&now_us) {
            self.acked += 1;
        }
        if (from_us..until_us).contains(&sent_us) {
            self.latencies.add(now_us.saturating_sub(sent_us));
        }
    }
}

impl Reports {
    fn has_failed(&self) -> bool {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner).first_error.is_some()
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

    fn delivery(&self, result: &DeliveryResult<'_>, sent_us: usize) {
        {
            let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
            match result {
                Ok(_) => {
                    let now_us = micros(self.began.elapsed());
                    tally.acknowledged(sent_us as u64, now_us, self.measured_us);
                }
                Err((error, _)) => {
                    tally.first_error.get_or_insert_with(|| outcome::error_text(error));
                }
            }
        }
        self.window.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_begins_after_the_warm_up_and_ends_with_the_time() {
        let mut tally = Tally::default();
        let measured_us = (100, 200);
        // Sent and acknowledged in the warm-up; sent in it, acknowledged after it.
        tally.acknowledged(10, 99, measured_us);
        tally.acknowledged(90, 100, measured_us);
        // Wholly inside; sent inside, acknowledged after the end.
        tally.acknowledged(100, 150, measured_us);
        tally.acknowledged(199, 299, measured_us);
        assert_eq!((tally.acked_in_all, tally.acked), (4, 2));
        let ack = tally.latencies.quantiles().unwrap();
        assert_eq!((ack.count, ack.p50_us, ack.max_us), (2, 50, 100));
    }
}
