//! Every way to be refused: the status, the parameter at fault, the code and a word of the message.

use crate::Server;
use crate::fake::{Fake, Fault};
use crate::http::Connection;
use duet_engine::EngineError;
use duet_server::ServerConfig;
use duet_types::Tokens;
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

/// What is expected of a refusal.
struct Refusal(u16, Option<&'static str>, &'static str);

async fn check(server: &Server, path: &str, body: &str, expected: Refusal) {
    let Refusal(status, param, message) = expected;
    let response = server.post_bytes(path, body.as_bytes()).await;
    assert_eq!(response.status, status, "{body} → {}", response.body);
    let error = &response.json()["error"];
    assert_eq!(error["param"].as_str(), param, "{body} → {error}");
    let text = error["message"].as_str().expect("a message");
    assert!(text.contains(message), "{body} → {text}");
    assert_eq!(error.as_object().map(|fields| fields.len()), Some(4), "message, type, param and code");
}

/// A chat request with one more field.
fn chat_with(name: &str, value: Value) -> String {
    json!({"messages": [{"role": "user", "content": "hi"}], name: value}).to_string()
}

fn messages(messages: Value) -> String {
    json!({"messages": messages}).to_string()
}

#[tokio::test]
async fn bodies_that_are_not_requests() {
    let server = Server::start().await;
    for (body, param, message) in [
        ("", None, "EOF while parsing"),
        ("{\"messages\": [\n  oops", None, "line 2 column 3"),
        ("{} trailing", None, "trailing characters"),
        ("[1]", None, "must be a JSON object, not an array"),
        ("null", None, "must be a JSON object, not null"),
        ("{}", Some("messages"), "required"),
        ("{\"messages\": null}", Some("messages"), "required"),
        ("{\"temperature\": 1e999}", None, "number out of range"),
    ] {
        check(&server, CHAT, body, Refusal(400, param, message)).await;
    }
    let deep = format!("{{\"messages\": {}", "[".repeat(100_000));
    check(&server, CHAT, &deep, Refusal(400, None, "recursion limit")).await;
    let response = server.post_bytes(CHAT, b"{\"messages\": \"\xff\"}").await;
    assert_eq!(response.status, 400);
    check(&server, COMPLETIONS, "{}", Refusal(400, Some("prompt"), "required")).await;
}

#[tokio::test]
async fn messages_that_are_not_a_conversation() {
    let server = Server::start().await;
    let image = json!([{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "x"}}]);
    for (value, param, message) in [
        (json!([]), "messages", "at least one message"),
        (json!("hi"), "messages", "an array, not a string"),
        (json!(["hi"]), "messages[0]", "an object, not a string"),
        (json!([{"content": "hi"}]), "messages[0].role", "required"),
        (json!([{"role": 1, "content": "hi"}]), "messages[0].role", "a string, not an integer"),
        (
            json!([{"role": "user", "content": "hi"}, {"role": "wizard", "content": "hi"}]),
            "messages[1].role",
            "one of system, developer, user, assistant, tool, got \"wizard\"",
        ),
        (json!([{"role": "user"}]), "messages[0].content", "required"),
        (json!([{"role": "user", "content": null}]), "messages[0].content", "required"),
        (json!([{"role": "assistant", "content": null}]), "messages[0].content", "required"),
        (json!([{"role": "user", "content": 5}]), "messages[0].content", "a string or an array of parts"),
        (json!([{"role": "user", "content": [{"text": "hi"}]}]), "messages[0].content[0].type", "required"),
        (json!([{"role": "user", "content": [{"type": "text"}]}]), "messages[0].content[0].text", "required"),
        (json!([{"role": "user", "content": ["hi"]}]), "messages[0].content[0]", "an object"),
        (json!([{"role": "user", "content": [{"type": "smell"}]}]), "messages[0].content[0].type", "\"smell\""),
        (json!([{"role": "user", "content": image}]), "messages[0].content[1].image_url", "reads text only"),
        (json!([{"role": "user", "content": "hi", "tool_calls": []}]), "messages[0].tool_calls", "assistant"),
        (json!([{"role": "assistant", "tool_calls": "x"}]), "messages[0].tool_calls", "an array"),
        (json!([{"role": "assistant", "tool_calls": [{"id": "1"}]}]), "messages[0].tool_calls[0].function", "required"),
        (
            json!([{"role": "tool", "content": "7", "tool_call_id": "1"}]),
            "messages[0].tool_call_id",
            "a call in a message",
        ),
        (json!([{"role": "user", "content": "refuse me"}]), "messages", "as you wish"),
    ] {
        check(&server, CHAT, &messages(value), Refusal(400, Some(param), message)).await;
    }
}

