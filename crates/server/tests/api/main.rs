//! The API over real TCP, against a fake engine.

mod anthropic;
mod attacks;
mod call_pieces;
mod chat;
mod classes;
mod completions;
mod conform;
mod embeddings;
mod encoders;
mod errors;
mod fake;
mod flows;
mod http;
mod keys;
mod lifecycle;
mod limits;
mod local;
mod ollama;
mod reasoning;
mod responses;
mod scored_prompts;
mod several;
mod systemone;
mod tasks;
mod tokens;
mod tools;

use duet_engine::GenerateRequest;
use duet_server::ServerConfig;
use fake::Fake;
use http::{Connection, Incoming, Response};
use serde_json::Value;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A server on a free port, for as long as the test runs.
struct Server {
    address: SocketAddr,
    fake: Arc<Fake>,
    shutdown: oneshot::Sender<()>,
    serving: JoinHandle<io::Result<()>>,
}

impl Server {
    async fn start() -> Self {
        Self::with(Fake::default(), ServerConfig::default()).await
    }

    async fn with(fake: Fake, config: ServerConfig) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback exists");
        let address = listener.local_addr().expect("it is bound");
        let fake = Arc::new(fake);
        let (shutdown, signal) = oneshot::channel();
        let backend = Arc::clone(&fake);
        let signal = async { drop(signal.await) };
        let serving = tokio::spawn(duet_server::serve(listener, backend, config, signal));
        Self { address, fake, shutdown, serving }
    }

    async fn get(&self, path: &str) -> Response {
        self.ask(&format!("GET {path}"), &[], None).await
    }

    /// Sends a request with these headers, and with a body if there is one.
    async fn ask(&self, head: &str, headers: &[(&str, &str)], body: Option<&Value>) -> Response {
        let body = body.map(Value::to_string);
        self.answer(head, headers, body.as_ref().map(String::as_bytes)).await
    }

    /// Every whole answer is one that the server's own document describes.
    async fn answer(&self, head: &str, headers: &[(&str, &str)], body: Option<&[u8]>) -> Response {
        let response = Connection::send(self.address, head, headers, body).await.response().await;
        conform::check(head, &response);
        response
    }

    async fn post(&self, path: &str, body: &Value) -> Response {
        self.post_bytes(path, body.to_string().as_bytes()).await
    }

    async fn post_bytes(&self, path: &str, body: &[u8]) -> Response {
        self.answer(&format!("POST {path}"), &[], Some(body)).await
    }

    /// Sends a request and waits for the head of the response.
    async fn stream(&self, path: &str, body: &Value) -> Incoming {
        let body = body.to_string();
        Connection::send(self.address, &format!("POST {path}"), &[], Some(body.as_bytes())).await.head().await
    }

    /// The data of all events of a streamed response, `[DONE]` included.
    async fn events(&self, path: &str, body: &Value) -> Vec<String> {
        let mut incoming = self.stream(path, body).await;
        assert_eq!(incoming.status, 200);
        assert_eq!(incoming.header("content-type"), Some("text/event-stream"));
        let mut events = Vec::new();
        while let Some(event) = incoming.event().await {
            events.push(event);
        }
        events
    }

    fn last_request(&self) -> GenerateRequest {
        self.fake.requests.lock().expect("no test panicked").last().expect("something was submitted").clone()
    }

    /// Waits until this many unfinished generations have been dropped.
    async fn wait_for_cancelled(&self, count: usize) {
        let mut cancelled = self.fake.cancelled.subscribe();
        let waiting = cancelled.wait_for(|cancelled| *cancelled == count);
        tokio::time::timeout(PATIENCE, waiting).await.expect("in time").expect("the fake lives");
    }
}

/// All events but `[DONE]`, as JSON.
fn chunks(events: &[String]) -> Vec<Value> {
    let (done, chunks) = events.split_last().expect("there are events");
    assert_eq!(done, "[DONE]");
    chunks.iter().map(|chunk| serde_json::from_str(chunk).expect("chunks are JSON")).collect()
}

/// How long a test waits for what should come at once before it fails.
const PATIENCE: Duration = Duration::from_secs(20);
