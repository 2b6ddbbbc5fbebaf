//! A cluster in the hands of a test.

use uuid::Uuid;

use crate::controller::sessions::Sessions;
use crate::controller::{World, fencing, shutdown};
use crate::metadata::settings::Defaults;
use crate::metadata::{
    BrokerRegistration, Image, Listener, PartitionChange, PartitionState, Record, Resource,
};
use crate::types::{
    BrokerEpoch, LeaderEpoch, Millis, NodeId, PartitionEpoch, PartitionId, Recovery, TopicId,
};

/// A cluster in the hands of a test.
#[derive(Clone, Debug)]
pub(super) struct Cluster {
    image: Image,
    defaults: Defaults,
    index: i64,
}

/// What broker `id` says of itself.
pub(super) fn registration(id: i32) -> BrokerRegistration {
    BrokerRegistration {
        id: NodeId(id),
        incarnation: Uuid::from_u128(u128::try_from(id).unwrap()),
        listeners: vec![Listener {
            name: "BROKER".to_owned(),
            host: format!("10.0.0.{id}"),
            port: 9091,
        }],
        log_dirs: Vec::new(),
        rack: None,
    }
}

impl Cluster {
    /// Brokers 1 to `brokers`, all fenced.
    pub(super) fn fenced(brokers: i32) -> Self {
        let mut cluster = Self { image: Image::default(), defaults: Defaults::new(), index: 10 };
        for id in 1..=brokers {
            cluster.apply(&[Record::RegisterBroker(registration(id))]);
        }
        cluster
    }

    /// Brokers 1 to `brokers`, all serving.
    pub(super) fn of(brokers: i32) -> Self {
        let mut cluster = Self::fenced(brokers);
        for id in 1..=brokers {
            cluster.unfence(id);
        }
        cluster
    }

    pub(super) fn with_elr(mut self) -> Self {
        let name = super::features::ELR.to_owned();
        self.apply(&[Record::Feature { name, level: 1 }]);
        self
    }

    /// A topic whose partitions are led by their first replicas, all in sync.
    pub(super) fn with_topic(mut self, name: &str, partitions: &[&[i32]]) -> Self {
        let number = name.bytes().fold(1_u128, |sum, byte| sum * 256 + u128::from(byte));
        let id = TopicId(Uuid::from_u128(number));
        let mut records = vec![Record::Topic { name: name.to_owned(), id }];
        for (index, replicas) in (0..).zip(partitions) {
            let replicas: Vec<NodeId> = replicas.iter().copied().map(NodeId).collect();
            records.push(Record::Partition {
                id: PartitionId { topic: id, index },
                state: PartitionState {
                    isr: replicas.clone(),
                    leader: replicas.first().copied(),
                    replicas,
                    leader_epoch: LeaderEpoch(5),
                    partition_epoch: PartitionEpoch(5),
                    recovery: Recovery::Recovered,
                    adding: Vec::new(),
                    removing: Vec::new(),
                    elr: Vec::new(),
                    last_known_elr: Vec::new(),
                },
            });
        }
        self.apply(&records);
        self
    }

    pub(super) fn image(&self) -> &Image {
        &self.image
    }

    pub(super) fn world(&self) -> World<'_> {
        World { image: &self.image, defaults: &self.defaults }
    }

    /// Applies one entry; its index.
    pub(super) fn apply(&mut self, records: &[Record]) -> i64 {
        self.index += 1;
        for record in records {
            self.image.apply(self.index, record).unwrap();
        }
        self.index
    }

    pub(super) fn fence(&mut self, broker: i32) {
        let records = fencing::fence(self.world(), NodeId(broker));
        self.apply(&records);
    }

    pub(super) fn unfence(&mut self, broker: i32) {
        let records = fencing::unfence(self.world(), NodeId(broker));
        self.apply(&records);
    }

    /// The broker's process was killed and is back, in another life.
    pub(super) fn reborn(&mut self, broker: i32) {
        let another = BrokerRegistration {
            incarnation: Uuid::from_u128(1_000 + u128::from(broker.unsigned_abs())),
            ..registration(broker)
        };
        let records = super::registration::register(
            self.world(),
            &Sessions::default(),
            another,
            BrokerEpoch::BYPASS,
            Millis(0),
        );
        self.apply(&records.unwrap());
    }

    pub(super) fn begin_shutdown(&mut self, broker: i32) {
        let records = shutdown::begin(self.world(), NodeId(broker));
        self.apply(&records);
    }

    pub(super) fn set(&mut self, topic: &str, name: &str, value: &str) {
        self.apply(&[Record::Setting {
            resource: Resource::Topic(topic.to_owned()),
            name: name.to_owned(),
            value: Some(value.to_owned()),
        }]);
    }

    pub(super) fn id(&self, topic: &str, index: i32) -> PartitionId {
        PartitionId { topic: self.image.topic_by_name(topic).unwrap().id, index }
    }

    pub(super) fn partition(&self, topic: &str, index: i32) -> &PartitionState {
        self.image.partition(self.id(topic, index)).unwrap()
    }

    /// The ISR becomes this, as a leader might have asked.
    pub(super) fn shrink(&mut self, topic: &str, index: i32, isr: &[i32]) {
        let change = PartitionChange {
            isr: Some(isr.iter().copied().map(NodeId).collect()),
            ..PartitionChange::default()
        };
        let id = self.id(topic, index);
        self.apply(&[Record::ChangePartition { id, change }]);
    }

    /// As [`Self::shrink`], the other way.
    pub(super) fn grow(&mut self, topic: &str, index: i32, isr: &[i32]) {
        self.shrink(topic, index, isr);
    }

    pub(super) fn epoch(&self, broker: i32) -> BrokerEpoch {
        self.image.broker(NodeId(broker)).unwrap().epoch
    }
}
