//! Chat: shapes, streams and what reaches the engine.

use crate::fake::{Fake, Fault, LENGTH};
use crate::{Server, chunks};
use duet_engine::{EngineError, SamplingParams, StopConditions};
use duet_server::ServerConfig;
use duet_types::{Class, TokenId, Tokens};
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";

fn hello(more: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "hello"}]});
    let fields = more.as_object().expect("fields").clone();
    body.as_object_mut().expect("an object").extend(fields);
    body
}

#[tokio::test]
async fn a_whole_answer_has_openais_shape() {
    let server = Server::start().await;
    let response = server.post(CHAT, &hello(json!({}))).await;
    assert_eq!(response.status, 200);
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert_eq!(response.header("x-duet-ignored-fields"), None);
    let answer = response.json();
    assert!(answer["id"].as_str().expect("an id").starts_with("chatcmpl-"));
    assert!(answer["created"].as_u64().expect("a time") > 1_700_000_000);
    assert_eq!(answer["object"], "chat.completion");
    assert_eq!(answer["model"], "vendor/fake");
    assert!(answer["system_fingerprint"].as_str().expect("a fingerprint").starts_with("duet-"));
    assert_eq!(answer["service_tier"], "default");
    let choice = &answer["choices"][0];
    assert_eq!(answer["choices"].as_array().map(Vec::len), Some(1));
    assert_eq!(choice["index"], 0);
    assert_eq!(choice["message"]["role"], "assistant");
    assert_eq!(choice["message"]["content"].as_str().expect("text").split_whitespace().count(), LENGTH);
    assert_eq!(choice["logprobs"], Value::Null);
    assert_eq!(choice["finish_reason"], "stop");
    let (prompt, generated) = ("<user>hello".len(), LENGTH + 1);
    let usage = json!({
        "prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {"accepted_prediction_tokens": 0, "rejected_prediction_tokens": 1},
    });
    assert_eq!(answer["usage"], usage);
}

#[tokio::test]
async fn a_stream_has_openais_chunks() {
    let server = Server::start().await;
    let whole = server.post(CHAT, &hello(json!({}))).await.json();
    let events = server.events(CHAT, &hello(json!({"stream": true}))).await;
    let chunks = chunks(&events);
    let (first, rest) = chunks.split_first().expect("chunks");
    let (last, pieces) = rest.split_last().expect("chunks");
    assert_eq!(first["choices"][0]["delta"]["role"], "assistant");
    assert_eq!(first["choices"][0]["delta"]["content"], "");
    assert_eq!(first["choices"][0]["finish_reason"], Value::Null);
    assert_eq!(last["choices"][0]["delta"], json!({}));
    assert_eq!(last["choices"][0]["finish_reason"], "stop");
    let texts = pieces.iter().map(|piece| piece["choices"][0]["delta"]["content"].as_str().expect("text"));
    assert_eq!(texts.collect::<String>(), whole["choices"][0]["message"]["content"]);
    for chunk in &chunks {
        assert_eq!(chunk["object"], "chat.completion.chunk");
        assert_eq!(chunk["id"], first["id"]);
        assert_eq!(chunk["created"], first["created"]);
        assert_eq!(chunk["model"], "vendor/fake");
        assert_eq!(chunk["choices"][0]["index"], 0);
        assert!(chunk.get("usage").is_none(), "usage was not asked for");
    }
}

#[tokio::test]
async fn usage_comes_last_if_asked_for() {
    let server = Server::start().await;
    let body = hello(json!({"stream": true, "stream_options": {"include_usage": true}, "max_tokens": 2}));
    let chunks = chunks(&server.events(CHAT, &body).await);
    let (usage, rest) = chunks.split_last().expect("chunks");
    assert_eq!(usage["choices"], json!([]));
    assert_eq!(usage["usage"]["completion_tokens"], 2);
    assert_eq!(usage["usage"]["total_tokens"], "<user>hello".len() + 2);
    assert!(rest.iter().all(|chunk| chunk.get("usage") == Some(&Value::Null)), "the others carry a null");
    assert_eq!(rest.last().expect("chunks")["choices"][0]["finish_reason"], "length");
}

