//! The table: every request that the broker serves, field by field, as Kafka 4.1 and the library
//! have them.
//!
//! | requests | module |
//! |---|---|
//! | partitions' logs | `log` |
//! | consumer groups | `group` |
//! | topics and settings | `topic` |
//! | the cluster and its nodes | `cluster` |
//!
//! The versions are those that the library decodes, which is also what `ApiVersions` may offer at
//! most. `ApiKey::valid_versions` of the library is no substitute: for `OffsetCommit`,
//! `OffsetFetch` and `InitProducerId` it names a version that only the response has.

mod cluster;
mod group;
mod log;
mod topic;

use super::field::Request;

/// Every request that the broker serves, by key.
pub static REQUESTS: &[&Request] = &[
    &log::PRODUCE,
    &log::FETCH,
    &log::LIST_OFFSETS,
    &topic::METADATA,
    &group::OFFSET_COMMIT,
    &group::OFFSET_FETCH,
    &group::FIND_COORDINATOR,
    &group::JOIN_GROUP,
    &group::HEARTBEAT,
    &group::LEAVE_GROUP,
    &group::SYNC_GROUP,
    &group::DESCRIBE_GROUPS,
    &group::LIST_GROUPS,
    &cluster::API_VERSIONS,
    &topic::CREATE_TOPICS,
    &topic::DELETE_TOPICS,
    &log::DELETE_RECORDS,
    &log::INIT_PRODUCER_ID,
    &log::OFFSET_FOR_LEADER_EPOCH,
    &topic::DESCRIBE_CONFIGS,
    &topic::ALTER_CONFIGS,
    &topic::DESCRIBE_LOG_DIRS,
    &topic::CREATE_PARTITIONS,
    &group::DELETE_GROUPS,
    &topic::ELECT_LEADERS,
    &topic::INCREMENTAL_ALTER_CONFIGS,
    &topic::ALTER_PARTITION_REASSIGNMENTS,
    &topic::LIST_PARTITION_REASSIGNMENTS,
    &group::OFFSET_DELETE,
    &cluster::DESCRIBE_QUORUM,
    &cluster::ALTER_PARTITION,
    &cluster::UPDATE_FEATURES,
    &cluster::DESCRIBE_CLUSTER,
    &log::DESCRIBE_PRODUCERS,
    &cluster::BROKER_REGISTRATION,
    &cluster::BROKER_HEARTBEAT,
    &cluster::UNREGISTER_BROKER,
    &cluster::ALLOCATE_PRODUCER_IDS,
    &topic::LIST_CONFIG_RESOURCES,
    &topic::DESCRIBE_TOPIC_PARTITIONS,
];

/// The request of that API, if the broker serves it.
pub fn request(api_key: i16) -> Option<&'static Request> {
    let at = REQUESTS.binary_search_by_key(&api_key, |request| request.key).ok()?;
    REQUESTS.get(at).copied()
}