#[tokio::test]
async fn parameters_out_of_range_are_named() {
    let server = Server::start().await;
    for (param, value, message) in [
        ("temperature", json!(-1), "from 0 to 2, got -1"),
        ("temperature", json!("hot"), "a number, not a string"),
        ("top_p", json!(1.5), "from 0 to 1, got 1.5"),
        ("top_k", json!(-2), "got -2"),
        ("top_k", json!(1.5), "an integer, not a fractional number"),
        ("min_p", json!(2), "from 0 to 1"),
        ("seed", json!(0.5), "a 64-bit integer"),
        ("max_tokens", json!(0), "at least 1, got 0"),
        ("max_completion_tokens", json!(-5), "at least 1, got -5"),
        ("max_tokens", json!("10"), "an integer, not a string"),
        ("presence_penalty", json!(3), "from -2 to 2"),
        ("frequency_penalty", json!([]), "a number, not an array"),
        ("repetition_penalty", json!(0), "got 0"),
        ("repeat_penalty", json!(-1), "got -1"),
        ("stop", json!(5), "a string or an array of strings"),
        ("stop", json!(["ok", ""]), "of 1 to 1024 bytes"),
        ("stop", json!(vec!["x"; 17]), "at most 16"),
        ("logit_bias", json!([1]), "a map from token ids"),
        ("logit_bias", json!({"word": 1}), "token ids below 265, got \"word\""),
        ("logit_bias", json!({"265": 1}), "token ids below 265"),
        ("stream", json!("yes"), "a boolean, not a string"),
        ("stream_options", json!({"include_usage": true}), "no meaning without 'stream'"),
        ("logprobs", json!(2), "a boolean, not an integer"),
        ("top_logprobs", json!(2), "no meaning without 'logprobs'"),
        ("top_logprobs", json!(21), "from 0 to 20"),
        ("ignore_eos", json!(1), "a boolean"),
        ("service_tier", json!("platinum"), "one of auto, default, flex, priority"),
        ("background", json!("yes"), "a boolean"),
        ("priority", json!("high"), "an integer, not a string"),
        ("priority", json!(0.5), "an integer, not a fractional number"),
        ("prompt_cache_key", json!(7), "a string, not an integer"),
        ("prompt_cache_key", json!(""), "of 1 to 256 bytes"),
        ("prompt_cache_key", json!("k".repeat(257)), "of 1 to 256 bytes"),
        ("model", json!(5), "a string"),
        ("n", json!(17), "from 1 to 16"),
        ("parallel_tool_calls", json!("no"), "a boolean"),
        ("chat_template_kwargs", json!([]), "an object"),
        ("reasoning_effort", json!("huge"), "one of none, minimal"),
    ] {
        check(&server, CHAT, &chat_with(param, value), Refusal(400, Some(param), message)).await;
    }
    let bias = chat_with("logit_bias", json!({"7": 101}));
    check(&server, CHAT, &bias, Refusal(400, Some("logit_bias[7]"), "from -100 to 100")).await;
}