#[tokio::test]
async fn a_failure_within_a_stream_ends_it_without_done() {
    let fault = Fault::Fail(2, EngineError::Internal("bug".to_owned()));
    let server = Server::with(Fake { fault, ..Fake::default() }, ServerConfig::default()).await;
    let events = server.events(CHAT, &hello(json!({"stream": true}))).await;
    assert_eq!(events.len(), 4, "the role, two pieces, the error");
    let error: Value = serde_json::from_str(&events[3]).expect("JSON");
    assert_eq!(error["error"]["message"], "internal error: bug");
    assert_eq!(error["error"]["type"], "server_error");
}

#[tokio::test]
async fn log_probabilities_are_the_same_whole_and_streamed() {
    let server = Server::start().await;
    // Stop strings make the engine hold text back, so that some tokens come without text.
    let fields = json!({"logprobs": true, "top_logprobs": 2, "stop": "never matches"});
    let whole = server.post(CHAT, &hello(fields.clone())).await.json();
    let content = whole["choices"][0]["logprobs"]["content"].as_array().expect("a list").clone();
    assert_eq!(content.len(), LENGTH);
    let token = &content[0];
    assert_eq!(token["logprob"], -0.5);
    assert_eq!(token["bytes"], json!(token["token"].as_str().expect("text").as_bytes()));
    assert_eq!(token["top_logprobs"].as_array().map(Vec::len), Some(2));
    assert_eq!(token["top_logprobs"][0]["token"], token["token"]);
    assert_eq!(token["top_logprobs"][1]["logprob"], -1.5);

    let mut body = hello(fields);
    body["stream"] = true.into();
    let streamed = chunks(&server.events(CHAT, &body).await);
    let lists = streamed.iter().filter_map(|chunk| chunk["choices"][0]["logprobs"]["content"].as_array());
    assert_eq!(lists.flatten().cloned().collect::<Vec<_>>(), content);
}

/// The third word is a stop string: its token is generated and is no part of the answer.
#[tokio::test]
async fn log_probabilities_end_with_the_text() {
    let server = Server::start().await;
    let whole = server.post(CHAT, &hello(json!({}))).await.json();
    let words: Vec<&str> = whole["choices"][0]["message"]["content"].as_str().expect("text").split(' ').collect();
    let stop = words.iter().position(|word| words[1..3].iter().all(|before| before != word) && !word.is_empty());
    let stop = stop.expect("a third word");
    for stream in [false, true] {
        let body = hello(json!({"logprobs": true, "stop": format!(" {}", words[stop]), "stream": stream}));
        let tokens = if stream {
            let chunks = chunks(&server.events(CHAT, &body).await);
            let lists = chunks.iter().filter_map(|chunk| chunk["choices"][0]["logprobs"]["content"].as_array());
            lists.flatten().count()
        } else {
            let whole = server.post(CHAT, &body).await.json();
            whole["choices"][0]["logprobs"]["content"].as_array().expect("a list").len()
        };
        assert_eq!(tokens, stop - 1, "streamed: {stream}");
    }
}

#[tokio::test]
async fn parameters_reach_the_engine() {
    let server = Server::start().await;
    server.post(CHAT, &hello(json!({}))).await;
    let request = server.last_request();
    assert_eq!(request.sampling, SamplingParams { temperature: 1.0, ..SamplingParams::default() });
    assert_eq!(request.stop, StopConditions::default());
    assert_eq!(request.class, Class::Reactive);
    assert_eq!(request.logprobs, None);

    let fields = json!({
        "temperature": 0.5, "top_p": 0.25, "top_k": 40, "min_p": 0.125, "seed": -1, "repeat_penalty": 1.5,
        "presence_penalty": 0.5, "frequency_penalty": -0.5, "logit_bias": {"7": -100, "8": 2.5},
        "max_completion_tokens": 99_999_999_999_u64, "stop": ["a", "b"], "ignore_eos": true, "background": true,
        "logprobs": true,
    });
    // The token limit is beyond 32 bits; the fake stops at the end of its context.
    assert_eq!(server.post(CHAT, &hello(fields)).await.status, 200);
    let request = server.last_request();
    let sampling = SamplingParams {
        temperature: 0.5,
        top_p: 0.25,
        top_k: 40,
        min_p: 0.125,
        seed: Some(u64::MAX),
        repetition_penalty: 1.5,
        presence_penalty: 0.5,
        frequency_penalty: -0.5,
        logit_bias: vec![(TokenId(7), -100.0), (TokenId(8), 2.5)],
    };
    let stop = StopConditions {
        max_tokens: Some(Tokens(u32::MAX)),
        stop: vec!["a".to_owned(), "b".to_owned()],
        ignore_eos: true,
    };
    assert_eq!(request.sampling, sampling);
    assert_eq!(request.stop, stop);
    assert_eq!(request.class, Class::Proactive);
    assert_eq!(request.logprobs, Some(0));
}

