//! The `docker` backend: one container a node, on a labelled network of its own.
//!
//! What the engine is asked goes over its unix socket ([`Engine`]). Everything made carries labels
//! that name the run and the process that owns it, so that what a killed run left behind is found
//! and removed by the next one ([`remove_leftovers`]).
//!
//! A container's network namespace is a new one at each start. So its main process begins as a
//! small shell that waits at a gate (a FIFO in the node's folder); the backend puts the firewall
//! rules in force, then opens the gate, and the shell becomes the node's program by `exec`.

mod base;
mod container;
mod context;
mod engine;
mod engine_error;
mod firewall;
mod gate;
mod images;
mod labels;
mod leftovers;
mod nodes;
mod one_off;
mod stream;
mod subnet;

pub use base::{BASE_IMAGE_VARIABLE, BASE_TAG, BaseSource, ensure_base};
pub use engine::{Engine, EngineInfo};
pub use engine_error::EngineError;
pub use firewall::Access;
pub use images::{
    ImageChoice, ImageInfo, Progress, build_broker_images, build_images, ensure_image,
    inspect_image,
};
pub use labels::Lifetime;
pub use leftovers::{Removed, Sweep, remove_leftovers};
pub use nodes::Docker;

use crate::backend::BackendError;

/// Can this backend run here? What the engine says of itself, or what is missing and what to do.
///
/// # Errors
/// [`BackendError::Unsupported`] with a remedy.
pub async fn preflight() -> Result<EngineInfo, BackendError> {
    let engine = Engine::connect().await?;
    firewall::check_proof(Access::of_this_user())?;
    Ok(engine.info().clone())
}
