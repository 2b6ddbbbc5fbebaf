//! The Java that runs brokers.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::bounded;
use super::distribution::DistributionError;

/// The oldest Java that Kafka 4 runs on.
pub(super) const LEAST_JAVA: u32 = 17;
const ANSWER_DEADLINE: Duration = Duration::from_secs(30);

/// The Java that would be used, and its version as it prints it.
///
/// # Errors
/// [`DistributionError::Java`].
pub fn java_for() -> Result<(PathBuf, String), DistributionError> {
    let home = env::var_os("JAVA_HOME").map(|home| PathBuf::from(home).join("bin"));
    let path = env::var_os("PATH").unwrap_or_default();
    find(home.into_iter().chain(env::split_paths(&path)))
}

fn find(folders: impl Iterator<Item = PathBuf>) -> Result<(PathBuf, String), DistributionError> {
    let java = folders
        .map(|dir| dir.join("java"))
        .find(|java| java.is_file())
        .ok_or_else(|| DistributionError::Java("no `java` is on the PATH".into()))?;
    let version = version_of(&java)?;
    let major = major_of(&version).ok_or_else(|| {
        DistributionError::Java(format!("{} tells no version: {version}", java.display()))
    })?;
    if major < LEAST_JAVA {
        return Err(DistributionError::Java(format!("{} is Java {major}", java.display())));
    }
    Ok((java, version))
}

fn version_of(java: &Path) -> Result<String, DistributionError> {
    let output = bounded::output(Command::new(java).arg("-version"), ANSWER_DEADLINE)
        .map_err(DistributionError::Java)?;
    let said = String::from_utf8_lossy(&output.stderr);
    // Options from the environment are announced on lines of their own before the version.
    let line = said.lines().find(|line| line.contains(" version \""));
    Ok(line.or_else(|| said.lines().next()).unwrap_or_default().to_owned())
}

/// 17 of `openjdk version "17.0.15" 2025-04-15`, 8 of `java version "1.8.0_292"`.
fn major_of(version_line: &str) -> Option<u32> {
    let quoted = version_line.split('"').nth(1)?;
    let mut parts = quoted.split(['.', '_', '-', '+']);
    match parts.next()?.parse().ok()? {
        1 => parts.next()?.parse().ok(),
        major => Some(major),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A folder with a `java` that says so.
    fn java_that_says(line: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let java = dir.path().join("java");
        fs::write(&java, format!("#!/bin/sh\necho 'Picked up X' >&2\necho '{line}' >&2\n"))
            .unwrap();
        fs::set_permissions(&java, fs::Permissions::from_mode(0o755)).unwrap();
        dir
    }

    #[test]
    fn versions_are_read_old_and_new() {
        assert_eq!(major_of(r#"openjdk version "17.0.15" 2025-04-15"#), Some(17));
        assert_eq!(major_of(r#"openjdk version "21" 2023-09-19"#), Some(21));
        assert_eq!(major_of(r#"java version "1.8.0_292""#), Some(8));
        assert_eq!(major_of(r#"openjdk version "25-ea" 2025"#), Some(25));
        assert_eq!(major_of("no such thing"), None);
    }

    #[test]
    fn the_first_java_counts_and_must_be_new_enough() {
        let (old, new) = (
            java_that_says(r#"openjdk version "11.0.2" 2019-01-15"#),
            java_that_says(r#"openjdk version "21.0.1" 2023-10-17"#),
        );
        let folders = |dirs: [&tempfile::TempDir; 2]| dirs.map(|dir| dir.path().to_owned());
        let (java, version) = find(folders([&new, &old]).into_iter()).unwrap();
        assert_eq!(java, new.path().join("java"));
        assert!(version.contains("21.0.1"));
        let error = find(folders([&old, &new]).into_iter()).unwrap_err().to_string();
        assert!(error.contains("is Java 11. Install Java 17 or newer"), "{error}");
    }

    #[test]
    fn no_java_and_a_java_without_a_version_say_what_to_install() {
        let none = find(std::iter::empty()).unwrap_err().to_string();
        assert!(none.contains("no `java` is on the PATH. Install Java 17"), "{none}");
        let odd = java_that_says("hello");
        let error = find(std::iter::once(odd.path().to_owned())).unwrap_err().to_string();
        assert!(error.contains("tells no version"), "{error}");
    }
}
