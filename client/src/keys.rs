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

    /// Every key, by its index.
    pub(crate) fn all(&self) -> &[Target] {
        &self.targets
    }

    pub(crate) fn get(&self, index: usize) -> Option<&Target> {
        self.targets.get(index)
    }

    pub(crate) fn index(&self, topic: &str, partition: i32) -> Option<usize> {
        self.by_topic.get(topic)?.get(&partition).copied()
    }

    /// The index of a key of the run.
    pub(crate) fn index_of(&self, key: &Key) -> Option<usize> {
        key.split().and_then(|(topic, partition)| self.index(topic, partition))
    }

    /// The key of a partition, also of one that the run does not use.
    pub(crate) fn key(&self, topic: &str, partition: i32) -> Key {
        self.index(topic, partition)
            .and_then(|index| self.targets.get(index))
            .map_or_else(|| Key::new(topic, partition), |target| target.key.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_both_ways() {
        let table = KeyTable::new(&[Key::new("a-b", 0), "nonsense".into(), Key::new("c", 1)]);
        assert_eq!(table.index("c", 1), Some(1));
        assert_eq!(table.get(0).map(|target| target.topic.as_str()), Some("a-b"));
        assert_eq!(table.index("c", 0), None);
        assert_eq!(table.key("x", 9), Key::from("x-9"));
    }
}
