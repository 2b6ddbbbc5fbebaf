//! A broker is heard of.

use crate::controller::sessions::Sessions;
use crate::controller::{ControllerError, ErrorKind, World, fencing, shutdown};
use crate::metadata::Record;
use crate::types::{BrokerEpoch, Millis, NodeId};

/// What a broker says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// Who.
    pub broker: NodeId,
    /// In which life.
    pub epoch: BrokerEpoch,
    /// How far it has read the metadata, and done what that says.
    pub metadata_offset: i64,
    /// It does not want to serve.
    pub want_fence: bool,
    /// It wants to be let go.
    pub want_shut_down: bool,
}

/// What the controller says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// It has read its own registration.
    pub is_caught_up: bool,
    /// It is not to serve.
    pub is_fenced: bool,
    /// It may go.
    pub should_shut_down: bool,
}

/// Decides what a heartbeat changes.
///
/// # Errors
/// `BROKER_ID_NOT_REGISTERED`, or `STALE_BROKER_EPOCH` from a life that is over.
pub fn decide(
    world: World<'_>,
    sessions: &mut Sessions,
    beat: &Heartbeat,
    now: Millis,
) -> Result<(Vec<Record>, Reply), ControllerError> {
    let broker = world.image.broker(beat.broker).ok_or_else(|| {
        ControllerError::new(
            ErrorKind::BrokerIdNotRegistered,
            format!("broker {} is not registered", beat.broker),
        )
    })?;
    if broker.epoch != beat.epoch {
        return Err(ControllerError::new(
            ErrorKind::StaleBrokerEpoch,
            format!("broker {} is registered in epoch {}", beat.broker, broker.epoch),
        ));
    }
    sessions.contact(beat.broker, now);
    sessions.has_read(beat.broker, beat.metadata_offset);
    let is_caught_up = beat.metadata_offset >= broker.epoch.0;
    let said = |records: Vec<Record>, is_fenced, should_shut_down| {
        Ok((records, Reply { is_caught_up, is_fenced, should_shut_down }))
    };
    if broker.fenced {
        return match (beat.want_shut_down, beat.want_fence || !is_caught_up) {
            // Nobody counts on a fenced broker.
            (true, _) => said(Vec::new(), true, true),
            (false, true) => said(Vec::new(), true, false),
            (false, false) => said(fencing::unfence(world, beat.broker), false, false),
        };
    }
    if beat.want_shut_down || broker.in_controlled_shutdown {
        if !broker.in_controlled_shutdown {
            return said(shutdown::begin(world, beat.broker), false, false);
        }
        if shutdown::may_go(world.image, sessions, beat.broker) {
            return said(fencing::fence(world, beat.broker), true, true);
        }
        return said(shutdown::go_on(world, beat.broker), false, false);
    }
    if beat.want_fence {
        return said(fencing::fence(world, beat.broker), true, false);
    }
    said(Vec::new(), false, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::testing::Cluster;

    fn beat(cluster: &Cluster, broker: i32, offset: i64) -> Heartbeat {
        let id = NodeId(broker);
        Heartbeat {
            broker: id,
            epoch: cluster.image().broker(id).unwrap().epoch,
            metadata_offset: offset,
            want_fence: false,
            want_shut_down: false,
        }
    }

    #[test]
    fn a_broker_serves_once_it_has_read_its_registration() {
        let mut cluster = Cluster::fenced(1);
        let mut sessions = Sessions::begin(100, cluster.image(), Millis(0));
        let epoch = cluster.image().broker(NodeId(1)).unwrap().epoch.0;
        let behind = beat(&cluster, 1, epoch - 1);
        let (records, reply) = decide(cluster.world(), &mut sessions, &behind, Millis(1)).unwrap();
        assert!(records.is_empty() && reply.is_fenced && !reply.is_caught_up);
        let there = beat(&cluster, 1, epoch);
        let (records, reply) = decide(cluster.world(), &mut sessions, &there, Millis(1)).unwrap();
        assert!(!reply.is_fenced && reply.is_caught_up);
        cluster.apply(&records);
        assert!(cluster.image().is_active(NodeId(1)));
    }

    #[test]
    fn a_life_that_is_over_is_told_so() {
        let cluster = Cluster::of(1);
        let mut sessions = Sessions::begin(100, cluster.image(), Millis(0));
        let stale = Heartbeat { epoch: BrokerEpoch(0), ..beat(&cluster, 1, 9) };
        let error = decide(cluster.world(), &mut sessions, &stale, Millis(1)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::StaleBrokerEpoch);
        let unknown = Heartbeat { broker: NodeId(9), ..stale };
        let error = decide(cluster.world(), &mut sessions, &unknown, Millis(1)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::BrokerIdNotRegistered);
    }
}
