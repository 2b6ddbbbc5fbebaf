//! Containers that run one command to its end.

use std::time::Duration;

use reqwest::Method;
use serde::Deserialize;
use serde_json::Value;

use super::container;
use super::engine::Engine;
use super::engine_error::EngineError;
use super::stream::split_outputs;
use crate::backend::Output;

/// Runs a container made from `body` to its end and removes it; what it printed, or `None` when
/// `deadline` passed first.
pub(super) async fn run(
    engine: &Engine,
    name: &str,
    body: &Value,
    deadline: Duration,
) -> Result<Option<Output>, EngineError> {
    let id = container::create(engine, name, body).await?;
    let output = run_created(engine, &id, deadline).await;
    let removed = container::remove(engine, &id).await;
    let output = output?;
    removed.map(|()| output)
}

async fn run_created(
    engine: &Engine,
    id: &str,
    deadline: Duration,
) -> Result<Option<Output>, EngineError> {
    engine.act(&format!("/containers/{id}/start"), &[]).await?;
    let Some(code) = wait(engine, id, deadline).await? else {
        return Ok(None);
    };
    let both = [("stdout", "1"), ("stderr", "1")];
    let frames = engine.bytes(&format!("/containers/{id}/logs"), &both).await?;
    let (stdout, stderr) = split_outputs(&frames);
    Ok(Some(Output { code, stdout, stderr }))
}

/// Waits until a started container does not run; its exit code, or `None` when `deadline` passed.
pub(super) async fn wait(
    engine: &Engine,
    id: &str,
    deadline: Duration,
) -> Result<Option<i32>, EngineError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Ended {
        status_code: i32,
    }
    let path = format!("/containers/{id}/wait");
    let not_running = [("condition", "not-running")];
    match engine.ask::<Ended>(Method::POST, &path, &not_running, None, deadline).await {
        Ok(ended) => Ok(Some(ended.status_code)),
        Err(EngineError::Deadline { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
