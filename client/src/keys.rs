//! The keys of a run, in both directions.

use std::collections::HashMap;

use history::Key;

/// A key and the parts it is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) key: Key,
    pub(crate) topic: String,
    pub(crate) partition: i32,
}

/// Index → key, and topic and partition → index.
#[derive(Debug, Default)]
pub(crate) struct KeyTable {
    targets: Vec<Target>,
    by_topic: HashMap<String, HashMap<i32, usize>>,
}

impl KeyTable {
    /// A table of `keys`; those that are not of the form `topic-partition` are left out.
    pub(crate) fn new(keys: &[Key]) -> Self {
        let mut table = Self::default();
        for key in keys {
            let Some((topic, partition)) = key.split() else {
                continue;
            };
            table
                .by_topic
                .entry(topic.to_owned())
                .or_default()
                .insert(partition, table.targets.len());
            table.targets.push(Target { key: key.clone(), topic: topic.to_owned(), partition });
        }
        table
    }

    pub(crate) fn get(&self, index: usize) -> Option<&Target> {
        self.targets.get(index)
    }

    pub(crate) fn index(&self, topic: &str, partition: i32) -> Option<usize> {
        self.by_topic.get(topic)?.get(&partition).copied()
    }

    /// The key of a partition, also of one that the run does not use.
    pub(crate) fn key(&self, topic: &str, partition: i32) -> Key {
        self.index(topic, partition)
            .and_then(|index| self.targets.get(index))
            .map_or_else(|| Key::new(topic, partition), |target| target.key.clone())
    }
}
