//! The state of every link: cuts of several faults at once, put in force and proven.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::cut::{Cut, Endpoint, rules_at};
use super::impair::{self, Done, Impairer, Impairment, Measured};
use super::passage::{Seen, measure};
use super::speed;
use crate::backend::{Backend, BackendError};
use crate::node::NodeName;

/// How long a link that shall pass may take to show it, on a machine that is busy.
const HEAL_PATIENCE: Duration = Duration::from_secs(3);

/// What a probe saw on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Passes {
    /// Packets arrive.
    Yes,
    /// None did.
    No,
    /// An end has no network now; the rules are put in force when it starts.
    NoNetwork,
}

/// A link, what it shall do, and what it does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkReport {
    /// Sender and receiver, `n1->n2`.
    pub link: String,
    /// Shall packets pass?
    pub shall_pass: bool,
    /// Do they?
    pub passes: Passes,
}

impl LinkReport {
    /// Is the link as it shall be? `None` where it could not be seen.
    pub fn holds(&self) -> Option<bool> {
        match self.passes {
            Passes::Yes => Some(self.shall_pass),
            Passes::No => Some(!self.shall_pass),
            Passes::NoNetwork => None,
        }
    }
}

/// All links of a cluster. Faults add cuts under an id of theirs and take them away again; a
/// link is cut while any fault wants it cut.
pub struct Network {
    backend: Arc<dyn Backend>,
    addresses: BTreeMap<NodeName, Ipv4Addr>,
    driver: Ipv4Addr,
    cuts: Mutex<BTreeMap<u64, BTreeSet<Cut>>>,
    /// What impairs links, by the fault's id and the sender.
    impairers: Mutex<BTreeMap<u64, BTreeMap<Endpoint, Impairer>>>,
    /// Of the kernel's packet queues; each is used once.
    next_queue: AtomicU16,
}

impl Network {
    /// A network without cuts.
    pub fn new(
        backend: Arc<dyn Backend>,
        addresses: BTreeMap<NodeName, Ipv4Addr>,
        driver: Ipv4Addr,
    ) -> Self {
        Self {
            backend,
            addresses,
            driver,
            cuts: Mutex::default(),
            impairers: Mutex::default(),
            next_queue: AtomicU16::new(1),
        }
    }

    /// Puts the cuts of fault `id` in force; what each link concerned then does.
    pub async fn cut(
        &self,
        id: u64,
        wanted: BTreeSet<Cut>,
    ) -> Result<Vec<LinkReport>, BackendError> {
        let mut cuts = self.cuts.lock().await;
        cuts.insert(id, wanted.clone());
        self.enforce(&union(&cuts), &touched(&wanted)).await?;
        self.look(&cuts, &wanted).await
    }

    /// Takes the cuts of fault `id` away; links that other faults cut stay cut.
    ///
    /// The cuts are forgotten even when an error is returned, so that a later
    /// [`Network::reset`] or start of the node puts things right.
    pub async fn heal(&self, id: u64) -> Result<Vec<LinkReport>, BackendError> {
        let mut cuts = self.cuts.lock().await;
        let Some(gone) = cuts.remove(&id) else {
            return Ok(Vec::new());
        };
        self.enforce(&union(&cuts), &touched(&gone)).await?;
        self.look(&cuts, &gone).await
    }

    /// Takes every cut away, at every node, and proves that all links pass.
    pub async fn reset(&self) -> Result<Vec<LinkReport>, BackendError> {
        let mut cuts = self.cuts.lock().await;
        cuts.clear();
        let everyone = self.addresses.keys().copied().collect();
        self.enforce(&BTreeSet::new(), &everyone).await?;
        self.look(&cuts, &self.all_links()).await
    }

    /// Limits what leaves `node` to so many kbit a second; how many leave it then, as measured, or
    /// none where it has no network now.
    ///
    /// # Errors
    /// [`BackendError`]: the backend cannot, or the kernel will not.
    pub async fn limit(
        &self,
        node: NodeName,
        kbit_per_s: u32,
    ) -> Result<Option<f64>, BackendError> {
        self.backend.shape(node, Some(kbit_per_s)).await?;
        speed::measure(&*self.backend, self.driver, node, Some(kbit_per_s)).await
    }

    /// Lifts the limit of `node`; how many kbit a second leave it then.
    ///
    /// # Errors
    /// As [`Network::limit`].
    pub async fn unlimit(&self, node: NodeName) -> Result<Option<f64>, BackendError> {
        self.backend.shape(node, None).await?;
        speed::measure(&*self.backend, self.driver, node, None).await
    }

