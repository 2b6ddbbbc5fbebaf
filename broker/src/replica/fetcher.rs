//! Fetching from leaders: one task a source broker, all its partitions in each request.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kafka_protocol::ResponseError;
use kafka_protocol::error::ParseResponseErrorCode;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ReplicaState};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::{
    BrokerId, FetchRequest, FetchResponse, ListOffsetsRequest, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use replication::epochs::EpochEnd;
use replication::partition::{Fenced, on_fenced};
use replication::seeded::Bug;
use replication::types::{BrokerEpoch, LeaderEpoch, NodeId, Offset, PartitionId, TopicId};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, info, warn};

use crate::config::Fetching;
use crate::fatal::Fatal;
use crate::net::connection::{AskError, Connection};
use crate::replica::follow::{FetchFrom, FromLeader};
use crate::replica::partition::Partition;
use crate::replica::sync::sync_all;

const FETCH_VERSION: i16 = 16;
const LIST_OFFSETS_VERSION: i16 = 7;
const EARLIEST: i64 = -2;
const LATEST: i64 = -1;

/// What every fetcher of a node shares.
#[derive(Clone, Debug)]
pub struct FetcherContext {
    /// This node.
    pub me: NodeId,
    /// In which life.
    pub broker_epoch: watch::Receiver<BrokerEpoch>,
    /// How much, how long.
    pub settings: Fetching,
    /// Whom to tell when a disk fails.
    pub fatal: Fatal,
}

/// A partition that is followed.
#[derive(Debug)]
struct Followed {
    partition: Arc<Partition>,
    leader_epoch: LeaderEpoch,
    /// Its log was looked at before the first fetch (R26).
    begun: bool,
    /// Not before, after an error.
    not_before: Option<Instant>,
    /// R32: fenced in its own epoch; only newer metadata revives it.
    failed: bool,
    /// The error that was told last, so that each is told once.
    told: Option<ResponseError>,
}

/// What is fetched from one source.
#[derive(Debug)]
struct Source {
    id: NodeId,
    address: Mutex<String>,
    followed: Mutex<BTreeMap<PartitionId, Followed>>,
    changed: Notify,
}

