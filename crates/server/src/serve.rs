//! The server's life: routes, what handlers share, and how it ends.
//!
//! Shutdown: at the signal no more connections are accepted and new requests on open ones are answered 503; generations
//! under way have [`ServerConfig::shutdown_grace`] to finish, then they fail with `shutting_down`.

use crate::backend::Backend;
use crate::config::ServerConfig;
use crate::error::ApiError;
use crate::ids::{Ids, unix_seconds};
use crate::intake::Intake;
use crate::responses::{self, Store};
use crate::{
    anthropic, auth, body, chat, completions, connections, embeddings, flows, guard, models, ollama, openapi, rerank,
    systemone, tokenize,
};
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::Method;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::{get, post};
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing::Instrument;

/// Serves until `shutdown` completes and the work under way has ended.
///
/// # Errors
/// If the listener fails.
pub async fn serve(
    listener: TcpListener,
    backend: Arc<dyn Backend>,
    config: ServerConfig,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let grace = config.shutdown_grace;
    let limits = (config.connections_max, config.times);
    let phase = watch::Sender::new(Phase::Serving);
    let intake = Intake::new(config.intake_bytes_max);
    let (ids, started) = (Ids::default(), unix_seconds());
    let app =
        Arc::new(App { backend, config, intake, ids, started, phase: phase.clone(), responses: Store::default() });
    let serving = connections::serve(listener, router(app), limits, phase.subscribe());
    let ending = async {
        shutdown.await;
        tracing::info!("shutting down");
        phase.send_replace(Phase::Draining);
        tokio::time::sleep(grace).await;
        phase.send_replace(Phase::Stopped);
        tokio::time::sleep(FAREWELL_TIME_MAX).await;
    };
    tokio::select! {
        served = serving => served,
        () = ending => Ok(()),
    }
}

/// What handlers share.
pub(crate) struct App {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) config: ServerConfig,
    pub(crate) intake: Intake,
    pub(crate) ids: Ids,
    /// When the model became available.
    pub(crate) started: u64,
    pub(crate) phase: watch::Sender<Phase>,
    /// Responses that clients may come back to.
    pub(crate) responses: Store,
}

/// Where the server stands in its life; it only goes forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Serving,
    /// Finishes what it has and takes nothing new.
    Draining,
    /// Ends what is left.
    Stopped,
}

impl App {
    /// Whether a request for this model is for the loaded one.
    pub(crate) fn check_model(&self, model: Option<&str>) -> Result<(), ApiError> {
        let loaded = self.backend.model_name();
        match model {
            None | Some("default") => Ok(()),
            Some(model) if model == loaded || self.config.aliases.iter().any(|alias| alias == model) => Ok(()),
            Some(model) => Err(ApiError::ModelNotFound { model: model.to_owned(), loaded: loaded.to_owned() }),
        }
    }
}

fn router(app: Arc<App>) -> Router {
    let hosts = Arc::new(app.config.hosts.clone());
    let routes = Router::new()
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*name}", get(models::get))
        .route("/v1/chat/completions", post(chat::create))
        .route("/v1/completions", post(completions::create))
        .route("/v1/embeddings", post(embeddings::create))
        .route("/v1/rerank", post(rerank::create))
        .route("/rerank", post(rerank::create))
        .route("/v1/messages", post(anthropic::create))
        .route("/v1/messages/count_tokens", post(anthropic::count_tokens))
        .route("/v1/systemone", post(systemone::create))
        .route("/tokenize", post(tokenize::tokenize))
        .route("/detokenize", post(tokenize::detokenize))
        .route("/tokenizer_info", get(tokenize::info))
        .merge(responses::routes())
        .route("/v1/flows", get(flows::list))
        .route("/metrics", get(flows::metrics))
        .route_layer(from_fn_with_state(Arc::clone(&app), auth::identify))
        // Says only that the server lives; whoever watches over it needs no key.
        .route("/health", get(models::health))
        // The same of every server of this version.
        .route("/openapi.json", get(openapi::document))
        .merge(ollama::routes(&app))
        .fallback(no_route)
        .method_not_allowed_fallback(method_not_allowed)
        // `body` bounds bodies, with an answer that clients get to see.
        .layer(DefaultBodyLimit::disable())
        .with_state(app);
    routes
        .layer(from_fn_with_state(hosts, guard::known_hosts))
        .layer(from_fn(anthropic::refusal::in_its_words))
        .layer(from_fn(ollama::errors::in_its_shape))
        .layer(from_fn(log))
}

pub(crate) async fn no_route(State(app): State<Arc<App>>, request: Request) -> ApiError {
    let (method, path) = unread(&app, request);
    ApiError::NoRoute { method, path }
}

pub(crate) async fn method_not_allowed(State(app): State<Arc<App>>, request: Request) -> ApiError {
    let (method, path) = unread(&app, request);
    ApiError::MethodNotAllowed { method, path }
}

/// Lets the client finish sending what nobody reads: it gets to see why, and its connection serves it again.
fn unread(app: &App, request: Request) -> (Method, String) {
    let (head, body) = request.into_parts();
    body::discard_unread(app, &head.headers, body);
    (head.method, head.uri.path().to_owned())
}

/// Middleware: a span around each request. What was generated is logged by `running`, within the same span.
async fn log(request: Request, next: Next) -> Response {
    let started = Instant::now();
    let span = tracing::info_span!("request", method = %request.method(), path = request.uri().path());
    async {
        let response = next.run(request).await;
        let head_ms = started.elapsed().as_secs_f64() * 1e3;
        let status = response.status();
        if status.is_client_error() || status.is_server_error() {
            tracing::info!(status = status.as_u16(), head_ms, "refused");
        } else {
            tracing::debug!(status = status.as_u16(), head_ms, "answered");
        }
        response
    }
    .instrument(span)
    .await
}

/// How long the last error events may take to reach their clients after the grace.
const FAREWELL_TIME_MAX: Duration = Duration::from_secs(1);
