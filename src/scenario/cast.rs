//! Who is who in a scenario: from words to the nodes that they mean now.

use std::collections::{BTreeMap, BTreeSet};

use cluster::network::{Cut, Endpoint};
use cluster::probe::View;
use cluster::{Cluster, NodeName};
use history::Key;

use super::play::Unmet;
use super::step::Who;

/// The nodes of a cluster, and what steps call them.
pub(super) struct Cast<'a> {
    cluster: &'a Cluster,
    names: BTreeMap<String, BTreeSet<NodeName>>,
}

impl<'a> Cast<'a> {
    pub(super) fn new(cluster: &'a Cluster) -> Self {
        Self { cluster, names: BTreeMap::new() }
    }

    /// One name for all of them, or one for each.
    pub(super) fn name(
        &mut self,
        names: &[String],
        nodes: BTreeSet<NodeName>,
    ) -> Result<(), Unmet> {
        if let [name] = names {
            self.names.insert(name.clone(), nodes);
            return Ok(());
        }
        if names.len() != nodes.len() {
            return Err(Unmet(format!("{} names for {} nodes", names.len(), nodes.len())));
        }
        for (name, node) in names.iter().zip(nodes) {
            self.names.insert(name.clone(), BTreeSet::from([node]));
        }
        Ok(())
    }

    pub(super) async fn nodes(&self, who: &[Who]) -> Result<BTreeSet<NodeName>, Unmet> {
        Ok(self.in_order(who).await?.into_iter().collect())
    }

    /// The nodes in the order in which they are named.
    pub(super) async fn in_order(&self, who: &[Who]) -> Result<Vec<NodeName>, Unmet> {
        let asks = |who: &Who| {
            matches!(who, Who::Leader(_) | Who::Followers(_) | Who::Outsiders(_) | Who::Controller)
        };
        let view = if who.iter().any(asks) { self.cluster.view().await } else { View::default() };
        let mut nodes = Vec::new();
        for one in who {
            nodes.extend(self.resolve(one, &view)?);
        }
        Ok(nodes)
    }

    fn resolve(&self, who: &Who, view: &View) -> Result<BTreeSet<NodeName>, Unmet> {
        let led = |key: &Key| {
            let seen = view.keys.get(key);
            let leader = seen.and_then(|seen| Some((seen, seen.leader?)));
            leader.ok_or_else(|| Unmet(format!("nobody leads {key}")))
        };
        let all = || self.cluster.nodes().iter();
        Ok(match who {
            Who::Node(node) if all().any(|spec| spec.name == *node) => [*node].into(),
            Who::Node(node) => return Err(Unmet(format!("there is no node {node}"))),
            Who::Named(name) => {
                let nodes = self.names.get(name).cloned();
                nodes.ok_or_else(|| Unmet(format!("no step above says who {name} is")))?
            }
            Who::Leader(key) => [led(key)?.1].into(),
            Who::Followers(key) => {
                let (seen, leader) = led(key)?;
                seen.replicas.iter().copied().filter(|node| *node != leader).collect()
            }
            Who::Outsiders(key) => {
                let (seen, _) = led(key)?;
                let brokers = all().filter(|node| node.role.is_broker()).map(|node| node.name);
                brokers.filter(|node| !seen.replicas.contains(node)).collect()
            }
            Who::Controller => {
                let controller = view.controller;
                [controller.ok_or_else(|| Unmet("no active controller is known".into()))?].into()
            }
            Who::Controllers => {
                all().filter(|node| node.role.is_controller()).map(|node| node.name).collect()
            }
            Who::All => all().map(|node| node.name).collect(),
            Who::Clients => BTreeSet::new(),
        })
    }

    pub(super) async fn cuts(
        &self,
        from: &[Who],
        to: &[Who],
        both: bool,
    ) -> Result<BTreeSet<Cut>, Unmet> {
        let from = self.ends(from).await?;
        let to = self.ends(to).await?;
        let mut cuts = BTreeSet::new();
        for a in &from {
            for b in to.iter().filter(|b| *b != a) {
                let [there, back] = Cut::both(*a, *b);
                cuts.insert(there);
                if both {
                    cuts.insert(back);
                }
            }
        }
        if cuts.is_empty() { Err(Unmet::because("no link is left to cut")) } else { Ok(cuts) }
    }

    async fn ends(&self, who: &[Who]) -> Result<BTreeSet<Endpoint>, Unmet> {
        let nodes = self.nodes(who).await?;
        let clients = who.contains(&Who::Clients).then_some(Endpoint::Clients);
        Ok(nodes.into_iter().map(Endpoint::Node).chain(clients).collect())
    }
}
