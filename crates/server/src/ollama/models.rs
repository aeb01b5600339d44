//! `GET /api/tags`, `GET /api/ps` and `POST /api/show`: the model that is served, as Ollama tells of models.

use super::{names, time};
use crate::arrived::taken_apart;
use crate::body;
use crate::error::ApiError;
use crate::fields::{Fields, Known};
use crate::reply::tell_ignored;
use crate::serve::App;
use axum::Json;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use duet_model::encoder::Encoder;
use serde_json::{Map, Value, json};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// The model under its own name and its aliases, and the encoder beside it.
pub(super) async fn tags(State(app): State<Arc<App>>) -> Json<Value> {
    Json(json!({"models": models(&app, |_| {})}))
}

/// The same: it is always loaded.
pub(super) async fn running(State(app): State<Arc<App>>) -> Json<Value> {
    let models = models(&app, |model| {
        // A time that is never reached, which is how Ollama says that a model stays.
        model["expires_at"] = time::at(app.started + STAYS_SECONDS).into();
        model["size_vram"] = 0.into();
        model["context_length"] = app.backend.context().0.into();
    });
    Json(json!({"models": models}))
}

pub(super) async fn show(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let received = body::read(&app, request).await?;
    let ((shown, ignored), _) = taken_apart(&app, received, KNOWN, shown).await?;
    let mut response = Json(shown).into_response();
    tell_ignored(&mut response, &ignored);
    Ok(response)
}

fn shown(mut fields: Fields, _: &HeaderMap, app: &App) -> Result<(Value, Vec<String>), ApiError> {
    let asked = names::asked(&mut fields)?;
    if let Some(encoder) = app.backend.encoder().filter(|_| names::is_encoder(&asked, app)) {
        return Ok((shown_encoder(app, encoder), fields.rest().collect()));
    }
    names::check(&asked, app)?;
    let about = app.backend.about();
    let mut capabilities = vec!["completion", "tools"];
    if app.backend.families().reasoning.is_some() {
        capabilities.push("thinking");
    }
    let mut info = Map::new();
    info.insert("general.architecture".to_owned(), about.architecture.into());
    info.insert("general.basename".to_owned(), app.backend.model_name().into());
    // What a client may send, not what the model was made for.
    info.insert(format!("{}.context_length", about.architecture), app.backend.context().0.into());
    info.insert(format!("{}.vocab_size", about.architecture), app.backend.vocabulary().into());
    let shown = json!({
        "modelfile": "",
        "parameters": format!("num_ctx {}", app.backend.context()),
        "template": about.template,
        "details": details(about.architecture),
        "model_info": info,
        "capabilities": capabilities,
        "modified_at": time::at(app.started),
    });
    Ok((shown, fields.rest().collect()))
}

fn shown_encoder(app: &App, encoder: &Encoder) -> Value {
    let architecture = encoder.architecture();
    let mut info = Map::new();
    info.insert("general.architecture".to_owned(), architecture.into());
    info.insert("general.basename".to_owned(), encoder.name().into());
    info.insert(format!("{architecture}.context_length"), encoder.context().0.into());
    info.insert(format!("{architecture}.embedding_length"), encoder.width().into());
    json!({
        "modelfile": "",
        "parameters": format!("num_ctx {}", encoder.context()),
        "template": "",
        "details": details(architecture),
        "model_info": info,
        "capabilities": if encoder.pooling().embeds() { ["embedding"].as_slice() } else { &[] },
        "modified_at": time::at(app.started),
    })
}

/// `verbose` would add what this server does not tell.
pub(crate) const KNOWN: Known = Known(&[&["model", "name"]]);

fn models(app: &App, add: impl Fn(&mut Value)) -> Vec<Value> {
    let names = std::iter::once(app.backend.model_name()).chain(app.config.aliases.iter().map(String::as_str));
    let about = app.backend.about();
    let model = |name: &str| {
        let name = names::tagged(name);
        let mut model = json!({
            "name": name,
            "model": name,
            "modified_at": time::at(app.started),
            "size": app.backend.about().weights.0,
            "digest": identity(app.backend.model_name(), about.architecture, about.template, about.weights.0),
            "details": details(app.backend.about().architecture),
        });
        add(&mut model);
        model
    };
    let encoder = app.backend.encoder().map(|encoder| {
        let name = names::tagged(encoder.name());
        let mut model = json!({
            "name": name,
            "model": name,
            "modified_at": time::at(app.started),
            "size": encoder.weight_bytes().0,
            "digest": identity(encoder.name(), encoder.architecture(), "", encoder.weight_bytes().0),
            "details": details(encoder.architecture()),
        });
        add(&mut model);
        model
    });
    names.map(model).chain(encoder).collect()
}

fn details(family: &str) -> Value {
    json!({
        "parent_model": "",
        "format": "gguf",
        "family": family,
        "families": [family],
        // Not known here.
        "parameter_size": "",
        "quantization_level": "",
    })
}

/// Tells models apart, as clients use digests. It is made of what is told of the model, not of its file.
fn identity(name: &str, architecture: &str, template: &str, bytes: u64) -> String {
    let part = |seed: u8| {
        let mut hasher = DefaultHasher::new();
        (seed, name, architecture, template, bytes).hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    };
    (0..4).map(part).collect()
}

/// A hundred years.
const STAYS_SECONDS: u64 = 100 * 365 * 24 * 3600;
