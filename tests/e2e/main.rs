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
mod clients;
mod driver;
mod every_version;
mod interrupted;
mod kafka_tools;
mod loopback;
mod needs;
mod runs;
mod scenarios;

use libtest_mimic::{Arguments, Trial};

use needs::Need::{Docker, Kafka, Kcat, Namespaces, Root};

fn main() {
    let mut trials = bad_input::trials();
    for system in ["highwater", "kafka"] {
        let mut on = |name: &str, needs: &[needs::Need], case: fn(&str)| {
            // The in-repo broker needs nothing but a place to run in.
            let needs = needs.iter().copied().filter(|need| *need != Kafka || system == "kafka");
            let name = format!("runs::{system}_{name}");
            trials.push(needs::trial(&name, &needs.collect::<Vec<_>>(), move || case(system)));
        };
        on("in_namespaces_is_valid_and_judged_alike_later", &[Kafka, Namespaces], |system| {
            runs::valid_and_judged_alike_later(system, "namespaces");
        });
        on("in_docker_is_valid_and_judged_alike_later", &[Kafka, Docker], |system| {
            runs::valid_and_judged_alike_later(system, "docker");
        });
        on("works_without_root", &[Kafka, Namespaces, Root], runs::works_without_root);
        on("separate_controllers", &[Kafka, Namespaces], runs::separate_controllers);
        on(
            "an_unclean_election_loses_acknowledged_writes",
            &[Kafka, Namespaces],
            runs::an_unclean_election_loses_acknowledged_writes,
        );
    }
    for (name, case) in [
        (
            "bench::everything_is_measured_and_written_down",
            bench::everything_is_measured_and_written_down as fn(),
        ),
        ("bench::what_fails_is_told_with_its_reason", bench::what_fails_is_told_with_its_reason),
        ("bench::an_interrupt_leaves_nothing_behind", bench::an_interrupt_leaves_nothing_behind),
    ] {
        trials.push(needs::trial(name, &[Namespaces], case));
    }
    for backend in ["namespaces", "docker"] {
        let need = if backend == "docker" { Docker } else { Namespaces };
        for phase in interrupted::PHASES {
            for signal in phase.signals {
                let name = format!("interrupted::{signal}_while_{}_on_{backend}", phase.name);
                trials.push(needs::trial(&name, &[need], move || {
                    interrupted::case("highwater", backend, phase, signal);
                }));
            }
        }
        trials.push(needs::trial(&format!("by_hand::on_{backend}"), &[need], move || {
            by_hand::up_status_exec_down("highwater", backend);
        }));
    }
    trials.push(needs::trial("interrupted::kafka_starting", &[Kafka, Namespaces], || {
        interrupted::case("kafka", "namespaces", interrupted::PHASES[0], "SIGKILL");
    }));
    trials.push(needs::trial("interrupted::twice_ends_at_once", &[Namespaces], || {
        interrupted::twice_ends_at_once();
    }));
    trials.push(needs::trial("by_hand::kafka", &[Kafka, Namespaces], || {
        by_hand::up_status_exec_down("kafka", "namespaces");
    }));
    trials.push(needs::trial(
        "scenarios::power_loss_drops_exactly_what_was_not_synced",
        &[Namespaces, Root],
        scenarios::power_loss_drops_exactly_what_was_not_synced,
    ));
    trials.push(needs::trial("scenarios::highwater", &[Namespaces, Root], || {
        let names = [
            "kip-966-last-replica-standing",
            "lost-answers",
            "slow-catch-up",
            "rejected-once",
            "group-offsets",
            "bad-links",
            "disk-full",
            "disk-error",
        ];
        scenarios::come_out_as_expected("highwater", &names);
    }));
    trials.push(needs::trial("scenarios::kafka", &[Kafka, Namespaces, Root], || {
        let names = ["kip-966-last-replica-standing/elr-off"];
        scenarios::come_out_as_expected("kafka", &names);
    }));
    trials.push(needs::trial("clients::kcat", &[Kcat, Namespaces], clients::kcat));
    trials.push(needs::trial("clients::compaction", &[Kcat, Namespaces], clients::compaction));
    trials.push(needs::trial("clients::kafka_tools", &[Kafka, Namespaces], kafka_tools::all));
    trials.push(plain(
        "clients::every_announced_version_is_answered",
        every_version::every_announced_version_is_answered,
    ));
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
