//! A client for the Docker Engine API, as far as this backend needs it, over the engine's unix
//! socket.

use std::error::Error as _;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::{Body, Method, Response, StatusCode, Url};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::timeout;

use super::engine_error::EngineError;
use super::stream::Lines;

/// Where the engine listens unless `DOCKER_HOST` says otherwise.
const DEFAULT_SOCKET: &str = "/var/run/docker.sock";
/// Oldest API that has all that is asked for: Docker 20.10.
const OLDEST_API: (u32, u32) = (1, 41);
/// Newest API that this client was written for; engines are asked to speak no newer one.
const NEWEST_API: (u32, u32) = (1, 47);
/// For one short request. Starting a container on a busy machine takes seconds.
pub(super) const REQUEST_DEADLINE: Duration = Duration::from_secs(60);
/// The engine answers its first question at once, or something is wrong with it.
const FIRST_ANSWER: Duration = Duration::from_secs(10);

/// What an engine says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineInfo {
    /// Its version, `20.10.24`.
    pub version: String,
    /// The API version that is spoken with it, `1.41`.
    pub api_version: String,
    /// Where it was reached.
    pub socket: PathBuf,
}

/// A connection to an engine; cheap to clone. To be used on the runtime it was made on.
#[derive(Clone, Debug)]
pub struct Engine {
    client: reqwest::Client,
    info: EngineInfo,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Version {
    #[serde(rename = "Version")]
    engine: String,
    #[serde(rename = "ApiVersion")]
    newest_api: String,
    #[serde(rename = "MinAPIVersion", default)]
    oldest_api: String,
    os: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Security {
    #[serde(default)]
    security_options: Option<Vec<String>>,
}

impl Engine {
    /// Reaches the engine at `DOCKER_HOST` (`unix://…`) or `/var/run/docker.sock`.
    ///
    /// # Errors
    /// [`EngineError::Unreachable`] or [`EngineError::Unsuitable`], each with a remedy.
    pub async fn connect() -> Result<Self, EngineError> {
        Self::connect_to(&socket_path(std::env::var("DOCKER_HOST").ok())?).await
    }

    /// Reaches the engine that listens at `socket`.
    ///
    /// # Errors
    /// [`EngineError::Unreachable`] or [`EngineError::Unsuitable`], each with a remedy.
    pub async fn connect_to(socket: &Path) -> Result<Self, EngineError> {
        let client = reqwest::Client::builder()
            .unix_socket(socket)
            .build()
            .map_err(|error| broken("make a client", &error))?;
        let mut engine = Self {
            client,
            info: EngineInfo {
                version: String::new(),
                api_version: String::new(),
                socket: socket.to_owned(),
            },
        };
        let found: Version = engine.first_answer().await?;
        engine.info.api_version = agreed_api(&found)?;
        engine.info.version = found.engine;
        let security: Security = engine.get("/info", &[]).await?;
        let options = security.security_options.unwrap_or_default();
        if options.iter().any(|option| option.starts_with("name=rootless")) {
            return Err(EngineError::Unsuitable {
                reason: format!("the engine at {} is a rootless one", socket.display()),
                remedy: "The host cannot reach its containers by address: use an engine that \
                         runs as root (DOCKER_HOST=unix:///var/run/docker.sock), or the \
                         namespaces backend."
                    .into(),
            });
        }
        Ok(engine)
    }

    /// What the engine says of itself.
    pub const fn info(&self) -> &EngineInfo {
        &self.info
    }

    async fn first_answer(&self) -> Result<Version, EngineError> {
        match self.ask(Method::GET, "/version", &[], None, FIRST_ANSWER).await {
            Err(EngineError::Deadline { waited_ms, .. }) => Err(EngineError::Unreachable {
                socket: self.info.socket.display().to_string(),
                reason: format!("it accepts connections, but was silent for {waited_ms} ms"),
                remedy: "Look at the engine's log and restart it.".into(),
            }),
            answer => answer,
        }
    }

    /// The answer to a GET.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, EngineError> {
        self.ask(Method::GET, path, query, None, REQUEST_DEADLINE).await
    }

    /// The answer to a GET; `None` where the thing does not exist.
    pub(super) async fn find<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<Option<T>, EngineError> {
        absent(self.get(path, &[]).await.map(Some), None)
    }

    /// Posts `body` and reads the answer.
    pub(super) async fn create<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
        body: &Value,
    ) -> Result<T, EngineError> {
        self.ask(Method::POST, path, query, Some(body.to_string().into()), REQUEST_DEADLINE).await
    }

