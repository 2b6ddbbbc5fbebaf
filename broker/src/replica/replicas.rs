//! All replicas of this node, kept in step with the metadata.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use replication::metadata::{Image, PartitionState, Resource, Topic};
use replication::partition::{Assignment, BrokerState};
use replication::types::{BrokerEpoch, LeaderEpoch, NodeId, Offset, PartitionId};
use tokio::sync::{mpsc, watch};
use tracing::{error, info, warn};

use crate::admin::metrics::Summary;
use crate::config::{Config, Durability};
use crate::controller::entry::Metadata;
use crate::fatal::Fatal;
use crate::log::LogDirectory;
use crate::net::controllers::Controllers;
use crate::replica::fetcher::{FetcherContext, Fetchers};
use crate::replica::housekeeping;
use crate::replica::isr_requests;
use crate::replica::partition::{Brokers, Outbox, Partition, TopicSettings};
use crate::replica::store::{Store, StoreError};
use crate::replica::sync;
use crate::replica::topic_settings::topic_settings;

/// What replicas need of their node.
#[derive(Clone, Debug)]
pub struct ReplicasContext {
    /// What the node was told.
    pub config: Arc<Config>,
    /// Its disk.
    pub directory: LogDirectory,
    /// Its life.
    pub broker_epoch: watch::Receiver<BrokerEpoch>,
    /// The way to the active controller.
    pub controllers: Arc<Controllers>,
    /// Whom to tell when a disk fails.
    pub fatal: Fatal,
}

/// A replica that leads now and did not, or the other way round.
#[derive(Clone, Debug)]
pub struct LeadershipChange {
    /// Which.
    pub partition: Arc<Partition>,
    /// In which leader epoch.
    pub leader_epoch: LeaderEpoch,
    /// Does it lead?
    pub leads: bool,
}

/// All replicas of this node.
#[derive(Debug)]
pub struct Replicas {
    context: ReplicasContext,
    outbox: Outbox,
    fetchers: Fetchers,
    partitions: RwLock<BTreeMap<PartitionId, Arc<Partition>>>,
    /// High watermarks as the last life wrote them down, until their replicas are opened.
    checkpointed: Mutex<BTreeMap<(String, i32), Offset>>,
    /// What was applied last.
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    image: Arc<Metadata>,
    brokers: Arc<Brokers>,
}

impl Replicas {
    /// Opens nothing yet but the checkpoints: logs are opened when metadata names them. Starts
    /// what goes on in the background.
    ///
    /// # Errors
    /// The checkpoint of high watermarks cannot be read.
    pub fn open(context: ReplicasContext) -> Result<Arc<Self>, StoreError> {
        let checkpointed = context.directory.high_watermarks()?;
        let (proposals, proposed) = mpsc::unbounded_channel();
        let mut outbox = Outbox { proposals, unsynced: None, fatal: context.fatal.clone() };
        if context.config.durability == Durability::Fsync {
            let (unsynced, to_sync) = mpsc::unbounded_channel();
            outbox.unsynced = Some(unsynced);
            tokio::spawn(sync::run(to_sync, context.fatal.clone()));
        }
        let times = &context.config.times;
        tokio::spawn(isr_requests::run(
            context.config.node,
            proposed,
            context.broker_epoch.clone(),
            Arc::clone(&context.controllers),
            times.controller_request,
        ));
        let fetchers = Fetchers::new(FetcherContext {
            me: context.config.node,
            broker_epoch: context.broker_epoch.clone(),
            settings: context.config.fetching.clone(),
            fatal: context.fatal.clone(),
        });
        let replicas = Arc::new(Self {
            context,
            outbox,
            fetchers,
            partitions: RwLock::default(),
            checkpointed: Mutex::new(checkpointed),
            seen: Mutex::default(),
        });
        housekeeping::start(&replicas);
        Ok(replicas)
    }

    /// What the node is.
    pub(super) fn context(&self) -> &ReplicasContext {
        &self.context
    }

