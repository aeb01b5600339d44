//! `POST /v1/embeddings`, and Ollama's two routes for the same.

use crate::fake::{EMBEDDING_WIDTH, Fake, Fault, embedding};
use crate::{Connection, Server};
use duet_engine::{EngineError, Output, Remember};
use duet_server::ServerConfig;
use duet_types::{Class, TokenId, Tokens};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Semaphore;

const PATH: &str = "/v1/embeddings";

fn tokens(text: &str) -> Vec<TokenId> {
    text.bytes().map(|byte| TokenId(u32::from(byte))).collect()
}

fn floats(value: &Value) -> Vec<f32> {
    value.as_array().expect("a vector").iter().map(|x| x.as_f64().expect("a number") as f32).collect()
}

#[tokio::test]
async fn a_text_is_a_vector() {
    let server = Server::start().await;
    let response = server.post(PATH, &json!({"model": "default", "input": "hello"})).await;
    assert_eq!(response.status, 200, "{}", response.body);
    let body = response.json();
    assert_eq!((&body["object"], &body["model"]), (&json!("list"), &json!("vendor/fake")));
    assert_eq!((&body["data"][0]["object"], &body["data"][0]["index"]), (&json!("embedding"), &json!(0)));
    assert_eq!(floats(&body["data"][0]["embedding"]), embedding(&tokens("hello")));
    assert_eq!(body["usage"], json!({"prompt_tokens": 5, "total_tokens": 5}));
    let request = server.last_request();
    assert_eq!((request.output, request.class), (Output::Embedding, Class::Reactive));
    assert_eq!((request.prompt, request.remember), (tokens("hello"), Remember::Nothing));
}

#[tokio::test]
async fn inputs_are_texts_or_tokens_one_or_several() {
    let server = Server::start().await;
    for (input, expected) in [
        (json!(["a", "bc"]), vec![tokens("a"), tokens("bc")]),
        (json!([104, 105]), vec![tokens("hi")]),
        (json!([[104], [105, 106]]), vec![tokens("h"), tokens("ij")]),
    ] {
        let body = server.post(PATH, &json!({"input": input})).await.json();
        let data = body["data"].as_array().expect("a list").iter().map(|entry| floats(&entry["embedding"]));
        let expected: Vec<Vec<f32>> = expected.iter().map(|tokens| embedding(tokens)).collect();
        assert_eq!(data.collect::<Vec<_>>(), expected, "{input}");
    }
}

#[tokio::test]
async fn many_are_background_work_and_keep_their_order() {
    let server = Server::start().await;
    let texts: Vec<String> = (0..300).map(|index| format!("text {index}")).collect();
    let body = server.post(PATH, &json!({"input": texts})).await.json();
    assert_eq!(server.last_request().class, Class::Proactive);
    for (index, text) in texts.iter().enumerate() {
        assert_eq!(body["data"][index]["index"], index);
        assert_eq!(floats(&body["data"][index]["embedding"]), embedding(&tokens(text)));
    }
    server.post(PATH, &json!({"input": texts, "service_tier": "priority"})).await;
    assert_eq!(server.last_request().class, Class::Reactive);
}

#[tokio::test]
async fn base64_holds_the_same_floats() {
    let server = Server::start().await;
    let body = server.post(PATH, &json!({"input": "hello", "encoding_format": "base64"})).await.json();
    // [2, 1, 0, 2] / 3, as little-endian single precision.
    let expected: Vec<u8> = embedding(&tokens("hello")).iter().flat_map(|value| value.to_le_bytes()).collect();
    assert_eq!(body["data"][0]["embedding"], base64(&expected));
}

/// The alphabet of RFC 4648, with padding.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let letter = |chunk: &[u8], at: usize| {
        let bits = chunk.iter().chain(&[0, 0]).take(3).fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
        if at > chunk.len() { '=' } else { char::from(LETTERS[(bits >> (18 - 6 * at) & 63) as usize]) }
    };
    bytes.chunks(3).flat_map(|chunk| (0..4).map(move |at| letter(chunk, at))).collect()
}

#[tokio::test]
async fn fewer_dimensions_are_the_first_at_a_length_of_one() {
    let server = Server::start().await;
    let body = server.post(PATH, &json!({"input": "hello", "dimensions": 2})).await.json();
    let vector = floats(&body["data"][0]["embedding"]);
    let whole = embedding(&tokens("hello"));
    let length = whole[0].hypot(whole[1]);
    assert_eq!(vector.len(), 2);
    assert!((vector[0] - whole[0] / length).abs() < 1e-6 && (vector[1] - whole[1] / length).abs() < 1e-6);
    let all = server.post(PATH, &json!({"input": "hello", "dimensions": EMBEDDING_WIDTH})).await.json();
    assert_eq!(floats(&all["data"][0]["embedding"]), whole);
}

