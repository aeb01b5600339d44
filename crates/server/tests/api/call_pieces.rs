//! Calls that come as they are written, on every route that streams events.

use crate::fake::Fake;
use crate::{Server, chunks};
use duet_server::ServerConfig;
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
const CALLS: &str = "Let me see.\n<tool_call>\n{\"name\": \"write\", \"arguments\": {\"text\": \"a b\", \"to\": [1, 2]}}\n\
                     </tool_call>\n<tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call>";
const WRITTEN: &str = r#"{"text":"a b","to":[1,2]}"#;

/// A server whose model says this, which its grammar lets it say.
async fn held_to(text: &str) -> Server {
    let fake = Fake { says: Some(text.to_owned()), is_held: true, ..Fake::default() };
    Server::with(fake, ServerConfig::default()).await
}

fn asking(more: Value) -> Value {
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}});
    let mut body = json!({
        "messages": [{"role": "user", "content": "hello"}],
        "tools": [tool("write"), tool("clock")],
        "stream": true,
    });
    body.as_object_mut().expect("an object").extend(more.as_object().expect("fields").clone());
    body
}

/// The deltas of all calls of a streamed chat, and why it ended.
async fn calls(server: &Server, more: Value) -> (Vec<Value>, Value) {
    let chunks = chunks(&server.events(CHAT, &asking(more)).await);
    let delta = |chunk: &Value| chunk["choices"][0]["delta"]["tool_calls"].get(0).cloned();
    (chunks.iter().filter_map(delta).collect(), chunks[chunks.len() - 1]["choices"][0]["finish_reason"].clone())
}

/// The fragments of one call's arguments.
fn fragments(deltas: &[Value], index: usize) -> Vec<&str> {
    let of_call = deltas.iter().filter(|delta| delta["index"] == index);
    of_call.filter_map(|delta| delta["function"]["arguments"].as_str()).collect()
}

#[tokio::test]
async fn chats_have_the_name_first_and_then_the_arguments_in_pieces() {
    let server = held_to(CALLS).await;
    let (deltas, reason) = calls(&server, json!({})).await;
    assert_eq!(deltas[0]["function"], json!({"name": "write", "arguments": ""}));
    let written = fragments(&deltas, 0);
    // The fake says a byte a token.
    assert_eq!((written.concat().as_str(), written.len()), (WRITTEN, 1 + WRITTEN.len()));
    assert_eq!((fragments(&deltas, 1).concat(), reason), ("{}".to_owned(), json!("tool_calls")));
    let whole = server.post(CHAT, &asking(json!({"stream": false}))).await.json();
    assert_eq!(whole["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"], WRITTEN);
}

