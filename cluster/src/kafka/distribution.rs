//! Where Kafka comes from: Maven (once, into a cache), a folder, or an image.

use std::env;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::fcntl::{Flock, FlockArg};
use thiserror::Error;

const POM: &str = include_str!("../../../docker/kafka/pom.xml");
/// The oldest Java that Kafka 4 runs on.
const LEAST_JAVA: u32 = 17;
const JAR_PREFIX: &str = "kafka_2.13-";

/// Kafka's jars and a Java to run them, as the nodes see them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distribution {
    /// Kafka's version.
    pub version: String,
    /// The `java` to run.
    pub java: String,
    /// For `-cp`.
    pub classpath: String,
    /// Flags that belong to this distribution.
    pub jvm_flags: Vec<String>,
    /// Folders of the host that nodes must see.
    pub needs: Vec<PathBuf>,
}

/// Why there is no Kafka to run.
#[derive(Debug, Error)]
pub enum DistributionError {
    /// Java is missing or too old.
    #[error(
        "{0}. Install Java {LEAST_JAVA} or newer (Debian: apt-get install openjdk-17-jre-headless), or point JAVA_HOME at one"
    )]
    Java(String),
    /// No way to Kafka's jars led anywhere.
    #[error(
        "Kafka {version} cannot be had: {reason}. Three ways lead to it: \
             (1) install Maven (Debian: apt-get install maven), which fetches it once; \
             (2) unpack a Kafka distribution and name it with --kafka-home or KAFKA_HOME; \
             (3) use an image that has it: --backend docker --kafka-image apache/kafka:{version}"
    )]
    Kafka {
        /// Which version was wanted.
        version: String,
        /// What went wrong on the way that was tried.
        reason: String,
    },
}

impl Distribution {
    /// The distribution to run on this host: from `kafka_home` if given, else from the cache,
    /// filled by Maven the first time. Blocks; `progress` is told what takes time.
    ///
    /// # Errors
    /// [`DistributionError`] that names every way there is.
    pub fn resolve(
        version: &str,
        kafka_home: Option<&Path>,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Self, DistributionError> {
        let java = find_java()?;
        let (libs, version) = Self::resolve_libs(version, kafka_home, progress)?;
        Ok(Self {
            version,
            java: java.display().to_string(),
            classpath: format!("{}/*", libs.display()),
            jvm_flags: Vec::new(),
            needs: vec![libs],
        })
    }

    /// The folder of jars alone, for those who build an image; and the version found in it.
    ///
    /// # Errors
    /// [`DistributionError::Kafka`].
    pub fn resolve_libs(
        version: &str,
        kafka_home: Option<&Path>,
        progress: &mut dyn FnMut(&str),
    ) -> Result<(PathBuf, String), DistributionError> {
        let missing = |reason: String| DistributionError::Kafka {
            version: version.to_owned(),
            reason,
        };
        let libs = match kafka_home {
            Some(home) => home.join("libs"),
            None => cached(version, progress).map_err(missing)?,
        };
        let libs = libs
            .canonicalize()
            .map_err(|error| missing(format!("{}: {error}", libs.display())))?;
        let found = version_in(&libs).ok_or_else(|| {
            missing(format!(
                "there is no {JAR_PREFIX}*.jar in {}",
                libs.display()
            ))
        })?;
        Ok((libs, found))
    }

    /// The distribution inside an image: jars in `/opt/kafka/libs`, `java` on the PATH.
    pub fn in_image(version: &str) -> Self {
        Self {
            version: version.to_owned(),
            java: "java".to_owned(),
            classpath: "/opt/kafka/libs/*".to_owned(),
            jvm_flags: Vec::new(),
            needs: Vec::new(),
        }
    }
}

/// The Java that would be used, and its version as it prints it; for the record.
///
/// # Errors
/// [`DistributionError::Java`].
pub fn java_for() -> Result<(PathBuf, String), DistributionError> {
    let java = find_java()?;
    let version = java_version(&java)?;
    Ok((java, version))
}

fn find_java() -> Result<PathBuf, DistributionError> {
    let candidates = env::var_os("JAVA_HOME")
        .map(|home| PathBuf::from(home).join("bin"))
        .into_iter()
        .chain(env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect::<Vec<_>>())
        .map(|dir| dir.join("java"));
    let java = candidates
        .into_iter()
        .find(|java| java.is_file())
        .ok_or_else(|| DistributionError::Java("no `java` is on the PATH".into()))?;
    let version = java_version(&java)?;
    let major = major_of(&version).ok_or_else(|| {
        DistributionError::Java(format!("{} tells no version: {version}", java.display()))
    })?;
    if major < LEAST_JAVA {
        return Err(DistributionError::Java(format!(
            "{} is Java {major}",
            java.display()
        )));
    }
    Ok(java)
}

fn java_version(java: &Path) -> Result<String, DistributionError> {
    let output = Command::new(java)
        .arg("-version")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| DistributionError::Java(format!("{}: {error}", java.display())))?;
    let said = String::from_utf8_lossy(&output.stderr);
    Ok(said.lines().next().unwrap_or_default().to_owned())
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

fn version_in(libs: &Path) -> Option<String> {
    fs::read_dir(libs).ok()?.flatten().find_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let version = name.strip_prefix(JAR_PREFIX)?.strip_suffix(".jar")?;
        // `kafka_2.13-4.1.1-test.jar` and the like lie beside the broker in some folders.
        version
            .chars()
            .all(|c| c.is_ascii_digit() || c == '.')
            .then(|| version.to_owned())
    })
}

