//! Images: what there is, the one of stock Kafka, and the one of the in-repo broker.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::task::spawn_blocking;

use super::base::{self, BASE_TAG, BaseSource};
use super::context::{self, Entry};
use super::engine::Engine;
use super::engine_error::EngineError;
use super::labels::RECIPE;
use crate::backend::BackendError;

const KAFKA_DOCKERFILE: &str = include_str!("../../../docker/kafka/Dockerfile");
const BROKER_DOCKERFILE: &str = include_str!("../../../docker/broker/Dockerfile");
/// The name of the in-repo broker's image. It holds whatever program was run last.
const BROKER_TAG: &str = "highwater-broker:latest";
/// A step of a build may be silent for long; one that is silent for longer is stuck.
pub(super) const BUILD_SILENCE: Duration = Duration::from_secs(300);
/// A registry that does not answer for so long does not answer.
const PULL_SILENCE: Duration = Duration::from_secs(60);

/// Told, line by line, what takes time.
pub type Progress<'a> = &'a (dyn Fn(&str) + Send + Sync);

/// Which image nodes are made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ImageChoice {
    /// The one of stock Kafka that [`build_images`] makes, by Kafka's version.
    Kafka(String),
    /// The one of the in-repo broker, holding this very program.
    Highwater(PathBuf),
    /// Any other, by name.
    Named(String),
}

impl ImageChoice {
    /// The image's name, `highwater-kafka:4.1.1`.
    pub fn reference(&self) -> String {
        match self {
            Self::Kafka(version) => format!("highwater-kafka:{version}"),
            Self::Highwater(_) => BROKER_TAG.to_owned(),
            Self::Named(name) => name.clone(),
        }
    }
}

/// An image that the engine has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageInfo {
    /// Its name, as it was asked for.
    pub reference: String,
    /// Its id, `sha256:…`.
    pub id: String,
    /// Variables that it sets; nodes inherit PATH alone.
    pub env: BTreeMap<String, String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its size in bytes.
    pub size_bytes: u64,
}

/// What the engine has under `reference`; `None` where there is nothing.
///
/// # Errors
/// What the engine refused.
pub async fn inspect_image(
    engine: &Engine,
    reference: &str,
) -> Result<Option<ImageInfo>, BackendError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Found {
        id: String,
        #[serde(default)]
        size: u64,
        #[serde(default)]
        config: Option<Config>,
    }
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Config {
        #[serde(default)]
        env: Option<Vec<String>>,
        #[serde(default)]
        labels: Option<BTreeMap<String, String>>,
    }
    let found: Option<Found> = engine.find(&format!("/images/{reference}/json")).await?;
    Ok(found.map(|found| {
        let config = found.config.unwrap_or_default();
        let pairs = config.env.unwrap_or_default();
        let pairs = pairs.iter().filter_map(|pair| pair.split_once('='));
        ImageInfo {
            reference: reference.to_owned(),
            id: found.id,
            env: pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            labels: config.labels.unwrap_or_default(),
            size_bytes: found.size,
        }
    }))
}

/// Makes sure that the engine has the image that nodes are to be made from. One that was named
/// is pulled where it is missing. The in-repo broker's is made anew whenever the program changed,
/// which takes a second; one of Kafka's is never built here, since that takes long.
///
/// # Errors
/// [`BackendError::Unsupported`] that names the command which builds it.
pub async fn ensure_image(
    engine: &Engine,
    choice: &ImageChoice,
    progress: Progress<'_>,
) -> Result<ImageInfo, BackendError> {
    let reference = choice.reference();
    if let ImageChoice::Highwater(program) = choice {
        let Some(base) = inspect_image(engine, BASE_TAG).await? else {
            return Err(BackendError::Unsupported {
                backend: "docker",
                reason: format!("the engine has no image {BASE_TAG}, on which {reference} stands"),
                remedy: "Build both once with `highwater image build --system highwater`.".into(),
            });
        };
        return broker_image(engine, program, &base, progress).await;
    }
    if let Some(info) = inspect_image(engine, &reference).await? {
        return Ok(info);
    }
    let (reason, remedy) = match choice {
        ImageChoice::Highwater(_) => (String::new(), String::new()),
        ImageChoice::Kafka(version) => (
            format!("the engine has no image {reference}"),
            format!(
                "Build it once with `highwater image build --system kafka:{version}`, or name an \
                 image that has Kafka with --kafka-image."
            ),
        ),
        ImageChoice::Named(_) => match pull(engine, &reference, progress).await {
            Ok(()) => match inspect_image(engine, &reference).await? {
                Some(info) => return Ok(info),
                None => (format!("the engine has no image {reference}"), String::new()),
            },
            Err(error) => (
                format!("the engine has no image {reference}, and it cannot be pulled: {error}"),
                "Check the name, load it with `docker load`, or leave --kafka-image away and build \
                 one with `highwater image build`."
                    .into(),
            ),
        },
    };
    Err(BackendError::Unsupported { backend: "docker", reason, remedy })
}

