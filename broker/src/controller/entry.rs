//! The metadata log's state is the image; an entry is a batch of records.

use replication::metadata::{Image, Record};
use serde::{Deserialize, Serialize};
use tracing::error;

/// Records that hold together or not at all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// In order.
    pub records: Vec<Record>,
}

/// The image as the state of the metadata log.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Metadata(pub Image);

impl Metadata {
    /// Applies the entry at `index`.
    pub fn apply(&mut self, index: i64, change: &Entry) {
        for record in &change.records {
            if let Err(refused) = self.0.apply(index, record) {
                // Every node refuses the same, so the images stay equal; but it is a defect.
                error!(index, %refused, "a record of the metadata log does not fit");
            }
        }
    }
}
