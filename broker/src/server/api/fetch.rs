//! Fetch: by consumers and by followers; waits for records without looking twice.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::select_all;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::fetch_request::FetchPartition;
use kafka_protocol::messages::fetch_response::{
    EpochEndOffset, FetchableTopicResponse, LeaderIdAndEpoch, NodeEndpoint, PartitionData,
};
use kafka_protocol::messages::{FetchRequest, FetchResponse};
use kafka_protocol::protocol::StrBytes;
use replication::types::{BrokerEpoch, LeaderEpoch, NodeId, Offset};
use tokio::time::{Instant, timeout};

use crate::replica::{Asker, FetchedByFollower, Found, Partition, ReadRequest};
use crate::server::budget::Share;
use crate::server::dispatch::{Answer, Arrived, encode};
use crate::server::services::{Services, TopicRef};

/// Versions from here on may be answered by any replica (KIP-392).
const FIRST_FROM_ANY: i16 = 11;
/// A fetch gets at least so much of the memory for responses …
const LEAST_SHARE: usize = 64 * 1024;
/// … or, after waiting for so long, nothing this time.
const MEMORY_WAIT: Duration = Duration::from_millis(100);

/// One partition of a fetch.
struct Wanted {
    topic: usize,
    index: i32,
    replica: Result<Arc<Partition>, ResponseError>,
    read: ReadRequest,
}

/// Answers a fetch.
pub(in crate::server) async fn handle(
    request: FetchRequest,
    arrived: &Arrived,
    services: &Services,
) -> anyhow::Result<Answer> {
    if request.session_id != 0 || request.session_epoch > 0 {
        // No sessions are kept: a client that believes in one shall begin with a full fetch.
        let error = ResponseError::FetchSessionIdNotFound.code();
        return encode(&arrived.header, &FetchResponse::default().with_error_code(error));
    }
    let millis = u64::try_from(request.max_wait_ms).unwrap_or(0);
    let until = Instant::now() + Duration::from_millis(millis);
    let most = size(request.max_bytes).min(services.config.limits.fetch_bytes);
    let least = size(request.min_bytes).min(most);
    let mut wanted = wanted(&request, arrived.header.api_version, services);
    let looks = wanted.iter().map(|wanted| match wanted.look() {
        Some(found) if found.diverging.is_none() => Look::CanWait,
        _ => Look::Settled,
    });
    if !is_settled(looks) {
        await_bytes(&wanted, least as u64, until).await;
    }
    for wanted in &mut wanted {
        wanted.read.records_progress = false;
    }
    let readable = readable(&wanted).min(most as u64);
    let share = share(services, usize::try_from(readable).unwrap_or(most)).await;
    let most = share.as_ref().map_or(0, Share::bytes).min(most);
    let response = read_all(&request, &wanted, most, arrived, services);
    let answer = encode(&arrived.header, &response)?;
    Ok(match answer {
        Answer::Frame { bytes, .. } => Answer::Frame { bytes, held: share },
        other => other,
    })
}

/// What a first look at a partition says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// There is an answer, an error or where the logs diverge, that does not get better by waiting.
    Settled,
    /// More records may come.
    CanWait,
}

/// Is there an answer that shall not wait? The look tells the leader where a follower is: each
/// partition is looked at, whatever the others say, or their followers would drop out of the ISR.
fn is_settled(looks: impl Iterator<Item = Look>) -> bool {
    let mut settled = false;
    for look in looks {
        settled |= look == Look::Settled;
    }
    settled
}

fn size(bytes: i32) -> usize {
    usize::try_from(bytes).unwrap_or(0)
}

async fn share(services: &Services, bytes: usize) -> Option<Share> {
    let least = LEAST_SHARE.min(bytes);
    match services.responses.take_now(bytes, least) {
        Some(share) => Some(share),
        None => timeout(MEMORY_WAIT, services.responses.take(least)).await.ok(),
    }
}

fn wanted(request: &FetchRequest, version: i16, services: &Services) -> Vec<Wanted> {
    let follower = follower_of(request);
    let mut all = Vec::new();
    for (topic, asked) in request.topics.iter().enumerate() {
        let of = TopicRef { name: &asked.topic, id: asked.topic_id };
        for partition in &asked.partitions {
            all.push(Wanted {
                topic,
                index: partition.partition,
                replica: services.replica(of, partition.partition),
                read: read_request(partition, follower, version),
            });
        }
    }
    all
}

/// Who fetches, if it is a broker; consumers say -1.
fn follower_of(request: &FetchRequest) -> Option<(NodeId, BrokerEpoch)> {
    let (id, epoch) = match request.replica_id.0 {
        -1 => (request.replica_state.replica_id.0, request.replica_state.replica_epoch),
        id => (id, -1),
    };
    (id >= 0).then_some((NodeId(id), BrokerEpoch(epoch)))
}

fn read_request(
    partition: &FetchPartition,
    follower: Option<(NodeId, BrokerEpoch)>,
    version: i16,
) -> ReadRequest {
    let known = |epoch: i32| (epoch >= 0).then_some(LeaderEpoch(epoch));
    let asker = match follower {
        None => Asker::Consumer { leader_only: version < FIRST_FROM_ANY },
        Some((from, broker_epoch)) => Asker::Follower(FetchedByFollower {
            from,
            broker_epoch,
            log_start: Offset(partition.log_start_offset),
        }),
    };
    ReadRequest {
        asker,
        from: Offset(partition.fetch_offset),
        max_bytes: size(partition.partition_max_bytes),
        at_least_one: false,
        current_leader_epoch: known(partition.current_leader_epoch),
        last_fetched_epoch: known(partition.last_fetched_epoch),
        records_progress: true,
    }
}

