//! Anthropic's messages: shapes, streams, what reaches the engine, refusals.

use crate::Server;
use crate::fake::{Fake, Fault, LENGTH};
use crate::http::Response;
use crate::keys::locked;
use duet_agents::{ReasoningFormat, ToolFormat};
use duet_engine::EngineError;
use duet_server::{BehindAnswers, Families, KeepPrefix, ServerConfig};
use duet_types::{Class, Tokens};
use serde_json::{Value, json};

const MESSAGES: &str = "/v1/messages?beta=true";
const COUNT: &str = "/v1/messages/count_tokens";
const CALL: &str = "so <tool_call>\n{\"name\": \"look\", \"arguments\": {\"at\": \"sky\"}}\n</tool_call>";

fn hello(more: Value) -> Value {
    let mut body = json!({"model": "default", "max_tokens": 100, "messages": [{"role": "user", "content": "hello"}]});
    let fields = more.as_object().expect("fields").clone();
    body.as_object_mut().expect("an object").extend(fields);
    body
}

fn tools() -> Value {
    json!([{"name": "look", "description": "looks", "input_schema": {"type": "object", "properties": {"at": {"type": "string"}}}}])
}

async fn saying(text: &str) -> Server {
    let families = Families { tools: ToolFormat::Hermes, reasoning: Some(ReasoningFormat::Think) };
    Server::with(Fake { says: Some(text.to_owned()), families, ..Fake::default() }, ServerConfig::default()).await
}

/// The prompt of the last request, without what its template was told.
fn prompt(server: &Server) -> String {
    let bytes = server.last_request().prompt.iter().map(|token| token.0 as u8).collect();
    let text = String::from_utf8(bytes).expect("text");
    text.replace("<enable_thinking=false>", "")
}

/// The events of a stream: names and data, which agree.
fn events(response: &Response) -> Vec<Value> {
    let event = |event: &str| {
        let (name, data) = event.split_once('\n').expect("a name and data");
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").expect("data")).expect("JSON");
        assert_eq!(name, format!("event: {}", data["type"].as_str().expect("a type")));
        data
    };
    response.body.split_terminator("\n\n").filter(|event| !event.starts_with(':')).map(event).collect()
}

fn types(events: &[Value]) -> Vec<&str> {
    let mut types: Vec<&str> = events.iter().map(|event| event["type"].as_str().expect("a type")).collect();
    types.dedup();
    types
}

#[tokio::test]
async fn a_whole_answer_has_anthropics_shape() {
    let server = Server::start().await;
    let response = server.post(MESSAGES, &hello(json!({"system": "Be brief."}))).await;
    assert_eq!(response.status, 200, "{}", response.body);
    assert_eq!(response.header("x-duet-ignored-fields"), None);
    let answer = response.json();
    assert!(answer["id"].as_str().expect("an id").starts_with("msg_"));
    assert_eq!((&answer["type"], &answer["role"]), (&json!("message"), &json!("assistant")));
    assert_eq!(answer["model"], "vendor/fake");
    assert_eq!(answer["content"].as_array().map(Vec::len), Some(1));
    assert_eq!(answer["content"][0]["type"], "text");
    assert_eq!(answer["content"][0]["text"].as_str().expect("text").split_whitespace().count(), LENGTH);
    assert_eq!((&answer["stop_reason"], &answer["stop_sequence"]), (&json!("end_turn"), &Value::Null));
    let prompt = "<enable_thinking=false><system>Be brief.<user>hello".len();
    let usage = json!({"input_tokens": prompt - 3, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 3,
        "output_tokens": LENGTH + 1, "service_tier": "standard", "cache_creation": null, "inference_geo": null,
        "output_tokens_details": null, "server_tool_use": null});
    assert_eq!(answer["usage"], usage);
    // What is not here is null, not absent.
    for (part, name) in [(&answer["content"][0], "citations"), (&answer, "container"), (&answer, "stop_details")] {
        assert_eq!(part.get(name), Some(&Value::Null), "{name}");
    }
}

#[tokio::test]
async fn why_an_answer_ended_is_told() {
    let server = saying("one two three").await;
    for (fields, reason, sequence, text) in [
        (json!({"max_tokens": 4}), "max_tokens", Value::Null, "one "),
        (json!({"stop_sequences": ["four", " three"]}), "stop_sequence", json!(" three"), "one two"),
        (json!({"stop_sequences": ["four"]}), "end_turn", Value::Null, "one two three"),
    ] {
        let answer = server.post(MESSAGES, &hello(fields)).await.json();
        assert_eq!((&answer["stop_reason"], &answer["stop_sequence"]), (&json!(reason), &sequence), "{answer}");
        assert_eq!(answer["content"][0]["text"], text);
    }
}

