//! What `verdict.json` says.

use std::collections::BTreeMap;
use std::fmt;

use history::NEVER;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::stats::Stats;

/// Most examples that are kept of one anomaly.
pub const MAX_EXAMPLES: usize = 8;

/// Does what was checked hold? In JSON `true`, `false` or `"unknown"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Validity {
    /// It does.
    #[default]
    True,
    /// Too little is known to say.
    Unknown,
    /// It does not, and the examples show it.
    False,
}

impl Validity {
    /// Both together: false over unknown over true.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        self.max(other)
    }
}

impl fmt::Display for Validity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::True => "valid",
            Self::Unknown => "unknown",
            Self::False => "invalid",
        })
    }
}

impl Serialize for Validity {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::True => out.serialize_bool(true),
            Self::False => out.serialize_bool(false),
            Self::Unknown => out.serialize_str("unknown"),
        }
    }
}

impl<'de> Deserialize<'de> for Validity {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Words;
        impl Visitor<'_> for Words {
            type Value = Validity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false or \"unknown\"")
            }

            fn visit_bool<E: de::Error>(self, valid: bool) -> Result<Validity, E> {
                Ok(if valid { Validity::True } else { Validity::False })
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<Validity, E> {
                match word {
                    "unknown" => Ok(Validity::Unknown),
                    _ => Err(E::invalid_value(de::Unexpected::Str(word), &self)),
                }
            }
        }
        input.deserialize_any(Words)
    }
}

/// What a history shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// All checkers together.
    pub valid: Validity,
    /// What was found, by the anomaly's name, allowed ones included.
    pub anomalies: BTreeMap<String, Anomaly>,
    /// What each checker says, by its name.
    pub checkers: BTreeMap<String, CheckerReport>,
    /// Counts, latencies, faults.
    #[serde(default)]
    pub stats: Stats,
}

impl Verdict {
    /// Names of the anomalies that must not be.
    pub fn broken(&self) -> impl Iterator<Item = &str> {
        let bad = self.anomalies.iter().filter(|(_, found)| found.valid == Validity::False);
        bad.map(|(name, _)| name.as_str())
    }

    /// Why it is unknown, a sentence each, of all checkers.
    pub fn reasons(&self) -> Vec<String> {
        self.checkers.values().flat_map(|report| report.reasons.iter().cloned()).collect()
    }
}

/// All that was found of one anomaly.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Anomaly {
    /// How often it occurred.
    pub count: u64,
    /// `true` where Kafka promises no better.
    pub valid: Validity,
    /// The first few, at most [`MAX_EXAMPLES`]; those that Kafka rules out come first.
    pub examples: Vec<Example>,
}

/// One occurrence of an anomaly, with what proves it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Example {
    /// The partition, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Offsets concerned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offsets: Vec<i64>,
    /// Values concerned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<i64>,
    /// Indices of the history's lines that prove it, ascending.
    pub ops: Vec<u64>,
    /// One sentence that a person can follow at those lines.
    pub text: String,
}

impl Example {
    pub(crate) fn new(key: &str, text: String) -> Self {
        Self { key: Some(key.to_owned()), text, ..Self::default() }
    }

    pub(crate) fn offsets(mut self, offsets: impl IntoIterator<Item = i64>) -> Self {
        self.offsets.extend(offsets);
        self
    }

    pub(crate) fn values(mut self, values: impl IntoIterator<Item = i64>) -> Self {
        self.values.extend(values);
        self
    }

    /// Adds indices; what never completed has none.
    pub(crate) fn lines(mut self, lines: impl IntoIterator<Item = u32>) -> Self {
        let there = lines.into_iter().filter(|line| *line != NEVER);
        self.ops.extend(there.map(u64::from));
        self.ops.sort_unstable();
        self.ops.dedup();
        self
    }
}

/// What one checker says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckerReport {
    /// Its part of the verdict.
    pub valid: Validity,
    /// Names of the anomalies it found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub anomalies: Vec<String>,
    /// Why it is unknown, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::Validity::{False, True, Unknown};

    #[test]
    fn false_beats_unknown_beats_true() {
        for (a, b, both) in [
            (True, True, True),
            (True, Unknown, Unknown),
            (Unknown, False, False),
            (True, False, False),
        ] {
            assert_eq!(a.merge(b), both);
            assert_eq!(b.merge(a), both);
        }
    }

    #[test]
    fn validity_is_true_false_or_unknown_in_json() {
        for (value, text) in [(True, "true"), (False, "false"), (Unknown, "\"unknown\"")] {
            assert_eq!(serde_json::to_string(&value).unwrap(), text);
            assert_eq!(serde_json::from_str::<super::Validity>(text).unwrap(), value);
        }
        assert!(serde_json::from_str::<super::Validity>("\"maybe\"").is_err());
        assert!(serde_json::from_str::<super::Validity>("1").is_err());
    }
}
