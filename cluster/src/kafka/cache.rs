//! The cache of distributions: filled by Maven once for each version.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::bounded;

const POM: &str = include_str!("../../../docker/kafka/pom.xml");
/// 43 MB from a registry that may be far away.
const FETCH_DEADLINE: Duration = Duration::from_secs(600);
const LOCK_DEADLINE: Duration = Duration::from_secs(900);
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);
/// Folders that a fetch or a training works in; what is found of them under the lock was left by
/// a driver that was killed.
const SCRATCH: [&str; 2] = ["fetching-", "training-"];

/// Where everything is kept: a folder of `XDG_CACHE_HOME`, or of `~/.cache`.
///
/// # Errors
/// In words, when the environment names no place or it cannot be made.
pub(super) fn dir() -> Result<PathBuf, String> {
    let absolute =
        |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let dir = absolute("XDG_CACHE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".cache")))
        .map(|cache| cache.join("highwater"))
        .ok_or("neither XDG_CACHE_HOME nor HOME names a place for the cache")?;
    fs::create_dir_all(&dir)
        .map_err(|error| format!("the cache {} cannot be made: {error}", dir.display()))?;
    Ok(dir)
}

/// The one who may change `cache`, until it is dropped. The lock goes with the process, however
/// that ends.
///
/// # Errors
/// In words, when somebody else holds it for too long.
pub(super) fn lock(cache: &Path, progress: &mut dyn FnMut(&str)) -> Result<Flock<File>, String> {
    let path = cache.join("lock");
    let told = |error: &dyn std::fmt::Display| format!("cannot lock {}: {error}", path.display());
    let mut file = File::create(&path).map_err(|error| told(&error))?;
    let begun = Instant::now();
    let mut is_told = false;
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => {
                remove_scratch(cache);
                return Ok(lock);
            }
            Err((back, Errno::EAGAIN | Errno::EINTR)) => file = back,
            Err((_, error)) => return Err(told(&error)),
        }
        if begun.elapsed() > LOCK_DEADLINE {
            let waited = LOCK_DEADLINE.as_secs();
            return Err(told(&format!("another run has held it for more than {waited} s")));
        }
        if !is_told {
            progress("waiting for another run that fills the cache");
            is_told = true;
        }
        thread::sleep(BETWEEN_LOOKS);
    }
}

fn remove_scratch(cache: &Path) {
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if SCRATCH.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            // What cannot be removed costs room, and nothing else.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The cached jars of `version`; Maven fetches them the first time.
///
/// # Errors
/// In words: no place for a cache, no Maven, no such version, or no answer in time.
pub(super) fn jars(
    cache: &Path,
    version: &str,
    progress: &mut dyn FnMut(&str),
) -> Result<PathBuf, String> {
    let home = cache.join(format!("kafka-{version}"));
    let libs = home.join("libs");
    if libs.is_dir() {
        return Ok(libs);
    }
    // Two runs that start together fetch once.
    let _lock = lock(cache, progress)?;
    if libs.is_dir() {
        return Ok(libs);
    }
    progress(&format!("fetching Kafka {version} with Maven, once, into {}", home.display()));
    let fresh = tempfile::Builder::new()
        .prefix(SCRATCH[0])
        .tempdir_in(cache)
        .map_err(|error| format!("cannot make a folder in {}: {error}", cache.display()))?;
    fetch(version, fresh.path())?;
    // Either all of it is there or nothing: a fetch that was cut short never counts.
    fs::create_dir_all(&home)
        .and_then(|()| fs::rename(fresh.path().join("libs"), &libs))
        .map_err(|error| format!("cannot move what was fetched into the cache: {error}"))?;
    Ok(libs)
}

fn fetch(version: &str, dir: &Path) -> Result<(), String> {
    let pom = dir.join("pom.xml");
    fs::write(&pom, POM).map_err(|error| format!("cannot write {}: {error}", pom.display()))?;
    let mut maven = Command::new("mvn");
    maven
        .args(["--quiet", "--batch-mode", "--file"])
        .arg(&pom)
        .args(["dependency:copy-dependencies", "-DincludeScope=runtime"])
        .arg(format!("-DoutputDirectory={}", dir.join("libs").display()))
        .arg(format!("-Dkafka.version={version}"));
    let output = bounded::output(&mut maven, FETCH_DEADLINE)
        .map_err(|error| format!("Maven did not fetch it: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("Maven did not fetch it ({})", why(&String::from_utf8_lossy(&output.stdout))))
}

/// The first of what Maven complains of, without the advice that follows.
fn why(said: &str) -> String {
    let line = said.lines().find(|line| line.contains("[ERROR]")).unwrap_or("it said nothing");
    let line = line.replace("[ERROR]", "");
    line.split(" -> [Help").next().unwrap_or_default().trim().chars().take(400).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cached_version_needs_no_maven_and_no_lock() {
        let cache = tempfile::tempdir().unwrap();
        let libs = cache.path().join("kafka-9.9.9/libs");
        fs::create_dir_all(&libs).unwrap();
        let _held = lock(cache.path(), &mut |_| {}).unwrap();
        assert_eq!(jars(cache.path(), "9.9.9", &mut |_| {}), Ok(libs));
    }

    #[test]
    fn who_waits_for_the_lock_gets_it_when_the_other_is_done() {
        let cache = tempfile::tempdir().unwrap();
        let held = lock(cache.path(), &mut |_| {}).unwrap();
        let mut held = Some(held);
        let mut told = Vec::new();
        // Told once, while the other holds it; then the other lets go.
        let second = lock(cache.path(), &mut |text| {
            told.push(text.to_owned());
            drop(held.take());
        });
        assert!(second.is_ok());
        assert_eq!(told.len(), 1, "{told:?}");
    }

    #[test]
    fn what_a_killed_driver_left_is_removed_and_nothing_else() {
        let cache = tempfile::tempdir().unwrap();
        for name in ["fetching-abc", "training-def", "kafka-4.4.0"] {
            fs::create_dir(cache.path().join(name)).unwrap();
        }
        drop(lock(cache.path(), &mut |_| {}).unwrap());
        let mut left: Vec<_> =
            fs::read_dir(cache.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["kafka-4.4.0", "lock"]);
    }

    #[test]
    fn mavens_complaint_is_cut_to_its_first_line() {
        let said = "\n[ERROR] Failed to execute goal on project x: no such version -> [Help 1]\n[ERROR] \n[ERROR] To see the full stack trace";
        assert_eq!(why(said), "Failed to execute goal on project x: no such version");
        assert_eq!(why(""), "it said nothing");
    }
}
