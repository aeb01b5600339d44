//! Completions: shapes, streams and prompts.

use crate::fake::LENGTH;
use crate::{Server, chunks};
use duet_types::{TokenId, Tokens};
use serde_json::{Value, json};

const COMPLETIONS: &str = "/v1/completions";

#[tokio::test]
async fn a_whole_answer_has_openais_shape() {
    let server = Server::start().await;
    let answer = server.post(COMPLETIONS, &json!({"prompt": "go"})).await.json();
    assert!(answer["id"].as_str().expect("an id").starts_with("cmpl-"));
    assert_eq!(answer["object"], "text_completion");
    let choice = &answer["choices"][0];
    assert_eq!(choice["index"], 0);
    assert_eq!(choice["logprobs"], Value::Null);
    assert_eq!(choice["finish_reason"], "length");
    assert_eq!(choice["text"].as_str().expect("text").split_whitespace().count(), 16, "OpenAI's default");
    assert_eq!(answer["usage"]["completion_tokens"], 16);
    assert_eq!(server.last_request().stop.max_tokens, Some(Tokens(16)));
    server.post(COMPLETIONS, &json!({"prompt": "go", "max_tokens": null})).await.json();
    assert_eq!(server.last_request().stop.max_tokens, Some(Tokens(16)));
}

#[tokio::test]
async fn minus_one_is_as_many_tokens_as_there_is_room_for() {
    let server = Server::start().await;
    for name in ["max_tokens", "max_completion_tokens"] {
        let answer = server.post(COMPLETIONS, &json!({"prompt": "go", name: -1})).await.json();
        assert_eq!(answer["usage"]["completion_tokens"], LENGTH + 1, "{name}");
        assert_ne!(server.last_request().stop.max_tokens, Some(Tokens(16)), "{name}");
    }
}

#[tokio::test]
async fn a_stream_has_openais_chunks() {
    let server = Server::start().await;
    let mut body = json!({"prompt": "go", "max_tokens": 100, "echo": true});
    let whole = server.post(COMPLETIONS, &body).await.json();
    body["stream"] = true.into();
    body["stream_options"] = json!({"include_usage": true});
    let chunks = chunks(&server.events(COMPLETIONS, &body).await);
    let (usage, rest) = chunks.split_last().expect("chunks");
    let texts = rest.iter().map(|chunk| chunk["choices"][0]["text"].as_str().expect("text"));
    assert_eq!(texts.collect::<String>(), whole["choices"][0]["text"]);
    assert!(rest.iter().all(|chunk| chunk["object"] == "text_completion"));
    assert_eq!(rest.last().expect("chunks")["choices"][0]["finish_reason"], "stop");
    assert_eq!(usage["choices"], json!([]));
    assert_eq!(usage["usage"]["completion_tokens"], LENGTH + 1);
}

#[tokio::test]
async fn prompts_are_texts_or_tokens() {
    let server = Server::start().await;
    let tokens = [103, 111];
    for prompt in [json!("go"), json!(["go"]), json!(tokens), json!([tokens])] {
        let answer = server.post(COMPLETIONS, &json!({"prompt": prompt, "echo": true, "max_tokens": 1})).await.json();
        assert!(answer["choices"][0]["text"].as_str().expect("text").starts_with("go "), "{answer}");
        assert_eq!(server.last_request().prompt, tokens.map(TokenId));
    }
}

#[tokio::test]
async fn log_probabilities_have_the_older_shape() {
    let server = Server::start().await;
    let mut body = json!({"prompt": "go", "logprobs": 2, "max_tokens": 12});
    let whole = server.post(COMPLETIONS, &body).await.json();
    let logprobs = &whole["choices"][0]["logprobs"];
    let tokens: Vec<&str> = logprobs["tokens"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert_eq!(tokens.concat(), whole["choices"][0]["text"]);
    assert_eq!(logprobs["token_logprobs"], json!(vec![-0.5; 12]));
    assert_eq!(logprobs["top_logprobs"][0].as_object().map(|top| top.len()), Some(2));
    assert_eq!(logprobs["top_logprobs"][0][tokens[0]], -0.5);
    let mut offset = 0;
    for (index, token) in tokens.iter().enumerate() {
        assert_eq!(logprobs["text_offset"][index], offset);
        offset += token.chars().count();
    }

    body["stream"] = true.into();
    let streamed = chunks(&server.events(COMPLETIONS, &body).await);
    let offsets = streamed.iter().filter_map(|chunk| chunk["choices"][0]["logprobs"]["text_offset"].as_array());
    assert_eq!(Value::from_iter(offsets.flatten().cloned()), logprobs["text_offset"]);
}

#[tokio::test]
async fn stop_strings_end_the_text() {
    let server = Server::start().await;
    let full = server.post(COMPLETIONS, &json!({"prompt": "go"})).await.json();
    let full = full["choices"][0]["text"].as_str().expect("text");
    let stop = full.split_whitespace().nth(3).expect("words");
    let answer = server.post(COMPLETIONS, &json!({"prompt": "go", "stop": stop})).await.json();
    let text = answer["choices"][0]["text"].as_str().expect("text");
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    assert!(full.starts_with(text));
    assert!(!text.contains(stop));
}
