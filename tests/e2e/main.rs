//! End to end, against real clusters: one test program, run case by case.
//!
//! A case that needs what this machine lacks is shown as ignored, with the reason and the remedy.
//! `HIGHWATER_REQUIRE=kafka,docker,root` makes that a failure.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test may fail loudly"
)]

mod bad_input;
mod bench;
mod by_hand;
mod driver;
mod interrupted;
mod needs;
mod runs;

use libtest_mimic::{Arguments, Trial};

use needs::Need::{Docker, Kafka, Namespaces, Root};

fn main() {
    let mut trials = bad_input::trials();
    let mut add = |name: &str, needs: &'static [needs::Need], case: fn()| {
        trials.push(needs::trial(name, needs, case));
    };
    add("runs::namespaces_are_valid_and_judged_alike_later", &[Kafka, Namespaces], || {
        runs::valid_and_judged_alike_later("namespaces");
    });
    add("runs::docker_is_valid_and_judged_alike_later", &[Kafka, Docker], || {
        runs::valid_and_judged_alike_later("docker");
    });
    add("runs::works_without_root", &[Kafka, Namespaces, Root], runs::works_without_root);
    add("runs::separate_controllers", &[Kafka, Namespaces], runs::separate_controllers);
    add(
        "runs::an_unclean_election_loses_acknowledged_writes",
        &[Kafka, Namespaces],
        runs::an_unclean_election_loses_acknowledged_writes,
    );
    add(
        "bench::everything_is_measured_and_written_down",
        &[Kafka, Namespaces],
        bench::everything_is_measured_and_written_down,
    );
    add(
        "bench::what_fails_is_told_with_its_reason",
        &[Kafka, Namespaces],
        bench::what_fails_is_told_with_its_reason,
    );
    add(
        "bench::an_interrupt_leaves_nothing_behind",
        &[Kafka, Namespaces],
        bench::an_interrupt_leaves_nothing_behind,
    );
    for backend in ["namespaces", "docker"] {
        let needs: &[needs::Need] =
            if backend == "docker" { &[Kafka, Docker] } else { &[Kafka, Namespaces] };
        for phase in interrupted::PHASES {
            for signal in phase.signals {
                let name = format!("interrupted::{signal}_while_{}_on_{backend}", phase.name);
                trials.push(needs::trial(&name, needs, move || {
                    interrupted::case(backend, phase, signal);
                }));
            }
        }
    }
    trials.push(needs::trial("interrupted::twice_ends_at_once", &[Kafka, Namespaces], || {
        interrupted::twice_ends_at_once();
    }));
    trials.push(needs::trial("by_hand::namespaces", &[Kafka, Namespaces], || {
        by_hand::up_status_exec_down("namespaces");
    }));
    trials.push(needs::trial("by_hand::docker", &[Kafka, Docker], || {
        by_hand::up_status_exec_down("docker");
    }));
    // One cluster at a time: three JVMs fill a small machine.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, trials).exit();
}

/// Adds what every list of trials needs.
pub(crate) fn plain(name: &str, case: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name.to_owned(), move || {
        case();
        Ok(())
    })
}
