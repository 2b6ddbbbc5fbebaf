//! What killed runs left behind.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::sleep;

use super::container;
use super::engine::Engine;
use super::engine_error::EngineError;
use super::labels::{self, Owner};
use crate::backend::BackendError;

/// Removed containers leave their network a moment later.
const NETWORK_DEADLINE: Duration = Duration::from_secs(20);

/// Which things are removed; what belongs to a process that lives never is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// What belonged to processes that are gone.
    OwnerGone,
    /// That, and clusters that were brought up to be kept.
    KeptToo,
}

/// What was removed, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    /// Containers.
    pub containers: Vec<String>,
    /// Networks.
    pub networks: Vec<String>,
}

impl Removed {
    /// Was there nothing?
    pub const fn is_empty(&self) -> bool {
        self.containers.is_empty() && self.networks.is_empty()
    }
}

/// Removes containers and networks of this rig that nobody owns any more.
///
/// # Errors
/// The first refusal of the engine; all that could be removed is, all the same.
pub async fn remove_leftovers(engine: &Engine, sweep: Sweep) -> Result<Removed, BackendError> {
    let wanted = |labels: &BTreeMap<String, String>| {
        let owner = Owner::parse(labels.get(labels::OWNER).map_or("", String::as_str));
        owner.is_gone() || (sweep == Sweep::KeptToo && owner == Owner::Kept)
    };
    remove_labelled(engine, &format!("{}=1", labels::MARK), wanted).await.map_err(Into::into)
}

/// Removes everything of one run.
pub(super) async fn remove_run(engine: &Engine, run: &str) -> Result<Removed, EngineError> {
    remove_labelled(engine, &format!("{}={run}", labels::RUN), |_| true).await
}

async fn remove_labelled(
    engine: &Engine,
    label: &str,
    wanted: impl Fn(&BTreeMap<String, String>) -> bool,
) -> Result<Removed, EngineError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Container {
        id: String,
        #[serde(default)]
        names: Vec<String>,
        labels: Option<BTreeMap<String, String>>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Network {
        id: String,
        name: String,
        labels: Option<BTreeMap<String, String>>,
    }
    let filters = json!({ "label": [label] }).to_string();
    let mut removed = Removed::default();
    let mut first_error = None;
    let query = [("all", "1"), ("filters", filters.as_str())];
    let containers: Vec<Container> = engine.get("/containers/json", &query).await?;
    for found in containers.iter().filter(|it| it.labels.as_ref().is_some_and(&wanted)) {
        match container::remove(engine, &found.id).await {
            Ok(()) => removed.containers.push(
                found.names.first().map_or(&*found.id, |name| name.trim_start_matches('/')).into(),
            ),
            Err(error) => {
                first_error.get_or_insert(error);
            }
        }
    }
    let networks: Vec<Network> = engine.get("/networks", &[("filters", &filters)]).await?;
    for found in networks.iter().filter(|it| it.labels.as_ref().is_some_and(&wanted)) {
        match remove_network(engine, &found.id).await {
            Ok(()) => removed.networks.push(found.name.clone()),
            Err(error) => {
                first_error.get_or_insert(error);
            }
        }
    }
    first_error.map_or(Ok(removed), Err)
}

async fn remove_network(engine: &Engine, id: &str) -> Result<(), EngineError> {
    let begun = Instant::now();
    loop {
        match engine.remove(&format!("/networks/{id}"), &[]).await {
            // "has active endpoints"
            Err(EngineError::Refused { status: 403, .. }) if begun.elapsed() < NETWORK_DEADLINE => {
                sleep(Duration::from_millis(50)).await;
            }
            other => return other,
        }
    }
}
