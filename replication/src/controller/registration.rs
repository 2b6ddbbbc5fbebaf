//! A broker's life begins.

use crate::controller::election::Leaving;
use crate::controller::sessions::Sessions;
use crate::controller::{ControllerError, ErrorKind, World, fencing};
use crate::metadata::{BrokerRegistration, Record};
use crate::types::{BrokerEpoch, Millis};

/// Registers a broker, fenced. Nothing changes for one that is registered in this life already.
///
/// A broker whose last life is not known to have ended cleanly (`previous` is not the epoch of
/// its last registration) may have lost what it had not synced: it leaves every ISR and ELR in
/// which it alone was trusted (KIP-966), if the cluster has that feature on.
///
/// # Errors
/// `DUPLICATE_BROKER_REGISTRATION` while another process under the same id is alive.
pub fn register(
    world: World<'_>,
    sessions: &Sessions,
    wanted: BrokerRegistration,
    previous: BrokerEpoch,
    now: Millis,
) -> Result<Vec<Record>, ControllerError> {
    let mut records = Vec::new();
    if let Some(known) = world.image.broker(wanted.id) {
        if known.incarnation == wanted.incarnation {
            return Ok(records);
        }
        if !known.fenced && !known.in_controlled_shutdown && sessions.is_live(wanted.id, now) {
            return Err(ControllerError::new(
                ErrorKind::DuplicateBrokerRegistration,
                format!("another process is registered as broker {} and alive", wanted.id),
            ));
        }
        let unclean = previous != known.epoch;
        records.extend(fencing::leave_isrs(world, wanted.id, Leaving { unclean }));
    }
    records.push(Record::RegisterBroker(wanted));
    Ok(records)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::controller::testing::{Cluster, registration};
    use crate::types::NodeId;

    #[test]
    fn a_second_process_waits_until_the_first_is_gone() {
        let cluster = Cluster::of(3);
        let sessions = Sessions::begin(100, cluster.image(), Millis(0));
        let another = BrokerRegistration { incarnation: Uuid::from_u128(99), ..registration(1) };
        let at = |now| {
            register(cluster.world(), &sessions, another.clone(), BrokerEpoch(-1), Millis(now))
        };
        assert_eq!(at(50).unwrap_err().kind, ErrorKind::DuplicateBrokerRegistration);
        assert!(at(101).is_ok());
    }

    #[test]
    fn the_same_life_registers_once() {
        let cluster = Cluster::of(3);
        let sessions = Sessions::begin(100, cluster.image(), Millis(0));
        let again =
            register(cluster.world(), &sessions, registration(1), BrokerEpoch(-1), Millis(1));
        assert_eq!(again, Ok(Vec::new()));
    }

    #[test]
    fn a_new_life_is_fenced_and_out_of_the_isr() {
        let mut cluster = Cluster::of(3).with_topic("t", &[&[1, 2, 3]]);
        cluster.fence(2);
        let sessions = Sessions::begin(100, cluster.image(), Millis(0));
        let another = BrokerRegistration { incarnation: Uuid::from_u128(99), ..registration(2) };
        let records =
            register(cluster.world(), &sessions, another, BrokerEpoch(-1), Millis(0)).unwrap();
        let index = cluster.apply(&records);
        let broker = cluster.image().broker(NodeId(2)).unwrap();
        assert_eq!((broker.epoch, broker.fenced), (BrokerEpoch(index), true));
        assert_eq!(cluster.partition("t", 0).isr, [NodeId(1), NodeId(3)]);
    }
}
