//! HTTP for whoever looks at a node: never for clients.
//!
//! | path | answer |
//! |---|---|
//! | `/healthz` | 200 while the broker serves (or the node is a pure controller), else 503; in words |
//! | `/metrics` | numbers, as Prometheus reads them |
//! | `/v1/partitions` | every replica of this node, as it sees itself |
//! | `/v1/metadata` | the metadata as this node has applied it |

pub mod metrics;

use std::sync::Arc;

use axum::Json;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing::warn;

use crate::lifecycle::Stage;
use crate::server::services::Services;

/// What the pages show.
#[derive(Clone, Debug)]
pub struct Admin {
    /// Everything of the node.
    pub services: Arc<Services>,
    /// Where its broker is in its life; none on a pure controller.
    pub stage: Option<watch::Receiver<Stage>>,
}

/// Serves until `stop` turns true.
pub async fn serve(listener: TcpListener, admin: Admin, mut stop: watch::Receiver<bool>) {
    let router = Router::new()
        .route("/healthz", get(health))
        .route("/metrics", get(metrics_text))
        .route("/v1/partitions", get(partitions))
        .route("/v1/metadata", get(metadata))
        .with_state(admin);
    let until = async move {
        // An error means that the node is gone already.
        let _ = stop.wait_for(|stop| *stop).await;
    };
    if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(until).await {
        warn!(%error, "the admin port is not served any more");
    }
}

async fn health(State(admin): State<Admin>) -> (StatusCode, Json<Value>) {
    let stage = admin.stage.as_ref().map(|stage| *stage.borrow());
    let leadership = admin.services.quorum.leadership();
    let leader = leadership.borrow().leader.as_ref().map(|(id, _)| id.0);
    let healthy = leader.is_some() && stage.is_none_or(|stage| stage == Stage::Serving);
    let code = if healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let stage = stage.map(|stage| format!("{stage:?}").to_lowercase());
    (code, Json(json!({ "broker": stage, "controller": leader })))
}

async fn metrics_text(State(admin): State<Admin>) -> impl IntoResponse {
    let services = &admin.services;
    let summary = services.replicas.summary();
    let text = services.metrics.text(&summary, services.state.borrow().index);
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], text)
}

async fn partitions(State(admin): State<Admin>) -> Json<Value> {
    let replicas: Vec<_> =
        admin.services.replicas.all().iter().map(|replica| replica.describe()).collect();
    Json(json!({ "node": admin.services.config.node, "partitions": replicas }))
}

async fn metadata(State(admin): State<Admin>) -> Json<Value> {
    let applied = admin.services.state.borrow().clone();
    let leadership = admin.services.quorum.leadership();
    let leadership = leadership.borrow();
    Json(json!({
        "node": admin.services.config.node,
        "index": applied.index,
        "term": leadership.term,
        "controller": leadership.leader.as_ref().map(|(id, _)| id.0),
        "image": applied.state.0,
    }))
}