#[tokio::test]
async fn a_call_that_is_cut_is_cut_in_a_stream_and_text_in_a_whole_answer() {
    let length = CALLS.find("a b").expect("it is there") + 1;
    let server = held_to(CALLS).await;
    let (deltas, reason) = calls(&server, json!({"max_tokens": length})).await;
    assert_eq!((fragments(&deltas, 0).concat(), reason), (r#"{"text":"a"#.to_owned(), json!("length")));
    let stopped = calls(&server, json!({"stop": "a b"})).await;
    assert_eq!((fragments(&stopped.0, 0).concat(), stopped.1), (r#"{"text":""#.to_owned(), json!("stop")));
    let whole = server.post(CHAT, &asking(json!({"stream": false, "max_tokens": length}))).await.json();
    assert_eq!(whole["choices"][0]["message"]["content"], CALLS[..length]);
}

#[tokio::test]
async fn a_call_that_repeats_another_comes_once() {
    let call = "<tool_call>\n{\"name\": \"write\", \"arguments\": {\"a\": 1}}\n</tool_call>";
    let other = call.replace('1', "2");
    let server = held_to(&[call, call, &other].join("\n")).await;
    let (deltas, _) = calls(&server, json!({})).await;
    let all: Vec<String> = (0..3).map(|index| fragments(&deltas, index).concat()).collect();
    assert_eq!(all, [r#"{"a":1}"#, r#"{"a":2}"#, ""]);
}

#[tokio::test]
async fn responses_have_deltas_of_arguments() {
    let server = held_to(CALLS).await;
    let tool = |name: &str| json!({"type": "function", "name": name, "parameters": {"type": "object"}});
    let body = json!({"input": "hello", "tools": [tool("write"), tool("clock")], "stream": true});
    let events = named_events(&server, "/v1/responses", &body).await;
    let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).collect::<Vec<_>>();
    let deltas = of("response.function_call_arguments.delta");
    let written: String =
        deltas.iter().filter(|d| d["output_index"] == 1).filter_map(|d| d["delta"].as_str()).collect();
    assert_eq!((written.as_str(), deltas.len()), (WRITTEN, WRITTEN.len() + 2));
    assert_eq!(of("response.function_call_arguments.done")[0]["arguments"], WRITTEN);
    let output = &of("response.completed")[0]["response"]["output"];
    assert_eq!((&output[1]["arguments"], &output[1]["status"]), (&json!(WRITTEN), &json!("completed")));

    let mut cut = body;
    cut["max_output_tokens"] = (CALLS.find("a b").expect("it is there") + 1).into();
    let events = named_events(&server, "/v1/responses", &cut).await;
    let output = &events[events.len() - 1]["response"]["output"];
    assert_eq!((&output[1]["arguments"], &output[1]["status"]), (&json!(r#"{"text":"a"#), &json!("incomplete")));
}

#[tokio::test]
async fn messages_have_deltas_of_json() {
    let server = held_to(CALLS).await;
    let tool = |name: &str| json!({"name": name, "input_schema": {"type": "object"}});
    let body = json!({"model": "default", "max_tokens": 500, "messages": [{"role": "user", "content": "hello"}],
        "tools": [tool("write"), tool("clock")], "stream": true});
    let events = named_events(&server, "/v1/messages", &body).await;
    let started: Vec<&Value> = events
        .iter()
        .filter(|event| event["type"] == "content_block_start")
        .map(|event| &event["content_block"])
        .collect();
    assert_eq!((started.len(), &started[1]["name"], &started[1]["input"]), (3, &json!("write"), &json!({})));
    let of_block = |index: usize| {
        let deltas =
            events.iter().filter(move |event| event["type"] == "content_block_delta" && event["index"] == index);
        deltas.filter_map(|event| event["delta"]["partial_json"].as_str()).collect::<Vec<_>>()
    };
    assert_eq!((of_block(1).concat().as_str(), of_block(1).len()), (WRITTEN, WRITTEN.len()));
    assert_eq!(of_block(2).concat(), "{}");
    let stopped = events.iter().filter(|event| event["type"] == "content_block_stop").count();
    assert_eq!(stopped, started.len());
}

#[tokio::test]
async fn lines_have_calls_whole() {
    let server = held_to(CALLS).await;
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}});
    let body = json!({"model": "default", "messages": [{"role": "user", "content": "hello"}], "tools": [tool("write"), tool("clock")]});
    let text = server.post("/api/chat", &body).await.body;
    let calls: Vec<Value> =
        text.lines().map(parsed).filter_map(|line| line["message"]["tool_calls"].get(0).cloned()).collect();
    assert_eq!(calls.len(), 2, "{text}");
    assert_eq!(calls[0]["function"]["arguments"], parsed(WRITTEN));
}

/// The data of events that have names.
async fn named_events(server: &Server, path: &str, body: &Value) -> Vec<Value> {
    let mut incoming = server.stream(path, body).await;
    let mut events = Vec::new();
    while let Some((_, data)) = incoming.named_event().await {
        events.push(parsed(&data));
    }
    events
}

fn parsed(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"))
}
