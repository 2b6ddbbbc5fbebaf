//! What a test program needs to run, and what it says where that is missing.

use libtest_mimic::{Failed, Trial};

/// Stands for tests that cannot run here: shown as ignored, with the reason and the remedy in
/// its name; a failure where `HIGHWATER_REQUIRE` (`docker,root`, …) names `requirement`.
pub(crate) fn not_run(requirement: &str, reason: &str) -> Trial {
    let required = std::env::var("HIGHWATER_REQUIRE").unwrap_or_default();
    let is_required = required.split(',').any(|word| word.trim() == requirement);
    let reason = reason.to_owned();
    let name = format!("NOT RUN, no {requirement}: {reason}");
    Trial::test(name, move || Err(Failed::from(reason))).with_ignored_flag(!is_required)
}
