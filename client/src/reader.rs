//! One consumer client, read in batches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use history::{Key, Pair, Rebalance};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::{Offset, TopicPartitionList};

use crate::group::GroupContext;
use crate::keys::KeyTable;
use crate::outcome::{self, Aftermath};

/// Why a poll returned nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) aftermath: Aftermath,
    /// As in a history: a code, then perhaps words.
    pub(crate) error: String,
    /// The partition that holds something no one can read, where that is why.
    pub(crate) unreadable: Option<i32>,
}

/// What one poll returned.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) records: BTreeMap<Key, Vec<Pair>>,
    pub(crate) count: usize,
    /// Partition numbers whose end was reached after the last record of this batch. librdkafka
    /// does not pass on the topic: only a reader of one topic can use them.
    pub(crate) at_end: BTreeSet<i32>,
    pub(crate) rebalances: Vec<Rebalance>,
    /// Only where there are no records.
    pub(crate) fault: Option<Fault>,
}

/// A consumer client.
pub(crate) struct Reader {
    consumer: Arc<BaseConsumer<GroupContext>>,
    keys: Arc<KeyTable>,
    /// An error that came after records: the poll after the one that returned these ends with it.
    pending: Option<Fault>,
}

impl Reader {
    /// Starts a client. It need not reach a broker for that.
    ///
    /// # Errors
    /// The settings contradict each other, or the system has no threads or descriptors left.
    pub(crate) fn start(
        config: &ClientConfig,
        keys: &Arc<KeyTable>,
        context: GroupContext,
    ) -> KafkaResult<Self> {
        Ok(Self {
            consumer: Arc::new(config.create_with_context(context)?),
            keys: Arc::clone(keys),
            pending: None,
        })
    }

    pub(crate) fn consumer(&self) -> &BaseConsumer<GroupContext> {
        &self.consumer
    }

    /// Waits up to `wait` for a first record, then takes what else has been fetched, up to
    /// `max_records`.
    pub(crate) fn poll(&mut self, wait: Duration, max_records: usize) -> Batch {
        let mut batch = Batch { fault: self.pending.take(), ..Batch::default() };
        if batch.fault.is_none() {
            self.fill(&mut batch, Instant::now() + wait, max_records);
        }
        if batch.count > 0 {
            // What goes on by itself is no news once there are records.
            self.pending = batch.fault.take().filter(|fault| fault.aftermath == Aftermath::Lost);
        }
        batch.rebalances = self.consumer.context().take_rebalances();
        batch
    }

    fn fill(&self, batch: &mut Batch, until: Instant, max_records: usize) {
        while batch.count < max_records {
            let left = if batch.count == 0 {
                whole_ms(until.saturating_duration_since(Instant::now()))
            } else {
                Duration::ZERO
            };
            match self.consumer.poll(left) {
                Some(Ok(message)) => {
                    if let Err(fault) = self.take(&message, batch) {
                        batch.fault = Some(fault);
                        return;
                    }
                }
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    batch.at_end.insert(partition);
                }
                Some(Err(error)) => {
                    let aftermath = outcome::of_poll(&error);
                    let fault =
                        Fault { aftermath, error: outcome::error_text(&error), unreadable: None };
                    if aftermath == Aftermath::Lost {
                        batch.fault = Some(fault);
                        return;
                    }
                    batch.fault.get_or_insert(fault);
                }
                None if batch.count > 0 || Instant::now() >= until => return,
                None => {}
            }
        }
    }

    fn take(&self, message: &BorrowedMessage<'_>, batch: &mut Batch) -> Result<(), Fault> {
        let (partition, offset) = (message.partition(), message.offset());
        let key = self.keys.key(message.topic(), partition);
        let value = message
            .payload()
            .and_then(|payload| std::str::from_utf8(payload).ok())
            .and_then(|text| text.parse().ok());
        let Some(value) = value else {
            return Err(Fault {
                aftermath: Aftermath::Lost,
                error: format!("bad-payload: {key} at offset {offset} holds no integer"),
                unreadable: Some(partition),
            });
        };
        batch.records.entry(key).or_default().push((offset, value));
        batch.count += 1;
        batch.at_end.remove(&partition);
        Ok(())
    }

    /// Has the last commit not been answered yet?
    pub(crate) fn is_committing(&self) -> bool {
        self.consumer.context().is_commit_open()
    }

    /// Commits `offsets` (topic, partition, the next offset to read), without waiting.
    pub(crate) fn commit<'a>(
        &self,
        offsets: impl Iterator<Item = (&'a str, i32, i64)>,
    ) -> KafkaResult<()> {
        let mut list = TopicPartitionList::new();
        for (topic, partition, offset) in offsets {
            list.add_partition_offset(topic, partition, Offset::Offset(offset))?;
        }
        GroupContext::commit(&self.consumer, list);
        Ok(())
    }
}

/// `time`, rounded up: librdkafka waits whole milliseconds, and would spin through the rest.
fn whole_ms(time: Duration) -> Duration {
    const NEARLY_ONE_MS: Duration = Duration::from_nanos(999_999);
    let ms = (time + NEARLY_ONE_MS).as_millis();
    Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX))
}
