//! DescribeLogDirs: what lies on this node's disk.

use std::collections::BTreeMap;
use std::sync::Arc;

use kafka_protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use kafka_protocol::messages::{DescribeLogDirsRequest, DescribeLogDirsResponse, TopicName};
use kafka_protocol::protocol::StrBytes;
use nix::sys::statvfs::statvfs;

use crate::server::dispatch::Arrived;
use crate::server::services::Services;

/// Answers.
pub(in crate::server) async fn handle(
    request: DescribeLogDirsRequest,
    _arrived: &Arrived,
    services: &Arc<Services>,
) -> DescribeLogDirsResponse {
    let wanted = |topic: &str, index: i32| {
        request.topics.as_ref().is_none_or(|topics| {
            topics
                .iter()
                .any(|asked| asked.topic.as_str() == topic && asked.partitions.contains(&index))
        })
    };
    let mut topics: BTreeMap<String, Vec<DescribeLogDirsPartition>> = BTreeMap::new();
    for replica in services.replicas.all() {
        if wanted(&replica.topic, replica.id.index) {
            topics.entry(replica.topic.to_string()).or_default().push(
                DescribeLogDirsPartition::default()
                    .with_partition_index(replica.id.index)
                    .with_partition_size(i64::try_from(replica.log_bytes()).unwrap_or(i64::MAX)),
            );
        }
    }
    let dir = &services.config.log_dir;
    let (total, usable) = statvfs(dir).map_or((-1, -1), |disk| {
        let bytes = |blocks: u64| {
            i64::try_from(blocks.saturating_mul(disk.fragment_size())).unwrap_or(i64::MAX)
        };
        (bytes(disk.blocks()), bytes(disk.blocks_available()))
    });
    let topics = topics.into_iter().map(|(name, partitions)| {
        DescribeLogDirsTopic::default()
            .with_name(TopicName(StrBytes::from_string(name)))
            .with_partitions(partitions)
    });
    DescribeLogDirsResponse::default().with_results(vec![
        DescribeLogDirsResult::default()
            .with_log_dir(StrBytes::from_string(dir.display().to_string()))
            .with_topics(topics.collect())
            .with_total_bytes(total)
            .with_usable_bytes(usable),
    ])
}
