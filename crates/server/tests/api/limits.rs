//! Large bodies and many clients.

use crate::http::Connection;
use crate::{PATIENCE, Server};
use serde_json::json;
use std::time::Instant;

const CHAT: &str = "/v1/chat/completions";

/// A client that sends everything before it reads still gets to read the answer.
#[tokio::test]
async fn a_body_over_the_limit_is_refused_at_once() {
    let server = Server::start().await;
    let body = vec![b' '; 20 << 20];
    let started = Instant::now();
    let response = server.post_bytes(CHAT, &body).await;
    // Nobody waited for anything to run out.
    assert!(started.elapsed() < PATIENCE / 4, "took {:?}", started.elapsed());
    assert_eq!(response.status, 413);
    assert_eq!(response.json()["error"]["code"], "request_too_large");
    assert_eq!(response.json()["error"]["param"], json!(null));
    assert_eq!(server.get("/health").await.status, 200);
}

/// The length of a chunked body is not known before it is read.
#[tokio::test]
async fn a_chunked_body_over_the_limit_is_refused() {
    let server = Server::start().await;
    let mut connection = Connection::open(server.address).await;
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n");
    connection.write(head.as_bytes()).await;
    let chunk = [b"100000\r\n".as_slice(), &vec![b' '; 1 << 20], b"\r\n"].concat();
    for _ in 0..20 {
        connection.write(&chunk).await;
    }
    connection.write(b"0\r\n\r\n").await;
    assert_eq!(connection.response().await.status, 413);
    assert_eq!(server.get("/health").await.status, 200);
}

/// A declared length is enough; the client that asks first need not send.
#[tokio::test]
async fn a_client_that_asks_first_sends_nothing() {
    let server = Server::start().await;
    let mut connection = Connection::open(server.address).await;
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n");
    connection.write(format!("{head}content-length: 99999999999\r\n\r\n").as_bytes()).await;
    let response = connection.head().await;
    assert_eq!(response.status, 413);
    tokio::time::timeout(PATIENCE / 4, response.closed()).await.expect("the server does not wait for the body");
}

#[tokio::test]
async fn a_body_at_the_limit_is_read() {
    let server = Server::start().await;
    let mut body = json!({"messages": [{"role": "user", "content": "hi"}]}).to_string().into_bytes();
    body.resize(10 << 20, b' ');
    assert_eq!(server.post_bytes(CHAT, &body).await.status, 200);
}

#[tokio::test]
async fn a_body_that_breaks_off_does_no_harm() {
    let server = Server::start().await;
    let mut connection = Connection::open(server.address).await;
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n");
    connection.write(head.as_bytes()).await;
    connection.write(b"{\"messages\"").await;
    drop(connection);
    assert_eq!(server.get("/health").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_get_their_own_answers() {
    let server = Server::start().await;
    let ask = async |index: usize| {
        let mut body = json!({"prompt": format!("question {index}"), "max_tokens": 10});
        let whole = server.post("/v1/completions", &body).await.json();
        body["stream"] = true.into();
        let events = server.events("/v1/completions", &body).await;
        let text = crate::chunks(&events)
            .iter()
            .map(|chunk| chunk["choices"][0]["text"].as_str().expect("text").to_owned())
            .collect::<String>();
        assert_eq!(text, whole["choices"][0]["text"]);
        text
    };
    let all = futures_util::future::join_all((0..64).map(ask));
    let texts = tokio::time::timeout(PATIENCE, all).await.expect("in time");
    assert_ne!(texts[0], texts[1]);
}
