//! When brokers were last heard of. Soft state: each active controller begins anew.

use std::collections::BTreeMap;

use crate::metadata::Image;
use crate::types::{Millis, NodeId};

/// When brokers were last heard of, and how far each has read the metadata.
#[derive(Clone, Debug, Default)]
pub struct Sessions {
    session_ms: u64,
    brokers: BTreeMap<NodeId, Session>,
}

#[derive(Clone, Copy, Debug)]
struct Session {
    last_contact: Millis,
    metadata_offset: i64,
}

impl Sessions {
    /// A new active controller gives every unfenced broker a fresh session: it cannot know what
    /// the last one heard.
    pub fn begin(session_ms: u64, image: &Image, now: Millis) -> Self {
        let fresh = Session { last_contact: now, metadata_offset: -1 };
        let brokers = image.brokers().filter(|broker| !broker.fenced);
        Self { session_ms, brokers: brokers.map(|broker| (broker.id, fresh)).collect() }
    }

    /// `broker` was heard of.
    pub fn contact(&mut self, broker: NodeId, now: Millis) {
        self.brokers
            .entry(broker)
            .and_modify(|session| session.last_contact = session.last_contact.max(now))
            .or_insert(Session { last_contact: now, metadata_offset: -1 });
    }

    /// `broker` has read the metadata up to `offset`.
    pub fn has_read(&mut self, broker: NodeId, offset: i64) {
        if let Some(session) = self.brokers.get_mut(&broker) {
            session.metadata_offset = offset;
        }
    }

    /// How far `broker` has read; -1: not known.
    pub fn read_up_to(&self, broker: NodeId) -> i64 {
        self.brokers.get(&broker).map_or(-1, |session| session.metadata_offset)
    }

    /// Was `broker` heard of within its session?
    pub fn is_live(&self, broker: NodeId, now: Millis) -> bool {
        self.brokers
            .get(&broker)
            .is_some_and(|session| now.since(session.last_contact) <= self.session_ms)
    }

    /// `broker` has no session any more.
    pub fn forget(&mut self, broker: NodeId) {
        self.brokers.remove(&broker);
    }

    /// R27: the one unfenced broker that was silent longest, if longer than its session. One at a
    /// time, so that the next decision already knows that this one is gone.
    pub fn stale(&self, image: &Image, now: Millis) -> Option<NodeId> {
        self.brokers
            .iter()
            .filter(|(id, _)| image.broker(**id).is_some_and(|broker| !broker.fenced))
            .filter(|(_, session)| now.since(session.last_contact) > self.session_ms)
            .min_by_key(|(id, session)| (session.last_contact, **id))
            .map(|(id, _)| *id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::testing::Cluster;

    #[test]
    fn r27_of_two_silent_brokers_one_is_named_and_then_the_other() {
        let mut cluster = Cluster::of(3);
        let mut sessions = Sessions::begin(100, cluster.image(), Millis(0));
        sessions.contact(NodeId(3), Millis(150));
        assert_eq!(sessions.stale(cluster.image(), Millis(100)), None);
        assert_eq!(sessions.stale(cluster.image(), Millis(200)), Some(NodeId(1)));
        cluster.fence(1);
        assert_eq!(sessions.stale(cluster.image(), Millis(200)), Some(NodeId(2)));
        cluster.fence(2);
        assert_eq!(sessions.stale(cluster.image(), Millis(200)), None);
    }

    #[test]
    fn a_new_controller_gives_everyone_time() {
        let cluster = Cluster::of(3);
        let sessions = Sessions::begin(100, cluster.image(), Millis(5_000));
        assert_eq!(sessions.stale(cluster.image(), Millis(5_100)), None);
        assert!(sessions.is_live(NodeId(2), Millis(5_100)));
        assert!(!sessions.is_live(NodeId(9), Millis(5_100)));
    }
}