impl Wanted {
    /// Looks without reading; `None` where the answer is an error.
    fn look(&self) -> Option<Found> {
        let replica = self.replica.as_ref().ok()?;
        replica.read(&ReadRequest { max_bytes: 0, ..self.read }).ok()
    }

    fn readable_bytes(&self) -> u64 {
        let Ok(replica) = &self.replica else { return 0 };
        let most = self.read.max_bytes as u64;
        let readable = replica.readable_bytes(&self.read.asker, self.read.from);
        // One batch is given in any case, however large it is.
        if most == 0 { readable } else { readable.min(most.max(LEAST_SHARE as u64)) }
    }
}

fn readable(wanted: &[Wanted]) -> u64 {
    wanted.iter().map(Wanted::readable_bytes).sum()
}

/// Waits until `least` bytes can be read, something changes that ends the waiting, or `until`.
async fn await_bytes(wanted: &[Wanted], least: u64, until: Instant) {
    let mut watches: Vec<_> = wanted
        .iter()
        .filter_map(|wanted| wanted.replica.as_ref().ok())
        .map(|replica| replica.watch())
        .collect();
    let begun: Vec<_> = watches
        .iter_mut()
        .map(|watch| {
            let progress = *watch.borrow_and_update();
            (progress.leader_epoch, progress.leads)
        })
        .collect();
    while readable(wanted) < least {
        if watches.is_empty() {
            return tokio::time::sleep_until(until).await;
        }
        let changed = select_all(watches.iter_mut().map(|watch| Box::pin(watch.changed())));
        let Ok((Ok(()), which, _)) = tokio::time::timeout_at(until, changed).await else { return };
        let now = *watches[which].borrow_and_update();
        if now.closed || (now.leader_epoch, now.leads) != begun[which] {
            return;
        }
    }
}

fn read_all(
    request: &FetchRequest,
    wanted: &[Wanted],
    most: usize,
    arrived: &Arrived,
    services: &Services,
) -> FetchResponse {
    let mut topics: Vec<FetchableTopicResponse> = request
        .topics
        .iter()
        .map(|topic| {
            FetchableTopicResponse::default()
                .with_topic(topic.topic.clone())
                .with_topic_id(topic.topic_id)
                .with_partitions(Vec::with_capacity(topic.partitions.len()))
        })
        .collect();
    let mut left = most;
    let mut nothing_yet = true;
    let mut leaders = Vec::new();
    for wanted in wanted {
        let outcome = wanted.replica.as_ref().map_err(|error| *error).and_then(|replica| {
            replica.read(&ReadRequest {
                max_bytes: wanted.read.max_bytes.min(left),
                at_least_one: nothing_yet && left > 0,
                ..wanted.read
            })
        });
        let mut data = PartitionData::default().with_partition_index(wanted.index);
        match outcome {
            Ok(found) => {
                left = left.saturating_sub(found.records.len());
                nothing_yet &= found.records.is_empty();
                services.metrics.fetched(found.records.len());
                data = partition_data(data, found);
            }
            Err(error) => {
                data = refused(data, error);
                let asked = &request.topics[wanted.topic];
                let of = TopicRef { name: &asked.topic, id: asked.topic_id };
                if let Some((leader, epoch)) = services.leader(of, wanted.index) {
                    data.current_leader = LeaderIdAndEpoch::default()
                        .with_leader_id(leader.0.into())
                        .with_leader_epoch(epoch.0);
                    leaders.push(leader);
                }
            }
        }
        if let Some(topic) = topics.get_mut(wanted.topic) {
            topic.partitions.push(data);
        }
    }
    let endpoints = services.endpoints(&leaders, &arrived.origin.listener).map(|endpoint| {
        NodeEndpoint::default()
            .with_node_id(endpoint.id.0.into())
            .with_host(StrBytes::from_string(endpoint.host))
            .with_port(endpoint.port)
    });
    FetchResponse::default().with_node_endpoints(endpoints.collect()).with_responses(topics)
}

fn partition_data(data: PartitionData, found: Found) -> PartitionData {
    let data = data
        .with_high_watermark(found.high_watermark.0)
        // Without transactions nothing is undecided.
        .with_last_stable_offset(found.high_watermark.0)
        .with_log_start_offset(found.log_start.0)
        .with_aborted_transactions(None)
        .with_records(Some(found.records));
    match found.diverging {
        None => data,
        Some(end) => data.with_diverging_epoch(
            EpochEndOffset::default().with_epoch(end.epoch.0).with_end_offset(end.end.0),
        ),
    }
}

fn refused(data: PartitionData, error: ResponseError) -> PartitionData {
    data.with_error_code(error.code())
        .with_high_watermark(-1)
        .with_last_stable_offset(-1)
        .with_log_start_offset(-1)
        .with_aborted_transactions(None)
        .with_records(Some(Bytes::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_partition_is_looked_at_whatever_the_ones_before_it_say() {
        for (looks, settled) in [
            (vec![Look::Settled, Look::CanWait, Look::CanWait], true),
            (vec![Look::CanWait, Look::Settled, Look::CanWait], true),
            (vec![Look::CanWait, Look::CanWait], false),
            (vec![], false),
        ] {
            let mut looked_at = 0;
            let all = looks.len();
            let looks = looks.into_iter().inspect(|_| looked_at += 1);
            assert_eq!(is_settled(looks), settled);
            assert_eq!(looked_at, all);
        }
    }
}
