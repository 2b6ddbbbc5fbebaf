//! Where Kafka comes from: Maven (once, into a cache), a folder, or an image.

use std::fs;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::archive::{Known, Recipe};
use super::cache;
use super::java::{LEAST_JAVA, java_for};

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
    /// Files and folders of the host that nodes must see.
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
    /// The first time with a distribution and a Java also makes an archive of its classes, some
    /// 10 seconds; where that fails brokers only start more slowly.
    ///
    /// # Errors
    /// [`DistributionError`] that names every way there is.
    pub fn resolve(
        version: &str,
        kafka_home: Option<&Path>,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Self, DistributionError> {
        let (java, java_version) = java_for()?;
        let (libs, version) = Self::resolve_libs(version, kafka_home, progress)?;
        let jars = jars_in(&libs);
        // Each jar by name: `libs/*` stands for an order that differs from disk to disk, and an
        // archive of classes holds for one order only.
        let names: Vec<_> = jars.iter().map(|jar| jar.display().to_string()).collect();
        let classpath = names.join(":");
        let recipe =
            Recipe { java: &java, java_version: &java_version, jars: &jars, classpath: &classpath };
        let archive = archive_of(&recipe, progress);
        let jvm_flags = archive.iter().flat_map(|archive| {
            [format!("-XX:SharedArchiveFile={}", archive.display()), "-Xshare:auto".to_owned()]
        });
        Ok(Self {
            version,
            java: java.display().to_string(),
            jvm_flags: jvm_flags.collect(),
            classpath,
            needs: std::iter::once(libs).chain(archive.clone()).collect(),
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
        let missing =
            |reason: String| DistributionError::Kafka { version: version.to_owned(), reason };
        let libs = match kafka_home {
            Some(home) => home.join("libs"),
            None => cache::dir()
                .and_then(|cache| cache::jars(&cache, version, progress))
                .map_err(missing)?,
        };
        let libs =
            libs.canonicalize().map_err(|error| missing(format!("{}: {error}", libs.display())))?;
        let found = version_in(&libs).ok_or_else(|| {
            missing(format!("there is no {JAR_PREFIX}*.jar in {}", libs.display()))
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

fn archive_of(recipe: &Recipe<'_>, progress: &mut dyn FnMut(&str)) -> Option<PathBuf> {
    let cache = cache::dir().ok()?;
    let found = match recipe.known(&cache) {
        Known::Nothing => {
            let _lock = cache::lock(&cache, progress).ok()?;
            // Another run may have made it meanwhile.
            match recipe.known(&cache) {
                Known::Nothing => return recipe.make(&cache, progress),
                known => known,
            }
        }
        known => known,
    };
    match found {
        Known::Archive(archive) => Some(archive),
        Known::CannotBeMade | Known::Nothing => None,
    }
}

/// Every jar of `libs`, sorted by name.
fn jars_in(libs: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(libs).into_iter().flatten().flatten();
    let mut jars: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "jar"))
        .collect();
    jars.sort();
    jars
}

fn version_in(libs: &Path) -> Option<String> {
    fs::read_dir(libs).ok()?.flatten().find_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let version = name.strip_prefix(JAR_PREFIX)?.strip_suffix(".jar")?;
        // `kafka_2.13-4.1.1-test.jar` and the like lie beside the broker in some folders.
        version.chars().all(|c| c.is_ascii_digit() || c == '.').then(|| version.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_brokers_jar() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["kafka-clients-9.9.jar", "kafka_2.13-4.1.1-test.jar", "kafka_2.13-4.1.1.jar"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(version_in(dir.path()).as_deref(), Some("4.1.1"));
    }

    #[test]
    fn jars_come_in_one_order_and_nothing_else_with_them() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b.jar", "a.jar", "a.jar.asc", "README"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(jars_in(dir.path()), [dir.path().join("a.jar"), dir.path().join("b.jar")]);
    }

    #[test]
    fn a_home_without_kafka_names_all_three_ways() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("libs")).unwrap();
        let error = Distribution::resolve_libs("4.1.1", Some(dir.path()), &mut |_| {})
            .unwrap_err()
            .to_string();
        for part in ["Maven", "--kafka-home", "KAFKA_HOME", "--kafka-image", "kafka_2.13-*.jar"] {
            assert!(error.contains(part), "{error}");
        }
    }
}