/// Builds the base image and the image of Kafka `version` from the jars in `distribution_libs`.
/// What there is already, made from the same things, is not made again.
///
/// # Errors
/// [`BackendError::Unsupported`] where something is missing, with a remedy;
/// [`BackendError::Failed`] where a step failed, with what it said.
pub async fn build_images(
    engine: &Engine,
    version: &str,
    distribution_libs: &Path,
    progress: Progress<'_>,
) -> Result<ImageInfo, BackendError> {
    let base = base::ensure_base(engine, &BaseSource::from_environment(), progress).await?;
    let reference = ImageChoice::Kafka(version.to_owned()).reference();
    let (recipe, context) = kafka_context(distribution_libs, &base.id).await?;
    if let Some(info) = inspect_image(engine, &reference).await?
        && info.labels.get(RECIPE) == Some(&recipe)
    {
        progress(&format!("{reference} is up to date"));
        return Ok(info);
    }
    let arguments = json!({ "BASE": BASE_TAG });
    build(engine, &reference, context, &arguments, &recipe, progress).await?;
    built(engine, &reference).await
}

/// Builds the base image and the image of the in-repo broker, with the program at `program`.
///
/// # Errors
/// As [`build_images`].
pub async fn build_broker_images(
    engine: &Engine,
    program: &Path,
    progress: Progress<'_>,
) -> Result<ImageInfo, BackendError> {
    let base = base::ensure_base(engine, &BaseSource::from_environment(), progress).await?;
    broker_image(engine, program, &base, progress).await
}

async fn broker_image(
    engine: &Engine,
    program: &Path,
    base: &ImageInfo,
    progress: Progress<'_>,
) -> Result<ImageInfo, BackendError> {
    let (owned, base_id) = (program.to_owned(), base.id.clone());
    let recipe = blocking("cannot read the program", move || {
        recipe_of(BROKER_DOCKERFILE, &[owned], &base_id)
    })
    .await?;
    if let Some(info) = inspect_image(engine, BROKER_TAG).await?
        && info.labels.get(RECIPE) == Some(&recipe)
    {
        return Ok(info);
    }
    let owned = program.to_owned();
    let context = blocking("cannot write the build context", move || {
        context::write(&[
            Entry::Text("Dockerfile", BROKER_DOCKERFILE),
            Entry::Program("highwater", &owned),
        ])
    })
    .await?;
    let arguments = json!({ "BASE": BASE_TAG });
    build(engine, BROKER_TAG, context, &arguments, &recipe, progress).await?;
    built(engine, BROKER_TAG).await
}

/// Does file work on a thread of its own.
async fn blocking<T: Send + 'static>(
    context: &str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, BackendError> {
    spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(
        |error| BackendError::Failed { context: context.into(), reason: error.to_string() },
    )
}

/// Builds an image from a context that holds a `Dockerfile`.
pub(super) async fn build(
    engine: &Engine,
    reference: &str,
    context: File,
    arguments: &serde_json::Value,
    recipe: &str,
    progress: Progress<'_>,
) -> Result<(), BackendError> {
    progress(&format!("building {reference}"));
    let (arguments, labels) = (arguments.to_string(), json!({ RECIPE: recipe }).to_string());
    let query = [
        ("t", reference),
        ("buildargs", &arguments),
        ("labels", &labels),
        ("rm", "1"),
        ("forcerm", "1"),
    ];
    let context = Some(context::body(context));
    Ok(engine.follow("/build", &query, context, BUILD_SILENCE, progress).await?)
}

