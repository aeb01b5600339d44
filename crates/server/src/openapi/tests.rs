//! The document against the routes, and against what takes bodies apart.

use super::operations::{OPERATIONS, Operation};
use super::{fields, whole};
use crate::ServerConfig;
use crate::fake;
use crate::fields::tests::ASKED;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

#[path = "../../tests/api/http.rs"]
#[expect(dead_code, reason = "the tests of the API use the rest")]
mod http;

/// Where routes are made.
const SOURCES: [&str; 3] =
    [include_str!("../serve.rs"), include_str!("../ollama/mod.rs"), include_str!("../responses/mod.rs")];

#[test]
fn every_route_is_described_and_no_other() {
    let mut routes = BTreeSet::new();
    for made in SOURCES.iter().flat_map(|source| source.split(".route(\"").skip(1)) {
        let (path, methods) = made.split_once("\", ").expect("methods follow the path");
        let methods = methods.split_once('\n').map_or(methods, |(line, _)| line);
        let path = path.replace("{*", "{");
        for (method, call) in [("get", "get("), ("post", "post("), ("delete", "delete(")] {
            if methods.starts_with(call) || methods.contains(&format!(".{call}")) {
                routes.insert(format!("{method} {path}"));
            }
        }
    }
    let described: BTreeSet<String> = OPERATIONS.iter().map(|one| format!("{} {}", one.method, one.path)).collect();
    assert_eq!(described, routes);
    assert_eq!(described.len(), OPERATIONS.len(), "each is described once");
}

#[test]
fn every_field_is_described() {
    for Operation { path, takes, .. } in OPERATIONS {
        let Some(takes) = takes else { continue };
        for name in takes.fields() {
            assert!(fields::of(path, name).is_some(), "{path}: {name}");
        }
        assert!(takes.required.iter().all(|name| takes.fields().any(|field| field == *name)), "{path}");
    }
}

#[test]
fn every_schema_that_is_named_is_there() {
    let document = whole();
    let mut named = BTreeSet::new();
    collect(&document, &mut named);
    for reference in named {
        let pointer = reference.strip_prefix('#').expect("within the document");
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

fn collect(value: &Value, named: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            named.extend(map.get("$ref").and_then(Value::as_str).map(str::to_owned));
            map.values().for_each(|value| collect(value, named));
        }
        Value::Array(items) => items.iter().for_each(|value| collect(value, named)),
        _ => {}
    }
}

/// Each example is answered, and whoever takes it apart looks for exactly the fields that are described. Bodies are taken
/// apart on this thread, being small.
#[tokio::test]
async fn every_field_that_is_described_is_looked_for() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback exists");
    let address = listener.local_addr().expect("it is bound");
    let encoder = Some(fake::encoder("golden_bert_rank"));
    let backend = Arc::new(fake::Fake { encoder, ..fake::Fake::default() });
    let serving = crate::serve(listener, backend, ServerConfig::default(), std::future::pending());
    let serving = tokio::spawn(serving);
    for Operation { method, path, takes, .. } in OPERATIONS {
        let Some(takes) = takes else { continue };
        let mut body = (takes.example)();
        if body["model"] == "default" {
            body["model"] = "vendor/fake".into();
        }
        ASKED.take();
        let head = format!("{} {path}", method.to_uppercase());
        let response = http::Connection::send(address, &head, &[], Some(body.to_string().as_bytes())).await;
        let response = response.response().await;
        assert_eq!(
            (response.status, response.header("x-duet-ignored-fields")),
            (200, None),
            "{path}: {}",
            response.body
        );
        let described: BTreeSet<String> = takes.fields().map(str::to_owned).collect();
        assert_eq!(ASKED.take(), described, "{path}");
    }
    serving.abort();
}