#[tokio::test]
async fn reasoning_text_and_calls_are_blocks() {
    let server = saying(&format!("<think>hm</think>{CALL}")).await;
    let fields = json!({"tools": tools(), "thinking": {"type": "enabled", "budget_tokens": 1024}});
    let response = server.post(MESSAGES, &hello(fields)).await;
    assert_eq!(response.header("x-duet-ignored-fields"), None);
    let answer = response.json();
    let kinds: Vec<_> = answer["content"].as_array().expect("blocks").iter().map(|block| &block["type"]).collect();
    assert_eq!(kinds, ["thinking", "text", "tool_use"], "{answer}");
    assert_eq!(answer["content"][0]["thinking"], "hm");
    let call = &answer["content"][2];
    assert!(call["id"].as_str().expect("an id").starts_with("toolu_"));
    assert_eq!((&call["name"], &call["input"]), (&json!("look"), &json!({"at": "sky"})));
    assert_eq!(answer["stop_reason"], "tool_use");
    assert!(prompt(&server).contains("<tool>look<enable_thinking=true>"), "{}", prompt(&server));
}

#[tokio::test]
async fn a_stream_has_anthropics_events() {
    let server = saying(&format!("<think>hm</think>{CALL}")).await;
    let fields = json!({"tools": tools(), "thinking": {"type": "adaptive"}, "stream": true});
    let response = server.post(MESSAGES, &hello(fields)).await;
    assert_eq!(response.header("content-type"), Some("text/event-stream"));
    let events = events(&response);
    let block = ["content_block_start", "content_block_delta", "content_block_stop"];
    let expected =
        [&["message_start", "ping"][..], &block, &block, &block, &["message_delta", "message_stop"]].concat();
    assert_eq!(types(&events), expected);
    let message = &events[0]["message"];
    assert_eq!((&message["content"], &message["stop_reason"]), (&json!([]), &Value::Null));
    assert!(message["usage"]["input_tokens"].as_u64().expect("a count") > 0);
    let begun: Vec<&Value> = events.iter().filter(|event| event["type"] == block[0]).collect();
    for (index, kind) in ["thinking", "text", "tool_use"].into_iter().enumerate() {
        assert_eq!((&begun[index]["index"], &begun[index]["content_block"]["type"]), (&json!(index), &json!(kind)));
    }
    let grown = |index: usize, field: &str| {
        let of = events.iter().filter(|event| event["type"] == block[1] && event["index"] == index);
        of.map(|event| event["delta"][field].as_str().expect("text")).collect::<String>()
    };
    assert_eq!((grown(0, "thinking").as_str(), grown(1, "text").trim()), ("hm", "so"));
    let input: Value = serde_json::from_str(&grown(2, "partial_json")).expect("JSON");
    assert_eq!(input, json!({"at": "sky"}));
    let end = &events[events.len() - 2];
    assert_eq!(end["delta"], json!({"stop_reason": "tool_use", "stop_sequence": null}));
    assert_eq!(end["usage"]["cache_read_input_tokens"], 3);
}

#[tokio::test]
async fn a_conversation_reaches_the_template() {
    let server = Server::start().await;
    let messages = json!([
        {"role": "user", "content": "a"},
        {"role": "user", "content": [{"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "x"},
            {"type": "redacted_thinking", "data": "y"},
            {"type": "text", "text": "c"},
            {"type": "tool_use", "id": "t1", "name": "look", "input": {}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "d"}], "is_error": true},
            {"type": "tool_result", "tool_use_id": "t2"},
            {"type": "text", "text": "e"},
        ]},
    ]);
    let system = json!([{"type": "text", "text": "x-anthropic-billing-header: cch=1;"}, {"type": "text", "text": "s"}]);
    let tools = json!([{"type": "web_search_20250305", "name": "web_search"}, tools()[0]]);
    let response = server.post(MESSAGES, &hello(json!({"messages": messages, "system": system, "tools": tools}))).await;
    assert_eq!(response.status, 200, "{}", response.body);
    assert_eq!(response.header("x-duet-ignored-fields"), Some("tools[0]"));
    assert_eq!(prompt(&server), "<tool>look<system>s<user>a\nb<assistant>(hm)c<tool>Error: d<tool><user>e");
}

