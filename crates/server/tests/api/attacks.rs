//! Requests that are made to cost the server more than they cost their sender.

use crate::fake::{Fake, Fault};
use crate::http::Connection;
use crate::{PATIENCE, Server};
use duet_engine::EngineError;
use duet_server::{ServerConfig, Times};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

fn hello() -> Value {
    json!({"messages": [{"role": "user", "content": "hi"}]})
}

/// `{"messages": …, NAME: [0,0,…]}` of so many bytes.
fn with_zeros(name: &str, bytes: usize) -> Vec<u8> {
    let zeros = "0,".repeat(bytes / 2);
    format!("{{\"messages\": [{{\"role\": \"user\", \"content\": \"hi\"}}], \"{name}\": [{zeros}0]}}").into_bytes()
}

async fn impatient(times: Times) -> Server {
    Server::with(Fake::default(), ServerConfig { times, ..ServerConfig::default() }).await
}

const SHORT: Duration = Duration::from_millis(300);

/// Waits until the server has hung up.
async fn wait_for_end(connection: Connection) {
    tokio::time::timeout(PATIENCE, connection.end()).await.expect("the server does not wait for good");
}

#[tokio::test]
async fn a_field_that_nobody_knows_is_skipped() {
    let server = Server::start().await;
    let response = server.post_bytes(CHAT, &with_zeros("x", 10_000_000)).await;
    assert_eq!(response.status, 200);
    assert_eq!(response.header("x-duet-ignored-fields"), Some("x"));
}

#[tokio::test]
async fn values_of_fields_that_are_known_are_counted() {
    let server = Server::start().await;
    for name in ["metadata", "stop", "logit_bias", "tools", "prediction"] {
        let response = server.post_bytes(CHAT, &with_zeros(name, 1_000_000)).await;
        assert_eq!(response.status, 413, "{name}");
        assert_eq!(response.json()["error"]["code"], "request_too_large");
    }
    // A prompt of tokens has a value for each.
    let tokens = vec![65; 4000];
    assert_eq!(server.post(COMPLETIONS, &json!({"prompt": tokens})).await.status, 200);
}

#[tokio::test]
async fn a_prompt_that_is_too_long_is_refused_by_its_length() {
    let server = Server::start().await;
    let long = "a ".repeat(4_000_000);
    let bodies = [
        (CHAT, json!({"messages": [{"role": "user", "content": long}]}), "messages"),
        (COMPLETIONS, json!({"prompt": long}), "prompt"),
        (COMPLETIONS, json!({"prompt": vec![65; 4096]}), "prompt"),
    ];
    for (path, body, param) in bodies {
        let response = server.post(path, &body).await;
        assert_eq!(response.status, 400);
        let error = &response.json()["error"];
        assert_eq!(error["code"], "context_length_exceeded");
        assert_eq!(error["param"], param);
        let message = error["message"].as_str().expect("a text");
        assert!(message.contains("maximum context length is 4096 tokens"), "{message}");
    }
    assert!(server.fake.requests.lock().expect("no test panicked").is_empty());
}

#[tokio::test]
async fn more_than_an_answer_could_use_is_no_prediction() {
    let server = Server::start().await;
    let predicting = |bytes: usize, max_tokens: u32| {
        let mut body = hello();
        body["prediction"] = json!({"type": "content", "content": "x".repeat(bytes)});
        body["max_tokens"] = max_tokens.into();
        body
    };
    assert_eq!(server.post(CHAT, &predicting(4 * 500, 500)).await.status, 200);
    assert_eq!(server.last_request().predicted.len(), 2000);
    for (bytes, max_tokens) in [(4 * 500 + 1, 500), (9_500_000, 4000)] {
        let response = server.post(CHAT, &predicting(bytes, max_tokens)).await;
        assert_eq!(response.status, 400);
        assert_eq!(response.json()["error"]["param"], "prediction");
    }
}

