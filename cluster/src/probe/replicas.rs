//! What the replicas of a node of the in-repo broker say of themselves, over its admin port.

use std::time::Duration;

use history::ReplicaState;
use reqwest::Client;
use serde::Deserialize;

use super::ProbeError;
use crate::highwater::ADMIN_PORT;
use crate::node::NodeSpec;

/// A replica as it sees itself. What else the page tells is passed over.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Replica {
    /// The partition: `orders-0`.
    pub key: String,
    /// The topic's id.
    pub topic_id: String,
    /// `leader` or `follower`.
    pub role: String,
    /// What it says of its epochs and its log.
    #[serde(flatten)]
    pub state: ReplicaState,
    /// Its epoch vector.
    pub epochs: Vec<EpochStart>,
}

/// Where an epoch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct EpochStart {
    /// The leader epoch.
    pub epoch: i32,
    /// Its first offset.
    pub start: i64,
}

#[derive(Deserialize)]
struct Page {
    partitions: Vec<Replica>,
}

/// Asks `node` for its replicas, those of internal topics among them.
///
/// # Errors
/// No answer within `limit`, or one that cannot be read.
pub async fn replicas(
    client: &Client,
    node: &NodeSpec,
    limit: Duration,
) -> Result<Vec<Replica>, ProbeError> {
    let address = format!("{}:{ADMIN_PORT}", node.address);
    let url = format!("http://{address}/v1/partitions");
    let answer = async { client.get(url).send().await?.error_for_status()?.json::<Page>().await };
    match tokio::time::timeout(limit, answer).await {
        Ok(Ok(page)) => Ok(page.partitions),
        Ok(Err(error)) if error.is_decode() => {
            Err(ProbeError::Garbled { address, reason: error.to_string() })
        }
        Ok(Err(error)) => Err(ProbeError::Broken { address, reason: error.to_string() }),
        Err(_) => Err(ProbeError::Deadline { address, waited_ms: limit.as_millis() }),
    }
}
