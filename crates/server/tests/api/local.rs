//! By which names a server can be addressed, and by which pages.

use crate::Server;
use crate::fake::Fake;
use crate::http::{Connection, Response};
use duet_server::{Hosts, ServerConfig};

async fn get(server: &Server, headers: &[(&str, &str)]) -> Response {
    Connection::send(server.address, "GET /v1/models", headers, None).await.response().await
}

async fn local() -> Server {
    Server::with(Fake::default(), ServerConfig { loopback_only: true, ..ServerConfig::default() }).await
}

#[tokio::test]
async fn a_rebound_name_is_refused() {
    // On loopback, and on every other address.
    for server in [local().await, Server::start().await] {
        for host in ["localhost", "localhost:8080", "127.0.0.1:8080", "[::1]:8080", "192.168.0.2:8080"] {
            assert_eq!(get(&server, &[("host", host)]).await.status, 200, "{host}");
        }
        let response = get(&server, &[("host", "evil.example:8080")]).await;
        assert_eq!(response.status, 403);
        assert_eq!(response.json()["error"]["code"], "host_not_allowed");
        let message = response.json()["error"]["message"].as_str().expect("a text").to_owned();
        assert!(message.contains("--allow-host evil.example`"), "{message}");
    }
}

#[tokio::test]
async fn ollamas_clients_read_the_refusal_as_well() {
    let server = local().await;
    let refused = Connection::send(server.address, "GET /api/tags", &[("host", "evil.example")], None).await;
    let response = refused.response().await;
    assert_eq!(response.status, 403);
    assert!(response.json()["error"].as_str().is_some_and(|text| text.contains("evil.example")), "{}", response.body);
}

#[tokio::test]
async fn names_that_were_allowed_are_answered() {
    let named = Hosts::Named(vec!["duet.example".to_owned()]);
    let server = Server::with(Fake::default(), ServerConfig { hosts: named, ..ServerConfig::default() }).await;
    let page = [("host", "duet.example"), ("origin", "https://duet.example")];
    assert_eq!(get(&server, &page).await.status, 200);
    assert_eq!(get(&server, &[("host", "evil.example")]).await.status, 403);
    let server = Server::with(Fake::default(), ServerConfig { hosts: Hosts::Any, ..ServerConfig::default() }).await;
    assert_eq!(get(&server, &[("host", "evil.example")]).await.status, 200);
}

#[tokio::test]
async fn foreign_pages_are_refused_and_local_ones_may_read() {
    let server = local().await;
    for origin in ["https://evil.example", "null", "http://localhost.evil.example"] {
        let response = get(&server, &[("origin", origin)]).await;
        assert_eq!(response.status, 403, "{origin}");
        assert_eq!(response.header("access-control-allow-origin"), None);
    }
    let response = get(&server, &[("origin", "http://localhost:3000")]).await;
    assert_eq!(response.status, 200);
    assert_eq!(response.header("access-control-allow-origin"), Some("http://localhost:3000"));
}

#[tokio::test]
async fn a_browser_may_ask_before_it_sends() {
    let server = local().await;
    let headers = [
        ("origin", "http://127.0.0.1:3000"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization,content-type"),
    ];
    let response = Connection::send(server.address, "OPTIONS /v1/chat/completions", &headers, None);
    let response = response.await.response().await;
    assert_eq!(response.status, 204);
    assert_eq!(response.header("access-control-allow-origin"), Some("http://127.0.0.1:3000"));
    assert_eq!(response.header("access-control-allow-headers"), Some("authorization,content-type"));
}
