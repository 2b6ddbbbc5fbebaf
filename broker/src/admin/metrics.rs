//! Numbers about a node, as Prometheus reads them.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

/// Replicas of a node, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// All of them.
    pub replicas: i64,
    /// Led here.
    pub leading: i64,
    /// Led here with fewer in the ISR than there are replicas.
    pub under_replicated: i64,
    /// Led here with fewer in the ISR than min.insync.replicas.
    pub under_min_isr: i64,
    /// Bytes of all logs.
    pub log_bytes: i64,
}

/// Counters, and gauges that are set when asked for.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    appended_bytes: Counter<u64, AtomicU64>,
    appends: Counter<u64, AtomicU64>,
    fetched_bytes: Counter<u64, AtomicU64>,
    replicas: Gauge,
    leading: Gauge,
    under_replicated: Gauge,
    under_min_isr: Gauge,
    log_bytes: Gauge,
    metadata_index: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("highwater");
        let appended_bytes = Counter::default();
        let appends = Counter::default();
        let fetched_bytes = Counter::default();
        registry.register_with_unit(
            "appended",
            "Batches that producers had appended here",
            Unit::Bytes,
            appended_bytes.clone(),
        );
        registry.register("appends", "Appends by producers, one a partition", appends.clone());
        registry.register_with_unit(
            "fetched",
            "Batches that consumers and followers were given",
            Unit::Bytes,
            fetched_bytes.clone(),
        );
        let mut gauge = |name: &str, help: &str| {
            let gauge = Gauge::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        let replicas = gauge("replicas", "Replicas on this node");
        let leading = gauge("leading", "Partitions led by this node");
        let under_replicated =
            gauge("under_replicated", "Partitions led here whose ISR lacks a replica");
        let under_min_isr =
            gauge("under_min_isr", "Partitions led here whose ISR is below min.insync.replicas");
        let metadata_index = gauge("metadata_index", "Last applied entry of the metadata log");
        let log_bytes = gauge("log_bytes", "Bytes of all logs on this node");
        Self {
            registry,
            appended_bytes,
            appends,
            fetched_bytes,
            replicas,
            leading,
            under_replicated,
            under_min_isr,
            log_bytes,
            metadata_index,
        }
    }
}

impl Metrics {
    /// A producer appended `bytes`.
    pub fn appended(&self, bytes: usize) {
        self.appends.inc();
        self.appended_bytes.inc_by(bytes as u64);
    }

    /// Someone was given `bytes`.
    pub fn fetched(&self, bytes: usize) {
        self.fetched_bytes.inc_by(bytes as u64);
    }

    /// Everything, in the `OpenMetrics` text format.
    pub fn text(&self, summary: &Summary, metadata_index: i64) -> String {
        self.replicas.set(summary.replicas);
        self.leading.set(summary.leading);
        self.under_replicated.set(summary.under_replicated);
        self.under_min_isr.set(summary.under_min_isr);
        self.log_bytes.set(summary.log_bytes);
        self.metadata_index.set(metadata_index);
        let mut text = String::new();
        // Writing into a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_out_as_text() {
        let metrics = Metrics::default();
        metrics.appended(10);
        metrics.appended(5);
        let summary = Summary { leading: 3, ..Summary::default() };
        let text = metrics.text(&summary, 42);
        for line in [
            "highwater_appended_bytes_total 15",
            "highwater_appends_total 2",
            "highwater_leading 3",
            "highwater_metadata_index 42",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