/// What was just made.
pub(super) async fn built(engine: &Engine, reference: &str) -> Result<ImageInfo, BackendError> {
    inspect_image(engine, reference).await?.ok_or_else(|| BackendError::Failed {
        context: format!("cannot use the image {reference}"),
        reason: "it was built, but the engine does not have it".into(),
    })
}

/// Fetches an image from its registry.
pub(super) async fn pull(
    engine: &Engine,
    reference: &str,
    progress: Progress<'_>,
) -> Result<(), EngineError> {
    progress(&format!("pulling {reference}"));
    let (name, tag) = split_reference(reference);
    let query = [("fromImage", name), ("tag", tag)];
    // Layers report many times a second; the line above says enough.
    engine.follow("/images/create", &query, None, PULL_SILENCE, &|_| {}).await
}

/// Name and tag; without a tag (or digest) the engine would fetch every tag there is.
fn split_reference(reference: &str) -> (&str, &str) {
    if reference.contains('@') {
        return (reference, "");
    }
    match reference.rsplit_once(':') {
        // A colon before a slash belongs to the registry's port.
        Some((name, tag)) if !tag.contains('/') => (name, tag),
        _ => (reference, "latest"),
    }
}

/// The recipe of a Kafka image, a hash of all that goes into it, and the build context.
async fn kafka_context(libs: &Path, base_id: &str) -> Result<(String, File), BackendError> {
    let (libs, base_id) = (libs.to_owned(), base_id.to_owned());
    let context = format!("cannot read the jars in {}", libs.display());
    blocking(&context, move || {
        let jars = context::files_of(&libs)?;
        if !jars.iter().any(|path| path.extension().is_some_and(|it| it == "jar")) {
            return Err(io::Error::other("there are none"));
        }
        let recipe = recipe_of(KAFKA_DOCKERFILE, &jars, &base_id)?;
        let entries = [Entry::Text("Dockerfile", KAFKA_DOCKERFILE), Entry::Folder("libs", &libs)];
        Ok((recipe, context::write(&entries)?))
    })
    .await
}

fn recipe_of(dockerfile: &str, files: &[PathBuf], base_id: &str) -> io::Result<String> {
    let mut hash = Sha256::new();
    hash.update(dockerfile);
    hash.update(base_id);
    for path in files {
        hash.update(path.file_name().unwrap_or_default().as_encoded_bytes());
        hash.update([0]);
        io::copy(&mut File::open(path)?, &mut hash)?;
    }
    Ok(format!("{:x}", hash.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_split_at_the_tag() {
        assert_eq!(split_reference("apache/kafka:4.1.1"), ("apache/kafka", "4.1.1"));
        assert_eq!(split_reference("debian"), ("debian", "latest"));
        assert_eq!(split_reference("127.0.0.1:5000/x"), ("127.0.0.1:5000/x", "latest"));
        assert_eq!(split_reference("127.0.0.1:5000/x:1"), ("127.0.0.1:5000/x", "1"));
        assert_eq!(split_reference("x@sha256:ab"), ("x@sha256:ab", ""));
    }

    #[test]
    fn a_recipe_changes_with_jars_and_base() {
        let dir = tempfile::tempdir().unwrap();
        let jar = dir.path().join("kafka_2.13-4.1.1.jar");
        std::fs::write(&jar, "one").unwrap();
        let files = [jar.clone()];
        let first = recipe_of(KAFKA_DOCKERFILE, &files, "base").unwrap();
        assert_eq!(first, recipe_of(KAFKA_DOCKERFILE, &files, "base").unwrap());
        assert_ne!(first, recipe_of(KAFKA_DOCKERFILE, &files, "other base").unwrap());
        std::fs::write(&jar, "two").unwrap();
        assert_ne!(first, recipe_of(KAFKA_DOCKERFILE, &files, "base").unwrap());
    }

    #[tokio::test]
    async fn a_folder_without_jars_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let error = kafka_context(dir.path(), "base").await.unwrap_err().to_string();
        assert!(error.contains("cannot read the jars in") && error.contains("none"), "{error}");
    }
}