/// When the queue is full a prompt is not worth being read.
#[tokio::test]
async fn a_full_queue_refuses_before_tokenising() {
    let fault = Fault::Full(EngineError::Busy { queued: 1024 });
    let server = Server::with(Fake { fault, ..Fake::default() }, ServerConfig::default()).await;
    let response = server.post(CHAT, &hello()).await;
    assert_eq!(response.status, 429);
    assert_eq!(response.header("retry-after"), Some("1"));
    assert_eq!(*server.fake.encoded.lock().expect("no test panicked"), 0);
}

#[tokio::test]
async fn stop_strings_are_short() {
    let server = Server::start().await;
    let with_stop = |bytes: usize| {
        let mut body = hello();
        body["stop"] = json!(["x".repeat(bytes)]);
        body
    };
    assert_eq!(server.post(CHAT, &with_stop(1024)).await.status, 200);
    let response = server.post(CHAT, &with_stop(400_000)).await;
    assert_eq!(response.status, 400);
    assert_eq!(response.json()["error"]["param"], "stop");
}

#[tokio::test]
async fn a_head_that_does_not_come_is_not_waited_for() {
    let server = impatient(Times { head: SHORT, ..Times::default() }).await;
    let mut one_byte = Connection::open(server.address).await;
    one_byte.write(b"P").await;
    let nothing = Connection::open(server.address).await;
    wait_for_end(one_byte).await;
    wait_for_end(nothing).await;
    assert_eq!(server.post(CHAT, &hello()).await.status, 200);
}

#[tokio::test]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{{");
    let paused = Times { body_pause: SHORT, ..Times::default() };
    let slow = Times { body: SHORT, ..Times::default() };
    for times in [paused, slow] {
        let server = impatient(times).await;
        let mut connection = Connection::open(server.address).await;
        connection.write(head.as_bytes()).await;
        let response = tokio::time::timeout(PATIENCE, connection.response()).await.expect("in time");
        assert_eq!(response.status, 408);
        assert_eq!(response.json()["error"]["code"], "request_timeout");
    }
}

#[tokio::test]
async fn connections_that_say_nothing_make_room() {
    let config = ServerConfig { connections_max: 8, ..ServerConfig::default() };
    let server = Server::with(Fake::default(), config).await;
    let mut silent = Vec::new();
    for _ in 0..50 {
        let mut connection = Connection::open(server.address).await;
        connection.write(b"P").await;
        silent.push(connection);
    }
    assert_eq!(server.post(CHAT, &hello()).await.status, 200);
    for connection in silent.drain(..40) {
        wait_for_end(connection).await;
    }
}

#[tokio::test]
async fn answers_under_way_keep_their_connections() {
    let gate = Arc::new(Semaphore::new(0));
    let fake = Fake { gate: Some(Arc::clone(&gate)), ..Fake::default() };
    let server = Server::with(fake, ServerConfig { connections_max: 2, ..ServerConfig::default() }).await;
    let mut streaming = hello();
    streaming["stream"] = true.into();
    let mut first = server.stream(CHAT, &streaming).await;
    let _second = server.stream(CHAT, &streaming).await;
    let refused = server.get("/health").await;
    assert_eq!(refused.status, 503);
    assert_eq!(refused.json()["error"]["code"], "too_many_connections");
    gate.add_permits(1000);
    while first.event().await.is_some() {}
    drop(first);
    assert_eq!(server.get("/health").await.status, 200);
}

/// Bodies on their way hold memory together, and small ones need none of it.
#[tokio::test]
async fn large_bodies_share_a_bounded_memory() {
    let config = ServerConfig { intake_bytes_max: 1 << 20, ..ServerConfig::default() };
    let server = Server::with(Fake::default(), config).await;
    let mut holding = Connection::open(server.address).await;
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 900000\r\n\r\n");
    holding.write(head.as_bytes()).await;
    let mut large = hello().to_string().into_bytes();
    large.resize(900_000, b' ');
    // The one that came first has its share as soon as its head was read.
    loop {
        let response = server.post_bytes(CHAT, &large).await;
        if response.status == 429 {
            assert_eq!(response.header("retry-after"), Some("1"));
            break;
        }
        assert_eq!(response.status, 200);
    }
    assert_eq!(server.post(CHAT, &hello()).await.status, 200);
    drop(holding);
    while server.post_bytes(CHAT, &large).await.status == 429 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