    /// Posts without a body, for an effect; "nothing to do" (304) is fine.
    pub(super) async fn act(&self, path: &str, query: &[(&str, &str)]) -> Result<(), EngineError> {
        self.send(Method::POST, path, query, None, REQUEST_DEADLINE).await.map(drop)
    }

    /// Removes a thing; one that does not exist is fine.
    pub(super) async fn remove(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<(), EngineError> {
        let sent = self.send(Method::DELETE, path, query, None, REQUEST_DEADLINE).await;
        absent(sent.map(drop), ())
    }

    /// Posts and decodes the answer, which may take up to `deadline` to come.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<Body>,
        deadline: Duration,
    ) -> Result<T, EngineError> {
        let request = format!("{method} {path}");
        let response = self.send(method, path, query, body, deadline).await?;
        let bytes = within(deadline, &request, response.bytes()).await?;
        serde_json::from_slice(&bytes).map_err(|error| EngineError::Broken {
            reason: format!("the answer was not understood: {error}"),
            request,
        })
    }

    /// The raw bytes of an answer.
    pub(super) async fn bytes(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<Vec<u8>, EngineError> {
        let response = self.send(Method::GET, path, query, None, REQUEST_DEADLINE).await?;
        let bytes = within(REQUEST_DEADLINE, &format!("GET {path}"), response.bytes()).await?;
        Ok(bytes.to_vec())
    }

    /// Posts `body` (a tar) and follows the engine's progress messages to the end. Each may take
    /// up to `silence` to come; the first one that is an error ends it.
    pub(super) async fn follow(
        &self,
        path: &str,
        query: &[(&str, &str)],
        body: Option<Body>,
        silence: Duration,
        progress: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<(), EngineError> {
        let request = format!("POST {path}");
        let mut response = self.send(Method::POST, path, query, body, silence).await?;
        let mut lines = Lines::default();
        while let Some(chunk) = within(silence, &request, response.chunk()).await? {
            for line in lines.push(&chunk) {
                tell(&request, &line, progress)?;
            }
        }
        lines.rest().map_or(Ok(()), |line| tell(&request, &line, progress))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<Body>,
        deadline: Duration,
    ) -> Result<Response, EngineError> {
        let name = format!("{method} {path}");
        let mut request = self.client.request(method, self.url(path, query)?);
        if let Some(body) = body {
            let kind =
                if body.as_bytes().is_some() { "application/json" } else { "application/x-tar" };
            request = request.header("Content-Type", kind).body(body);
        }
        let response = match timeout(deadline, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) if error.is_connect() => return Err(self.unreachable(&error)),
            Ok(Err(error)) => return Err(broken(&name, &error)),
            Err(_) => return Err(silent(&name, deadline)),
        };
        let status = response.status();
        if status.is_success() || status == StatusCode::NOT_MODIFIED {
            return Ok(response);
        }
        let text = within(deadline, &name, response.text()).await?;
        Err(EngineError::Refused { request: name, status: status.as_u16(), message: said(&text) })
    }

    fn url(&self, path: &str, query: &[(&str, &str)]) -> Result<Url, EngineError> {
        let version = match self.info.api_version.as_str() {
            "" => String::new(),
            version => format!("/v{version}"),
        };
        let whole = format!("http://docker{version}{path}");
        let parsed = if query.is_empty() {
            Url::parse(&whole)
        } else {
            Url::parse_with_params(&whole, query)
        };
        parsed.map_err(|error| EngineError::Broken { request: whole, reason: error.to_string() })
    }

    fn unreachable(&self, error: &reqwest::Error) -> EngineError {
        let (reason, kind) = root_cause(error);
        let remedy = match kind {
            Some(io::ErrorKind::PermissionDenied) => {
                "Run as root, or as a user of the group that owns the socket (often `docker`)."
            }
            _ => {
                "Install a Docker engine (Debian: apt-get install docker.io) and start it \
                 (systemctl start docker, or dockerd as root), or name its socket with \
                 DOCKER_HOST=unix:///path."
            }
        };
        EngineError::Unreachable {
            socket: self.info.socket.display().to_string(),
            reason,
            remedy: remedy.into(),
        }
    }
}

/// The socket that `DOCKER_HOST` names.
fn socket_path(docker_host: Option<String>) -> Result<PathBuf, EngineError> {
    match docker_host.filter(|host| !host.is_empty()) {
        None => Ok(DEFAULT_SOCKET.into()),
        Some(host) => match host.strip_prefix("unix://") {
            Some(path) if path.starts_with('/') => Ok(path.into()),
            _ => Err(EngineError::Unsuitable {
                reason: format!("DOCKER_HOST is `{host}`"),
                remedy: "Only an engine on this machine can be used: set \
                         DOCKER_HOST=unix:///path, or unset it."
                    .into(),
            }),
        },
    }
}

/// The API version to speak with an engine.
fn agreed_api(found: &Version) -> Result<String, EngineError> {
    let newest_there = parse_api(&found.newest_api);
    let oldest_there = parse_api(&found.oldest_api).unwrap_or(OLDEST_API);
    match newest_there {
        Some(newest) if newest >= OLDEST_API && found.os == "linux" => {
            let (major, minor) = newest.min(NEWEST_API).max(oldest_there);
            Ok(format!("{major}.{minor}"))
        }
        _ => Err(EngineError::Unsuitable {
            reason: format!(
                "the engine is version {} (API {}) for {}",
                found.engine, found.newest_api, found.os
            ),
            remedy: format!(
                "Install an engine for Linux with API {}.{} or newer (Docker 20.10).",
                OLDEST_API.0, OLDEST_API.1
            ),
        }),
    }
}

fn parse_api(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// `fallback` in place of "there is no such thing".
fn absent<T>(answer: Result<T, EngineError>, fallback: T) -> Result<T, EngineError> {
    match answer {
        Err(EngineError::Refused { status: 404, .. }) => Ok(fallback),
        other => other,
    }
}

fn tell(
    request: &str,
    line: &str,
    progress: &(dyn Fn(&str) + Send + Sync),
) -> Result<(), EngineError> {
    let Ok(message) = serde_json::from_str::<Value>(line) else {
        return Ok(());
    };
    if let Some(error) = message["error"].as_str() {
        return Err(EngineError::Refused {
            request: request.to_owned(),
            status: 0,
            message: error.to_owned(),
        });
    }
    for text in [&message["stream"], &message["status"]] {
        let lines = text.as_str().unwrap_or_default().lines().map(without_colours);
        lines.filter(|line| !line.is_empty()).for_each(|line| progress(&line));
    }
    Ok(())
}

/// A line without the escape sequences that colour it: the engine marks what a build step says on
/// its standard error.
fn without_colours(line: &str) -> String {
    let mut parts = line.split('\u{1b}');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str(part.split_once('m').map_or("", |(_, rest)| rest));
    }
    text.trim_end().to_owned()
}

/// The words in an engine's error body, `{"message": "…"}`.
fn said(text: &str) -> String {
    serde_json::from_str::<Value>(text)
        .ok()
        .and_then(|body| Some(body["message"].as_str()?.to_owned()))
        .unwrap_or_else(|| text.trim().to_owned())
}

async fn within<T>(
    deadline: Duration,
    request: &str,
    answer: impl Future<Output = Result<T, reqwest::Error>>,
) -> Result<T, EngineError> {
    match timeout(deadline, answer).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(broken(request, &error)),
        Err(_) => Err(silent(request, deadline)),
    }
}

