//! Names as numbers.

use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Number of a name in its table.
pub type NameId = u32;

/// A table of names, each with a number from 0 up in the order in which they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    by_id: Vec<Arc<str>>,
    by_name: FxHashMap<Arc<str>, NameId>,
}

impl Names {
    /// The number of `name`, a new one where it is new.
    pub fn intern(&mut self, name: &str) -> NameId {
        if let Some(id) = self.by_name.get(name) {
            return *id;
        }
        let id = NameId::try_from(self.by_id.len()).unwrap_or(NameId::MAX);
        let name: Arc<str> = name.into();
        self.by_id.push(Arc::clone(&name));
        self.by_name.insert(name, id);
        id
    }

    /// The number of `name`, if it has one.
    pub fn find(&self, name: &str) -> Option<NameId> {
        self.by_name.get(name).copied()
    }

    /// The name with number `id`; empty for a number of another table.
    pub fn get(&self, id: NameId) -> &str {
        self.by_id.get(id as usize).map_or("", |name| name)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// All names, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.by_id.iter().map(|name| &**name)
    }
}
