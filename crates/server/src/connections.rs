//! Connections: how many there are, how long each may keep the server waiting, and how they end.
//!
//! A connection *waits* while the server waits for its client: between requests, and until a request has come whole. Else
//! it *works*. Waiting is bounded ([`Times`]), so that clients that send a byte and no more are gone after a while. Before
//! that they are in nobody's way: where there are as many connections as there may be, the one that has waited longest
//! makes room for a new one. Only if all of them work is a new one refused (503).

use crate::config::Times;
use crate::error::ApiError;
use crate::patience::Patience;
use crate::serve::Phase;
use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use http_body::{Frame, SizeHint};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

/// Serves connections until the server drains, and those that are open to their ends. Dropped, it breaks them off.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    (max, times): (usize, Times),
    mut phase: watch::Receiver<Phase>,
) -> io::Result<()> {
    let connections = Arc::new(Connections { max, table: Mutex::default() });
    let mut open = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            // The sender lives as long as the server; should it be gone, there is nothing to wait for either.
            _ = phase.wait_for(|phase| *phase != Phase::Serving) => break,
            Some(_) = open.join_next(), if !open.is_empty() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => match connections.admit() {
                Some(slot) => drop(open.spawn(converse(stream, router.clone(), slot, times, phase.clone()))),
                None => refuse(&stream),
            },
            Err(error) if is_of_one_client(&error) => {}
            Err(error) => {
                // Out of file handles, most likely; some come back as connections end.
                tracing::warn!(%error, "cannot accept connections");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    while open.join_next().await.is_some() {}
    Ok(())
}

/// One connection, to its end.
async fn converse(stream: TcpStream, router: Router, slot: Arc<Slot>, times: Times, mut phase: watch::Receiver<Phase>) {
    // A token is a small packet, and it must not wait for the client to acknowledge the one before.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "no TCP_NODELAY");
    }
    let stream = TokioIo::new(Patience::new(stream, times.write));
    let router = router.layer(from_fn_with_state(Arc::clone(&slot), follow));
    let mut connection = std::pin::pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(times.head)
            .max_buf_size(READ_BUFFER_MAX)
            .serve_connection(stream, TowerToHyperService::new(router))
    );
    let mut is_draining = false;
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection broke off");
                }
                return;
            }
            () = slot.makes_room.notified() => return,
            _ = phase.wait_for(|phase| *phase != Phase::Serving), if !is_draining => {
                is_draining = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// Middleware around all routes: keeps track of whether the connection waits or works.
async fn follow(State(slot): State<Arc<Slot>>, mut request: Request, next: Next) -> Response {
    let arrival = Arrival(Arc::clone(&slot));
    if request.body().is_end_stream() {
        arrival.is_whole();
    }
    request.extensions_mut().insert(arrival);
    let response = next.run(request).await;
    // A refusal is work as well, until it is sent.
    slot.set(Doing::Works);
    response.map(|body| Body::new(Sending { body, _slot: WaitsAfter(slot) }))
}

/// Where a request says that it has come whole.
#[derive(Clone, Debug)]
pub(crate) struct Arrival(Arc<Slot>);

impl Arrival {
    /// From now on it is the server that works.
    pub(crate) fn is_whole(&self) {
        self.0.set(Doing::Works);
    }
}

/// The connections there are.
#[derive(Debug)]
struct Connections {
    max: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    open: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    doing: Doing,
    makes_room: Arc<Notify>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Waits { since: Instant },
    Works,
}

/// A connection's place among the others, given up when it is dropped.
#[derive(Debug)]
struct Slot {
    id: u64,
    connections: Arc<Connections>,
    /// It is asked to end, for another.
    makes_room: Arc<Notify>,
}

impl Connections {
    /// A place for a connection; nothing if all others work.
    fn admit(self: &Arc<Self>) -> Option<Arc<Slot>> {
        let mut table = self.table();
        if table.open.len() >= self.max {
            let waiting = table.open.iter().filter_map(|(id, entry)| match entry.doing {
                Doing::Waits { since } => Some((since, *id)),
                Doing::Works => None,
            });
            let (_, longest) = waiting.min()?;
            table.open.remove(&longest)?.makes_room.notify_one();
        }
        let id = table.next;
        table.next += 1;
        let makes_room = Arc::new(Notify::new());
        let doing = Doing::Waits { since: Instant::now() };
        table.open.insert(id, Entry { doing, makes_room: Arc::clone(&makes_room) });
        Some(Arc::new(Slot { id, connections: Arc::clone(self), makes_room }))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    fn set(&self, doing: Doing) {
        if let Some(entry) = self.connections.table().open.get_mut(&self.id) {
            entry.doing = doing;
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.connections.table().open.remove(&self.id);
    }
}

/// The body of a response on its way; when it is sent or given up, the connection waits again.
struct Sending {
    body: Body,
    _slot: WaitsAfter,
}

struct WaitsAfter(Arc<Slot>);

impl Drop for WaitsAfter {
    fn drop(&mut self) {
        self.0.set(Doing::Waits { since: Instant::now() });
    }
}

impl HttpBody for Sending {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Says why before it hangs up, as far as the client's socket takes that at once.
fn refuse(stream: &TcpStream) {
    let body = ApiError::TooManyConnections.body().to_string();
    let length = body.len();
    let head =
        "HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-type: application/json";
    let response = format!("{head}\r\ncontent-length: {length}\r\n\r\n{body}");
    if let Err(error) = stream.try_write(response.as_bytes()) {
        tracing::debug!(%error, "a connection was refused without a word");
    }
}

/// Errors of accepting that concern the connection that was to be accepted, and no other.
fn is_of_one_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// How long to wait when nothing can be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Each connection may hold this much of what it sent, its head among it.
const READ_BUFFER_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(max: usize) -> Arc<Connections> {
        Arc::new(Connections { max, table: Mutex::default() })
    }

    #[tokio::test]
    async fn the_connection_that_waits_longest_makes_room() {
        let connections = connections(3);
        let slots: Vec<Arc<Slot>> = (0..3).map(|_| connections.admit().expect("there is room")).collect();
        slots[0].set(Doing::Works);
        let fourth = connections.admit().expect("one waits");
        slots[1].makes_room.notified().await;
        slots[2].set(Doing::Works);
        fourth.set(Doing::Works);
        assert!(connections.admit().is_none(), "all work");
        drop(WaitsAfter(Arc::clone(&slots[0])));
        assert!(connections.admit().is_some());
        slots[0].makes_room.notified().await;
    }

    #[test]
    fn a_connection_that_ended_has_no_place() {
        let connections = connections(1);
        let slot = connections.admit().expect("there is room");
        slot.set(Doing::Works);
        assert!(connections.admit().is_none());
        drop(slot);
        assert!(connections.admit().is_some());
    }
}
