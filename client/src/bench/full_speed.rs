//! As many acknowledged records as go in a given time.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::message::DeliveryResult;
use rdkafka::producer::ProducerContext;

use super::polled::Polled;
use super::quantiles::{Latencies, Quantiles, micros};
use super::window::Window;
use super::{BenchError, BenchTopic, driven, given_up, payload, refused_settings, settings};
use crate::logs;
use crate::outcome;
use crate::stop::Stop;

/// How long the first sends, and the last, may take to be answered.
const DRAIN_LIMIT: Duration = Duration::from_secs(20);

/// How a producer at full speed is driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// Payload of each record, bytes.
    pub record_bytes: usize,
    /// Sent before anything is measured, once the client is connected.
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
/// an answer 20 s after the first or the last send.
pub async fn produce(topic: BenchTopic, how: Full) -> Result<Produced, BenchError> {
    driven("bench-produce", move |stop| run(&topic, how, stop)).await
}

fn run(topic: &BenchTopic, how: Full, stop: &Stop) -> Result<Produced, BenchError> {
    let reports = Reports {
        began: Instant::now(),
        window: Window::of_this_thread(settings::open_records(how.record_bytes)),
        tally: Mutex::default(),
    };
    let producer = Polled::start(&settings::full_speed(&topic.bootstrap), reports)
        .map_err(refused_settings("producer"))?;
    let Some(reports) = producer.context() else {
        return Err(given_up());
    };
    let sender = Sender { topic, payload: payload::filler(how.seed, how.record_bytes), stop };
    let result = sender.connect(&producer, reports).and_then(|()| {
        let from = reports.began.elapsed() + how.warm_up;
        reports.tally().measured_us = Some((micros(from), micros(from + how.duration)));
        sender.send_until(reports.began + from + how.duration, &producer, reports)?;
        sender.drain(reports)
    });
    if stop.is_stopped() {
        return Err(given_up());
    }
    let tally = reports.tally();
    let acked = tally.acked_in_all;
    result.map_err(|said| {
        let said = tally.first_error.as_deref().unwrap_or(&said);
        BenchError::Cluster(format!("{said} ({acked} records had been acknowledged)"))
    })?;
    let Some(ack) = tally.latencies.quantiles().filter(|_| tally.acked > 0) else {
        return Err(BenchError::Cluster(format!(
            "no send was acknowledged within the measured {} ms ({acked} before and after)",
            how.duration.as_millis()
        )));
    };
    Ok(Produced {
        acked_records: tally.acked,
        acked_bytes: tally.acked * how.record_bytes as u64,
        measured: how.duration,
        ack,
        acked_records_in_all: acked,
    })
}

struct Sender<'a> {
    topic: &'a BenchTopic,
    payload: Vec<u8>,
    stop: &'a Stop,
}

/// Each ends with what went wrong, in words.
impl Sender<'_> {
    /// Writes one record to each partition and waits until all are acknowledged: every leader is
    /// found and connected to, and the producer id is there.
    fn connect(&self, producer: &Polled<Reports>, reports: &Reports) -> Result<(), String> {
        let until = Instant::now() + DRAIN_LIMIT;
        for partition in 0..self.topic.partitions {
            self.send_one(partition, until, producer, reports)?;
        }
        self.drain(reports)
    }

    fn send_until(
        &self,
        until: Instant,
        producer: &Polled<Reports>,
        reports: &Reports,
    ) -> Result<(), String> {
        for partition in (0..self.topic.partitions).cycle() {
            if Instant::now() >= until || !self.send_one(partition, until, producer, reports)? {
                break;
            }
        }
        Ok(())
    }

    /// False where there was no room in time.
    fn send_one(
        &self,
        partition: i32,
        until: Instant,
        producer: &Polled<Reports>,
        reports: &Reports,
    ) -> Result<bool, String> {
        if !reports.window.enter(until, || self.is_over(reports)) {
            return Ok(false);
        }
        let sent_us = usize::try_from(micros(reports.began.elapsed())).unwrap_or(usize::MAX);
        producer.send(&self.topic.name, partition, &self.payload, sent_us).map_err(|error| {
            reports.window.leave();
            format!("a send failed: {}", outcome::error_text(&error))
        })?;
        Ok(true)
    }

    /// Waits until everything that was sent is answered.
    fn drain(&self, reports: &Reports) -> Result<(), String> {
        let open = reports.window.drain(Instant::now() + DRAIN_LIMIT, || self.is_over(reports));
        if open == 0 && !reports.has_failed() {
            return Ok(());
        }
        Err(format!("{open} sends had no answer after {} s", DRAIN_LIMIT.as_secs()))
    }

    fn is_over(&self, reports: &Reports) -> bool {
        self.stop.is_stopped() || reports.has_failed()
    }
}

/// What librdkafka calls back.
struct Reports {
    began: Instant,
    window: Window,
    tally: Mutex<Tally>,
}

#[derive(Default)]
struct Tally {
    /// From and until when is measured, microseconds since the beginning; none yet.
    measured_us: Option<(u64, u64)>,
    acked: u64,
    acked_in_all: u64,
    latencies: Latencies,
    first_error: Option<String>,
}

impl Tally {
    /// Adds an acknowledgement; all in microseconds since the beginning.
    fn acknowledged(&mut self, sent_us: u64, now_us: u64) {
        self.acked_in_all += 1;
        let Some((from_us, until_us)) = self.measured_us else {
            return;
        };
        if (from_us..until_us).contains(&now_us) {
            self.acked += 1;
        }
        if (from_us..until_us).contains(&sent_us) {
            self.latencies.add(now_us.saturating_sub(sent_us));
        }
    }
}

impl Reports {
    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_failed(&self) -> bool {
        self.tally().first_error.is_some()
    }
}

logs::forwards_logs!(Reports);

impl ProducerContext for Reports {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, sent_us: usize) {
        match result {
            Ok(_) => {
                let now_us = micros(self.began.elapsed());
                self.tally().acknowledged(sent_us as u64, now_us);
            }
            Err((error, _)) => {
                let text = format!("a send failed: {}", outcome::error_text(error));
                self.tally().first_error.get_or_insert(text);
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
        // Before anything is measured.
        tally.acknowledged(1, 2);
        tally.measured_us = Some((100, 200));
        // Sent and acknowledged in the warm-up; sent in it, acknowledged after it.
        tally.acknowledged(10, 99);
        tally.acknowledged(90, 100);
        // Wholly inside; sent inside, acknowledged after the end.
        tally.acknowledged(100, 150);
        tally.acknowledged(199, 299);
        assert_eq!((tally.acked_in_all, tally.acked), (5, 2));
        let ack = tally.latencies.quantiles().unwrap();
        assert_eq!((ack.count, ack.p50_us, ack.max_us), (2, 50, 100));
    }
}
