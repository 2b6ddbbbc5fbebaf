//! ListOffsets: the ends of a partition, or the place of a time.

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::list_offsets_request::ListOffsetsPartition;
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::{ListOffsetsRequest, ListOffsetsResponse};
use replication::types::{BrokerEpoch, LeaderEpoch, NodeId, Offset};
use uuid::Uuid;

use crate::replica::{Asker, FetchedByFollower, Partition};
use crate::server::dispatch::Arrived;
use crate::server::services::{Services, TopicRef};

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
/// The offset with the greatest timestamp (KIP-734).
const MAX_TIMESTAMP: i64 = -3;
/// The beginning of what is here and not in a remote tier: there is no remote tier.
const EARLIEST_LOCAL: i64 = -4;
/// The first version that tells epochs.
const FIRST_WITH_EPOCHS: i16 = 4;
/// The replica id of whoever looks at a replica's own end.
const OBSERVER: i32 = -2;

/// Answers.
pub(in crate::server) async fn handle(
    request: ListOffsetsRequest,
    arrived: &Arrived,
    services: &Arc<Services>,
) -> ListOffsetsResponse {
    let asker = match request.replica_id.0 {
        OBSERVER => Asker::Observer,
        id if id >= 0 => Asker::Follower(FetchedByFollower {
            from: NodeId(id),
            broker_epoch: BrokerEpoch::BYPASS,
            log_start: Offset::UNDEFINED,
        }),
        _ => Asker::Consumer { leader_only: true },
    };
    let tells_epochs = arrived.header.api_version >= FIRST_WITH_EPOCHS;
    let topics = request.topics.iter().map(|topic| {
        let of = TopicRef { name: &topic.name, id: Uuid::nil() };
        let partitions = topic.partitions.iter().map(|asked| {
            let found = services
                .replica(of, asked.partition_index)
                .and_then(|replica| find(&replica, asked, &asker));
            let response =
                ListOffsetsPartitionResponse::default().with_partition_index(asked.partition_index);
            match found {
                Ok((timestamp, offset, epoch)) => response
                    .with_timestamp(timestamp)
                    .with_offset(offset.0)
                    .with_leader_epoch(epoch.filter(|_| tells_epochs).map_or(-1, |epoch| epoch.0)),
                Err(error) => response
                    .with_error_code(error.code())
                    .with_timestamp(-1)
                    .with_offset(-1)
                    .with_leader_epoch(-1),
            }
        });
        ListOffsetsTopicResponse::default()
            .with_name(topic.name.clone())
            .with_partitions(partitions.collect())
    });
    ListOffsetsResponse::default().with_topics(topics.collect())
}

type Place = (i64, Offset, Option<LeaderEpoch>);

fn find(
    replica: &Partition,
    wanted: &ListOffsetsPartition,
    asker: &Asker,
) -> Result<Place, ResponseError> {
    let known =
        (wanted.current_leader_epoch >= 0).then_some(LeaderEpoch(wanted.current_leader_epoch));
    match wanted.timestamp {
        LATEST => replica.latest(asker, known).map(|(offset, epoch)| (-1, offset, Some(epoch))),
        EARLIEST | EARLIEST_LOCAL => {
            replica.earliest(asker, known).map(|(offset, epoch)| (-1, offset, epoch))
        }
        MAX_TIMESTAMP => replica
            .offset_of_max_timestamp(asker, known)
            .map(|place| place.unwrap_or((-1, Offset::UNDEFINED, None))),
        timestamp if timestamp >= 0 => replica
            .offset_for_timestamp(asker, timestamp, known)
            .map(|place| place.unwrap_or((-1, Offset::UNDEFINED, None))),
        _ => Err(ResponseError::UnsupportedVersion),
    }
}
