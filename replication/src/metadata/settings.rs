//! Settings that topics may override, and brokers for all their topics.

use std::collections::BTreeMap;

use crate::metadata::{Image, Resource};
use crate::types::NodeId;

/// What a value must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole number, not below this.
    Number {
        /// The least.
        least: i64,
        /// The greatest.
        most: i64,
    },
    /// true or false.
    Flag,
    /// A number from 0 to 1.
    Share,
    /// One of these.
    OneOf(&'static [&'static str]),
    /// Some of these, separated by commas.
    SomeOf(&'static [&'static str]),
}

/// A setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// As topics name it.
    pub name: &'static str,
    /// As brokers name it.
    pub broker_name: &'static str,
    /// Kafka's default.
    pub default: &'static str,
    /// What it must be.
    pub kind: Kind,
    /// What it does.
    pub doc: &'static str,
}

const fn number(
    name: &'static str,
    broker_name: &'static str,
    default: &'static str,
    least: i64,
    doc: &'static str,
) -> Setting {
    Setting { name, broker_name, default, kind: Kind::Number { least, most: i64::MAX }, doc }
}

const fn int(
    name: &'static str,
    broker_name: &'static str,
    default: &'static str,
    least: i64,
    doc: &'static str,
) -> Setting {
    let kind = Kind::Number { least, most: i32::MAX as i64 };
    Setting { name, broker_name, default, kind, doc }
}

/// Every setting there is, with Kafka's defaults.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "cleanup.policy",
        broker_name: "log.cleanup.policy",
        default: "delete",
        kind: Kind::SomeOf(&["compact", "delete"]),
        doc: "delete: old segments go; compact: the last record of each key stays",
    },
    Setting {
        name: "compression.type",
        broker_name: "compression.type",
        default: "producer",
        kind: Kind::OneOf(&["producer"]),
        doc: "batches stay compressed as producers sent them",
    },
    number(
        "delete.retention.ms",
        "log.cleaner.delete.retention.ms",
        "86400000",
        0,
        "how long a compacted log keeps the word that a key is gone",
    ),
    number(
        "file.delete.delay.ms",
        "log.segment.delete.delay.ms",
        "60000",
        0,
        "how long a segment that is deleted may still be read",
    ),
    int(
        "index.interval.bytes",
        "log.index.interval.bytes",
        "4096",
        0,
        "bytes of a segment between two entries of its index",
    ),
    int("max.message.bytes", "message.max.bytes", "1048588", 0, "the largest batch that is taken"),
    Setting {
        name: "message.timestamp.type",
        broker_name: "log.message.timestamp.type",
        default: "CreateTime",
        kind: Kind::OneOf(&["CreateTime", "LogAppendTime"]),
        doc: "whose clock records carry",
    },
    Setting {
        name: "min.cleanable.dirty.ratio",
        broker_name: "log.cleaner.min.cleanable.ratio",
        default: "0.5",
        kind: Kind::Share,
        doc: "a compacted log is cleaned when so much of it is new",
    },
    int(
        "min.insync.replicas",
        "min.insync.replicas",
        "1",
        1,
        "fewer in the ISR, and nothing is written under acks=all (R19)",
    ),
    number("retention.bytes", "log.retention.bytes", "-1", -1, "the size up to which records stay"),
    number("retention.ms", "log.retention.ms", "604800000", -1, "the age up to which records stay"),
    int("segment.bytes", "log.segment.bytes", "1073741824", 14, "the size of a segment"),
    int(
        "segment.index.bytes",
        "log.index.size.max.bytes",
        "10485760",
        4,
        "the size of a segment's index",
    ),
    number("segment.ms", "log.roll.ms", "604800000", 1, "the age at which a segment is closed"),
    Setting {
        name: "unclean.leader.election.enable",
        broker_name: "unclean.leader.election.enable",
        default: "false",
        kind: Kind::Flag,
        doc: "elect a replica that may lack committed records rather than none (R29)",
    },
];

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Set for the topic.
    Topic,
    /// Set for the broker, while it runs.
    Broker,
    /// Set for all brokers, while they run.
    AllBrokers,
    /// In the broker's file.
    File,
    /// Kafka's default.
    Default,
}

/// The setting that topics name so.
pub fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

/// The setting that brokers name so.
pub fn find_by_broker_name(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.broker_name == name)
}

/// Do brokers name any setting of topics so?
pub fn is_broker_level_name(name: &str) -> bool {
    find_by_broker_name(name).is_some()
}

