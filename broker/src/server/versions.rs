//! Which APIs are spoken where, and in which versions.

use kafka_protocol::messages::ApiKey;

/// Who comes in by a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Clients and tools.
    Clients,
    /// Other brokers, and clients too.
    Brokers,
    /// Brokers and controllers, on a controller's own listener.
    Controllers,
}

/// One API: its versions, and whether it is spoken to clients, brokers and controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spoken {
    /// Which.
    pub key: ApiKey,
    /// The oldest version.
    pub min: i16,
    /// The newest version.
    pub max: i16,
    on_brokers: bool,
    on_controllers: bool,
}

const fn broker(key: ApiKey, min: i16, max: i16) -> Spoken {
    Spoken { key, min, max, on_brokers: true, on_controllers: false }
}

const fn controller(key: ApiKey, min: i16, max: i16) -> Spoken {
    Spoken { key, min, max, on_brokers: false, on_controllers: true }
}

const fn both(key: ApiKey, min: i16, max: i16) -> Spoken {
    Spoken { key, min, max, on_brokers: true, on_controllers: true }
}

/// Everything that is spoken. Transactions come later; until then their APIs are not here, so
/// that clients fail clearly.
///
/// Produce is announced from version 0 on, since old clients do without compression otherwise;
/// versions below 3 are refused, as Kafka does since 4.0.
pub const SPOKEN: &[Spoken] = &[
    broker(ApiKey::Produce, 3, 12),
    broker(ApiKey::Fetch, 4, 17),
    broker(ApiKey::ListOffsets, 1, 9),
    broker(ApiKey::Metadata, 0, 13),
    broker(ApiKey::OffsetCommit, 2, 9),
    broker(ApiKey::OffsetFetch, 1, 9),
    broker(ApiKey::FindCoordinator, 0, 5),
    broker(ApiKey::JoinGroup, 2, 9),
    broker(ApiKey::Heartbeat, 0, 4),
    broker(ApiKey::LeaveGroup, 0, 5),
    broker(ApiKey::SyncGroup, 0, 5),
    broker(ApiKey::DescribeGroups, 0, 5),
    broker(ApiKey::ListGroups, 0, 4),
    both(ApiKey::ApiVersions, 0, 4),
    both(ApiKey::CreateTopics, 2, 7),
    both(ApiKey::DeleteTopics, 1, 6),
    broker(ApiKey::DeleteRecords, 0, 2),
    broker(ApiKey::InitProducerId, 0, 4),
    broker(ApiKey::OffsetForLeaderEpoch, 2, 4),
    both(ApiKey::DescribeConfigs, 1, 4),
    broker(ApiKey::DescribeLogDirs, 1, 4),
    both(ApiKey::CreatePartitions, 0, 3),
    broker(ApiKey::DeleteGroups, 0, 2),
    both(ApiKey::ElectLeaders, 0, 2),
    both(ApiKey::IncrementalAlterConfigs, 0, 1),
    both(ApiKey::AlterPartitionReassignments, 0, 1),
    both(ApiKey::ListPartitionReassignments, 0, 0),
    broker(ApiKey::OffsetDelete, 0, 0),
    both(ApiKey::DescribeQuorum, 0, 2),
    controller(ApiKey::AlterPartition, 2, 3),
    both(ApiKey::DescribeCluster, 0, 2),
    broker(ApiKey::DescribeProducers, 0, 0),
    controller(ApiKey::BrokerRegistration, 0, 4),
    controller(ApiKey::BrokerHeartbeat, 0, 1),
    controller(ApiKey::AllocateProducerIds, 0, 0),
    broker(ApiKey::DescribeTopicPartitions, 0, 0),
];

/// What is spoken to `audience`.
pub fn spoken(audience: Audience) -> impl Iterator<Item = &'static Spoken> {
    SPOKEN.iter().filter(move |spoken| match audience {
        Audience::Clients | Audience::Brokers => spoken.on_brokers,
        Audience::Controllers => spoken.on_controllers,
    })
}

/// `key` as spoken to `audience`.
pub fn find(audience: Audience, key: ApiKey) -> Option<&'static Spoken> {
    spoken(audience).find(|spoken| spoken.key == key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::shapes;

    #[test]
    fn every_version_is_one_that_the_library_knows() {
        for spoken in SPOKEN {
            let known =
                shapes::request(spoken.key as i16).unwrap_or_else(|| panic!("{:?}", spoken.key));
            assert!(
                known.oldest <= spoken.min && spoken.max <= known.newest,
                "{:?} {}..{} of {}..{}",
                spoken.key,
                spoken.min,
                spoken.max,
                known.oldest,
                known.newest
            );
        }
    }

    #[test]
    fn controllers_are_not_asked_for_records() {
        assert!(find(Audience::Controllers, ApiKey::Produce).is_none());
        assert!(find(Audience::Clients, ApiKey::AlterPartition).is_none());
        assert!(find(Audience::Clients, ApiKey::AddPartitionsToTxn).is_none());
    }
}
