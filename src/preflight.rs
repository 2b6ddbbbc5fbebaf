//! What must be there before anything starts, each with what to install.

use std::env;
use std::path::{Path, PathBuf};

use cluster::namespaces::sandbox;

use crate::exit::Failure;

/// Programs that the namespaces backend runs, and the Debian package of each.
const PROGRAMS: [(&str, &str); 6] = [
    ("ip", "iproute2"),
    ("iptables", "iptables"),
    ("iptables-restore", "iptables"),
    ("iptables-save", "iptables"),
    ("tc", "iproute2"),
    ("unshare", "util-linux"),
];

/// Can the namespaces backend run here?
///
/// # Errors
/// Unavailable, naming everything that is missing.
pub(crate) fn namespaces() -> Result<(), Failure> {
    let missing: Vec<String> = PROGRAMS
        .iter()
        .filter(|(program, _)| find_program(program).is_none())
        .map(|(program, package)| format!("`{program}` (Debian package {package})"))
        .collect();
    if !missing.is_empty() {
        return Err(Failure::unavailable(format!(
            "the namespaces backend needs programs that are not on the PATH: {}",
            missing.join(", ")
        )));
    }
    if sandbox::is_inside() {
        return Ok(());
    }
    sandbox::probe().map_err(Failure::from)
}

/// Can the docker backend run here?
///
/// # Errors
/// Unavailable, with what is missing and what to do.
pub(crate) fn docker() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::internal(format!("no runtime: {error}")))?;
    runtime.block_on(cluster::docker::preflight()).map(drop).map_err(Failure::from)
}

fn find_program(program: &str) -> Option<PathBuf> {
    env::split_paths(&sandbox::search_path())
        .map(|dir| dir.join(program))
        .find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
