//! What the server shows of the engine: flows and metrics.

use crate::Server;
use crate::fake::Fake;
use crate::keys::locked;
use duet_engine::FlowKey;
use duet_server::ServerConfig;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Semaphore;

const COMPLETIONS: &str = "/v1/completions";

async fn local(fake: Fake) -> Server {
    Server::with(fake, ServerConfig { loopback_only: true, ..ServerConfig::default() }).await
}

fn hello(key: &str) -> Value {
    json!({"prompt": "hello", "max_tokens": 1, "prompt_cache_key": key})
}

#[tokio::test]
async fn the_cache_key_names_the_flow() {
    let server = Server::start().await;
    assert_eq!(server.post(COMPLETIONS, &hello("chat-7")).await.status, 200);
    assert_eq!(server.last_request().flow, Some(FlowKey("chat-7".into())));
    server.post(COMPLETIONS, &json!({"prompt": "hello", "prompt_cache_key": null})).await;
    assert_eq!(server.last_request().flow, None);
}

#[tokio::test]
async fn flows_have_their_requests_and_what_is_kept() {
    let gate = Arc::new(Semaphore::new(1));
    let server = local(Fake { gate: Some(gate), ..Fake::default() }).await;
    // The first takes the one permit and ends; the second waits.
    server.post(COMPLETIONS, &hello("a")).await;
    let mut body = hello("a");
    body["stream"] = true.into();
    body["background"] = true.into();
    let waiting = server.stream(COMPLETIONS, &body).await;
    assert_eq!(waiting.status, 200);

    let list = server.get("/v1/flows").await.json();
    let expected = json!({
        "object": "list",
        "data": [{
            "object": "flow", "id": 0, "key": "a", "tenant": null,
            "requests": [{
                "id": 1, "class": "proactive", "status": "queued", "stage": null,
                "prompt_tokens": 5, "computed_tokens": 0, "generated_tokens": 0, "node": 0, "age_ms": 1.5,
            }],
            "kept": [{"tokens": 5, "pages": 1, "place": "memory"}],
        }],
    });
    assert_eq!(list, expected);
}

#[tokio::test]
async fn a_key_sees_its_own_flows_and_an_admin_all() {
    let server = locked().await;
    let as_key = |key: &'static str| [("authorization", key)];
    let (ann, ben, root) = (as_key("Bearer sk-ann"), as_key("Bearer sk-ben"), as_key("Bearer sk-root"));
    let post = format!("POST {COMPLETIONS}");
    // The same name is another flow for another tenant.
    for headers in [&ann, &ben, &ben] {
        assert_eq!(server.ask(&post, headers, Some(&hello("same"))).await.status, 200);
    }
    for (headers, names) in [(&ann, &["ann"][..]), (&ben, &["ben"]), (&root, &["ann", "ben"])] {
        let list = server.ask("GET /v1/flows", headers, None).await.json();
        let flows = list["data"].as_array().expect("a list");
        assert_eq!(flows.iter().map(|flow| flow["tenant"].as_str().expect("a name")).collect::<Vec<_>>(), names);
        assert!(flows.iter().all(|flow| flow["key"] == "same"));
    }
}

/// Without keys nobody can be told apart; what other machines ask is not for them to see.
#[tokio::test]
async fn without_keys_flows_are_shown_on_loopback_only() {
    assert_eq!(local(Fake::default()).await.get("/v1/flows").await.json(), json!({"object": "list", "data": []}));
    let response = Server::start().await.get("/v1/flows").await;
    assert_eq!(response.status, 403);
    assert_eq!(response.json()["error"]["code"], "keys_needed");
}

#[tokio::test]
async fn metrics_are_prometheus_text() {
    let server = Server::start().await;
    server.post(COMPLETIONS, &hello("a")).await;
    let response = server.get("/metrics").await;
    assert_eq!(response.status, 200);
    assert!(response.header("content-type").expect("a type").starts_with("application/openmetrics-text; version=1.0"));
    assert_eq!(response.body, "# TYPE fake_requests counter\nfake_requests_total 1\n# EOF\n");
}