#[tokio::test]
async fn minus_one_is_no_bound() {
    let server = Server::start().await;
    for name in ["max_tokens", "max_completion_tokens"] {
        let answer = server.post(CHAT, &hello(json!({ name: -1 }))).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert_eq!(server.last_request().stop.max_tokens, None);
        assert_eq!(server.post(CHAT, &hello(json!({ name: -2 }))).await.status, 400);
    }
}

#[tokio::test]
async fn messages_become_the_prompt() {
    let server = Server::start().await;
    let messages = json!([
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}], "refusal": null},
        {"role": "tool", "content": "42", "tool_call_id": "1"},
        {"role": "user", "content": ""},
    ]);
    assert_eq!(server.post(CHAT, &json!({"messages": messages})).await.status, 200);
    let bytes: Vec<u8> = server.last_request().prompt.iter().map(|token| token.0 as u8).collect();
    let prompt = String::from_utf8(bytes).expect("text");
    assert_eq!(prompt, "<system>be brief<user>one\ntwo<assistant><tool>42<user>");
}

#[tokio::test]
async fn who_asks_hears_how_far_the_prompt_was_read() {
    let server = Server::start().await;
    let body = |told: bool| hello(json!({"stream": true, "return_progress": told}));
    let of = |events: Vec<String>| -> Vec<Value> {
        chunks(&events).iter().filter_map(|chunk| chunk.get("prompt_progress").cloned()).collect()
    };
    assert_eq!(of(server.events(CHAT, &body(false)).await), Vec::<Value>::new());
    let prompt = "<user>hello".len();
    let told = of(server.events(CHAT, &body(true)).await);
    assert_eq!(told, [json!({"total": prompt, "cache": 3, "processed": prompt})]);
}

#[tokio::test]
async fn fields_without_effect_are_listed() {
    let server = Server::start().await;
    let body = json!({
        "messages": [{"role": "user", "content": "hello", "name": "ann", "mood": "good"}],
        "user": "u", "metadata": {"mood": "good", "task": "mail", "gone": null}, "reasoning_effort": "low", "wild": 1, "gone": null,
        "store": false, "n": 1, "tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "none",
        "response_format": {"type": "text"}, "modalities": ["text"], "service_tier": null,
        "stream": true, "stream_options": {"include_obfuscation": false},
    });
    let incoming = server.stream(CHAT, &body).await;
    assert_eq!(incoming.status, 200);
    let mut names: Vec<&str> = incoming.header("x-duet-ignored-fields").expect("some").split(", ").collect();
    names.sort_unstable();
    let expected = [
        "messages[0].mood",
        "metadata.mood",
        "reasoning_effort",
        "stream_options.include_obfuscation",
        "tools",
        "user",
        "wild",
    ];
    assert_eq!(names, expected);
}

#[tokio::test]
async fn the_loaded_model_has_several_names() {
    let config = ServerConfig { aliases: vec!["assistant".to_owned()], ..ServerConfig::default() };
    let server = Server::with(Fake::default(), config).await;
    for model in [json!(null), json!("default"), json!("vendor/fake"), json!("assistant")] {
        let answer = server.post(CHAT, &hello(json!({"model": model}))).await.json();
        assert_eq!(answer["model"], "vendor/fake");
    }
    let list = server.get("/v1/models").await.json();
    assert_eq!(list["object"], "list");
    assert_eq!(list["data"][0]["id"], "vendor/fake");
    assert_eq!(list["data"][0]["object"], "model");
    assert_eq!(list["data"][1]["id"], "assistant");
    assert_eq!(server.get("/v1/models/vendor/fake").await.json()["id"], "vendor/fake");
    assert_eq!(server.get("/v1/models/vendor%2Ffake").await.json()["id"], "vendor/fake");
    assert_eq!(server.get("/health").await.json(), json!({"status": "ok"}));
}

#[tokio::test]
async fn a_server_whose_engine_has_failed_says_so() {
    let server = Server::with(Fake { fault: Fault::Stopped, ..Fake::default() }, ServerConfig::default()).await;
    let health = server.get("/health").await;
    assert_eq!((health.status, health.json()), (503, json!({"status": "failed"})));
}
