//! The observer: asks every node, again and again, what its replicas say of themselves, and records
//! the answers. It asks one node one question at a time, so that it loads no node by more than that.

use std::sync::Arc;
use std::time::Duration;

use cluster::NodeSpec;
use cluster::probe::{Replica, replicas};
use history::{Draft, Function, Kind, PROBE, ProbeValue, Process, Record, Value};
use rand::RngExt as _;
use reqwest::Client;
use serde_json::json;
use tokio::time::sleep;
use tracing::debug;
use workloads::rng::Stream;

/// Longest wait for an answer. A node that is paused has none.
const LIMIT: Duration = Duration::from_secs(2);

/// Looks at one node.
pub(super) struct Observer {
    node: NodeSpec,
    interval: Duration,
    client: Client,
    rng: Stream,
}

impl Observer {
    /// Of `node`, that is asked every `interval`, give or take half of it; `seed` decides.
    ///
    /// # Errors
    /// There is no HTTP client.
    pub(super) fn new(
        node: NodeSpec,
        interval: Duration,
        seed: u64,
    ) -> Result<Self, reqwest::Error> {
        // A connection of its own each time: one to a node that was killed, or cut off, would linger.
        let client = Client::builder().pool_max_idle_per_host(0).no_proxy().build()?;
        let rng = workloads::rng::stream(seed, &format!("observer of {}", node.name));
        Ok(Self { node, interval, client, rng })
    }

    /// Looks and records, until it is dropped.
    pub(super) async fn observe(mut self, recorder: Arc<dyn Record>) {
        loop {
            sleep(self.interval.mul_f64(self.rng.random_range(0.5..1.5))).await;
            let asked_ns = recorder.now_ns();
            match replicas(&self.client, &self.node, LIMIT).await {
                Ok(found) => {
                    for replica in found {
                        let seen = json!(value(&self.node, asked_ns, replica));
                        recorder.record(Draft::new(
                            Process::Observer,
                            Kind::Info,
                            Function::from(PROBE),
                            Value::Json(seen),
                        ));
                    }
                }
                Err(error) => debug!("{} was not observed: {error}", self.node.name),
            }
        }
    }
}

fn value(node: &NodeSpec, asked_ns: u64, replica: Replica) -> ProbeValue {
    ProbeValue {
        node: node.name.to_string(),
        id: i32::try_from(node.name.id()).unwrap_or(i32::MAX),
        key: replica.key,
        topic_id: replica.topic_id,
        asked_ns,
        leads: replica.role == "leader",
        state: replica.state,
        epochs: replica.epochs.iter().map(|epoch| (epoch.epoch, epoch.start)).collect(),
    }
}
