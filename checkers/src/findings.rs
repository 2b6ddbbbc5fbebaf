//! What checkers find, while they look.

use std::collections::BTreeMap;

use crate::verdict::{Anomaly, Example, MAX_EXAMPLES, Validity};

/// What one checker found, by the anomaly's name.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    found: BTreeMap<&'static str, Found>,
    /// Why the checker cannot say more, a sentence each.
    pub(crate) reasons: Vec<String>,
}

#[derive(Debug, Default)]
struct Found {
    count: u64,
    valid: Validity,
    /// At most [`MAX_EXAMPLES`] of each validity.
    examples: Vec<(Validity, Example)>,
}

impl Found {
    fn has_room(&self, valid: Validity) -> bool {
        let same = self.examples.iter().filter(|(of, _)| *of == valid);
        same.count() < MAX_EXAMPLES
    }
}

impl Findings {
    /// Counts one occurrence of `anomaly`, that is `valid` where Kafka promises no better. The
    /// example is made only while there is room for it.
    pub(crate) fn add(
        &mut self,
        anomaly: &'static str,
        valid: Validity,
        example: impl FnOnce() -> Example,
    ) {
        let found = self.found.entry(anomaly).or_default();
        found.count += 1;
        found.valid = found.valid.merge(valid);
        if found.has_room(valid) {
            found.examples.push((valid, example()));
        }
    }

    /// Adds what was found elsewhere, behind what there is.
    pub(crate) fn append(&mut self, other: Self) {
        for (name, more) in other.found {
            let found = self.found.entry(name).or_default();
            found.count += more.count;
            found.valid = found.valid.merge(more.valid);
            for (valid, example) in more.examples {
                if found.has_room(valid) {
                    found.examples.push((valid, example));
                }
            }
        }
        self.reasons.extend(other.reasons);
    }

    /// All together; a reason makes it unknown at least.
    pub(crate) fn valid(&self) -> Validity {
        let reasons = if self.reasons.is_empty() { Validity::True } else { Validity::Unknown };
        self.found.values().fold(reasons, |valid, found| valid.merge(found.valid))
    }

    /// As the verdict shows it: the worst examples first.
    pub(crate) fn into_anomalies(self) -> BTreeMap<String, Anomaly> {
        let anomaly = |mut found: Found| {
            found.examples.sort_by_key(|(valid, _)| std::cmp::Reverse(*valid));
            found.examples.truncate(MAX_EXAMPLES);
            Anomaly {
                count: found.count,
                valid: found.valid,
                examples: found.examples.into_iter().map(|(_, example)| example).collect(),
            }
        };
        self.found.into_iter().map(|(name, found)| (name.to_owned(), anomaly(found))).collect()
    }
}
