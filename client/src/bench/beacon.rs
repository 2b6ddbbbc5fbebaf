//! One send after the other to one partition, and when one is ok again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::message::DeliveryResult;
use rdkafka::producer::ProducerContext;
use tokio::sync::{Notify, oneshot};

use super::polled::Polled;
use super::quantiles::micros;
use super::window::Window;
use super::{BenchError, BenchTopic, StopOnDrop, payload, refused_settings, settings};
use crate::logs;
use crate::outcome;
use crate::queue::{ClientError, on_thread};
use crate::stop::Stop;

/// From one send to the next: how finely the end of an outage is seen.
const SEND_EVERY: Duration = Duration::from_millis(5);
/// Sends that wait for an answer during an outage; beyond it none is added.
const MOST_OPEN: usize = 256;
/// Payload of each record.
const RECORD_BYTES: usize = 100;

/// A producer that sends a small record to one partition every 5 ms, at acks=all and with the rig's
/// ordinary time-outs, until it is dropped.
pub struct Beacon {
    seen: Arc<Seen>,
    _over: StopOnDrop,
}

impl Beacon {
    /// Begins to send to `partition` of `topic`, which need not be there yet; idempotent, as the
    /// rig's producers are.
    ///
    /// # Errors
    /// [`BenchError::Driver`]: no thread, or refused settings.
    pub async fn idempotent(topic: BenchTopic, partition: i32) -> Result<Self, BenchError> {
        Self::start(settings::beacon(&topic.bootstrap, true), topic, partition).await
    }

    /// The same with a producer that needs no id of the cluster first.
    ///
    /// # Errors
    /// [`BenchError::Driver`]: no thread, or refused settings.
    pub async fn not_idempotent(topic: BenchTopic, partition: i32) -> Result<Self, BenchError> {
        Self::start(settings::beacon(&topic.bootstrap, false), topic, partition).await
    }

    async fn start(
        config: ClientConfig,
        topic: BenchTopic,
        partition: i32,
    ) -> Result<Self, BenchError> {
        let over = StopOnDrop(Stop::new());
        let seen = Arc::new(Seen::new());
        let (started, begun) = oneshot::channel();
        on_thread("bench-beacon", {
            let (seen, stop) = (Arc::clone(&seen), over.0.clone());
            move || {
                let window = Arc::new(Window::of_this_thread(MOST_OPEN));
                let reports = Reports { seen: Arc::clone(&seen), window: Arc::clone(&window) };
                match Polled::start(&config, reports) {
                    Ok(producer) => {
                        let _unheard = started.send(Ok(()));
                        send_until(&stop, &topic, partition, &producer, &seen, &window);
                    }
                    Err(error) => drop(started.send(Err(error))),
                }
            }
        })?;
        begun
            .await
            .map_err(|_| ClientError::Panicked { thread: "bench-beacon".to_owned() })?
            .map_err(refused_settings("producer"))?;
        Ok(Self { seen, _over: over })
    }

    /// Waits until a record that was sent after `sent_after` has been acknowledged; when that was.
    /// One caller at a time.
    ///
    /// # Errors
    /// [`BenchError::Cluster`] where none was within `limit`.
    pub async fn next_ok(
        &self,
        sent_after: Instant,
        limit: Duration,
    ) -> Result<Instant, BenchError> {
        self.seen.look_for(sent_after);
        let found = async {
            loop {
                if let Some(acked) = self.seen.awaited().acked {
                    return acked;
                }
                self.seen.changed.notified().await;
            }
        };
        tokio::time::timeout(limit, found).await.map_err(|_| {
            let said = self.seen.awaited().last_error.clone();
            BenchError::Cluster(format!(
                "no send was acknowledged within {} ms{}",
                limit.as_millis(),
                said.map_or(String::new(), |said| format!("; last error: {said}"))
            ))
        })
    }
}

fn send_until(
    stop: &Stop,
    topic: &BenchTopic,
    partition: i32,
    producer: &Polled<Reports>,
    seen: &Seen,
    window: &Window,
) {
    let payload = payload::filler(0, RECORD_BYTES);
    while !stop.wait(SEND_EVERY) {
        // An instant that is over: a full window is passed by, not waited for.
        if !window.enter(Instant::now(), || false) {
            continue;
        }
        let sent_us = usize::try_from(micros(seen.began.elapsed())).unwrap_or(usize::MAX);
        if let Err(error) = producer.send(&topic.name, partition, &payload, sent_us) {
            window.leave();
            seen.awaited().last_error = Some(outcome::error_text(&error));
        }
    }
}

/// What has been acknowledged, as far as somebody asks.
struct Seen {
    began: Instant,
    awaited: Mutex<Awaited>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Awaited {
    /// Only sends from then on count, since `began`.
    sent_after_us: u64,
    acked: Option<Instant>,
    last_error: Option<String>,
}

impl Seen {
    fn new() -> Self {
        Self { began: Instant::now(), awaited: Mutex::default(), changed: Notify::new() }
    }

    fn awaited(&self) -> MutexGuard<'_, Awaited> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look_for(&self, sent_after: Instant) {
        let sent_after_us = micros(sent_after.saturating_duration_since(self.began));
        *self.awaited() = Awaited { sent_after_us, acked: None, last_error: None };
    }

    fn acknowledged(&self, sent_us: u64) {
        let mut awaited = self.awaited();
        // A send within the same microsecond may have been before.
        if sent_us > awaited.sent_after_us && awaited.acked.is_none() {
            awaited.acked = Some(Instant::now());
            drop(awaited);
            self.changed.notify_one();
        }
    }
}

/// What librdkafka calls back.
struct Reports {
    seen: Arc<Seen>,
    window: Arc<Window>,
}

logs::forwards_logs!(Reports);

impl ProducerContext for Reports {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, sent_us: usize) {
        match result {
            Ok(_) => self.seen.acknowledged(sent_us as u64),
            Err((error, _)) => {
                self.seen.awaited().last_error = Some(outcome::error_text(error));
            }
        }
        self.window.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_to_an_older_send_is_not_the_one_that_is_looked_for() {
        let seen = Seen::new();
        seen.look_for(seen.began + Duration::from_micros(100));
        seen.acknowledged(99);
        seen.acknowledged(100);
        assert!(seen.awaited().acked.is_none());
        seen.acknowledged(101);
        let first = seen.awaited().acked;
        assert!(first.is_some());
        seen.acknowledged(102);
        assert_eq!(seen.awaited().acked, first, "the first one is kept");
    }
}
