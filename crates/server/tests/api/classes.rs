//! Which class a request gets, and what it is told of it.

use crate::fake::Fake;
use crate::{Server, chunks};
use duet_server::ServerConfig;
use duet_types::Class::{self, Proactive, Reactive};
use serde_json::{Value, json};

const COMPLETIONS: &str = "/v1/completions";

fn hello(more: &Value) -> Value {
    let mut body = json!({"prompt": "hello", "max_tokens": 2});
    body.as_object_mut().expect("an object").extend(more.as_object().expect("fields").clone());
    body
}

async fn serving(class_default: Class) -> Server {
    Server::with(Fake::default(), ServerConfig { class_default, ..ServerConfig::default() }).await
}

#[tokio::test]
async fn every_convention_chooses_the_class_and_the_tier_served_is_echoed() {
    let server = Server::start().await;
    for (fields, class, tier) in [
        (json!({}), Reactive, "default"),
        (json!({"service_tier": null, "background": null, "priority": null}), Reactive, "default"),
        (json!({"service_tier": "auto"}), Reactive, "default"),
        (json!({"service_tier": "default"}), Reactive, "default"),
        (json!({"service_tier": "priority"}), Reactive, "priority"),
        (json!({"service_tier": "flex"}), Proactive, "flex"),
        (json!({"background": false}), Reactive, "default"),
        (json!({"background": true}), Proactive, "flex"),
        (json!({"service_tier": "auto", "background": true}), Proactive, "flex"),
        (json!({"service_tier": "flex", "background": false}), Proactive, "flex"),
        (json!({"priority": i64::MIN}), Reactive, "default"),
        (json!({"priority": -1}), Reactive, "default"),
        (json!({"priority": 0}), Reactive, "default"),
        (json!({"priority": 1}), Proactive, "flex"),
        (json!({"priority": u64::MAX}), Proactive, "flex"),
        (json!({"service_tier": "priority", "priority": -5}), Reactive, "priority"),
        (json!({"service_tier": "flex", "background": true, "priority": 3}), Proactive, "flex"),
    ] {
        let answer = server.post(COMPLETIONS, &hello(&fields)).await.json();
        assert_eq!((server.last_request().class, &answer["service_tier"]), (class, &json!(tier)), "{fields}");
    }
}

#[tokio::test]
async fn every_chunk_of_a_stream_has_the_tier() {
    let server = Server::start().await;
    for (fields, tier) in [(json!({"stream": true}), "default"), (json!({"stream": true, "background": true}), "flex")]
    {
        let chunks = chunks(&server.events(COMPLETIONS, &hello(&fields)).await);
        assert!(chunks.iter().all(|chunk| chunk["service_tier"] == tier), "{chunks:?}");
    }
}

#[tokio::test]
async fn what_leaves_the_class_open_gets_the_servers_default() {
    let server = serving(Proactive).await;
    for (fields, class, tier) in [
        (json!({}), Proactive, "flex"),
        (json!({"service_tier": "auto"}), Proactive, "flex"),
        (json!({"service_tier": "default", "background": false}), Proactive, "flex"),
        (json!({"service_tier": "priority"}), Reactive, "priority"),
        (json!({"priority": 0}), Reactive, "default"),
    ] {
        let answer = server.post(COMPLETIONS, &hello(&fields)).await.json();
        assert_eq!((server.last_request().class, &answer["service_tier"]), (class, &json!(tier)), "{fields}");
    }
}

#[tokio::test]
async fn the_header_speaks_where_the_body_does_not() {
    for (default, header, fields, class) in [
        (Reactive, "proactive", json!({}), Proactive),
        (Reactive, "proactive", json!({"service_tier": "auto", "background": false}), Proactive),
        (Reactive, "proactive", json!({"service_tier": "priority"}), Reactive),
        (Reactive, "proactive", json!({"priority": 0}), Reactive),
        (Reactive, "reactive", json!({"background": true}), Proactive),
        (Proactive, "reactive", json!({}), Reactive),
    ] {
        let server = serving(default).await;
        let headers = [("x-duet-class", header)];
        let response = server.ask(&format!("POST {COMPLETIONS}"), &headers, Some(&hello(&fields))).await;
        assert_eq!(response.status, 200);
        assert_eq!(server.last_request().class, class, "{header} {fields}");
    }
}

#[tokio::test]
async fn a_header_that_means_nothing_is_refused() {
    let server = Server::start().await;
    let twice = [("x-duet-class", "reactive"), ("x-duet-class", "proactive")];
    for headers in [&[("x-duet-class", "urgent")][..], &[("x-duet-class", "")], &[("x-duet-class", "é")], &twice] {
        // Even where the body would have had the last word.
        for fields in [json!({}), json!({"background": true})] {
            let response = server.ask(&format!("POST {COMPLETIONS}"), headers, Some(&hello(&fields))).await;
            let error = &response.json()["error"];
            assert_eq!((response.status, &error["param"]), (400, &json!("x-duet-class")), "{headers:?}");
            assert!(error["message"].as_str().expect("a message").contains("reactive or proactive"), "{error}");
        }
    }
}
