//! The settings in which the rig's brokers differ from Kafka's own defaults, and why.

/// One setting, Kafka's default and the rig's.
#[derive(Clone, Copy, Debug)]
pub struct Default {
    /// The setting's name.
    pub key: &'static str,
    /// What Kafka does by itself.
    pub kafka: &'static str,
    /// What the rig sets.
    pub rig: &'static str,
    /// Is it a time-out, left alone under `--stock-timeouts`?
    pub is_timeout: bool,
    /// Why it differs.
    pub why: &'static str,
}

const fn timeout(
    key: &'static str,
    kafka: &'static str,
    rig: &'static str,
    why: &'static str,
) -> Default {
    Default { key, kafka, rig, is_timeout: true, why }
}

const fn fixed(
    key: &'static str,
    kafka: &'static str,
    rig: &'static str,
    why: &'static str,
) -> Default {
    Default { key, kafka, rig, is_timeout: false, why }
}

/// Every difference. `docs/kafka.md` shows the same table.
pub const FAULT_FRIENDLY: &[Default] = &[
    timeout(
        "broker.session.timeout.ms",
        "9000",
        "4000",
        "a dead broker is fenced within a fault, not after it",
    ),
    timeout("broker.heartbeat.interval.ms", "2000", "500", "must be well below the session"),
    timeout(
        "replica.lag.time.max.ms",
        "30000",
        "3000",
        "the ISR shrinks and grows several times in a minute (R6)",
    ),
    timeout(
        "replica.socket.timeout.ms",
        "30000",
        "3000",
        "a follower gives a silent leader up in time to follow the next one",
    ),
    timeout("replica.fetch.backoff.ms", "1000", "200", "a follower is back soon after an error"),
    timeout(
        "controller.quorum.election.timeout.ms",
        "1000",
        "1000",
        "three JVMs share two cores; shorter makes elections that nobody wins",
    ),
    timeout(
        "controller.quorum.fetch.timeout.ms",
        "2000",
        "2000",
        "as Kafka's own, named here since failover time hangs on it",
    ),
    timeout("controller.quorum.request.timeout.ms", "2000", "2000", "the same"),
    timeout(
        "controller.socket.timeout.ms",
        "30000",
        "4000",
        "a broker finds the next controller within a fault",
    ),
    timeout("request.timeout.ms", "30000", "5000", "requests between nodes end within a fault"),
    timeout(
        "offsets.commit.timeout.ms",
        "5000",
        "3000",
        "a commit that cannot be replicated is answered within a fault",
    ),
    fixed(
        "group.initial.rebalance.delay.ms",
        "3000",
        "0",
        "groups form at once, since consumers crash and join all the time",
    ),
    fixed("auto.create.topics.enable", "true", "false", "topics are made on purpose only"),
    fixed("default.replication.factor", "1", "3", "topics made by hand survive a broker"),
    fixed("min.insync.replicas", "1", "2", "an acknowledged write is on two replicas"),
    fixed("offsets.topic.num.partitions", "50", "4", "fewer to recover after each fault"),
    fixed("offsets.topic.replication.factor", "3", "3", "or the number of brokers"),
    fixed("transaction.state.log.num.partitions", "50", "4", "fewer to recover"),
    fixed("transaction.state.log.replication.factor", "3", "3", "or the number of brokers"),
    fixed("transaction.state.log.min.isr", "2", "2", "or the number of brokers"),
    fixed("share.coordinator.state.topic.num.partitions", "50", "4", "fewer to recover"),
    fixed("share.coordinator.state.topic.replication.factor", "3", "3", "or the number of brokers"),
    fixed("share.coordinator.state.topic.min.isr", "2", "2", "or the number of brokers"),
    fixed("num.network.threads", "3", "2", "three brokers share a small machine"),
    fixed("num.io.threads", "8", "4", "the same"),
    fixed("log.cleaner.dedupe.buffer.size", "134217728", "8388608", "a small heap"),
    fixed("log.segment.bytes", "1073741824", "16777216", "segments roll within a run"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_setting_stands_once_and_is_documented() {
        let book = include_str!("../../../docs/kafka.md");
        let names: BTreeSet<_> = FAULT_FRIENDLY.iter().map(|default| default.key).collect();
        assert_eq!(names.len(), FAULT_FRIENDLY.len());
        for Default { key, kafka, rig, is_timeout, why } in FAULT_FRIENDLY {
            let stays = if *is_timeout { "Kafka's" } else { "the rig's" };
            let row = format!("| `{key}` | {kafka} | {rig} | {stays} | {why} |");
            assert!(book.contains(&row), "docs/kafka.md lacks the row\n{row}");
        }
    }
}
