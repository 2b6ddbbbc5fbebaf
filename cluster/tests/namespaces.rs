//! The backend contract on the `namespaces` backend. The test program re-executes itself inside
//! the sandbox, as the driver does.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a test may fail loudly and plays nodes that talk"
)]

#[path = "contract/bad_links.rs"]
mod bad_links;
#[path = "contract/links.rs"]
mod links;
#[path = "contract/processes.rs"]
mod processes;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use cluster::Backend;
use cluster::namespaces::{Namespaces, sandbox};
use libtest_mimic::{Arguments, Failed, Trial};
use links::Lan;

type Case = for<'a> fn(&'a Lan) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

fn main() {
    links::play_role();
    if !sandbox::is_inside() {
        let status = sandbox::run_inside().unwrap_or_else(|error| {
            eprintln!("NOT RUN: {error}");
            std::process::exit(i32::from(std::env::var_os("CI").is_some()));
        });
        std::process::exit(status.code().unwrap_or(101));
    }
    sandbox::settle_inside().expect("the sandbox can be settled in");
    let cases: [(&str, Case); 5] = [
        ("cuts_are_one_way_and_counted_by_fault", |lan| {
            Box::pin(links::cuts_are_one_way_and_counted_by_fault(lan))
        }),
        ("standing_connections_are_cut_too", |lan| {
            Box::pin(links::standing_connections_are_cut_too(lan))
        }),
        ("a_cut_holds_over_kill_and_restart", |lan| {
            Box::pin(links::a_cut_holds_over_kill_and_restart(lan))
        }),
        ("bad_links_are_as_bad_as_asked", |lan| {
            Box::pin(bad_links::bad_links_are_as_bad_as_asked(lan))
        }),
        ("foreign_rules_stay", |lan| Box::pin(links::foreign_rules_stay(lan))),
    ];
    let trials = cases
        .into_iter()
        .chain(processes::cases())
        .map(|(name, case)| Trial::test(name, move || run(case)));
    // The sandbox holds one network at a time.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, trials.collect()).exit();
}

fn run(case: Case) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let backend: Arc<dyn Backend> = Arc::new(Namespaces::new());
    let lan = runtime.block_on(Lan::create(Arc::clone(&backend)));
    let result =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| runtime.block_on(case(&lan))));
    let destroyed = runtime.block_on(backend.destroy());
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
    destroyed.map_err(Failed::from)
}