/// All fetchers of a node.
#[derive(Debug)]
pub struct Fetchers {
    context: FetcherContext,
    sources: Mutex<BTreeMap<NodeId, Arc<Source>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Fetchers {
    /// Without anything to fetch yet.
    pub fn new(context: FetcherContext) -> Self {
        Self { context, sources: Mutex::default() }
    }

    /// `partition` follows `leader`, which is at `address`, in `epoch`.
    pub fn follow(
        &self,
        partition: &Arc<Partition>,
        leader: NodeId,
        address: &str,
        epoch: LeaderEpoch,
    ) {
        self.unfollow_elsewhere(partition.id, Some(leader));
        let source = self.source(leader, address);
        let mut followed = lock(&source.followed);
        if followed.get(&partition.id).is_some_and(|known| known.leader_epoch == epoch) {
            return;
        }
        let new = Followed {
            partition: Arc::clone(partition),
            leader_epoch: epoch,
            begun: false,
            not_before: None,
            failed: Bug::R32FailAlways.is_on()
                && followed.get(&partition.id).is_some_and(|known| known.failed),
            told: None,
        };
        followed.insert(partition.id, new);
        drop(followed);
        source.changed.notify_one();
    }

    /// The partition follows nobody.
    pub fn unfollow(&self, partition: PartitionId) {
        self.unfollow_elsewhere(partition, None);
    }

    fn unfollow_elsewhere(&self, partition: PartitionId, but: Option<NodeId>) {
        for source in lock(&self.sources).values() {
            if Some(source.id) != but {
                lock(&source.followed).remove(&partition);
            }
        }
    }

    fn source(&self, id: NodeId, address: &str) -> Arc<Source> {
        let mut sources = lock(&self.sources);
        let source = sources.entry(id).or_insert_with(|| {
            let source = Arc::new(Source {
                id,
                address: Mutex::new(address.to_owned()),
                followed: Mutex::default(),
                changed: Notify::new(),
            });
            tokio::spawn(run(Arc::clone(&source), self.context.clone()));
            source
        });
        address.clone_into(&mut lock(&source.address));
        Arc::clone(source)
    }
}

/// One partition of a fetch under way.
#[derive(Clone, Debug)]
struct Asked {
    partition: Arc<Partition>,
    epoch: LeaderEpoch,
    from: FetchFrom,
}

/// Fetches from one source for as long as the process lives; without partitions it sleeps.
async fn run(source: Arc<Source>, context: FetcherContext) {
    let mut connection: Option<Connection> = None;
    loop {
        let asked = match ready(&source) {
            Ok(asked) if asked.is_empty() => {
                connection = None;
                wait(&source).await;
                continue;
            }
            Ok(asked) => asked,
            Err(reason) => return context.fatal.stop(reason),
        };
        let fetching = fetch(&source, &context, connection.take(), &asked);
        let fetched = tokio::select! {
            biased;
            fetched = fetching => fetched,
            // Another partition shall be fetched at once, not after a long poll.
            () = source.changed.notified() => continue,
        };
        let (mut open, response) = match fetched {
            Ok(fetched) => fetched,
            Err(error) => {
                debug!(source = source.id.0, %error, "cannot fetch");
                sleep(context.settings.backoff).await;
                continue;
            }
        };
        if let Err(reason) = take(&source, &context, &mut open, &asked, response).await {
            return context.fatal.stop(reason);
        }
        connection = Some(open);
    }
}

/// Waits for another partition, or until one may be tried again.
async fn wait(source: &Source) {
    let soonest = lock(&source.followed)
        .values()
        .filter(|followed| !followed.failed)
        .filter_map(|followed| followed.not_before)
        .min();
    tokio::select! {
        biased;
        () = source.changed.notified() => {}
        () = async { sleep_until(soonest.unwrap_or_else(Instant::now)).await }, if soonest.is_some() => {}
    }
}

/// What can be fetched now. Fails only when a disk does.
fn ready(source: &Source) -> Result<BTreeMap<PartitionId, Asked>, String> {
    let now = Instant::now();
    let mut asked = BTreeMap::new();
    let mut gone = Vec::new();
    let mut followed = lock(&source.followed);
    for (id, followed) in followed.iter_mut() {
        if followed.failed || followed.not_before.is_some_and(|not_before| now < not_before) {
            continue;
        }
        let (partition, epoch) = (&followed.partition, followed.leader_epoch);
        if !followed.begun {
            partition
                .begin_following(source.id, epoch)
                .map_err(|error| format!("{}: {error}", partition.key()))?;
            followed.begun = true;
        }
        match partition.fetch_from(source.id, epoch) {
            Some(from) => {
                asked.insert(*id, Asked { partition: Arc::clone(partition), epoch, from });
            }
            None => gone.push(*id),
        }
    }
    for id in gone {
        followed.remove(&id);
    }
    Ok(asked)
}

async fn fetch(
    source: &Source,
    context: &FetcherContext,
    connection: Option<Connection>,
    asked: &BTreeMap<PartitionId, Asked>,
) -> Result<(Connection, FetchResponse), AskError> {
    let limit = context.settings.socket_timeout;
    let mut connection = if let Some(connection) = connection {
        connection
    } else {
        let address = lock(&source.address).clone();
        Connection::open(&address, limit).await?
    };
    let request = request(context, asked);
    let response =
        connection.ask(FETCH_VERSION, &request, limit + context.settings.wait_max).await?;
    Ok((connection, response))
}

fn request(context: &FetcherContext, asked: &BTreeMap<PartitionId, Asked>) -> FetchRequest {
    let settings = &context.settings;
    let mut topics: Vec<FetchTopic> = Vec::new();
    for (id, Asked { epoch, from, .. }) in asked {
        let partition = FetchPartition::default()
            .with_partition(id.index)
            .with_current_leader_epoch(epoch.0)
            .with_fetch_offset(from.offset.0)
            .with_last_fetched_epoch(from.last_epoch.map_or(-1, |epoch| epoch.0))
            .with_log_start_offset(from.log_start.0)
            .with_partition_max_bytes(settings.partition_bytes);
        match topics.last_mut() {
            Some(topic) if topic.topic_id == id.topic.0 => topic.partitions.push(partition),
            _ => topics.push(
                FetchTopic::default().with_topic_id(id.topic.0).with_partitions(vec![partition]),
            ),
        }
    }
    FetchRequest::default()
        .with_replica_state(
            ReplicaState::default()
                .with_replica_id(BrokerId(context.me.0))
                .with_replica_epoch(context.broker_epoch.borrow().0),
        )
        .with_max_wait_ms(i32::try_from(settings.wait_max.as_millis()).unwrap_or(i32::MAX))
        .with_min_bytes(settings.min_bytes)
        .with_max_bytes(settings.response_bytes)
        .with_session_epoch(-1)
        .with_topics(topics)
}

/// Takes what was answered. Fails only when a disk does.
async fn take(
    source: &Source,
    context: &FetcherContext,
    connection: &mut Connection,
    asked: &BTreeMap<PartitionId, Asked>,
    response: FetchResponse,
) -> Result<(), String> {
    if let Some(error) = response.error_code.err() {
        debug!(source = source.id.0, ?error, "the source refuses the fetch");
        sleep(context.settings.backoff).await;
        return Ok(());
    }
    let mut grown = BTreeMap::new();
    for topic in response.responses {
        for answer in topic.partitions {
            let id = PartitionId { topic: TopicId(topic.topic_id), index: answer.partition_index };
            let Some(asked) = asked.get(&id) else { continue };
            match answer.error_code.err() {
                None => match take_records(source, asked, answer)? {
                    Taken::Grown => {
                        grown.insert(id, Arc::clone(&asked.partition));
                    }
                    Taken::Nothing => {}
                    Taken::Bad => back_off(source, context, id),
                },
                Some(ResponseError::OffsetOutOfRange) => {
                    let settled = out_of_range(source, context, connection, asked).await;
                    if let Err(reason) = settled {
                        debug!(
                            key = asked.partition.key(),
                            reason, "cannot learn the leader's range"
                        );
                        back_off(source, context, id);
                    }
                }
                Some(error) => refused(source, context, id, asked, error),
            }
        }
    }
    if grown.values().any(|partition| partition.fsync) {
        // The next fetch says how far this log is: on disk by then.
        sync_all(grown).await?;
    }
    Ok(())
}

/// What an answer without an error was good for.
enum Taken {
    Grown,
    Nothing,
    /// It cannot be appended.
    Bad,
}

fn take_records(source: &Source, asked: &Asked, answer: PartitionData) -> Result<Taken, String> {
    let Asked { partition, epoch, from } = asked;
    let disk = |error| format!("{}: {error}", partition.key());
    if answer.diverging_epoch.epoch >= 0 && answer.diverging_epoch.end_offset >= 0 {
        let end = EpochEnd {
            epoch: LeaderEpoch(answer.diverging_epoch.epoch),
            end: Offset(answer.diverging_epoch.end_offset),
        };
        let high_watermark = Offset(answer.high_watermark);
        partition.diverged(source.id, *epoch, *from, end, high_watermark).map_err(disk)?;
        return Ok(Taken::Nothing);
    }
    let answer = FromLeader {
        records: answer.records.unwrap_or_default(),
        high_watermark: Offset(answer.high_watermark),
        log_start: Offset(answer.log_start_offset),
    };
    match partition.fetched(source.id, *epoch, *from, &answer) {
        Ok(true) => Ok(Taken::Grown),
        Ok(false) => Ok(Taken::Nothing),
        Err(error) if error.is_bad_data() => {
            // Damaged on the way, or on the leader's disk: ask again, but not at once.
            warn!(key = partition.key(), %error, "what the leader sent cannot be appended");
            Ok(Taken::Bad)
        }
        Err(error) => Err(disk(error)),
    }
}

fn refused(
    source: &Source,
    context: &FetcherContext,
    id: PartitionId,
    asked: &Asked,
    error: ResponseError,
) {
    if error == ResponseError::FencedLeaderEpoch {
        let mut followed = lock(&source.followed);
        if let Some(followed) = followed.get_mut(&id)
            && on_fenced(asked.epoch, followed.leader_epoch) == Fenced::Failed
        {
            info!(
                key = asked.partition.key(),
                leader_epoch = asked.epoch.0,
                "fenced in its own leader epoch; waits for newer metadata"
            );
            followed.failed = true;
        }
        return;
    }
    if let Some(followed) = lock(&source.followed).get_mut(&id)
        && followed.told.replace(error) != Some(error)
    {
        info!(
            key = asked.partition.key(),
            leader_epoch = asked.epoch.0,
            source = source.id.0,
            ?error,
            "cannot fetch"
        );
    }
    back_off(source, context, id);
}

fn back_off(source: &Source, context: &FetcherContext, id: PartitionId) {
    if let Some(followed) = lock(&source.followed).get_mut(&id) {
        followed.not_before = Some(Instant::now() + context.settings.backoff);
    }
}

/// This log ends outside the leader's: behind its end (an unclean election took records away), or
/// before its start (retention did).
async fn out_of_range(
    source: &Source,
    context: &FetcherContext,
    connection: &mut Connection,
    asked: &Asked,
) -> Result<(), String> {
    let Asked { partition, epoch, from } = asked;
    let disk = |error: crate::replica::store::StoreError| error.to_string();
    let latest = leader_offset(context, connection, asked, LATEST).await?;
    if latest < from.offset {
        let end = EpochEnd { epoch: from.last_epoch.unwrap_or(*epoch), end: latest };
        return partition.diverged(source.id, *epoch, *from, end, latest).map_err(disk);
    }
    let earliest = leader_offset(context, connection, asked, EARLIEST).await?;
    if earliest > from.offset {
        return partition.begin_anew(source.id, *epoch, earliest).map_err(disk);
    }
    Ok(())
}

async fn leader_offset(
    context: &FetcherContext,
    connection: &mut Connection,
    asked: &Asked,
    timestamp: i64,
) -> Result<Offset, String> {
    let partition = ListOffsetsPartition::default()
        .with_partition_index(asked.partition.id.index)
        .with_current_leader_epoch(asked.epoch.0)
        .with_timestamp(timestamp);
    let topic = TopicName(StrBytes::from_string(asked.partition.topic.to_string()));
    let request =
        ListOffsetsRequest::default().with_replica_id(BrokerId(context.me.0)).with_topics(vec![
            ListOffsetsTopic::default().with_name(topic).with_partitions(vec![partition]),
        ]);
    let limit: Duration = context.settings.socket_timeout;
    let response = connection
        .ask(LIST_OFFSETS_VERSION, &request, limit)
        .await
        .map_err(|error| error.to_string())?;
    let answer = response
        .topics
        .first()
        .and_then(|topic| topic.partitions.first())
        .ok_or("an answer without the partition")?;
    match answer.error_code.err() {
        None => Ok(Offset(answer.offset)),
        Some(error) => Err(format!("{error:?}")),
    }
}
