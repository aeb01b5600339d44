//! API keys: who is let in, and as whom.

use crate::Server;
use crate::fake::Fake;
use crate::http::Response;
use duet_engine::UserName;
use duet_server::{ApiKeys, ServerConfig};
use duet_types::TenantId;
use serde_json::{Value, json};

const COMPLETIONS: &str = "POST /v1/completions";

pub(crate) async fn locked() -> Server {
    let keys = ApiKeys::parse("ann:sk-ann\nben:sk-ben\nadmin root:sk-root").expect("a list of keys");
    Server::with(Fake::default(), ServerConfig { keys, ..ServerConfig::default() }).await
}

fn assert_stranger(response: &Response, message: &str) {
    assert_eq!(response.status, 401, "{}", response.body);
    assert_eq!(response.header("www-authenticate"), Some("Bearer"));
    let error = &response.json()["error"];
    assert_eq!(error["type"], "invalid_request_error");
    assert_eq!(error["code"], "invalid_api_key");
    assert_eq!(error["param"], Value::Null);
    assert!(error["message"].as_str().expect("a message").contains(message), "{error}");
}

#[tokio::test]
async fn every_route_but_those_that_tell_of_nobody_needs_a_key() {
    let server = locked().await;
    let body = json!({"prompt": "hi"});
    for (head, body) in [
        ("POST /v1/chat/completions", Some(&body)),
        (COMPLETIONS, Some(&body)),
        ("POST /v1/embeddings", Some(&body)),
        ("GET /v1/models", None),
        ("GET /v1/models/vendor/fake", None),
        ("GET /v1/flows", None),
        ("GET /metrics", None),
    ] {
        assert_stranger(&server.ask(head, &[], body).await, "Authorization: Bearer KEY");
        for wrong in ["Bearer sk-an", "Bearer sk-ann2", "Bearer ann:sk-ann"] {
            assert_stranger(&server.ask(head, &[("authorization", wrong)], body).await, "none of this server's");
        }
        for other in ["Basic sk-ann", "sk-ann", "Bearer", "Bearer  "] {
            assert_stranger(&server.ask(head, &[("authorization", other)], body).await, "Authorization: Bearer KEY");
        }
    }
    assert!(server.fake.requests.lock().expect("no test panicked").is_empty());
    assert_eq!(server.get("/health").await.status, 200);
    assert_eq!(server.get("/openapi.json").await.json()["openapi"], "3.1.0");
    assert_eq!(server.get("/nothing").await.status, 404);
}

#[tokio::test]
async fn each_key_is_a_tenant() {
    let server = locked().await;
    let body = json!({"prompt": "hi", "max_tokens": 1});
    for (key, tenant) in [("Bearer sk-ann", 1), ("bearer sk-ben", 2), ("Bearer sk-root", 3)] {
        assert_eq!(server.ask(COMPLETIONS, &[("authorization", key)], Some(&body)).await.status, 200);
        assert_eq!(server.last_request().tenant, TenantId(tenant));
        let name = ["ann", "ben", "root"][tenant as usize - 1];
        assert_eq!(server.last_request().user, UserName::named(name));
    }
    assert_eq!(server.ask("GET /v1/models", &[("authorization", "Bearer sk-ann")], None).await.status, 200);
}

/// Clients that need no key send one all the same.
#[tokio::test]
async fn without_keys_any_will_do_and_there_is_one_tenant() {
    let server = Server::start().await;
    let body = json!({"prompt": "hi", "max_tokens": 1});
    for headers in [&[][..], &[("authorization", "Bearer none")]] {
        assert_eq!(server.ask(COMPLETIONS, headers, Some(&body)).await.status, 200);
        assert_eq!(server.last_request().tenant, TenantId::default());
        assert_eq!(server.last_request().user, UserName::default());
    }
}

/// A client that sends everything before it reads gets to read the refusal.
#[tokio::test]
async fn a_stranger_with_a_large_body_is_told() {
    let body = json!({"prompt": "x".repeat(8 << 20)});
    assert_stranger(&locked().await.ask(COMPLETIONS, &[], Some(&body)).await, "Authorization");
}
