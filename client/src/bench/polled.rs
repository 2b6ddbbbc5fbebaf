//! A producer client and the thread that serves its delivery reports.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};

use super::part_with;

/// A poll lasts this long whether or not reports come, and spins through its last millisecond.
const POLL: Duration = Duration::from_millis(100);

/// A producer whose reports are served on a thread of their own until this is dropped. Polling
/// between sends instead would make the sender wait for whole milliseconds, or spin.
pub(super) struct Polled<C: ProducerContext<DeliveryOpaque = usize> + 'static> {
    client: Option<Arc<BaseProducer<C>>>,
    over: Arc<AtomicBool>,
    poller: Option<JoinHandle<()>>,
}

impl<C: ProducerContext<DeliveryOpaque = usize> + 'static> Polled<C> {
    /// Starts a client. It need not reach a broker for that.
    ///
    /// # Errors
    /// librdkafka refuses the settings, or the system has no threads left.
    pub(super) fn start(config: &ClientConfig, context: C) -> Result<Self, KafkaError> {
        let client: BaseProducer<C> = config.create_with_context(context)?;
        let client = Arc::new(client);
        let over = Arc::new(AtomicBool::new(false));
        let poller = thread::Builder::new()
            .name("bench-reports".to_owned())
            .spawn({
                let (client, over) = (Arc::clone(&client), Arc::clone(&over));
                move || {
                    while !over.load(Ordering::Acquire) {
                        client.poll(POLL);
                    }
                }
            })
            .map_err(|error| KafkaError::ClientCreation(error.to_string()))?;
        Ok(Self { client: Some(client), over, poller: Some(poller) })
    }

    /// What librdkafka calls back.
    pub(super) fn context(&self) -> Option<&C> {
        self.client.as_deref().map(|client| &**client.context())
    }

    /// Queues a record; its report carries `opaque`.
    ///
    /// # Errors
    /// librdkafka does not take it, and there will be no report of it.
    pub(super) fn send(
        &self,
        topic: &str,
        partition: i32,
        payload: &[u8],
        opaque: usize,
    ) -> Result<(), KafkaError> {
        let Some(client) = &self.client else {
            return Err(KafkaError::Canceled);
        };
        let record: BaseRecord<'_, (), [u8], usize> =
            BaseRecord::with_opaque_to(topic, opaque).partition(partition).payload(payload);
        client.send(record).map_err(|(error, _)| error)
    }
}

impl<C: ProducerContext<DeliveryOpaque = usize> + 'static> Drop for Polled<C> {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(poller) = self.poller.take()
            && poller.join().is_err()
        {
            tracing::error!("the thread that serves delivery reports has panicked");
        }
        if let Some(client) = self.client.take() {
            part_with(client);
        }
    }
}