#[tokio::test]
async fn what_is_not_supported_is_refused_by_name() {
    let server = Server::start().await;
    for (param, value) in [
        ("functions", json!([{"name": "now"}])),
        ("function_call", json!({"name": "now"})),
        ("min_tokens", json!(1)),
        ("audio", json!({})),
        ("modalities", json!(["text", "audio"])),
        ("store", json!(true)),
        ("echo", json!(true)),
        ("web_search_options", json!({})),
    ] {
        check(&server, CHAT, &chat_with(param, value), Refusal(400, Some(param), "not supported")).await;
    }
    for (param, value) in [("suffix", json!("end")), ("best_of", json!(3))] {
        let mut body = json!({"prompt": "hi"});
        body[param] = value;
        check(&server, COMPLETIONS, &body.to_string(), Refusal(400, Some(param), "not supported")).await;
    }
}

/// Clients that send all that they know send these.
#[tokio::test]
async fn what_is_not_supported_and_asks_for_nothing_is_taken() {
    let server = Server::start().await;
    for (param, value) in
        [("functions", json!([])), ("function_call", json!("none")), ("min_tokens", json!(0)), ("audio", json!(null))]
    {
        let body: Value = serde_json::from_str(&chat_with(param, value)).expect("JSON");
        assert_eq!(server.post(CHAT, &body).await.status, 200, "{param}");
    }
}

#[tokio::test]
async fn contradictions_are_refused() {
    let server = Server::start().await;
    let user = json!([{"role": "user", "content": "hi"}]);
    let body = json!({"messages": user, "max_tokens": 5, "max_completion_tokens": 6}).to_string();
    check(&server, CHAT, &body, Refusal(400, Some("max_completion_tokens"), "'max_tokens'")).await;
    let body = json!({"messages": user, "repetition_penalty": 1.1, "repeat_penalty": 1.2}).to_string();
    check(&server, CHAT, &body, Refusal(400, Some("repeat_penalty"), "'repetition_penalty'")).await;
    for (fields, param, with) in [
        (json!({"service_tier": "priority", "background": true}), "background", "'service_tier'"),
        (json!({"service_tier": "priority", "priority": 1}), "priority", "'service_tier'"),
        (json!({"service_tier": "flex", "priority": 0}), "priority", "'service_tier'"),
        (json!({"service_tier": "auto", "background": true, "priority": -1}), "priority", "'background'"),
    ] {
        let mut body = json!({"messages": user});
        body.as_object_mut().expect("an object").extend(fields.as_object().expect("fields").clone());
        check(&server, CHAT, &body.to_string(), Refusal(400, Some(param), with)).await;
    }
}

#[tokio::test]
async fn prompts_of_completions() {
    let server = Server::start().await;
    for (prompt, param, message) in [
        (json!(5), "prompt", "a string, an array of token ids"),
        (json!([]), "prompt", "empty"),
        (json!(""), "prompt", "empty"),
        (json!([1, "two"]), "prompt[1]", "a token id, not a string"),
        (json!([[1], [2, 265]]), "prompt[1][1]", "below 265"),
        (json!(["one", 2]), "prompt", "a string, an array of token ids"),
        (json!(vec!["x"; 129]), "prompt", "at most 128 answers"),
        (json!([1, -2]), "prompt[1]", "below 265, got -2"),
        (json!([9_999_999_999_u64]), "prompt[0]", "below 265"),
    ] {
        let body = json!({"prompt": prompt}).to_string();
        check(&server, COMPLETIONS, &body, Refusal(400, Some(param), message)).await;
    }
}

#[tokio::test]
async fn a_prompt_beyond_the_context_has_openais_code() {
    let server = Server::with(Fake { context: Tokens(100), ..Fake::default() }, ServerConfig::default()).await;
    let long = "x".repeat(101);
    let body = messages(json!([{"role": "user", "content": long}]));
    check(&server, CHAT, &body, Refusal(400, Some("messages"), "maximum context length is 100 tokens")).await;
    let response = server.post(COMPLETIONS, &json!({"prompt": long})).await;
    assert_eq!(response.status, 400);
    assert_eq!(response.json()["error"]["code"], "context_length_exceeded");
    assert_eq!(response.json()["error"]["param"], "prompt");
}