#[tokio::test]
async fn what_cannot_be_embedded_is_named() {
    let server = Server::start().await;
    let many = vec!["x"; 2049];
    for (body, param, code) in [
        (json!({}), "input", "missing_required_parameter"),
        (json!({"input": 7}), "input", "invalid_type"),
        (json!({"input": ""}), "input", "invalid_value"),
        (json!({"input": []}), "input", "invalid_value"),
        (json!({"input": ["a", ""]}), "input", "invalid_value"),
        (json!({"input": ["a", 7]}), "input", "invalid_type"),
        (json!({"input": [1, "a"]}), "input[1]", "invalid_type"),
        (json!({"input": [1, 100_000]}), "input[1]", "invalid_value"),
        (json!({"input": [[1], [-1]]}), "input[1][0]", "invalid_value"),
        (json!({"input": "x".repeat(5000)}), "input", "context_length_exceeded"),
        (json!({"input": many}), "input", "invalid_value"),
        (json!({"input": vec!["x".repeat(4000); 76]}), "input", "invalid_value"),
        (json!({"input": "x", "encoding_format": "hex"}), "encoding_format", "invalid_value"),
        (json!({"input": "x", "dimensions": 0}), "dimensions", "invalid_value"),
        (json!({"input": "x", "dimensions": 5}), "dimensions", "invalid_value"),
        (json!({"input": "x", "service_tier": "flex", "priority": 0}), "priority", "invalid_value"),
        (json!({"input": "x", "model": "text-embedding-3-small"}), "model", "model_not_found"),
    ] {
        let response = server.post(PATH, &body).await;
        let error = &response.json()["error"];
        assert_eq!((error["param"].as_str(), error["code"].as_str()), (Some(param), Some(code)), "{error}");
    }
    assert!(server.fake.requests.lock().expect("no test panicked").is_empty(), "nothing was read before");
    let response = server.post(PATH, &json!({"input": "x", "user": "me", "wild": 1})).await;
    assert_eq!((response.status, response.header("x-duet-ignored-fields")), (200, Some("user, wild")));
}

#[tokio::test]
async fn failures_of_the_engine_are_told() {
    let busy = || EngineError::Busy { queued: 7 };
    for (fault, status) in [
        (Fault::Full(busy()), 429),
        (Fault::Refuse(busy()), 429),
        (Fault::Fail(0, EngineError::OutOfMemory("none".to_owned())), 503),
        (Fault::Vanish(1), 500),
    ] {
        let server = Server::with(Fake { fault, ..Fake::default() }, ServerConfig::default()).await;
        assert_eq!(server.post(PATH, &json!({"input": ["x", "y"]})).await.status, status);
    }
}

#[tokio::test]
async fn a_client_that_goes_away_ends_them() {
    let server =
        Server::with(Fake { gate: Some(Arc::new(Semaphore::new(0))), ..Fake::default() }, ServerConfig::default())
            .await;
    let body = json!({"input": vec!["x"; 100]}).to_string();
    let asking = Connection::send(server.address, &format!("POST {PATH}"), &[], Some(body.as_bytes())).await;
    let there = || server.fake.requests.lock().expect("no test panicked").len();
    while there() < 4 {
        tokio::task::yield_now().await;
    }
    drop(asking);
    server.wait_for_cancelled(4).await;
    assert_eq!(there(), 4, "a few are at the engine at a time");
}

#[tokio::test]
async fn ollamas_clients_get_them_too() {
    let server = Server::start().await;
    let response = server.post("/api/embed", &json!({"model": "vendor/fake", "input": ["a", "bc"]})).await;
    let body = response.json();
    assert_eq!((response.status, &body["model"], &body["prompt_eval_count"]), (200, &json!("vendor/fake"), &json!(3)));
    assert_eq!(floats(&body["embeddings"][1]), embedding(&tokens("bc")));
    assert!(body["total_duration"].as_u64() > Some(0) && body["load_duration"] == 0);
    let one = server.post("/api/embed", &json!({"model": "vendor/fake:latest", "input": "a", "dimensions": 3})).await;
    assert_eq!(floats(&one.json()["embeddings"][0]).len(), 3);
    let none = server.post("/api/embed", &json!({"model": "vendor/fake", "keep_alive": -1})).await;
    assert_eq!(none.json()["embeddings"], json!([]));
    let old = server.post("/api/embeddings", &json!({"model": "vendor/fake", "prompt": "bc"})).await;
    assert_eq!(old.json(), json!({"embedding": body["embeddings"][1]}));
    let old = server.post("/api/embeddings", &json!({"model": "vendor/fake", "prompt": ""})).await;
    assert_eq!(old.json(), json!({"embedding": []}));
    let options = json!({"num_ctx": 512, "num_gpu": 1});
    let body = json!({"model": "vendor/fake", "input": "a", "keep_alive": "5m", "options": options});
    let response = server.post("/api/embed", &body).await;
    assert_eq!(response.header("x-duet-ignored-fields"), Some("keep_alive, options.num_ctx, options.num_gpu"));
}

#[tokio::test]
async fn ollamas_inputs_are_cut_unless_they_must_not_be() {
    let server = Server::start().await;
    let long = "xyz".repeat(20_000);
    let body = json!({"model": "vendor/fake", "input": long});
    assert_eq!(server.post("/api/embed", &body).await.json()["prompt_eval_count"], 4095);
    assert_eq!(server.last_request().prompt, tokens(&long[..4095]));
    let body = json!({"model": "vendor/fake", "input": long, "truncate": false});
    let response = server.post("/api/embed", &body).await;
    assert_eq!(response.status, 400);
    assert!(response.json()["error"].as_str().is_some_and(|error| error.contains("context length")));
    server.post("/api/embeddings", &json!({"model": "vendor/fake", "prompt": long})).await;
    assert_eq!(Tokens(server.last_request().prompt.len() as u32), Tokens(4095));
    for body in
        [json!({"input": "x"}), json!({"model": "gpt-4o", "input": "x"}), json!({"model": "vendor/fake", "input": [1]})]
    {
        let response = server.post("/api/embed", &body).await;
        assert!(response.status >= 400 && response.json()["error"].is_string(), "{body}");
    }
}