impl Setting {
    /// Is `value` one that it may have?
    ///
    /// # Errors
    /// What it must be.
    pub fn check(&self, value: &str) -> Result<(), String> {
        let good = match self.kind {
            Kind::Number { least, most } => {
                value.parse::<i64>().is_ok_and(|number| (least..=most).contains(&number))
            }
            Kind::Flag => matches!(value, "true" | "false"),
            Kind::Share => value.parse::<f64>().is_ok_and(|share| (0.0..=1.0).contains(&share)),
            Kind::OneOf(values) => values.contains(&value),
            Kind::SomeOf(values) => {
                !value.is_empty() && value.split(',').all(|part| values.contains(&part.trim()))
            }
        };
        if good { Ok(()) } else { Err(format!("{} is `{value}`; it must be {self}", self.name)) }
    }
}

/// What it must be.
impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.kind {
            Kind::Number { least, most: i64::MAX } => write!(f, "a whole number from {least} on"),
            Kind::Number { least, most } => write!(f, "a whole number from {least} to {most}"),
            Kind::Flag => write!(f, "true or false"),
            Kind::Share => write!(f, "a number from 0 to 1"),
            Kind::OneOf(values) => write!(f, "one of {}", values.join(", ")),
            Kind::SomeOf(values) => write!(f, "some of {}", values.join(", ")),
        }
    }
}

/// Settings in a broker's file, by the names that brokers give them.
pub type Defaults = BTreeMap<String, String>;

/// What holds for a topic on a broker (or, without one, as the controller sees it): the topic's
/// own value, else the broker's, all brokers', the file's, Kafka's.
pub fn effective(
    image: &Image,
    defaults: &Defaults,
    broker: Option<NodeId>,
    topic: &str,
    setting: &Setting,
) -> (String, Source) {
    let owned = |value: &str, source| (value.to_owned(), source);
    let topic = Resource::Topic(topic.to_owned());
    if let Some(value) = image.setting(&topic, setting.name) {
        return owned(value, Source::Topic);
    }
    let of_broker = broker.and_then(|id| image.setting(&Resource::Broker(id), setting.broker_name));
    if let Some(value) = of_broker {
        return owned(value, Source::Broker);
    }
    if let Some(value) = image.setting(&Resource::AllBrokers, setting.broker_name) {
        return owned(value, Source::AllBrokers);
    }
    match defaults.get(setting.broker_name) {
        Some(value) => owned(value, Source::File),
        None => owned(setting.default, Source::Default),
    }
}

/// The value of a setting that is known to exist, as a number; out of range or not there: 0.
pub fn effective_number(
    image: &Image,
    defaults: &Defaults,
    broker: Option<NodeId>,
    topic: &str,
    name: &str,
) -> i64 {
    find(name)
        .and_then(|setting| effective(image, defaults, broker, topic, setting).0.parse().ok())
        .unwrap_or(0)
}

/// The value of a setting that is known to exist, as a flag.
pub fn effective_flag(image: &Image, defaults: &Defaults, topic: &str, name: &str) -> bool {
    find(name).is_some_and(|setting| effective(image, defaults, None, topic, setting).0 == "true")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Record;

    #[test]
    fn defaults_are_values_that_may_be() {
        for setting in SETTINGS {
            setting.check(setting.default).unwrap();
        }
    }

    #[test]
    fn the_nearest_value_holds() {
        let setting = find("retention.ms").unwrap();
        let mut image = Image::default();
        let mut defaults = Defaults::new();
        let mut set = |resource, name: &str, value: &str| {
            let record =
                Record::Setting { resource, name: name.to_owned(), value: Some(value.to_owned()) };
            image.apply(1, &record).unwrap();
            image.clone()
        };
        let of = |image: &Image, defaults: &Defaults| {
            effective(image, defaults, Some(NodeId(1)), "orders", setting)
        };
        assert_eq!(of(&Image::default(), &defaults), ("604800000".to_owned(), Source::Default));
        defaults.insert("log.retention.ms".to_owned(), "4".to_owned());
        assert_eq!(of(&Image::default(), &defaults), ("4".to_owned(), Source::File));
        let all = set(Resource::AllBrokers, "log.retention.ms", "3");
        assert_eq!(of(&all, &defaults), ("3".to_owned(), Source::AllBrokers));
        let one = set(Resource::Broker(NodeId(1)), "log.retention.ms", "2");
        assert_eq!(of(&one, &defaults), ("2".to_owned(), Source::Broker));
        let topic = set(Resource::Topic("orders".to_owned()), "retention.ms", "1");
        assert_eq!(of(&topic, &defaults), ("1".to_owned(), Source::Topic));
    }

    #[test]
    fn what_cannot_be_is_told_with_what_can() {
        let error = find("cleanup.policy").unwrap().check("burn").unwrap_err();
        assert!(error.contains("compact, delete"), "{error}");
        assert!(find("min.insync.replicas").unwrap().check("0").is_err());
        assert!(find("segment.bytes").unwrap().check("99999999999").is_err());
    }
}
