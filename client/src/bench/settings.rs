//! What librdkafka is told by each load driver.

use std::collections::BTreeMap;

use rdkafka::ClientConfig;
use workloads::{Acks, ConsumerPlan, ProducerPlan};

use crate::config;

/// Payload bytes that a producer at full speed may have without an answer. Enough to keep every
/// broker busy; more would only make each record wait longer in the client's own queue.
pub(super) const OPEN_BYTES: usize = 4 << 20;
/// Fewest and most records that this makes.
const OPEN_RECORDS: (usize, usize) = (16, 90_000);
/// Largest batch of a producer at full speed.
const BATCH_BYTES: u32 = 128 << 10;

/// Records of `record_bytes` that may be without an answer at full speed.
pub(super) fn open_records(record_bytes: usize) -> usize {
    (OPEN_BYTES / record_bytes.max(1)).clamp(OPEN_RECORDS.0, OPEN_RECORDS.1)
}

/// Full speed: batches fill for 5 ms, and five requests are in flight to each broker, Kafka's own
/// number for idempotent producers. No fault strikes here, so that what the rig fears of more than
/// one does not come up.
pub(super) fn full_speed(bootstrap: &str) -> ClientConfig {
    let plan = ProducerPlan {
        linger_ms: 5,
        batch_bytes: BATCH_BYTES,
        max_in_flight: 5,
        extra: [
            ("queue.buffering.max.messages".to_owned(), "100000".to_owned()),
            ("queue.buffering.max.kbytes".to_owned(), (4 * OPEN_BYTES / 1024).to_string()),
        ]
        .into(),
        ..safe()
    };
    config::producer(&plan, bootstrap, "highwater-bench-produce")
}

/// A modest rate: nothing waits for company.
pub(super) fn paced(bootstrap: &str) -> ClientConfig {
    let plan = ProducerPlan { linger_ms: 0, max_in_flight: 5, ..safe() };
    config::producer(&plan, bootstrap, "highwater-bench-latency")
}

/// The rig's ordinary producer, without linger.
pub(super) fn beacon(bootstrap: &str, idempotent: bool) -> ClientConfig {
    let plan = ProducerPlan { linger_ms: 0, idempotence: Some(idempotent), ..safe() };
    config::producer(&plan, bootstrap, "highwater-bench-beacon")
}

/// One that reads what comes: Kafka's own fetch settings.
pub(super) fn tail_reader(bootstrap: &str) -> ClientConfig {
    consumer(bootstrap, 500)
}

/// One that reads what is there. Where there is no more, brokers answer at once: a fetch that still
/// waits at one of them would hold up the next pass from there.
pub(super) fn bulk_reader(bootstrap: &str) -> ClientConfig {
    consumer(bootstrap, 10)
}

/// Back to fetching soon after the client's queue was full: the one second that librdkafka waits by
/// itself would be the measurement.
fn consumer(bootstrap: &str, fetch_wait_ms: u32) -> ClientConfig {
    let plan = ConsumerPlan {
        fetch_min_bytes: 1,
        fetch_wait_ms,
        extra: [
            ("fetch.queue.backoff.ms".to_owned(), "10".to_owned()),
            ("queued.max.messages.kbytes".to_owned(), "65536".to_owned()),
        ]
        .into(),
        ..ConsumerPlan::default()
    };
    config::consumer(&plan, bootstrap, "highwater-bench-consume", "highwater-bench", None)
}

fn safe() -> ProducerPlan {
    ProducerPlan { acks: Acks::All, idempotence: Some(true), ..ProducerPlan::default() }
}

/// By load driver, the librdkafka settings that differ from its own, for the record.
pub fn client_settings() -> BTreeMap<String, BTreeMap<String, String>> {
    let told = |config: &ClientConfig| {
        config
            .config_map()
            .into_iter()
            // Another for each cluster.
            .filter(|(key, _)| *key != "bootstrap.servers")
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    };
    [
        ("produce", full_speed("")),
        ("consume", bulk_reader("")),
        ("latency", paced("")),
        ("latency-reader", tail_reader("")),
        ("failover", beacon("", true)),
        ("start", beacon("", false)),
    ]
    .into_iter()
    .map(|(driver, config)| (driver.to_owned(), told(&config)))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_producer_is_idempotent_at_acks_all_and_librdkafka_knows_every_setting() {
        for config in [full_speed("127.0.0.1:1"), paced("127.0.0.1:1"), beacon("127.0.0.1:1", true)]
        {
            assert_eq!(config.get("acks"), Some("all"));
            assert_eq!(config.get("enable.idempotence"), Some("true"));
            config.create_native_config().unwrap();
        }
        let plain = beacon("127.0.0.1:1", false);
        assert_eq!(
            (plain.get("acks"), plain.get("enable.idempotence")),
            (Some("all"), Some("false"))
        );
        plain.create_native_config().unwrap();
        for config in [bulk_reader("127.0.0.1:1"), tail_reader("127.0.0.1:1")] {
            config.create_native_config().unwrap();
        }
        assert_eq!(client_settings()["produce"]["linger.ms"], "5");
        assert!(!client_settings()["consume"].contains_key("bootstrap.servers"));
    }

    #[test]
    fn open_records_fit_into_the_clients_queue() {
        assert_eq!(open_records(1 << 10), 4096);
        assert_eq!(open_records(1), 90_000);
        assert_eq!(open_records(0), 90_000);
        assert_eq!(open_records(1_000_000), 16);
        let most = full_speed("").get("queue.buffering.max.messages").map(str::to_owned);
        assert!(most.unwrap().parse::<usize>().unwrap() > OPEN_RECORDS.1);
    }
}
