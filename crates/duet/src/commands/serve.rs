//! `duet serve`: the HTTP API until Ctrl-C or SIGTERM.

use crate::bad_input::BadInput;
use crate::cli::{HistoryDefault, ServeArgs};
use crate::failure::print;
use crate::progress::eprintln_quiet;
use crate::weight_cache::WeightCache;
use crate::{api_keys, lanes, models, session};
use anyhow::Context;
use duet_engine::EngineConfig;
use duet_server::{EngineBackend, Hosts, ServerConfig, serve as serve_http};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::net::TcpSocket;

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
        let socket = bind(arguments.host, arguments.port)?;
        let address = socket.local_addr().context("cannot read the address that is listened on")?;
        let (model, engine_arguments) = (arguments.model.clone(), arguments.engine.clone());
        let (device, draft) = (arguments.device.clone(), arguments.draft.clone());
        let config = arguments.scheduling.apply(engine_arguments.config());
        let queue_max = waiting_max(arguments.connections);
        let config = EngineConfig { policy: arguments.policy, queue_max, ..config };
        let history = arguments.history.place(HistoryDefault::On);
        let embeddings = arguments.embeddings.clone();
        let start = move || {
            let cache = WeightCache::of(engine_arguments.weight_cache);
            let opened = |name: String| session::open_encoder(&name, engine_arguments.threads, cache.as_ref());
            let encoder = embeddings.map(opened).transpose()?;
            let config = EngineConfig { encoder: encoder.map(Arc::new), ..config };
            session::start_with(&model, &engine_arguments, (&device, &draft), history, config)
        };
        let starting = tokio::task::spawn_blocking(start);
        let engine = starting.await.context("loading the model failed")??;
        if arguments.lanes {
            print(&lanes::json(&engine)?)?;
        }
        let config = ServerConfig {
            aliases: aliases(arguments),
            keys,
            class_default: arguments.default_class.into(),
            prefix: arguments.volatile_prefix.into(),
            behind_answers: arguments.behind_answers.into(),
            loopback_only: address.ip().to_canonical().is_loopback(),
            hosts: Hosts::named(&arguments.allow_host),
            connections_max: arguments.connections,
            ..ServerConfig::default()
        };
        // The handlers stand before the address is told: whoever reads it may send SIGTERM at once.
        let shutdown = shutdown_signal()?;
        // Not before there is somebody to answer: until now whoever asks is refused, not left waiting.
        let listener = socket.listen(WAITING_TO_CONNECT).map_err(|error| cannot_listen(error, address))?;
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

/// An address that is this program's, and where nobody listens yet.
fn bind(host: IpAddr, port: u16) -> anyhow::Result<TcpSocket> {
    let address = SocketAddr::new(host, port);
    let bound = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // A server that was just stopped may begin again. (On Windows it would let two listen at once.)
        #[cfg(not(windows))]
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(socket)
    };
    bound().map_err(|error| cannot_listen(error, address))
}

fn cannot_listen(error: std::io::Error, address: SocketAddr) -> anyhow::Error {
    let (host, port) = (address.ip(), address.port());
    match error.kind() {
        ErrorKind::AddrInUse => {
            anyhow::anyhow!("port {port} on {host} is in use; stop what uses it or choose another with --port")
        }
        ErrorKind::AddrNotAvailable => BadInput(format!("--host {host} is no address of this machine")).into(),
        ErrorKind::PermissionDenied => {
            anyhow::anyhow!("not allowed to listen on port {port}; choose one above 1023 with --port")
        }
        _ => anyhow::Error::new(error).context(format!("cannot listen on {address}")),
    }
}

/// Connections that the system keeps until they are accepted, as many as the standard library has it keep.
const WAITING_TO_CONNECT: u32 = 1024;

/// Clients may ask for the model by the alias that the person used and by names that the person gave, beside the model's own.
fn aliases(arguments: &ServeArgs) -> Vec<String> {
    let used = models::is_alias(&arguments.model).then(|| arguments.model.clone());
    used.into_iter().chain(arguments.alias.iter().cloned()).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpStream};

    #[test]
    fn a_port_is_taken_at_once_and_answers_when_there_is_somebody() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _entered = runtime.enter();
        let host = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let socket = bind(host, 0).unwrap();
        let address = socket.local_addr().unwrap();
        assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        let _listener = socket.listen(WAITING_TO_CONNECT).unwrap();
        assert!(TcpStream::connect(address).is_ok());
        let error = bind(host, address.port()).unwrap_err();
        assert!(error.to_string().contains("is in use"), "{error}");
    }
}
