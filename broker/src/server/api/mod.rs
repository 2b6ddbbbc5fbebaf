//! One file an API, or a family of them. A handler takes a request, answers it, and fails only
//! when the connection must be closed.
//!
//! | APIs | module |
//! |---|---|
//! | Produce | [`produce`] |
//! | Fetch | [`fetch`] |
//! | ListOffsets | [`list_offsets`] |
//! | OffsetForLeaderEpoch | [`leader_epoch`] |
//! | DeleteRecords | [`delete_records`] |
//! | Metadata | [`metadata`] |
//! | DescribeTopicPartitions | [`topic_partitions`] |
//! | DescribeCluster, DescribeQuorum | [`cluster`] |
//! | DescribeConfigs, IncrementalAlterConfigs | [`configs`] |
//! | DescribeLogDirs | [`log_dirs`] |
//! | InitProducerId | [`init_producer_id`] |
//! | DescribeProducers | [`producers`] |
//! | FindCoordinator | [`find_coordinator`] |
//! | groups and their offsets | [`groups`] |
//! | topics, reassignments, elections, all done by the controller | [`admin`] |
//! | what brokers ask controllers | [`controllers`] |
//! | ApiVersions | [`api_versions`] |
#![allow(clippy::unused_async, reason = "every handler has the same shape")]

pub(super) mod admin;
pub(super) mod api_versions;
pub(super) mod cluster;
pub(super) mod configs;
pub(super) mod controllers;
pub(super) mod delete_records;
pub(super) mod fetch;
pub(super) mod find_coordinator;
pub(super) mod groups;
pub(super) mod init_producer_id;
pub(super) mod leader_epoch;
pub(super) mod list_offsets;
pub(super) mod log_dirs;
pub(super) mod metadata;
pub(super) mod produce;
pub(super) mod producers;
pub(super) mod topic_partitions;