    /// The replica of a partition.
    pub fn get(&self, id: PartitionId) -> Option<Arc<Partition>> {
        self.read().get(&id).cloned()
    }

    /// All of them.
    pub fn all(&self) -> Vec<Arc<Partition>> {
        self.read().values().cloned().collect()
    }

    /// The replica of a partition, by the topic's name.
    pub fn by_name(&self, topic: &str, index: i32) -> Option<Arc<Partition>> {
        let id = self.image().0.topic_by_name(topic)?.id;
        self.get(PartitionId { topic: id, index })
    }

    /// Partitions of a topic, 0 for one that is not there.
    pub fn partition_count(&self, topic: &str) -> i32 {
        let image = self.image();
        let count = image.0.topic_by_name(topic).map_or(0, |topic| topic.partitions.len());
        i32::try_from(count).unwrap_or(i32::MAX)
    }

    /// Counted.
    pub fn summary(&self) -> Summary {
        let mut summary = Summary::default();
        for partition in self.all() {
            partition.count(&mut summary);
        }
        summary
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<PartitionId, Arc<Partition>>> {
        self.partitions.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, BTreeMap<PartitionId, Arc<Partition>>> {
        self.partitions.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn image(&self) -> Arc<Metadata> {
        Arc::clone(&self.seen.lock().unwrap_or_else(PoisonError::into_inner).image)
    }

    /// Brings replicas in step with `image`: opens, leads, follows, deletes. Called by one task,
    /// image after image; it blocks on the disk.
    pub fn apply(&self, metadata: &Arc<Metadata>) -> Vec<LeadershipChange> {
        let (before, brokers) = self.see(metadata);
        let (before, image) = (&before.0, &metadata.0);
        let brokers_changed = brokers.is_some();
        if let Some(brokers) = brokers {
            for partition in self.all() {
                partition.set_brokers(Arc::clone(&brokers));
            }
        }
        let mut changes = Vec::new();
        let all_changed = brokers_changed || !before.same_broker_settings(image);
        for topic in image.topics() {
            let same = before.topic(topic.id).is_some_and(|known| std::ptr::eq(known, topic));
            let resource = Resource::Topic(topic.name.clone());
            if same && !all_changed && before.same_settings(image, &resource) {
                continue;
            }
            self.apply_topic(image, topic, &mut changes);
        }
        self.drop_what_is_gone(image, &mut changes);
        changes
    }

    /// Notes `image` as seen; the one before, and brokers where they changed.
    fn see(&self, metadata: &Arc<Metadata>) -> (Arc<Metadata>, Option<Arc<Brokers>>) {
        let brokers: Brokers =
            metadata.0.brokers().map(|broker| (broker.id, BrokerState::from(broker))).collect();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut seen.image, Arc::clone(metadata));
        let changed = (*seen.brokers != brokers).then(|| Arc::new(brokers));
        if let Some(changed) = &changed {
            seen.brokers = Arc::clone(changed);
        }
        (before, changed)
    }

    fn apply_topic(&self, image: &Image, topic: &Topic, changes: &mut Vec<LeadershipChange>) {
        let me = self.context.config.node;
        let settings = topic_settings(image, &topic.name, &self.context.config);
        for (index, state) in &topic.partitions {
            let id = PartitionId { topic: topic.id, index: *index };
            if !state.replicas.contains(&me) {
                continue;
            }
            let partition = match self.get(id) {
                Some(partition) => partition,
                None => match self.open_partition(id, topic, settings.clone()) {
                    Ok(partition) => partition,
                    Err(reason) => {
                        // Other partitions go on; this one has no replica here until a restart.
                        error!(key = format!("{}-{index}", topic.name), %reason, "cannot be opened");
                        continue;
                    }
                },
            };
            partition.set_settings(settings.clone());
            let before = partition.progress();
            if let Err(reason) = self.apply_partition(image, &partition, state) {
                self.context.fatal.stop(format!("{}: {reason}", partition.key()));
                return;
            }
            let after = partition.progress();
            if (before.leads, before.leader_epoch) != (after.leads, after.leader_epoch)
                && (before.leads || after.leads)
            {
                changes.push(LeadershipChange {
                    partition,
                    leader_epoch: after.leader_epoch,
                    leads: after.leads,
                });
            }
        }
    }

    fn apply_partition(
        &self,
        image: &Image,
        partition: &Arc<Partition>,
        state: &PartitionState,
    ) -> Result<(), StoreError> {
        let assignment = Assignment::from(state);
        if state.leader == Some(self.context.config.node) {
            self.fetchers.unfollow(partition.id);
            return partition.lead(assignment);
        }
        partition.follow(state.leader, &assignment);
        let address = state.leader.and_then(|leader| Some((leader, self.address(image, leader)?)));
        match address {
            Some((leader, address)) => {
                self.fetchers.follow(partition, leader, &address, state.leader_epoch);
            }
            None => self.fetchers.unfollow(partition.id),
        }
        Ok(())
    }

    /// Where brokers reach `broker`.
    fn address(&self, image: &Image, broker: NodeId) -> Option<String> {
        let name = &self.context.config.inter_broker_listener;
        let listener = image.broker(broker)?.listener(name)?;
        Some(format!("{}:{}", listener.host, listener.port))
    }

    fn open_partition(
        &self,
        id: PartitionId,
        topic: &Topic,
        settings: TopicSettings,
    ) -> Result<Arc<Partition>, StoreError> {
        let store = Store::open(&self.context.directory, &topic.name, id, &settings.log)?;
        let mut checkpointed = self.checkpointed.lock().unwrap_or_else(PoisonError::into_inner);
        let high_watermark =
            checkpointed.remove(&(topic.name.clone(), id.index)).unwrap_or(Offset::ZERO);
        drop(checkpointed);
        let brokers = Arc::clone(&self.seen.lock().unwrap_or_else(PoisonError::into_inner).brokers);
        let partition = Partition::new(
            id,
            Arc::from(&*topic.name),
            self.context.config.node,
            self.outbox.clone(),
            store,
            high_watermark,
            settings,
        );
        partition.set_brokers(brokers);
        self.write().insert(id, Arc::clone(&partition));
        Ok(partition)
    }

    /// Deletes replicas of topics that are gone, and those that moved away.
    fn drop_what_is_gone(&self, image: &Image, changes: &mut Vec<LeadershipChange>) {
        let me = self.context.config.node;
        let gone: Vec<Arc<Partition>> = self
            .read()
            .values()
            .filter(|partition| {
                image.partition(partition.id).is_none_or(|state| !state.replicas.contains(&me))
            })
            .cloned()
            .collect();
        for partition in gone {
            self.fetchers.unfollow(partition.id);
            self.write().remove(&partition.id);
            let progress = partition.progress();
            if progress.leads {
                changes.push(LeadershipChange {
                    partition: Arc::clone(&partition),
                    leader_epoch: progress.leader_epoch,
                    leads: false,
                });
            }
            info!(key = partition.key(), "is not here any more; its log is deleted");
            if let Err(reason) = partition.delete() {
                warn!(key = partition.key(), %reason, "the log of a partition that is gone stays");
            }
        }
    }

    /// Brings everything to the disk and says so, for the next start.
    ///
    /// # Errors
    /// The disk: the next start looks at everything.
    pub async fn close(self: &Arc<Self>, epoch: Option<BrokerEpoch>) -> Result<(), StoreError> {
        let replicas = Arc::clone(self);
        let work = move || -> Result<(), StoreError> {
            for partition in replicas.all() {
                partition.close_log()?;
            }
            housekeeping::checkpoint(&replicas)?;
            replicas.context.directory.close(epoch)?;
            Ok(())
        };
        tokio::task::spawn_blocking(work)
            .await
            .unwrap_or_else(|error| Err(StoreError::broken(error.to_string())))
    }
}
