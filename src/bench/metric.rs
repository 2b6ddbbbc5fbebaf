//! What can be measured, in which units, and which way is better.

use clap::ValueEnum;
use serde::Serialize;

/// Something that is measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Measure {
    /// From the first process to a topic at full ISR that takes an acks=all write.
    Start,
    /// Memory of the brokers, idle and after the produce phase.
    Memory,
    /// Writing at full speed, for each record size.
    Produce,
    /// Reading back what was written, for each record size.
    Consume,
    /// Latency at a modest, fixed rate.
    Latency,
    /// From the SIGKILL of a leader to the next ok send to its partition.
    Failover,
}

impl Measure {
    /// All of them, in the order of a turn.
    pub(crate) const ALL: [Self; 6] =
        [Self::Start, Self::Memory, Self::Produce, Self::Consume, Self::Latency, Self::Failover];

    /// As on the command line and in JSON.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Memory => "memory",
            Self::Produce => "produce",
            Self::Consume => "consume",
            Self::Latency => "latency",
            Self::Failover => "failover",
        }
    }
}

/// Which way a number is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
}

/// One number of a measurement that systems are compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Metric {
    /// Of which measurement.
    pub(crate) measure: Measure,
    /// Its name among the values, with the unit in it.
    pub(crate) name: &'static str,
    /// As a person reads it.
    pub(crate) label: &'static str,
    /// Which way is better.
    pub(crate) better: Better,
}

const fn metric(
    measure: Measure,
    name: &'static str,
    label: &'static str,
    better: Better,
) -> Metric {
    Metric { measure, name, label, better }
}

pub(crate) const COLD_START_MS: &str = "cold_start_ms";
pub(crate) const COLD_START_WITH_FORMAT_MS: &str = "cold_start_with_format_ms";
pub(crate) const RSS_SUM_MIB: &str = "rss_sum_mib";
pub(crate) const RSS_MAX_MIB: &str = "rss_max_mib";
pub(crate) const PSS_SUM_MIB: &str = "pss_sum_mib";
pub(crate) const PSS_MAX_MIB: &str = "pss_max_mib";
pub(crate) const MB_PER_S: &str = "throughput_mb_per_s";
pub(crate) const RECORDS_PER_S: &str = "throughput_records_per_s";
pub(crate) const ACK_P50_MS: &str = "ack_p50_ms";
pub(crate) const ACK_P99_MS: &str = "ack_p99_ms";
pub(crate) const ACK_P999_MS: &str = "ack_p999_ms";
pub(crate) const END_TO_END_P50_MS: &str = "end_to_end_p50_ms";
pub(crate) const END_TO_END_P99_MS: &str = "end_to_end_p99_ms";
pub(crate) const TIME_TO_OK_MS: &str = "time_to_ok_ms";
pub(crate) const TIME_TO_LEADER_MS: &str = "time_to_leader_ms";

/// Every number that is compared, in the order of the table.
pub(crate) const METRICS: [Metric; 20] = {
    use Better::{Higher, Lower};
    use Measure::{Consume, Failover, Latency, Memory, Produce, Start};
    [
        metric(Start, COLD_START_MS, "first process to acks=all write, ms", Lower),
        metric(Start, COLD_START_WITH_FORMAT_MS, "the same with formatting disks, ms", Lower),
        metric(Memory, RSS_SUM_MIB, "RSS of all brokers, MiB", Lower),
        metric(Memory, RSS_MAX_MIB, "RSS of the largest, MiB", Lower),
        metric(Memory, PSS_SUM_MIB, "PSS of all brokers, MiB", Lower),
        metric(Memory, PSS_MAX_MIB, "PSS of the largest, MiB", Lower),
        metric(Produce, MB_PER_S, "throughput, MB/s", Higher),
        metric(Produce, RECORDS_PER_S, "throughput, records/s", Higher),
        metric(Produce, ACK_P50_MS, "send to ack p50, ms", Lower),
        metric(Produce, ACK_P99_MS, "send to ack p99, ms", Lower),
        metric(Produce, ACK_P999_MS, "send to ack p99.9, ms", Lower),
        metric(Consume, MB_PER_S, "throughput, MB/s", Higher),
        metric(Consume, RECORDS_PER_S, "throughput, records/s", Higher),
        metric(Latency, ACK_P50_MS, "send to ack p50, ms", Lower),
        metric(Latency, ACK_P99_MS, "send to ack p99, ms", Lower),
        metric(Latency, ACK_P999_MS, "send to ack p99.9, ms", Lower),
        metric(Latency, END_TO_END_P50_MS, "send to read p50, ms", Lower),
        metric(Latency, END_TO_END_P99_MS, "send to read p99, ms", Lower),
        metric(Failover, TIME_TO_OK_MS, "SIGKILL to next ok send, ms", Lower),
        metric(Failover, TIME_TO_LEADER_MS, "SIGKILL to next leader, ms", Lower),
    ]
};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_measurement_has_numbers_and_each_number_its_unit_and_its_place() {
        for measure in Measure::ALL {
            assert!(METRICS.iter().any(|metric| metric.measure == measure), "{measure:?}");
            let on_the_command_line = measure.to_possible_value().unwrap();
            assert_eq!(on_the_command_line.get_name(), measure.name());
        }
        let places: BTreeSet<_> =
            METRICS.iter().map(|metric| (metric.measure, metric.name)).collect();
        assert_eq!(places.len(), METRICS.len());
        for metric in METRICS {
            let unit = metric.name.rsplit_once('_').unwrap().1;
            assert!(["ms", "mib", "s"].contains(&unit), "{}", metric.name);
        }
    }
}
