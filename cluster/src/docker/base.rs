//! The base image: Debian with Java and iptables, from a registry or, where none answers, out of
//! Debian's packages.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::unistd::geteuid;
use serde_json::json;
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use super::context::{self, Entry};
use super::engine::Engine;
use super::images::{BUILD_SILENCE, ImageInfo, Progress, build, built, inspect_image, pull};
use super::labels::RECIPE;
use crate::backend::BackendError;

/// The base image's name.
pub const BASE_TAG: &str = "highwater-base:bookworm";
/// The variable that names another image to build on, or `debootstrap` to ask no registry.
pub const BASE_IMAGE_VARIABLE: &str = "HIGHWATER_BASE_IMAGE";
/// The variable that names a mirror of Debian for debootstrap.
const MIRROR_VARIABLE: &str = "HIGHWATER_DEBIAN_MIRROR";
const DEFAULT_IMAGE: &str = "debian:bookworm-slim";

const DOCKERFILE: &str = include_str!("../../../docker/base/Dockerfile");
const PACKAGES: &str = include_str!("../../../docker/base/packages");
const BOOTSTRAP: &str = include_str!("../../../docker/base/bootstrap.sh");
/// Some forty seconds where packages are near; minutes where they are far.
const BOOTSTRAP_DEADLINE: Duration = Duration::from_secs(1200);

/// What the base image is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BaseSource {
    /// An image; where it is neither there nor to be pulled, debootstrap.
    Preferred(String),
    /// An image, and nothing else.
    Named(String),
    /// Debian's packages; no registry is asked.
    Debootstrap,
}

impl BaseSource {
    /// As [`BASE_IMAGE_VARIABLE`] says; without it, `debian:bookworm-slim` is preferred.
    pub fn from_environment() -> Self {
        match env::var(BASE_IMAGE_VARIABLE).unwrap_or_default().as_str() {
            "" => Self::Preferred(DEFAULT_IMAGE.into()),
            "debootstrap" => Self::Debootstrap,
            name => Self::Named(name.into()),
        }
    }
}

/// Makes sure that the engine has the base image [`BASE_TAG`], made from `source` by today's
/// recipe; one that was made by debootstrap where an image is preferred is good enough.
///
/// # Errors
/// [`BackendError::Unsupported`] where it cannot be made here, with a remedy;
/// [`BackendError::Failed`] where a step failed, with what it said.
pub async fn ensure_base(
    engine: &Engine,
    source: &BaseSource,
    progress: Progress<'_>,
) -> Result<ImageInfo, BackendError> {
    let from_packages = recipe("debootstrap");
    let from_image = |name: &str| recipe(&format!("image {name}"));
    let good = match source {
        BaseSource::Preferred(name) => vec![from_image(name), from_packages.clone()],
        BaseSource::Named(name) => vec![from_image(name)],
        BaseSource::Debootstrap => vec![from_packages.clone()],
    };
    if let Some(info) = inspect_image(engine, BASE_TAG).await?
        && info.labels.get(RECIPE).is_some_and(|recipe| good.contains(recipe))
    {
        return Ok(info);
    }
    match source {
        BaseSource::Debootstrap => bootstrap(engine, &from_packages, None, progress).await?,
        BaseSource::Named(name) | BaseSource::Preferred(name) => {
            match obtain(engine, name, progress).await {
                Ok(()) => {
                    let entries =
                        [Entry::Text("Dockerfile", DOCKERFILE), Entry::Text("packages", PACKAGES)];
                    let context = context::write(&entries)
                        .map_err(|error| failed("write the build context", &error.to_string()))?;
                    let arguments = json!({ "FROM": name });
                    let recipe = from_image(name);
                    build(engine, BASE_TAG, context, &arguments, &recipe, progress).await?;
                }
                Err(reason) if matches!(source, BaseSource::Preferred(_)) => {
                    progress(&format!("{reason}; making one out of Debian's packages"));
                    bootstrap(engine, &from_packages, Some(&reason), progress).await?;
                }
                Err(reason) => {
                    return Err(BackendError::Unsupported {
                        backend: "docker",
                        reason,
                        remedy: format!(
                            "{BASE_IMAGE_VARIABLE} names it: load it with `docker load`, or unset \
                             the variable."
                        ),
                    });
                }
            }
        }
    }
    built(engine, BASE_TAG).await
}

/// Makes sure that an image is there; the reason where it is not.
async fn obtain(engine: &Engine, name: &str, progress: Progress<'_>) -> Result<(), String> {
    if inspect_image(engine, name).await.is_ok_and(|found| found.is_some()) {
        return Ok(());
    }
    pull(engine, name, progress).await.map_err(|error| format!("{name} cannot be had ({error})"))
}

