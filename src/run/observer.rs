//! The observer: asks every node, again and again, what its replicas say of themselves, and records
//! the answers. It asks one node one question at a time, so that it loads no node by more than that.

use std::sync::Arc;
use std::time::Duration;

use cluster::NodeSpec;
use cluster::probe::{ProbeError, RawConsumer, Replica, replicas, replicas_by_protocol};
use history::{Draft, FETCH, FetchValue, Key, PROBE, ProbeValue, Process, Record};
use rand::RngExt as _;
use reqwest::Client;
use serde_json::json;
use tokio::time::sleep;
use tracing::debug;
use workloads::rng::Stream;

/// Longest wait for an answer. A node that is paused has none.
const LIMIT: Duration = Duration::from_secs(2);

/// How a node is asked.
#[derive(Clone)]
pub(super) enum Way {
    /// The page of the in-repo broker: all its replicas, with all that they know.
    Page(Client),
    /// The protocol, which every system speaks.
    Protocol,
}

impl Way {
    /// The one that tells most of a node of `system`.
    ///
    /// # Errors
    /// There is no HTTP client.
    pub(super) fn of(system: &str) -> Result<Self, reqwest::Error> {
        if system != "highwater" {
            return Ok(Self::Protocol);
        }
        // A connection of its own each time: one to a node that was killed, or cut off, would linger.
        Client::builder().pool_max_idle_per_host(0).no_proxy().build().map(Self::Page)
    }

    async fn ask(&self, node: &NodeSpec, keys: &[Key]) -> Result<Vec<Replica>, ProbeError> {
        match self {
            Self::Page(client) => replicas(client, node, LIMIT).await,
            Self::Protocol => replicas_by_protocol(node, keys, LIMIT).await,
        }
    }
}

/// Looks at one node.
pub(super) struct Observer {
    node: NodeSpec,
    interval: Duration,
    way: Way,
    keys: Arc<[Key]>,
    consumer: RawConsumer,
    rng: Stream,
}

impl Observer {
    /// Of `node`, that is asked for `keys` every `interval`, give or take half of it; `seed` decides.
    pub(super) fn new(
        node: NodeSpec,
        interval: Duration,
        way: Way,
        keys: Arc<[Key]>,
        seed: u64,
    ) -> Self {
        let rng = workloads::rng::stream(seed, &format!("observer of {}", node.name));
        Self { node, interval, way, keys, consumer: RawConsumer::default(), rng }
    }

    /// Fetches of what the node leads, and records what came; is anything suspicious?
    async fn fetch(&mut self, recorder: &dyn Record) -> bool {
        let asked_ns = recorder.now_ns();
        let fetched = match self.consumer.fetch(&self.node, &self.keys, LIMIT).await {
            Ok(fetched) => fetched,
            Err(error) => {
                debug!("nothing was fetched of {}: {error}", self.node.name);
                return false;
            }
        };
        let suspicious = fetched.iter().any(FetchValue::is_suspicious);
        for one in fetched {
            let seen = json!(FetchValue { asked_ns, ..one });
            recorder.record(Draft::note(Process::Observer, FETCH, seen));
        }
        suspicious
    }

    /// Looks and records, until it is dropped.
    pub(super) async fn observe(mut self, recorder: Arc<dyn Record>) {
        loop {
            sleep(self.interval.mul_f64(self.rng.random_range(0.5..1.5))).await;
            let asked_ns = recorder.now_ns();
            match self.way.ask(&self.node, &self.keys).await {
                Ok(found) => {
                    for replica in found {
                        let seen = json!(value(&self.node, asked_ns, replica));
                        recorder.record(Draft::note(Process::Observer, PROBE, seen));
                    }
                }
                Err(error) => debug!("{} was not observed: {error}", self.node.name),
            }
            // What looks wrong is asked again at once: a second answer settles it.
            if self.fetch(&*recorder).await {
                self.fetch(&*recorder).await;
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