/// The cached jars of `version`; Maven fills the cache the first time.
fn cached(version: &str, progress: &mut dyn FnMut(&str)) -> Result<PathBuf, String> {
    let cache = cache_dir()?;
    let home = cache.join(format!("kafka-{version}"));
    let libs = home.join("libs");
    if libs.is_dir() {
        return Ok(libs);
    }
    let told = |context: &str, error: &io::Error| format!("{context}: {error}");
    fs::create_dir_all(&cache).map_err(|error| told(&cache.display().to_string(), &error))?;
    let lock_path = cache.join("lock");
    let lock_file =
        File::create(&lock_path).map_err(|error| told(&lock_path.display().to_string(), &error))?;
    // Two runs that start together fetch once. The lock goes with the process, however it ends.
    let _lock = Flock::lock(lock_file, FlockArg::LockExclusive)
        .map_err(|(_, error)| told("cannot lock the cache", &error.into()))?;
    if libs.is_dir() {
        return Ok(libs);
    }
    progress(&format!(
        "fetching Kafka {version} with Maven, once, into {}",
        home.display()
    ));
    let fresh = tempfile::Builder::new()
        .prefix("fetching-")
        .tempdir_in(&cache)
        .map_err(|error| told("cannot make a folder in the cache", &error))?;
    fetch(version, fresh.path())?;
    // Either all of it is there or nothing: a fetch that was cut short never counts.
    fs::create_dir_all(&home)
        .and_then(|()| fs::rename(fresh.path().join("libs"), &libs))
        .map_err(|error| told("cannot move what was fetched into the cache", &error))?;
    Ok(libs)
}

fn fetch(version: &str, dir: &Path) -> Result<(), String> {
    let pom = dir.join("pom.xml");
    fs::write(&pom, POM).map_err(|error| format!("cannot write {}: {error}", pom.display()))?;
    let output = Command::new("mvn")
        .args(["--quiet", "--batch-mode", "--file"])
        .arg(&pom)
        .args(["dependency:copy-dependencies", "-DincludeScope=runtime"])
        .arg(format!("-DoutputDirectory={}", dir.join("libs").display()))
        .arg(format!("-Dkafka.version={version}"))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("Maven (`mvn`) cannot be run: {error}"))?;
    if output.status.success() && version_in(&dir.join("libs")).is_some() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let cause: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("ERROR"))
        .take(2)
        .collect();
    Err(format!(
        "Maven did not find it ({})",
        cause.join(" / ").trim()
    ))
}

fn cache_dir() -> Result<PathBuf, String> {
    let absolute = |name: &str| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    absolute("XDG_CACHE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".cache")))
        .map(|cache| cache.join("highwater"))
        .ok_or_else(|| "neither XDG_CACHE_HOME nor HOME names a place for the cache".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn java_versions_are_read_old_and_new() {
        assert_eq!(
            major_of(r#"openjdk version "17.0.15" 2025-04-15"#),
            Some(17)
        );
        assert_eq!(major_of(r#"openjdk version "21" 2023-09-19"#), Some(21));
        assert_eq!(major_of(r#"java version "1.8.0_292""#), Some(8));
        assert_eq!(major_of(r#"openjdk version "25-ea" 2025"#), Some(25));
        assert_eq!(major_of("no such thing"), None);
    }

    #[test]
    fn the_version_is_the_brokers_jar() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "kafka-clients-9.9.jar",
            "kafka_2.13-4.1.1-test.jar",
            "kafka_2.13-4.1.1.jar",
        ] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(version_in(dir.path()).as_deref(), Some("4.1.1"));
    }

    #[test]
    fn a_home_without_kafka_names_all_three_ways() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("libs")).unwrap();
        let error = Distribution::resolve_libs("4.1.1", Some(dir.path()), &mut |_| {})
            .unwrap_err()
            .to_string();
        for part in [
            "Maven",
            "--kafka-home",
            "KAFKA_HOME",
            "--kafka-image",
            "kafka_2.13-*.jar",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }
}
