//! The library's side of each API, without its types.

use std::fmt::Debug;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{self, ApiKey};
use kafka_protocol::protocol::{Request as LibraryRequest, VersionRange};

use crate::wire::field::Request;

/// What the library does with an API's request.
pub(super) struct Library {
    pub(super) versions: VersionRange,
    pub(super) header_version: fn(i16) -> i16,
    pub(super) decode: fn(&Bytes, i16) -> Result<Decoded, String>,
    pub(super) default: fn(i16) -> Result<Bytes, String>,
}

/// A body that the library decoded.
pub(super) struct Decoded {
    pub(super) used_bytes: usize,
    /// Encoded anew, and found to say the same.
    pub(super) again: Bytes,
}

impl Library {
    fn of<R: LibraryRequest + Default + PartialEq + Debug>() -> Self {
        Self {
            versions: R::VERSIONS,
            header_version: R::header_version,
            decode: decode::<R>,
            default: |version| encode(&R::default(), version),
        }
    }
}

fn encode<R: LibraryRequest>(request: &R, version: i16) -> Result<Bytes, String> {
    let size = request.compute_size(version).map_err(|error| error.to_string())?;
    let mut bytes = BytesMut::with_capacity(size);
    request.encode(&mut bytes, version).map_err(|error| error.to_string())?;
    assert_eq!(bytes.len(), size);
    Ok(bytes.freeze())
}

fn decode<R: LibraryRequest + PartialEq + Debug>(
    body: &Bytes,
    version: i16,
) -> Result<Decoded, String> {
    let mut left = body.clone();
    let request = R::decode(&mut left, version).map_err(|error| error.to_string())?;
    let used_bytes = body.len() - left.len();
    let again = encode(&request, version)?;
    let same = R::decode(&mut again.clone(), version).map_err(|error| error.to_string())?;
    assert_eq!(request, same);
    Ok(Decoded { used_bytes, again })
}

macro_rules! libraries {
    ($($api:ident: $request:ident,)*) => {
        pub(super) fn library(request: &Request) -> Library {
            match ApiKey::try_from(request.key) {
                $(Ok(ApiKey::$api) => Library::of::<messages::$request>(),)*
                other => panic!("{}: {other:?}", request.name),
            }
        }
    };
}

libraries! {
    Produce: ProduceRequest,
    Fetch: FetchRequest,
    ListOffsets: ListOffsetsRequest,
    Metadata: MetadataRequest,
    OffsetCommit: OffsetCommitRequest,
    OffsetFetch: OffsetFetchRequest,
    FindCoordinator: FindCoordinatorRequest,
    JoinGroup: JoinGroupRequest,
    Heartbeat: HeartbeatRequest,
    LeaveGroup: LeaveGroupRequest,
    SyncGroup: SyncGroupRequest,
    DescribeGroups: DescribeGroupsRequest,
    ListGroups: ListGroupsRequest,
    ApiVersions: ApiVersionsRequest,
    CreateTopics: CreateTopicsRequest,
    DeleteTopics: DeleteTopicsRequest,
    DeleteRecords: DeleteRecordsRequest,
    InitProducerId: InitProducerIdRequest,
    OffsetForLeaderEpoch: OffsetForLeaderEpochRequest,
    DescribeConfigs: DescribeConfigsRequest,
    AlterConfigs: AlterConfigsRequest,
    DescribeLogDirs: DescribeLogDirsRequest,
    CreatePartitions: CreatePartitionsRequest,
    DeleteGroups: DeleteGroupsRequest,
    ElectLeaders: ElectLeadersRequest,
    IncrementalAlterConfigs: IncrementalAlterConfigsRequest,
    AlterPartitionReassignments: AlterPartitionReassignmentsRequest,
    ListPartitionReassignments: ListPartitionReassignmentsRequest,
    OffsetDelete: OffsetDeleteRequest,
    DescribeQuorum: DescribeQuorumRequest,
    AlterPartition: AlterPartitionRequest,
    UpdateFeatures: UpdateFeaturesRequest,
    DescribeCluster: DescribeClusterRequest,
    DescribeProducers: DescribeProducersRequest,
    BrokerRegistration: BrokerRegistrationRequest,
    BrokerHeartbeat: BrokerHeartbeatRequest,
    UnregisterBroker: UnregisterBrokerRequest,
    AllocateProducerIds: AllocateProducerIdsRequest,
    ListConfigResources: ListConfigResourcesRequest,
    DescribeTopicPartitions: DescribeTopicPartitionsRequest,
}