/// Makes the base image out of Debian's packages.
async fn bootstrap(
    engine: &Engine,
    recipe: &str,
    why: Option<&str>,
    progress: Progress<'_>,
) -> Result<(), BackendError> {
    check_bootstrap(why)?;
    let work = work_folder().map_err(|error| failed("make a work folder", &error.to_string()))?;
    let tar = work.path().join("rootfs.tar");
    make_root_file_system(work.path(), &tar, progress).await?;
    let file =
        File::open(&tar).map_err(|error| failed("read what was made", &error.to_string()))?;
    let (name, tag) = BASE_TAG.split_once(':').unwrap_or((BASE_TAG, "latest"));
    let label = format!("LABEL {RECIPE}={recipe}");
    let query = [
        ("fromSrc", "-"),
        ("repo", name),
        ("tag", tag),
        ("changes", &label),
        ("changes", "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
        ("changes", "CMD [\"/bin/sh\"]"),
    ];
    progress(&format!("importing {BASE_TAG}"));
    let body = Some(context::body(file));
    Ok(engine.follow("/images/create", &query, body, BUILD_SILENCE, &|_| {}).await?)
}

/// Can debootstrap run here? `why` it has to.
fn check_bootstrap(why: Option<&str>) -> Result<(), BackendError> {
    let path = env::var_os("PATH").unwrap_or_default();
    let places = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let is_there = places.map(|dir: PathBuf| dir.join("debootstrap")).any(|file| file.is_file());
    let missing = match (geteuid().is_root(), is_there) {
        (true, true) => return Ok(()),
        (true, false) => "debootstrap is not installed",
        (false, _) => "debootstrap needs root",
    };
    let reason = why.map_or_else(|| missing.to_owned(), |why| format!("{why}, and {missing}"));
    Err(BackendError::Unsupported {
        backend: "docker",
        reason: format!("the base image cannot be made: {reason}"),
        remedy: format!(
            "Install debootstrap (Debian: apt-get install debootstrap) and run `highwater image \
             build` once as root; or load {DEFAULT_IMAGE} into the engine with `docker load`; or \
             name an image that it has with {BASE_IMAGE_VARIABLE}."
        ),
    })
}

/// On a disk, since a root file system is large, and temporary folders are often in memory.
fn work_folder() -> std::io::Result<TempDir> {
    let parent = env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
    tempfile::Builder::new().prefix("highwater-base-").tempdir_in(parent)
}

async fn make_root_file_system(
    work: &Path,
    tar: &Path,
    progress: Progress<'_>,
) -> Result<(), BackendError> {
    for (name, text) in [("bootstrap.sh", BOOTSTRAP), ("packages", PACKAGES)] {
        fs::write(work.join(name), text)
            .map_err(|error| failed("write the recipe", &error.to_string()))?;
    }
    let mut command = Command::new("unshare");
    // The end of `unshare` ends all that it started, and takes its mounts along.
    command
        .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .args(["sh", "-c", "exec sh \"$@\" 2>&1", "sh"])
        .arg(work.join("bootstrap.sh"))
        .args([work.join("rootfs").as_path(), tar])
        .args(env::var_os(MIRROR_VARIABLE))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    progress("making a root file system with debootstrap, once; this takes a minute or so");
    match timeout(BOOTSTRAP_DEADLINE, run(command, progress)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(reason)) => Err(failed("make a root file system with debootstrap", &reason)),
        Err(_) => Err(failed(
            "make a root file system with debootstrap",
            &format!("it was not done within {} s", BOOTSTRAP_DEADLINE.as_secs()),
        )),
    }
}

/// Runs a command to its end; the last lines it printed where it fails.
async fn run(mut command: Command, progress: Progress<'_>) -> Result<(), String> {
    const LAST_LINES: usize = 8;
    let mut child = command.spawn().map_err(|error| format!("unshare: {error}"))?;
    let mut last = std::collections::VecDeque::new();
    if let Some(stdout) = child.stdout.take() {
        let mut lines = BufReader::new(stdout).lines();
        while let Some(line) = lines.next_line().await.map_err(|error| error.to_string())? {
            progress(&line);
            last.push_back(line);
            if last.len() > LAST_LINES {
                last.pop_front();
            }
        }
    }
    let status = child.wait().await.map_err(|error| error.to_string())?;
    if status.success() {
        return Ok(());
    }
    Err(format!("{status}; it said:\n{}", Vec::from(last).join("\n")))
}

/// A hash of all that the base image is made from.
fn recipe(source: &str) -> String {
    let mut hash = Sha256::new();
    for part in [source, PACKAGES, if source == "debootstrap" { BOOTSTRAP } else { DOCKERFILE }] {
        hash.update(part);
        hash.update([0]);
    }
    format!("{:x}", hash.finalize())
}

fn failed(action: &str, reason: &str) -> BackendError {
    BackendError::Failed {
        context: format!("the base image: cannot {action}"),
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipes_differ_by_source() {
        assert_ne!(recipe("debootstrap"), recipe("image debian:bookworm-slim"));
        assert_ne!(recipe("image a"), recipe("image b"));
        assert_eq!(recipe("image a"), recipe("image a"));
    }

    #[tokio::test]
    async fn a_command_that_fails_is_quoted() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two; exit 3"]).stdout(Stdio::piped());
        let error = run(command, &|_| {}).await.unwrap_err();
        assert!(error.contains("exit status: 3") && error.ends_with("one\ntwo"), "{error}");
    }
}
