//! Blocks of producer ids.

use crate::controller::{ControllerError, ErrorKind, World};
use crate::metadata::Record;
use crate::types::{BrokerEpoch, NodeId};

/// Ids in a block.
const BLOCK: i64 = 1000;

/// Ids that a broker may give away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The first.
    pub first: i64,
    /// How many.
    pub len: i32,
}

/// The next block, for `broker` in its life `epoch`.
///
/// # Errors
/// `STALE_BROKER_EPOCH`.
pub fn allocate(
    world: World<'_>,
    broker: NodeId,
    epoch: BrokerEpoch,
) -> Result<(Vec<Record>, Block), ControllerError> {
    if world.image.broker(broker).map(|broker| broker.epoch) != Some(epoch) {
        return Err(ControllerError::new(
            ErrorKind::StaleBrokerEpoch,
            format!("broker {broker} is not registered in epoch {epoch}"),
        ));
    }
    let first = world.image.next_producer_id();
    let record = Record::ProducerIds { broker, broker_epoch: epoch, next: first + BLOCK };
    Ok((vec![record], Block { first, len: 1000 }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::testing::Cluster;

    #[test]
    fn no_id_is_given_twice() {
        let mut cluster = Cluster::of(2);
        let mut firsts = Vec::new();
        for id in [1, 2, 1] {
            let epoch = cluster.image().broker(NodeId(id)).unwrap().epoch;
            let (records, block) = allocate(cluster.world(), NodeId(id), epoch).unwrap();
            cluster.apply(&records);
            firsts.push(block.first);
        }
        assert_eq!(firsts, [0, 1000, 2000]);
        assert!(allocate(cluster.world(), NodeId(1), BrokerEpoch(0)).is_err());
    }
}
