//! `highwater broker`: one node of the in-repo broker.

use std::io::IsTerminal as _;

use broker::config::{Config, ConfigError};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use crate::cli::BrokerArgs;
use crate::exit::{Exit, Failure};

/// Runs the node until SIGTERM or SIGINT.
///
/// # Errors
/// Usage, where the configuration is wrong; unavailable, where the node does not start or cannot
/// go on.
pub(super) fn broker(args: &BrokerArgs) -> Result<Exit, Failure> {
    let config = Config::read(&args.config).map_err(|error| match error {
        ConfigError::Wrong(_) => Failure::usage(format!("{}: {error}", args.config.display())),
        ConfigError::Read { .. } => Failure::bad_data(error.to_string()),
    })?;
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,openraft=off"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stdout().is_terminal())
        .with_writer(std::io::stdout)
        .init();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(config.threads)
        .enable_all()
        .build()
        .map_err(|error| Failure::internal(format!("no threads can be started: {error}")))?;
    let outcome = runtime.block_on(async {
        let failed = |error| Failure::internal(format!("signals cannot be watched: {error}"));
        let mut term = signal(SignalKind::terminate()).map_err(failed)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        let stop = async move {
            tokio::select! {
                biased;
                _ = term.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        broker::node::run(config, stop)
            .await
            .map_err(|error| Failure::unavailable(error.to_string()))
    });
    // Whatever is still under way is not waited for: all that must be on disk is.
    runtime.shutdown_background();
    outcome.map(|()| Exit::Valid)
}