#[tokio::test]
async fn sampling_reaches_the_engine() {
    let server = Server::start().await;
    let fields = json!({"temperature": 0.5, "top_p": 0.25, "top_k": 7, "metadata": {"user_id": "u"},
        "service_tier": "standard_only", "cache_control": {"type": "ephemeral"}, "container": "x"});
    let response = server.post(MESSAGES, &hello(fields)).await;
    assert_eq!(response.header("x-duet-ignored-fields"), Some("metadata.user_id, container"));
    let request = server.last_request();
    assert_eq!((request.sampling.temperature, request.sampling.top_p, request.sampling.top_k), (0.5, 0.25, 7));
    assert_eq!((request.stop.max_tokens, request.class), (Some(Tokens(100)), Class::Reactive));
    let answer = server.post(MESSAGES, &hello(json!({"service_tier": "flex"}))).await.json();
    assert_eq!((server.last_request().class, &answer["usage"]["service_tier"]), (Class::Proactive, &json!("batch")));
}

fn assert_refused(response: &Response, status: u16, kind: &str, message: &str) {
    assert_eq!(response.status, status, "{}", response.body);
    let body = response.json();
    assert_eq!((&body["type"], &body["error"]["type"]), (&json!("error"), &json!(kind)));
    assert_eq!(body["error"].as_object().map(|fields| fields.len()), Some(2), "type and message");
    let text = body["error"]["message"].as_str().expect("a message");
    assert!(text.contains(message), "{text}");
}

#[tokio::test]
async fn refusals_have_anthropics_shape() {
    let server = Server::start().await;
    let image = json!([{"role": "user", "content": [{"type": "image", "source": {}}]}]);
    let begun = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "{"}]);
    let invalid = "invalid_request_error";
    for (body, status, kind, message) in [
        (json!({"messages": [{"role": "user", "content": "a"}]}), 400, invalid, "'max_tokens' is required"),
        (hello(json!({"messages": image})), 400, invalid, "'messages[0].content[0].image' is not supported"),
        (hello(json!({"messages": begun})), 400, invalid, "'messages[1]' is not supported"),
        (hello(json!({"messages": [{"role": "tool", "content": "a"}]})), 400, invalid, "messages[0].role"),
        (hello(json!({"messages": []})), 400, invalid, "at least one message"),
        (hello(json!({"tool_choice": {"type": "maybe"}})), 400, invalid, "'tool_choice.type'"),
        (hello(json!({"tool_choice": {"type": "any"}})), 400, invalid, "'tool_choice'"),
        (hello(json!({"stop_sequences": [""]})), 400, invalid, "'stop_sequences'"),
        (hello(json!({"thinking": {"type": "hard"}})), 400, invalid, "'thinking.type'"),
        (hello(json!({"model": "claude-sonnet-4-5"})), 404, "not_found_error", "'claude-sonnet-4-5'"),
    ] {
        assert_refused(&server.post(MESSAGES, &body).await, status, kind, message);
    }
    assert_refused(&server.get("/v1/messages").await, 405, invalid, "does not take GET");
    assert_refused(&server.post("/v1/messages/batches", &json!({})).await, 404, "not_found_error", "nothing at");
    let long = vec![b' '; 11 << 20];
    assert_refused(&server.post_bytes(MESSAGES, &long).await, 413, "request_too_large", "larger than");
}

#[tokio::test]
async fn failures_of_the_engine_have_anthropics_shape() {
    let with = async |fault| Server::with(Fake { fault, ..Fake::default() }, ServerConfig::default()).await;
    let busy = with(Fault::Refuse(EngineError::Busy { queued: 9 })).await;
    let response = busy.post(MESSAGES, &hello(json!({}))).await;
    assert_refused(&response, 429, "rate_limit_error", "");
    assert!(response.header("retry-after").is_some());
    let full = with(Fault::Full(EngineError::OutOfMemory("full".to_owned()))).await;
    assert_refused(&full.post(MESSAGES, &hello(json!({}))).await, 503, "overloaded_error", "full");
    let broken = with(Fault::Fail(2, EngineError::Internal("bug".to_owned()))).await;
    assert_refused(&broken.post(MESSAGES, &hello(json!({}))).await, 500, "api_error", "bug");
    let events = events(&broken.post(MESSAGES, &hello(json!({"stream": true}))).await);
    let last = events.last().expect("events");
    assert_eq!(*last, json!({"type": "error", "error": {"type": "api_error", "message": "internal error: bug"}}));
}

