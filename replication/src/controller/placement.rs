//! Where replicas go: evenly, and first to brokers that serve.

use crate::controller::{ControllerError, ErrorKind};
use crate::metadata::Image;
use crate::types::NodeId;

/// Replicas of `partitions` new partitions, `factor` each, the preferred leader first. Leaders
/// and followers are spread evenly, in an order that `seed` begins; brokers that do not serve are
/// used only where there are too few others.
///
/// # Errors
/// `INVALID_REPLICATION_FACTOR`: there are not so many brokers, or none of them serves (R30).
pub fn place(
    image: &Image,
    partitions: usize,
    factor: usize,
    seed: u64,
) -> Result<Vec<Vec<NodeId>>, ControllerError> {
    let refuse =
        |reason: String| Err(ControllerError::new(ErrorKind::InvalidReplicationFactor, reason));
    let (serving, others): (Vec<_>, Vec<_>) =
        image.brokers().partition(|broker| broker.is_active());
    let serving: Vec<NodeId> = serving.iter().map(|broker| broker.id).collect();
    let others: Vec<NodeId> = others.iter().map(|broker| broker.id).collect();
    let known = serving.len() + others.len();
    if factor == 0 || factor > known {
        return refuse(format!("{factor} replicas on {known} brokers"));
    }
    if serving.is_empty() {
        return refuse("no broker serves".to_owned());
    }
    let begin = usize::try_from(seed % serving.len() as u64).unwrap_or(0);
    Ok((0..partitions)
        .map(|partition| {
            let first = (begin + partition) % serving.len();
            // Each round over the brokers shifts the followers, so that one leader's partitions
            // do not all follow to the same broker.
            let shift = partition / serving.len();
            let rest = serving.len() - 1;
            let followers = (0..rest)
                .map(|step| serving[(first + 1 + (shift + step) % rest.max(1)) % serving.len()]);
            let fenced = (0..others.len()).map(|step| others[(partition + step) % others.len()]);
            std::iter::once(serving[first]).chain(followers).chain(fenced).take(factor).collect()
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::controller::testing::Cluster;

    #[test]
    fn leaders_and_replicas_are_spread_evenly() {
        let cluster = Cluster::of(5);
        let placed = place(cluster.image(), 20, 3, 7).unwrap();
        let mut leaders: BTreeMap<NodeId, usize> = BTreeMap::new();
        let mut replicas: BTreeMap<NodeId, usize> = BTreeMap::new();
        let mut pairs = BTreeSet::new();
        for partition in &placed {
            assert_eq!(partition.iter().collect::<BTreeSet<_>>().len(), 3);
            *leaders.entry(partition[0]).or_default() += 1;
            pairs.insert((partition[0], partition[1]));
            for replica in partition {
                *replicas.entry(*replica).or_default() += 1;
            }
        }
        assert!(leaders.values().all(|count| *count == 4), "{leaders:?}");
        assert!(replicas.values().all(|count| *count == 12), "{replicas:?}");
        assert_eq!(pairs.len(), 20, "followers of one leader are spread as well");
    }

    #[test]
    fn who_does_not_serve_comes_last() {
        let mut cluster = Cluster::of(3);
        cluster.fence(2);
        for partition in place(cluster.image(), 4, 3, 0).unwrap() {
            assert_eq!(partition[2], NodeId(2));
        }
        for partition in place(cluster.image(), 4, 2, 0).unwrap() {
            assert!(!partition.contains(&NodeId(2)));
        }
    }

    #[test]
    fn too_few_brokers_are_too_few() {
        let mut cluster = Cluster::of(2);
        assert!(place(cluster.image(), 1, 3, 0).is_err());
        assert!(place(cluster.image(), 1, 0, 0).is_err());
        cluster.fence(1);
        cluster.fence(2);
        assert!(place(cluster.image(), 1, 1, 0).is_err(), "R30");
    }
}