fn silent(request: &str, deadline: Duration) -> EngineError {
    EngineError::Deadline { request: request.to_owned(), waited_ms: deadline.as_millis() }
}

fn broken(request: &str, error: &reqwest::Error) -> EngineError {
    EngineError::Broken { request: request.to_owned(), reason: root_cause(error).0 }
}

/// The innermost reason of an error, and its kind where the operating system gave it.
fn root_cause(error: &reqwest::Error) -> (String, Option<io::ErrorKind>) {
    let mut reason = error.to_string();
    let mut kind = None;
    let mut next = error.source();
    while let Some(cause) = next {
        reason = cause.to_string();
        if let Some(cause) = cause.downcast_ref::<io::Error>() {
            kind = Some(cause.kind());
        }
        next = cause.source();
    }
    (reason, kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::BackendError;

    fn version(newest: &str, oldest: &str) -> Version {
        Version {
            engine: "x".into(),
            newest_api: newest.into(),
            oldest_api: oldest.into(),
            os: "linux".into(),
        }
    }

    #[test]
    fn the_api_spoken_suits_both_sides() {
        assert_eq!(agreed_api(&version("1.41", "1.12")).unwrap(), "1.41");
        assert_eq!(agreed_api(&version("1.52", "1.44")).unwrap(), "1.47");
        assert_eq!(agreed_api(&version("1.60", "1.50")).unwrap(), "1.50");
        let error = agreed_api(&version("1.39", "1.12")).unwrap_err();
        assert!(error.to_string().contains("Docker 20.10"), "{error}");
        assert!(agreed_api(&version("", "")).is_err());
    }

    #[test]
    fn docker_host_names_a_unix_socket() {
        assert_eq!(socket_path(None).unwrap(), Path::new(DEFAULT_SOCKET));
        assert_eq!(socket_path(Some(String::new())).unwrap(), Path::new(DEFAULT_SOCKET));
        assert_eq!(
            socket_path(Some("unix:///run/d.sock".into())).unwrap(),
            Path::new("/run/d.sock")
        );
        let error = socket_path(Some("tcp://10.0.0.1:2375".into())).unwrap_err();
        assert!(error.to_string().contains("tcp://10.0.0.1:2375"), "{error}");
    }

    #[tokio::test]
    async fn a_missing_engine_is_named_with_a_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("no.sock");
        let error = BackendError::from(Engine::connect_to(&socket).await.unwrap_err());
        let text = error.to_string();
        assert!(matches!(error, BackendError::Unsupported { backend: "docker", .. }));
        assert!(text.contains("no engine answers at") && text.contains("no.sock"), "{text}");
        assert!(text.contains("apt-get install docker.io"), "{text}");
    }

    #[test]
    fn an_error_in_a_progress_stream_is_one() {
        let quiet = |_: &str| {};
        assert!(tell("POST /build", r#"{"stream":"Step 1/2 : FROM x"}"#, &quiet).is_ok());
        let heard = std::sync::Mutex::new(Vec::new());
        let listen = |line: &str| heard.lock().unwrap().push(line.to_owned());
        tell("POST /build", r#"{"stream":"\u001b[91mopenjdk 17\nServer VM\n\u001b[0m"}"#, &listen)
            .unwrap();
        assert_eq!(*heard.lock().unwrap(), ["openjdk 17", "Server VM"]);
        let error = tell("POST /build", r#"{"error":"no such file"}"#, &quiet).unwrap_err();
        assert!(error.to_string().contains("no such file"), "{error}");
    }
}
