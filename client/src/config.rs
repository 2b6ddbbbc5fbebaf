//! Plans as librdkafka settings.

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use workloads::{Acks, Compression, ConsumerPlan, Isolation, ProducerPlan};

/// What every client is set to. Time-outs are shorter than librdkafka's, so that a client finds
/// its way back within seconds of the end of a fault.
fn base(bootstrap: &str, client_id: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", bootstrap)
        .set("client.id", client_id)
        .set("socket.timeout.ms", "10000")
        .set("socket.connection.setup.timeout.ms", "5000")
        .set("socket.keepalive.enable", "true")
        .set("socket.nagle.disable", "true")
        .set("reconnect.backoff.ms", "100")
        .set("reconnect.backoff.max.ms", "1000")
        .set("topic.metadata.refresh.interval.ms", "30000")
        .set("allow.auto.create.topics", "false")
        .set("log.connection.close", "false")
        .set_log_level(RDKafkaLogLevel::Info);
    config
}

/// Settings of a producer client.
pub(crate) fn producer(plan: &ProducerPlan, bootstrap: &str, client_id: &str) -> ClientConfig {
    let mut config = base(bootstrap, client_id);
    let acks = match plan.acks {
        Acks::None => "0",
        Acks::Leader => "1",
        Acks::All => "all",
    };
    let compression = match plan.compression {
        Compression::None => "none",
        Compression::Gzip => "gzip",
        Compression::Snappy => "snappy",
        Compression::Lz4 => "lz4",
    };
    let idempotent = plan.is_idempotent();
    if idempotent {
        // A record that is left out of the sequence makes librdkafka change its epoch, after
        // which retries of others are no longer known as such and may be written twice. So no
        // record times out inside (the client is given up as a whole instead), and one that is
        // refused for good stops the client.
        config
            .set("message.timeout.ms", i32::MAX.to_string())
            .set("enable.gapless.guarantee", "true");
    } else {
        config.set("message.timeout.ms", plan.delivery_timeout_ms.to_string());
    }
    let retries = plan.retries.or((!idempotent).then_some(0));
    config
        .set("acks", acks)
        .set("enable.idempotence", idempotent.to_string())
        .set("linger.ms", plan.linger_ms.to_string())
        .set("batch.size", plan.batch_bytes.to_string())
        .set("batch.num.messages", plan.batch_records.to_string())
        .set("max.in.flight.requests.per.connection", plan.max_in_flight.to_string())
        .set("request.timeout.ms", plan.request_timeout_ms.to_string())
        .set("compression.type", compression);
    if let Some(retries) = retries {
        config.set("message.send.max.retries", retries.to_string());
    }
    for (key, value) in &plan.extra {
        config.set(key, value);
    }
    config
}

/// Does a producer with these settings ever hear that a record was written?
pub(crate) fn is_acknowledged(config: &ClientConfig) -> bool {
    ["acks", "request.required.acks"].iter().all(|name| config.get(name) != Some("0"))
}

/// Settings of a consumer client in `group`, under `instance` if it is a static member.
pub(crate) fn consumer(
    plan: &ConsumerPlan,
    bootstrap: &str,
    client_id: &str,
    group: &str,
    instance: Option<&str>,
) -> ClientConfig {
    let mut config = base(bootstrap, client_id);
    let isolation = match plan.isolation {
        Isolation::ReadCommitted => "read_committed",
        Isolation::ReadUncommitted => "read_uncommitted",
    };
    config
        .set("group.id", group)
        .set("session.timeout.ms", plan.session_timeout_ms.to_string())
        .set("heartbeat.interval.ms", (plan.session_timeout_ms / 4).max(1).to_string())
        .set("isolation.level", isolation)
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        // A position that the log no longer holds is an error to be seen, not to be stepped over.
        .set("auto.offset.reset", "error")
        .set("enable.partition.eof", "true")
        .set("check.crcs", "true")
        .set("fetch.min.bytes", plan.fetch_min_bytes.to_string())
        .set("fetch.wait.max.ms", plan.fetch_wait_ms.to_string())
        .set("fetch.error.backoff.ms", "100");
    if let Some(instance) = instance {
        config.set("group.instance.id", instance);
    }
    for (key, value) in &plan.extra {
        config.set(key, value);
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_safe_and_known_to_librdkafka() {
        let config = producer(&ProducerPlan::default(), "127.0.0.1:1", "p");
        assert_eq!(config.get("acks"), Some("all"));
        assert_eq!(config.get("enable.idempotence"), Some("true"));
        assert_eq!(config.get("message.send.max.retries"), None);
        assert!(is_acknowledged(&config));
        config.create_native_config().unwrap();
        let config = consumer(&ConsumerPlan::default(), "127.0.0.1:1", "c", "g", Some("g-1"));
        assert_eq!(config.get("auto.offset.reset"), Some("error"));
        config.create_native_config().unwrap();
    }

    #[test]
    fn free_form_settings_come_last() {
        let plan = ProducerPlan {
            acks: Acks::Leader,
            extra: [("acks".to_owned(), "0".to_owned())].into(),
            ..ProducerPlan::default()
        };
        let config = producer(&plan, "127.0.0.1:1", "p");
        assert!(!is_acknowledged(&config));
        assert_eq!(config.get("enable.idempotence"), Some("false"));
        assert_eq!(config.get("message.send.max.retries"), Some("0"));
    }
}
