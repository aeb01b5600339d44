//! `duet serve`: the HTTP API until Ctrl-C or SIGTERM.

use crate::cli::{HistoryDefault, ServeArgs};
use crate::failure::{BadInput, print};
use crate::progress::eprintln_quiet;
use crate::{api_keys, lanes, models, session};
use anyhow::Context;
use duet_engine::EngineConfig;
use duet_server::{EngineBackend, Hosts, ServerConfig, serve as serve_http};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::net::TcpListener;

pub(super) fn serve(arguments: &ServeArgs) -> anyhow::Result<()> {
    let keys = api_keys::read(arguments.api_key_file.as_deref())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        // The cores belong to the engine; HTTP needs little.
        .worker_threads(HTTP_THREADS)
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .enable_all()
        .build()
        .context("cannot start the HTTP threads")?;
    runtime.block_on(async {
        // Before the model: a port in use should not cost a download and a load.
        let listener = bind(arguments.host, arguments.port).await?;
        let address = listener.local_addr().context("cannot read the address that is listened on")?;
        let (model, engine_arguments) = (arguments.model.clone(), arguments.engine.clone());
        let (device, draft) = (arguments.device.clone(), arguments.draft.clone());
        let config = arguments.scheduling.apply(engine_arguments.config());
        let queue_max = waiting_max(arguments.connections);
        let config = EngineConfig { policy: arguments.policy, queue_max, ..config };
        let history = arguments.history.place(HistoryDefault::On);
        let embeddings = arguments.embeddings.clone();
        let start = move || {
            let encoder = embeddings.map(|name| session::open_encoder(&name, engine_arguments.threads)).transpose()?;
            let config = EngineConfig { encoder: encoder.map(Arc::new), ..config };
            session::start_with(&model, &engine_arguments, (&device, &draft), history, config)
        };
        let starting = tokio::task::spawn_blocking(start);
        let engine = starting.await.context("loading the model failed")??;
        if arguments.lanes {
            print(&lanes::json(&engine)?)?;
        }
        let config = ServerConfig {
            aliases: alias_of(&arguments.model),
            keys,
            class_default: arguments.default_class.into(),
            prefix: arguments.volatile_prefix.into(),
            behind_answers: arguments.behind_answers.into(),
            loopback_only: address.ip().to_canonical().is_loopback(),
            hosts: hosts(&arguments.allow_host),
            connections_max: arguments.connections,
            ..ServerConfig::default()
        };
        // The handlers stand before the address is told: whoever reads it may send SIGTERM at once.
        let shutdown = shutdown_signal()?;
        announce(address, &engine.model().config().name, engine.encoder().map(|encoder| encoder.name()));
        serve_http(listener, Arc::new(EngineBackend::new(engine)), config, shutdown).await.context("the server failed")
    })
}

const HTTP_THREADS: usize = 2;
/// Requests are taken in by two threads at most, one is the engine's start, and some look up names or write logs.
const BLOCKING_THREADS_MAX: usize = 8;

/// How many requests of a class may wait, each on a connection of its own: whatever waits, there are connections for
/// answers under way and for whoever comes next, if only to be told to come again.
fn waiting_max(connections: usize) -> usize {
    (connections * 3 / 8).max(1)
}

/// The names that the server answers to beside addresses; `*` is any.
fn hosts(allowed: &[String]) -> Hosts {
    if allowed.iter().any(|name| name == "*") {
        return Hosts::Any;
    }
    if allowed.is_empty() { Hosts::Addresses } else { Hosts::Named(allowed.to_vec()) }
}

async fn bind(host: IpAddr, port: u16) -> anyhow::Result<TcpListener> {
    let address = SocketAddr::new(host, port);
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => {
            anyhow::anyhow!("port {port} on {host} is in use; stop what uses it or choose another with --port")
        }
        ErrorKind::AddrNotAvailable => BadInput(format!("--host {host} is no address of this machine")).into(),
        ErrorKind::PermissionDenied => {
            anyhow::anyhow!("not allowed to listen on port {port}; choose one above 1023 with --port")
        }
        _ => anyhow::Error::new(error).context(format!("cannot listen on {address}")),
    })
}

/// Clients may ask for the model by the alias that the person used, beside the model's own name.
fn alias_of(model: &str) -> Vec<String> {
    if models::is_alias(model) { vec![model.to_owned()] } else { Vec::new() }
}

fn announce(address: SocketAddr, model: &str, encoder: Option<&str>) {
    // What listens on every address is reached, from here, on this one.
    let host = match address.ip() {
        ip if ip.is_unspecified() => "127.0.0.1".to_owned(),
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    let url = format!("http://{host}:{}", address.port());
    let beside = encoder.map(|name| format!(" (embeddings: {name})")).unwrap_or_default();
    eprintln_quiet(&format!(
        "{model}{beside} is served at {url} (Ctrl-C stops)

  curl {url}/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{{\"messages\": [{{\"role\": \"user\", \"content\": \"Hello!\"}}], \"stream\": true}}'
"
    ));
}

/// Completes when the program is asked to stop. A second request, while it is stopping, ends it at once.
#[cfg(unix)]
fn shutdown_signal() -> anyhow::Result<impl Future<Output = ()> + Send> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        eprintln_quiet("stopping; answers under way may finish (again to stop at once)");
        tokio::spawn(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            duet_device::leave(1);
        });
    })
}

#[cfg(not(unix))]
fn shutdown_signal() -> anyhow::Result<impl Future<Output = ()> + Send> {
    Ok(async {
        // Without a listener for it, Ctrl-C ends the program, which is what was asked for.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        eprintln_quiet("stopping; answers under way may finish");
    })
}
