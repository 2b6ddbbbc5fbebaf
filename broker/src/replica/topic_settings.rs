//! A topic's settings, as its replicas need them.

use replication::metadata::Image;
use replication::metadata::settings::{effective, effective_number, find};
use replication::partition::Settings;

use crate::config::Config;
use crate::log::LogSettings;
use crate::replica::partition::TopicSettings;

/// What holds for `topic` on this node.
pub(super) fn topic_settings(image: &Image, topic: &str, config: &Config) -> TopicSettings {
    let defaults = &config.topic_defaults;
    let node = Some(config.node);
    let number = |name: &str| effective_number(image, defaults, node, topic, name);
    let text = |name: &str| {
        find(name)
            .map(|setting| effective(image, defaults, node, topic, setting).0)
            .unwrap_or_default()
    };
    let positive = |number: i64| u64::try_from(number).ok();
    let policy = text("cleanup.policy");
    let has = |wanted: &str| policy.split(',').any(|part| part.trim() == wanted);
    TopicSettings {
        replication: Settings {
            lag_max_ms: u64::try_from(config.times.replica_lag_max.as_millis()).unwrap_or(u64::MAX),
            min_insync_replicas: usize::try_from(number("min.insync.replicas")).unwrap_or(1),
        },
        log: LogSettings {
            segment_bytes: positive(number("segment.bytes")).unwrap_or(u64::MAX),
            segment_ms: number("segment.ms"),
            index_interval_bytes: positive(number("index.interval.bytes")).unwrap_or(0),
            max_message_bytes: usize::try_from(number("max.message.bytes")).unwrap_or(usize::MAX),
            retention_ms: Some(number("retention.ms")).filter(|ms| *ms >= 0),
            retention_bytes: positive(number("retention.bytes")),
            deletes: has("delete"),
            compacts: has("compact"),
            min_dirty_ratio: text("min.cleanable.dirty.ratio").parse().unwrap_or(0.5),
            delete_retention_ms: number("delete.retention.ms"),
            log_append_time: text("message.timestamp.type") == "LogAppendTime",
        },
    }
}