#[tokio::test]
async fn a_key_may_come_as_anthropics_clients_send_it() {
    let server = locked().await;
    let body = hello(json!({}));
    let ask = async |headers: &[(&str, &str)]| server.ask("POST /v1/messages", headers, Some(&body)).await;
    assert_refused(&ask(&[]).await, 401, "authentication_error", "x-api-key: KEY");
    assert_refused(&ask(&[("x-api-key", "sk-an")]).await, 401, "authentication_error", "none of this server's");
    assert_eq!(ask(&[("x-api-key", "sk-ann")]).await.status, 200);
    assert_eq!(ask(&[("x-api-key", "sk-ben"), ("authorization", "Bearer none")]).await.status, 200);
    assert_eq!(server.ask("GET /v1/models", &[("x-api-key", "sk-ann")], None).await.status, 200);
}

#[tokio::test]
async fn tokens_are_counted_without_generating() {
    let server = Server::with(Fake { context: Tokens(100), ..Fake::default() }, ServerConfig::default()).await;
    let body = |text: &str| json!({"model": "default", "messages": [{"role": "user", "content": text}]});
    let told = "<enable_thinking=false><user>".len();
    for length in [1, 200] {
        let counted = server.post(COUNT, &body(&"x".repeat(length))).await;
        assert_eq!(counted.json(), json!({"input_tokens": told + length}));
    }
    assert_refused(&server.post(COUNT, &body(&"x".repeat(400))).await, 400, "invalid_request_error", "context");
    assert_refused(&server.post(COUNT, &json!({})).await, 400, "invalid_request_error", "'messages'");
    assert!(server.fake.requests.lock().expect("no test panicked").is_empty());
}

/// A client that goes away ends its work.
#[tokio::test]
async fn a_stream_that_nobody_reads_is_cancelled() {
    let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(2));
    let server = Server::with(Fake { gate: Some(gate), ..Fake::default() }, ServerConfig::default()).await;
    let incoming = server.stream(MESSAGES, &hello(json!({"stream": true}))).await;
    assert_eq!(incoming.status, 200);
    drop(incoming);
    server.wait_for_cancelled(1).await;
}

#[tokio::test]
async fn clocks_move_behind_what_is_stable_unless_they_are_to_stay() {
    const CHAT: &str = "/v1/chat/completions";
    let clock = "Current time is 10:42:31.";
    let body = json!({"messages": [
        {"role": "system", "content": format!("{clock}\nBe brief.")}, {"role": "user", "content": "hi"},
    ]});
    let server = Server::start().await;
    assert_eq!(server.post(CHAT, &body).await.status, 200);
    assert_eq!(prompt(&server), format!("<system>Be brief.<user>hi\n\n{clock}"));
    let server =
        Server::with(Fake::default(), ServerConfig { prefix: KeepPrefix::AsSent, ..ServerConfig::default() }).await;
    assert_eq!(server.post(CHAT, &body).await.status, 200);
    assert_eq!(prompt(&server), format!("<system>{clock}\nBe brief.<user>hi"));
}

#[tokio::test]
async fn titles_are_background_unless_the_client_says_otherwise() {
    let title = json!([{"role": "user", "content": "### Task:\nGenerate a concise, 3-5 word title."}]);
    let server = Server::start().await;
    for (path, more, class) in [
        (MESSAGES, json!({}), Class::Proactive),
        ("/v1/chat/completions", json!({}), Class::Proactive),
        (MESSAGES, json!({"service_tier": "priority"}), Class::Reactive),
    ] {
        let mut body = hello(more);
        body["messages"] = title.clone();
        assert_eq!(server.post(path, &body).await.status, 200);
        assert_eq!(server.last_request().class, class);
    }
    let config = ServerConfig { behind_answers: BehindAnswers::AsSaid, ..ServerConfig::default() };
    let server = Server::with(Fake::default(), config).await;
    assert_eq!(server.post(MESSAGES, &hello(json!({"messages": title}))).await.status, 200);
    assert_eq!(server.last_request().class, Class::Reactive);
}
