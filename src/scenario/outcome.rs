//! Is the verdict the one that the scenario expects?

use checkers::{Validity, Verdict};
use serde::Serialize;

use super::file::Expectation;

/// What came of a scenario.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Outcome {
    /// What it expects.
    AsExpected,
    /// Something else, and what.
    Otherwise(String),
    /// Too little happened, and what was missing.
    Unknown(String),
    /// It cannot run there, and why.
    Unsupported(String),
}

/// Compares.
pub(crate) fn compare(expected: &Expectation, verdict: &Verdict) -> Outcome {
    let found: Vec<&str> = verdict.broken().collect();
    match (expected, verdict.valid) {
        (Expectation::Unsupported(why), _) => Outcome::Unsupported(why.clone()),
        (_, Validity::Unknown) => Outcome::Unknown(verdict.reasons().join("; ")),
        (Expectation::Valid, Validity::True) => Outcome::AsExpected,
        (Expectation::Valid, Validity::False) => {
            Outcome::Otherwise(format!("expected to be valid, found {}", found.join(", ")))
        }
        (Expectation::Anomalies(wanted), _) => {
            let missing: Vec<&str> =
                wanted.iter().map(String::as_str).filter(|name| !found.contains(name)).collect();
            if missing.is_empty() {
                return Outcome::AsExpected;
            }
            let found = if found.is_empty() { "nothing".to_owned() } else { found.join(", ") };
            Outcome::Otherwise(format!("expected {}, found {found}", missing.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use checkers::Anomaly;

    use super::*;

    fn verdict(valid: Validity, anomalies: &[(&str, Validity)]) -> Verdict {
        let anomalies = anomalies.iter().map(|(name, valid)| {
            ((*name).to_owned(), Anomaly { count: 1, valid: *valid, ..Anomaly::default() })
        });
        Verdict { valid, anomalies: anomalies.collect(), ..Verdict::default() }
    }

    #[test]
    fn only_what_is_expected_is_as_expected() {
        let lost = Expectation::Anomalies(vec!["lost-write".into()]);
        let bad = verdict(Validity::False, &[("lost-write", Validity::False)]);
        let other = verdict(Validity::False, &[("duplicate", Validity::False)]);
        let allowed = verdict(Validity::True, &[("lost-write", Validity::True)]);
        assert_eq!(compare(&lost, &bad), Outcome::AsExpected);
        assert!(matches!(compare(&lost, &other), Outcome::Otherwise(_)));
        assert!(matches!(compare(&lost, &allowed), Outcome::Otherwise(_)), "allowed is not found");
        assert_eq!(compare(&Expectation::Valid, &allowed), Outcome::AsExpected);
        assert!(matches!(compare(&Expectation::Valid, &bad), Outcome::Otherwise(_)));
        let unknown = verdict(Validity::Unknown, &[]);
        assert!(matches!(compare(&Expectation::Valid, &unknown), Outcome::Unknown(_)));
        assert!(matches!(compare(&lost, &unknown), Outcome::Unknown(_)));
    }
}
