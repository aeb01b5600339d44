//! Who ends a generation: the client that hangs up, or the server that shuts down.

use crate::fake::Fake;
use crate::http::Connection;
use crate::{PATIENCE, Server, chunks};
use duet_server::ServerConfig;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// A server whose engine generates as many tokens as the test permits.
async fn gated(permits: usize, grace: Duration) -> (Server, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(permits));
    let fake = Fake { gate: Some(Arc::clone(&gate)), ..Fake::default() };
    (Server::with(fake, ServerConfig { shutdown_grace: grace, ..ServerConfig::default() }).await, gate)
}

/// Waits until the engine has taken this many requests.
async fn wait_for_submitted(server: &Server, count: usize) {
    let submitted = async {
        while server.fake.requests.lock().expect("no test panicked").len() < count {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, submitted).await.expect("in time");
}

fn request(stream: bool) -> Value {
    json!({"messages": [{"role": "user", "content": "hi"}], "stream": stream, "max_tokens": 4})
}

#[tokio::test]
async fn hanging_up_on_a_stream_cancels_the_work() {
    let (server, _gate) = gated(2, Duration::ZERO).await;
    let mut incoming = server.stream("/v1/chat/completions", &request(true)).await;
    for _ in 0..3 {
        assert!(incoming.event().await.expect("an event").contains("delta"));
    }
    drop(incoming);
    server.wait_for_cancelled(1).await;
}

#[tokio::test]
async fn hanging_up_before_the_first_token_cancels_the_work() {
    let (server, _gate) = gated(0, Duration::ZERO).await;
    let incoming = server.stream("/v1/chat/completions", &request(true)).await;
    assert_eq!(incoming.status, 200, "the head comes before the first token");
    drop(incoming);
    server.wait_for_cancelled(1).await;
}

#[tokio::test]
async fn hanging_up_on_a_whole_answer_cancels_the_work() {
    let (server, _gate) = gated(1, Duration::ZERO).await;
    let body = request(false).to_string();
    let head = "POST /v1/chat/completions";
    let connection = Connection::send(server.address, head, &[], Some(body.as_bytes())).await;
    wait_for_submitted(&server, 1).await;
    assert_eq!(*server.fake.cancelled.borrow(), 0);
    drop(connection);
    server.wait_for_cancelled(1).await;
    assert_eq!(server.get("/health").await.status, 200);
}

#[tokio::test]
async fn shutdown_lets_work_finish() {
    let (server, gate) = gated(1, PATIENCE).await;
    let mut incoming = server.stream("/v1/chat/completions", &request(true)).await;
    let mut events = vec![incoming.event().await.expect("the role")];
    server.shutdown.send(()).expect("it runs");
    gate.add_permits(3);
    while let Some(event) = incoming.event().await {
        events.push(event);
    }
    let chunks = chunks(&events);
    assert_eq!(chunks.last().expect("chunks")["choices"][0]["finish_reason"], "length");
    tokio::time::timeout(PATIENCE, server.serving).await.expect("in time").expect("no panic").expect("no error");
}

#[tokio::test]
async fn shutdown_refuses_new_work_on_open_connections() {
    let (server, gate) = gated(1, PATIENCE).await;
    let body = request(false).to_string();
    // A request whose body is under way when the signal comes.
    let mut late = Connection::open(server.address).await;
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n";
    late.write(format!("{head}content-length: {}\r\n\r\n", body.len()).as_bytes()).await;
    // The server asks for the body, so the request has reached it; the answer is still to come.
    let (status, mut late) = late.interim().await;
    assert_eq!(status, 100);
    let early = server.stream("/v1/chat/completions", &request(true)).await;
    server.shutdown.send(()).expect("it runs");
    let refused = async {
        while tokio::net::TcpStream::connect(server.address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, refused).await.expect("no new connections");
    late.write(body.as_bytes()).await;
    let response = late.response().await;
    assert_eq!(response.status, 503);
    assert_eq!(response.json()["error"]["code"], "shutting_down");
    assert_eq!(server.fake.requests.lock().expect("no test panicked").len(), 1, "the engine did not see it");
    gate.add_permits(3);
    drop(early);
}

#[tokio::test]
async fn shutdown_ends_what_does_not_finish() {
    let (server, _gate) = gated(1, Duration::ZERO).await;
    let mut incoming = server.stream("/v1/chat/completions", &request(true)).await;
    for _ in 0..2 {
        assert!(incoming.event().await.expect("an event").contains("delta"));
    }
    server.shutdown.send(()).expect("it runs");
    let error: Value = serde_json::from_str(&incoming.event().await.expect("an error")).expect("JSON");
    assert_eq!(error["error"]["code"], "shutting_down");
    assert_eq!(incoming.event().await, None);
    tokio::time::timeout(PATIENCE, server.serving).await.expect("in time").expect("no panic").expect("no error");
    assert_eq!(*server.fake.cancelled.borrow(), 1);
}