    /// Makes `links` as bad as `impairment` says, as fault `id`; what each then does, as measured, or none
    /// where an end has no network. `seed` decides which packets it meets.
    ///
    /// # Errors
    /// The backend cannot, or the kernel will not: then nothing is changed.
    pub async fn impair(
        &self,
        id: u64,
        links: &BTreeSet<Cut>,
        impairment: Impairment,
        seed: u64,
    ) -> Result<Vec<(Cut, Option<Measured>)>, BackendError> {
        let mut by_sender: BTreeMap<Endpoint, BTreeSet<Endpoint>> = BTreeMap::new();
        for link in links {
            by_sender.entry(link.from).or_default().insert(link.to);
        }
        let mut begun = BTreeMap::new();
        for (from, to) in by_sender {
            let number = self.next_queue.fetch_add(1, Ordering::Relaxed);
            let matches = impair::matches(from, &to, &self.addresses, self.driver);
            // Dropped on an error: what was begun ends then.
            let stream = seed.wrapping_add(u64::from(number));
            let impairer = self.backend.impair(from, number, matches, impairment, stream).await?;
            begun.insert(from, impairer);
        }
        self.impairers.lock().await.insert(id, begun);
        let mut looks = Vec::new();
        for link in links {
            let told = impair::look(&*self.backend, self.driver, *link, &impairment).await;
            if let Err(error) = &told {
                tracing::debug!("{error}");
            }
            looks.push((*link, told.ok().flatten()));
        }
        Ok(looks)
    }

    /// Makes the links of fault `id` good again; by sender, what was done to their packets.
    ///
    /// # Errors
    /// A rule could not be taken away. Packets pass all the same: nobody listens to the queue any more.
    pub async fn repair(&self, id: u64) -> Result<Vec<(Endpoint, Done)>, BackendError> {
        let impairers = self.impairers.lock().await.remove(&id).unwrap_or_default();
        let ending = tokio::task::spawn_blocking(move || {
            let ended = impairers.into_iter().map(|(from, one)| one.end().map(|done| (from, done)));
            ended.collect::<Result<Vec<_>, _>>()
        });
        let ended = ending.await.map_err(std::io::Error::other).and_then(|ended| ended);
        ended.map_err(|error| BackendError::Failed {
            context: "cannot make links good again".into(),
            reason: error.to_string(),
        })
    }

    /// The rules that belong at `node` now, to be in force before it starts.
    pub async fn rules(&self, node: NodeName) -> String {
        rules_at(node, &union(&*self.cuts.lock().await), &self.addresses)
    }

    /// What the links of `node` do now, after it was started again.
    pub async fn look_at(&self, node: NodeName) -> Result<Vec<LinkReport>, BackendError> {
        let cuts = self.cuts.lock().await;
        let here = Endpoint::Node(node);
        let links = union(&cuts).into_iter().filter(|cut| cut.from == here || cut.to == here);
        self.look(&cuts, &links.collect()).await
    }

    /// The links that are cut now.
    pub async fn cut_links(&self) -> BTreeSet<Cut> {
        union(&*self.cuts.lock().await)
    }

    async fn enforce(
        &self,
        all: &BTreeSet<Cut>,
        nodes: &BTreeSet<NodeName>,
    ) -> Result<(), BackendError> {
        let mut first_error = None;
        for node in nodes {
            let rules = rules_at(*node, all, &self.addresses);
            if let Err(error) = self.backend.apply_rules(*node, &rules).await {
                first_error.get_or_insert(error);
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    async fn look(
        &self,
        cuts: &BTreeMap<u64, BTreeSet<Cut>>,
        links: &BTreeSet<Cut>,
    ) -> Result<Vec<LinkReport>, BackendError> {
        let all = union(cuts);
        let (closed, open): (BTreeSet<_>, BTreeSet<_>) =
            links.iter().copied().partition(|link| all.contains(link));
        let mut reports = Vec::new();
        for (links, shall_pass) in [(closed, false), (open, true)] {
            let patience = shall_pass.then_some(HEAL_PATIENCE);
            let seen = measure(&*self.backend, self.driver, &links, patience).await?;
            reports.extend(seen.into_iter().map(|(link, seen)| LinkReport {
                link: link.to_string(),
                shall_pass,
                passes: match seen {
                    Seen::Arrived => Passes::Yes,
                    Seen::Silent => Passes::No,
                    Seen::NoNetwork => Passes::NoNetwork,
                },
            }));
        }
        Ok(reports)
    }

    fn all_links(&self) -> BTreeSet<Cut> {
        let mut ends: Vec<Endpoint> =
            self.addresses.keys().map(|node| Endpoint::Node(*node)).collect();
        ends.push(Endpoint::Clients);
        let mut links = BTreeSet::new();
        for from in &ends {
            links.extend(
                ends.iter().filter(|to| *to != from).map(|to| Cut { from: *from, to: *to }),
            );
        }
        links
    }
}

fn union(cuts: &BTreeMap<u64, BTreeSet<Cut>>) -> BTreeSet<Cut> {
    cuts.values().flatten().copied().collect()
}

/// The nodes whose rules change when these cuts come or go.
fn touched(cuts: &BTreeSet<Cut>) -> BTreeSet<NodeName> {
    cuts.iter()
        .flat_map(|cut| [cut.from, cut.to])
        .filter_map(|end| match end {
            Endpoint::Node(node) => Some(node),
            Endpoint::Clients => None,
        })
        .collect()
}
