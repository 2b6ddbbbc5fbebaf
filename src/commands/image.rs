//! `highwater image build`.

use std::sync::Mutex;

use cluster::BackendError;
use cluster::docker::{Engine, build_broker_images, build_images};
use cluster::kafka::Distribution;

use crate::cli::{ImageBuildArgs, ImageCommand};
use crate::exit::{Exit, Failure};
use crate::plan::parse_system;

/// Does what was asked.
///
/// # Errors
/// Unavailable, with what is missing.
pub(super) fn dispatch(command: &ImageCommand) -> Result<Exit, Failure> {
    match command {
        ImageCommand::Build(args) => build(args),
    }
}

fn build(args: &ImageBuildArgs) -> Result<Exit, Failure> {
    let (system, version) = parse_system(&args.system)?;
    let kafka = match system.as_str() {
        "kafka" => Some(
            Distribution::resolve_libs(&version, args.kafka_home.as_deref(), &mut super::tell)
                .map_err(|error| Failure::unavailable(error.to_string()))?,
        ),
        _ => None,
    };
    let told = Mutex::new(());
    let progress = |text: &str| {
        let _turn = told.lock();
        super::tell(text);
    };
    let image = super::runtime()?.block_on(async {
        let engine = Engine::connect().await.map_err(BackendError::from)?;
        if let Some((libs, version)) = &kafka {
            return build_images(&engine, version, libs, &progress).await;
        }
        let program = std::env::current_exe().map_err(|error| BackendError::Failed {
            context: "this program cannot find itself".into(),
            reason: error.to_string(),
        })?;
        build_broker_images(&engine, &program, &progress).await
    })?;
    super::print(&format!("{} is ready ({} MB)", image.reference, image.size_bytes / 1_000_000));
    Ok(Exit::Valid)
}