#[tokio::test]
async fn unknown_models_routes_and_methods() {
    let server = Server::start().await;
    check(&server, CHAT, &chat_with("model", json!("gpt-4o")), Refusal(404, Some("model"), "'gpt-4o'")).await;
    let response = server.get("/v1/models/gpt-4o").await;
    assert_eq!(response.status, 404);
    assert_eq!(response.json()["error"]["code"], "model_not_found");

    check(&server, "/v1/images/generations", "{}", Refusal(404, None, "POST /v1/images/generations")).await;
    let response = server.get(CHAT).await;
    assert_eq!(response.status, 405);
    assert_eq!(response.header("allow"), Some("POST"));
    assert_eq!(response.json()["error"]["type"], "invalid_request_error");
    assert_eq!(server.post("/health", &json!({})).await.status, 405);
    // Not a response of that name.
    assert_eq!(server.post("/v1/responses/compact", &json!({})).await.status, 404);
}

/// Nobody reads the body, but the client that is still sending it gets the answer, and asks again.
#[tokio::test]
async fn a_connection_outlives_a_request_that_nothing_takes() {
    let server = Server::start().await;
    for head in ["POST /v1/nothing", "POST /health", "POST /v1/responses/compact", "GET /api/chat"] {
        let mut connection = Connection::open(server.address).await;
        connection.write(format!("{head} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n").as_bytes()).await;
        let (status, mut connection) = connection.interim().await;
        assert!([404, 405].contains(&status), "{head}: {status}");
        connection.write(b"{}GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await;
        let rest = connection.rest().await;
        assert!(rest.contains("HTTP/1.1 200 OK") && rest.ends_with("{\"status\":\"ok\"}"), "{head}: {rest}");
    }
}

#[tokio::test]
async fn errors_of_the_engine() {
    let parameter = EngineError::Parameter { name: "top_p", expected: "above 0", value: "0".to_owned() };
    for (error, status, kind, code, param) in [
        (EngineError::Busy { queued: 9 }, 429, "rate_limit_error", json!("rate_limit_exceeded"), None),
        (EngineError::ShuttingDown, 503, "server_error", json!("shutting_down"), None),
        (EngineError::OutOfMemory("full".to_owned()), 503, "server_error", json!("out_of_memory"), None),
        (EngineError::Internal("bug".to_owned()), 500, "server_error", json!(null), None),
        (parameter, 400, "invalid_request_error", json!("invalid_value"), Some("top_p")),
    ] {
        // Whether the engine refuses at once or fails later, the client of a whole answer sees the same.
        for fault in [Fault::Refuse(error.clone()), Fault::Fail(2, error.clone())] {
            let server = Server::with(Fake { fault, ..Fake::default() }, ServerConfig::default()).await;
            let response = server.post(COMPLETIONS, &json!({"prompt": "hi"})).await;
            assert_eq!(response.status, status);
            let body = &response.json()["error"];
            assert_eq!(body["type"], kind);
            assert_eq!(body["code"], code);
            assert_eq!(body["param"].as_str(), param);
            let retried = matches!(error, EngineError::Busy { .. } | EngineError::OutOfMemory(_));
            assert_eq!(response.header("retry-after").is_some(), retried);
        }
        // A stream has not begun when the engine refuses: the status can still say so.
        let fault = Fault::Refuse(error);
        let server = Server::with(Fake { fault, ..Fake::default() }, ServerConfig::default()).await;
        assert_eq!(server.post(COMPLETIONS, &json!({"prompt": "hi", "stream": true})).await.status, status);
    }
}

#[tokio::test]
async fn an_engine_that_breaks_is_an_internal_error() {
    for fault in [Fault::Vanish(1), Fault::Panic] {
        let server = Server::with(Fake { fault, ..Fake::default() }, ServerConfig::default()).await;
        let response = server.post(COMPLETIONS, &json!({"prompt": "hi"})).await;
        assert_eq!(response.status, 500);
        assert_eq!(response.json()["error"]["type"], "server_error");
        assert_eq!(server.get("/health").await.status, 200);
    }
}
