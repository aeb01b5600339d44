//! `GET /v1/flows` and `GET /metrics`: what the engine is doing.

use crate::auth::{Caller, Sight};
use crate::error::ApiError;
use crate::serve::App;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use axum::{Extension, Json};
use duet_engine::{FlowView, KeptView, KvPlace, RequestView};
use duet_types::{Class, Stage};
use serde_json::{Value, json};
use std::sync::Arc;

/// The flows that the caller may see.
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<Value>, ApiError> {
    let visible = |flow: &FlowView| match caller.sight {
        Sight::Everything => true,
        Sight::OwnTenant => flow.tenant == caller.tenant,
        Sight::Nothing => false,
    };
    if caller.sight == Sight::Nothing {
        return Err(ApiError::FlowsHidden);
    }
    let flows = app.backend.flows();
    let data: Value = flows.iter().filter(|flow| visible(flow)).map(|flow| flow_json(&app, flow)).collect();
    Ok(Json(json!({"object": "list", "data": data})))
}

/// Prometheus' metrics, of all tenants together.
pub(crate) async fn metrics(State(app): State<Arc<App>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, METRICS_TYPE)], app.backend.metrics())
}

fn flow_json(app: &App, flow: &FlowView) -> Value {
    json!({
        "object": "flow",
        "id": flow.flow.0,
        "key": flow.key.as_ref().map(|key| &*key.0),
        "tenant": app.config.keys.name(flow.tenant),
        "requests": flow.requests.iter().map(request_json).collect::<Value>(),
        "kept": flow.kept.iter().map(kept_json).collect::<Value>(),
    })
}

fn request_json(request: &RequestView) -> Value {
    json!({
        "id": request.request.0,
        "class": match request.class {
            Class::Reactive => "reactive",
            Class::Proactive => "proactive",
        },
        "status": status(request),
        "stage": request.stage.map(|stage| match stage {
            Stage::Prefill => "prefill",
            Stage::Decode => "decode",
            Stage::Verify => "verify",
        }),
        "prompt_tokens": request.prompt.0,
        "computed_tokens": request.computed.0,
        "generated_tokens": request.generated.0,
        "node": request.node,
        "age_ms": request.age.as_millis_f64(),
    })
}

/// Queued until it begins; then it waits for its next pass, or is in one.
fn status(request: &RequestView) -> &'static str {
    match (request.stage, request.is_waiting) {
        (None, _) => "queued",
        (Some(_), true) => "waiting",
        (Some(_), false) => "running",
    }
}

fn kept_json(kept: &KeptView) -> Value {
    json!({
        "tokens": kept.tokens.0,
        "pages": kept.pages,
        "place": match kept.place {
            KvPlace::Memory => "memory",
            KvPlace::Disk => "disk",
        },
    })
}

/// What the engine writes: OpenMetrics, which Prometheus asks for first.
pub(crate) const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
