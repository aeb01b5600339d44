//! Texts as tokens, and back.

use crate::Server;
use serde_json::json;

#[tokio::test]
async fn a_text_and_its_tokens() {
    let server = Server::start().await;
    for field in ["content", "prompt"] {
        let tokens = server.post("/tokenize", &json!({field: "hé", "add_special": true})).await.json();
        assert_eq!(tokens, json!({"tokens": [104, 195, 169], "count": 3}));
    }
    let text = server.post("/detokenize", &json!({"tokens": [104, 195, 169, 264]})).await.json();
    assert_eq!(text, json!({"content": "hé<end>", "prompt": "hé<end>"}));
    let response = server.post("/tokenize", &json!({"content": "", "wild": 1})).await;
    assert_eq!(response.json(), json!({"tokens": [], "count": 0}));
    assert_eq!(response.header("x-duet-ignored-fields"), Some("wild"));
    let long = "x".repeat(100_000);
    assert_eq!(server.post("/tokenize", &json!({"content": long})).await.json()["count"], 100_000);
}

#[tokio::test]
async fn what_harnesses_ask_of_the_tokenizer() {
    let server = Server::start().await;
    let info = server.get("/tokenizer_info").await.json();
    let expected =
        json!({"bos_token": null, "eos_token": "<end>", "chat_template": "{{ messages }}", "model_max_length": 4096});
    assert_eq!(info, expected);
}

#[tokio::test]
async fn what_is_no_text_and_no_token() {
    let server = Server::start().await;
    for (path, body, param) in [
        ("/tokenize", json!({}), "content"),
        ("/tokenize", json!({"content": "a", "prompt": "b"}), "prompt"),
        ("/tokenize", json!({"content": 5}), "content"),
        ("/tokenize", json!({"content": "x".repeat((1 << 20) + 1)}), "content"),
        ("/detokenize", json!({}), "tokens"),
        ("/detokenize", json!({"tokens": "x"}), "tokens"),
        ("/detokenize", json!({"tokens": [1, 265]}), "tokens[1]"),
        ("/detokenize", json!({"tokens": [-1]}), "tokens[0]"),
    ] {
        let response = server.post(path, &body).await;
        assert_eq!((response.status, response.json()["error"]["param"].as_str()), (400, Some(param)), "{path}");
    }
}
