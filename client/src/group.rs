//! What a consumer client calls back: rebalances and log lines.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use history::{COMMIT, CommitPhase, CommitValue, Rebalance, RebalanceKind};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, RebalanceProtocol};
use rdkafka::error::KafkaResult;
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{Offset, TopicPartitionList};
use serde_json::json;

use crate::journal::Journal;
use crate::keys::KeyTable;
use crate::logs;

/// How long to wait for committed offsets.
pub(crate) const COMMITTED_LIMIT: Duration = Duration::from_secs(3);

/// Where a group begins that has committed nothing: the run's own topics begin there.
///
/// Not `Offset::Beginning`, which librdkafka 2.12 has to ask for. A rebalance that overtakes the
/// answer makes it ask again, and go back there whatever it reads by then
/// (`rd_kafka_toppar_handle_Offset`, an outdated response). A log that begins later refuses the
/// offset, and the next client then asks.
const FIRST: Offset = Offset::Offset(0);

/// Collects rebalances and decides where a group member begins to read.
pub(crate) struct GroupContext {
    group: String,
    keys: Arc<KeyTable>,
    /// Are offsets committed, so that a member can go on where the group stood?
    commits: bool,
    /// The next partitions are to be read from their beginning, whatever was committed.
    from_beginning: AtomicBool,
    log: Mutex<Vec<Rebalance>>,
    /// A commit has been sent and not been answered.
    commit_open: AtomicBool,
    journal: Arc<Journal>,
}

impl GroupContext {
    pub(crate) fn new(
        group: &str,
        journal: &Arc<Journal>,
        keys: &Arc<KeyTable>,
        commits: bool,
        from_beginning: bool,
    ) -> Self {
        Self {
            group: group.to_owned(),
            keys: Arc::clone(keys),
            commits,
            from_beginning: AtomicBool::new(from_beginning),
            log: Mutex::default(),
            commit_open: AtomicBool::new(false),
            journal: Arc::clone(journal),
        }
    }

    pub(crate) fn is_commit_open(&self) -> bool {
        self.commit_open.load(Ordering::Relaxed)
    }

    /// Records where a commit is.
    fn record_commit(&self, id: u64, phase: CommitPhase, offsets: &TopicPartitionList) {
        let elements = offsets.elements();
        let said = elements.iter().filter_map(|element| match element.offset() {
            Offset::Offset(offset) => {
                let key = self.keys.key(element.topic(), element.partition());
                Some((key.to_string(), offset))
            }
            _ => None,
        });
        let value = CommitValue { id, group: self.group.clone(), phase, offsets: said.collect() };
        self.journal.observe(COMMIT, json!(value));
    }

    /// Commits `offsets` without waiting: a coordinator that is away would hold up the reads
    /// that matter most, those during a fault. What librdkafka calls asynchronous tells nobody its
    /// end where a client takes events, as all of these do; so a thread waits, no longer than the
    /// session's and the request's time-outs.
    pub(crate) fn commit(consumer: &Arc<BaseConsumer<Self>>, offsets: TopicPartitionList) {
        let context = consumer.context();
        let id = context.journal.fresh_commit();
        context.record_commit(id, CommitPhase::Asked, &offsets);
        context.commit_open.store(true, Ordering::Relaxed);
        let waiting = thread::Builder::new().name(format!("commit-{id}")).spawn({
            let consumer = Arc::clone(consumer);
            move || {
                let result = consumer.commit(&offsets, CommitMode::Sync);
                consumer.context().ended(id, result, &offsets);
            }
        });
        if let Err(error) = waiting {
            tracing::warn!(%error, "there is no thread for a commit");
            context.commit_open.store(false, Ordering::Relaxed);
        }
    }

    /// A commit was answered, or will not be.
    fn ended(&self, id: u64, result: KafkaResult<()>, offsets: &TopicPartitionList) {
        let phase = match result {
            Ok(()) => CommitPhase::Acknowledged,
            Err(error) => {
                tracing::debug!(%error, "a commit was not acknowledged");
                self.journal.live().failed_commits.fetch_add(1, Ordering::Relaxed);
                CommitPhase::Unknown
            }
        };
        self.record_commit(id, phase, offsets);
        self.commit_open.store(false, Ordering::Relaxed);
    }

    /// The rebalances since the last call.
    pub(crate) fn take_rebalances(&self) -> Vec<Rebalance> {
        std::mem::take(&mut *self.log.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note(&self, event: RebalanceKind, partitions: &TopicPartitionList) {
        let keys = partitions
            .elements()
            .iter()
            .map(|element| self.keys.key(element.topic(), element.partition()))
            .collect();
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.push(Rebalance { event, keys });
    }

    fn gained(
        &self,
        consumer: &BaseConsumer<Self>,
        partitions: &mut TopicPartitionList,
    ) -> KafkaResult<()> {
        if self.from_beginning.swap(false, Ordering::Relaxed) {
            partitions.set_all_offsets(Offset::Beginning)?;
        } else if !self.commits {
            partitions.set_all_offsets(FIRST)?;
        } else if let Err(error) = start_where_committed(consumer, partitions, FIRST) {
            // librdkafka asks again by itself; should there be no commit then, it says so.
            tracing::debug!(%error, "committed offsets are unknown for now");
        }
        match consumer.rebalance_protocol() {
            RebalanceProtocol::Cooperative => consumer.incremental_assign(partitions),
            _ => consumer.assign(partitions),
        }
    }
}

/// Sets the offsets of `partitions` to those committed, or to `otherwise` where there is none.
///
/// # Errors
/// The coordinator does not tell; nothing is set then.
pub(crate) fn start_where_committed(
    consumer: &BaseConsumer<GroupContext>,
    partitions: &mut TopicPartitionList,
    otherwise: Offset,
) -> KafkaResult<()> {
    let committed = consumer.committed_offsets(partitions.clone(), COMMITTED_LIMIT)?;
    for element in committed.elements() {
        element.error()?;
    }
    for element in committed.elements() {
        let offset = match element.offset() {
            Offset::Offset(offset) => Offset::Offset(offset),
            _ => otherwise,
        };
        partitions.set_partition_offset(element.topic(), element.partition(), offset)?;
    }
    Ok(())
}

/// Waits until the last change of the assignment has been carried out.
///
/// librdkafka stops partitions in the background, and a second change that concerns a partition
/// before it has stopped aborts the whole program (`rktp->rktp_started`, seen in 2.12.1). Its
/// main thread serves one queue in order: the first answer comes after the stop was begun, the
/// second after its end was noted.
pub(crate) fn settle(consumer: &BaseConsumer<GroupContext>) {
    for _ in 0..2 {
        if let Err(error) = consumer.assignment() {
            tracing::debug!(%error, "the assignment cannot be asked for");
        }
    }
}

logs::forwards_logs!(GroupContext);

impl ConsumerContext for GroupContext {
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        event: RDKafkaRespErr,
        partitions: &mut TopicPartitionList,
    ) {
        let done = if event == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            self.note(RebalanceKind::Assign, partitions);
            self.gained(consumer, partitions)
        } else {
            self.note(RebalanceKind::Revoke, partitions);
            match consumer.rebalance_protocol() {
                RebalanceProtocol::Cooperative => consumer.incremental_unassign(partitions),
                _ => consumer.unassign(),
            }
        };
        if let Err(error) = done {
            tracing::warn!(%error, "a rebalance could not be followed");
        }
        settle(consumer);
    }
}
