//! Responses: items in and out, events in order, what is kept, and work in the background.

use crate::fake::{Fake, Fault, LENGTH};
use crate::{PATIENCE, Server};
use duet_agents::{ReasoningFormat, ToolFormat};
use duet_engine::{EngineError, Remember};
use duet_server::{BehindAnswers, Families, ServerConfig};
use duet_types::{Class, Tokens};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Semaphore;

const RESPONSES: &str = "/v1/responses";
const CALL: &str = "<think>\nhm\n</think>\n\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>";

async fn saying(says: &str) -> Server {
    let families = Families { tools: ToolFormat::Hermes, reasoning: Some(ReasoningFormat::Think) };
    Server::with(Fake { says: Some(says.to_owned()), families, ..Fake::default() }, ServerConfig::default()).await
}

fn hello(more: Value) -> Value {
    let mut body = json!({"input": "hello"});
    body.as_object_mut().expect("an object").extend(more.as_object().expect("fields").clone());
    body
}

fn add() -> Value {
    json!({"type": "function", "name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}})
}

/// All events of a stream.
async fn events(server: &Server, body: &Value) -> Vec<Value> {
    let mut incoming = server.stream(RESPONSES, body).await;
    assert_eq!(incoming.status, 200);
    let mut events = Vec::new();
    while let Some(event) = incoming.named_event().await {
        let (name, data) = event;
        let data: Value = serde_json::from_str(&data).expect("JSON");
        assert_eq!(data["type"], name.as_str());
        assert_eq!(data["sequence_number"], events.len());
        events.push(data);
    }
    events
}

fn names(events: &[Value]) -> Vec<&str> {
    let mut names: Vec<&str> = events.iter().map(|event| event["type"].as_str().expect("a name")).collect();
    names.dedup();
    names
}

fn last_prompt(server: &Server) -> String {
    String::from_utf8(server.last_request().prompt.iter().map(|token| token.0 as u8).collect()).expect("text")
}

#[tokio::test]
async fn a_whole_answer_has_openais_shape() {
    let server = Server::start().await;
    let response = server.post(RESPONSES, &hello(json!({"temperature": 0.7, "metadata": {"a": "b"}}))).await;
    assert_eq!(response.status, 200, "{}", response.body);
    assert_eq!(response.header("x-duet-ignored-fields"), None);
    let answer = response.json();
    assert!(answer["id"].as_str().expect("an id").starts_with("resp_"));
    for (name, value) in [
        ("object", json!("response")),
        ("status", json!("completed")),
        ("model", json!("vendor/fake")),
        ("temperature", json!(0.7)),
        ("metadata", json!({"a": "b"})),
        ("text", json!({"format": {"type": "text"}})),
        ("store", json!(true)),
        ("error", Value::Null),
        ("tool_choice", json!("auto")),
        ("service_tier", json!("default")),
    ] {
        assert_eq!(answer[name], value, "{name}");
    }
    let message = &answer["output"][0];
    assert_eq!((&message["type"], &message["role"]), (&json!("message"), &json!("assistant")));
    let text = message["content"][0]["text"].as_str().expect("text");
    assert_eq!(text.split_whitespace().count(), LENGTH);
    let (input, output) = ("<user>hello".len(), LENGTH + 1);
    assert_eq!(answer["usage"]["input_tokens"], input);
    assert_eq!(answer["usage"]["input_tokens_details"]["cached_tokens"], 3);
    assert_eq!(answer["usage"]["output_tokens"], output);
    assert_eq!(answer["usage"]["output_tokens_details"]["reasoning_tokens"], 0);
    assert_eq!(answer["usage"]["total_tokens"], input + output);
    // OpenAI's clients in strict languages want all fields.
    for (name, value) in
        [("presence_penalty", json!(0)), ("frequency_penalty", json!(0)), ("max_tool_calls", json!(null))]
    {
        assert_eq!(answer.get(name), Some(&value), "{name}");
    }
    assert!(answer["completed_at"].is_u64() && answer.get("safety_identifier") == Some(&Value::Null));
}

#[tokio::test]
async fn a_stream_tells_of_text_in_order() {
    let server = Server::start().await;
    let events = events(&server, &hello(json!({"stream": true}))).await;
    let expected = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ];
    assert_eq!(names(&events), expected);
    let deltas = events.iter().filter_map(|event| event["delta"].as_str()).collect::<String>();
    let response = &events.last().expect("events")["response"];
    assert_eq!(response["output"][0]["content"][0]["text"], deltas);
    assert_eq!(response["usage"]["output_tokens"], LENGTH + 1);
    assert_eq!(response["id"], events[0]["response"]["id"]);
    let kept = server.get(&format!("{RESPONSES}/{}", response["id"].as_str().expect("an id"))).await;
    assert_eq!(&kept.json(), response);
}

#[tokio::test]
async fn reasoning_and_calls_are_items_of_their_own() {
    let server = saying(CALL).await;
    let body = hello(json!({"tools": [add()], "stream": true}));
    let events = events(&server, &body).await;
    let expected = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ];
    assert_eq!(names(&events), expected);
    let whole = server.post(RESPONSES, &hello(json!({"tools": [add()]}))).await.json();
    for response in [&events.last().expect("events")["response"], &whole] {
        let output = response["output"].as_array().expect("items");
        assert_eq!(output.len(), 2, "{output:?}");
        assert_eq!(output[0]["content"][0]["text"].as_str().expect("text").trim(), "hm");
        assert_eq!((&output[1]["type"], &output[1]["name"]), (&json!("function_call"), &json!("add")));
        let arguments: Value = serde_json::from_str(output[1]["arguments"].as_str().expect("text")).expect("JSON");
        assert_eq!(arguments, json!({"a": 1}));
        assert!(response["usage"]["output_tokens_details"]["reasoning_tokens"].as_u64() > Some(0));
        let mut told = add();
        told["description"] = Value::Null;
        told["strict"] = json!(false);
        assert_eq!(response["tools"], json!([told]));
    }
}

#[tokio::test]
async fn a_conversation_goes_on_from_a_response() {
    let server = saying(CALL).await;
    let first = server.post(RESPONSES, &hello(json!({"tools": [add()], "instructions": "be brief"}))).await.json();
    let (id, call) = (&first["id"], &first["output"][1]["call_id"]);
    let result = json!({"type": "function_call_output", "call_id": call, "output": "2"});
    let body = json!({"previous_response_id": id, "input": [result], "tools": [add()]});
    let second = server.post(RESPONSES, &body).await;
    assert_eq!(second.status, 200, "{}", second.body);
    // Instructions are each request's own.
    assert_eq!(last_prompt(&server), "<tool>add<user>hello<assistant>(hm)<tool>2");
    let body = json!({"previous_response_id": second.json()["id"], "input": "and now?", "store": false});
    assert_eq!(server.post(RESPONSES, &body).await.status, 200);
    assert_eq!(last_prompt(&server), "<user>hello<assistant>(hm)<tool>2<assistant>(hm)<user>and now?");
    let item = &first["output"][1]["id"];
    let body = json!({"input": ["x"], "store": false});
    assert_eq!(server.post(RESPONSES, &body).await.status, 400);
    let body = json!({"input": [{"type": "item_reference", "id": item}, {"type": "function_call_output", "call_id": call, "output": "3"}]});
    assert_eq!(server.post(RESPONSES, &body).await.status, 200);
    assert_eq!(last_prompt(&server), "<assistant><tool>3");
}

#[tokio::test]
async fn what_codex_sends_is_taken() {
    let server = Server::start().await;
    let body = json!({
        "model": "default", "instructions": "you code", "store": false, "stream": true,
        "include": ["reasoning.encrypted_content"], "prompt_cache_key": "thread", "parallel_tool_calls": false,
        "reasoning": {"effort": "low", "summary": "auto"}, "text": {"verbosity": "low"}, "tool_choice": "auto",
        "tools": [
            {"type": "function", "name": "shell", "strict": false, "parameters": {"type": "object", "properties": {}}},
            {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "syntax": "lark", "definition": "x"}},
            {"type": "web_search", "external_web_access": false},
            {"type": "namespace", "name": "more", "tools": []},
        ],
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "rules"}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "reasoning", "summary": [], "encrypted_content": "x"},
            {"type": "function_call", "call_id": "c", "name": "shell", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "done"},
            {"type": "message", "role": "developer", "content": "more rules"},
            {"role": "assistant", "content": [{"type": "output_text", "text": "yes", "annotations": []}], "phase": "final"},
        ],
    });
    let incoming = server.stream(RESPONSES, &body).await;
    assert_eq!(incoming.status, 200);
    let ignored = incoming.header("x-duet-ignored-fields").expect("some").to_owned();
    for name in ["tools[1]", "tools[2]", "tools[3]", "include[0]", "text.verbosity", "reasoning.summary"] {
        assert!(ignored.split(", ").any(|path| path == name), "{name} in {ignored}");
    }
    let prompt = last_prompt(&server);
    assert!(
        prompt.ends_with("<system>you code\n\nrules<user>hi<assistant><tool>done<system>more rules<assistant>yes"),
        "{prompt}"
    );
    assert_eq!(server.last_request().remember, Remember::Nothing);
    assert_eq!(server.get("/v1/models").await.json()["models"], json!([]));
}

#[tokio::test]
async fn stored_responses_are_fetched_listed_and_deleted() {
    let server = Server::start().await;
    let items = json!([{"role": "user", "content": "one"}, {"role": "user", "content": [{"type": "input_text", "text": "two"}]}]);
    let answer = server.post(RESPONSES, &json!({"input": items})).await.json();
    let path = format!("{RESPONSES}/{}", answer["id"].as_str().expect("an id"));
    assert_eq!(server.get(&path).await.json(), answer);
    let listed = server.get(&format!("{path}/input_items?order=asc&limit=1")).await.json();
    assert_eq!(listed["data"][0]["content"][0]["text"], "one");
    assert_eq!(listed["has_more"], true);
    let after = listed["last_id"].as_str().expect("an id");
    let rest = server.get(&format!("{path}/input_items?order=asc&after={after}")).await.json();
    assert_eq!((&rest["data"][0]["content"][0]["text"], &rest["has_more"]), (&json!("two"), &json!(false)));
    assert_eq!(server.ask(&format!("POST {path}/cancel"), &[], None).await.status, 400);
    assert_eq!(server.ask(&format!("DELETE {path}"), &[], None).await.json()["deleted"], true);
    let gone = server.get(&path).await;
    assert_eq!(gone.status, 404);
    assert!(gone.json()["error"]["message"].as_str().expect("text").contains(answer["id"].as_str().expect("an id")));
    let unkept = server.post(RESPONSES, &hello(json!({"store": false}))).await.json();
    assert_eq!(server.get(&format!("{RESPONSES}/{}", unkept["id"].as_str().expect("an id"))).await.status, 404);
}

#[tokio::test]
async fn what_cannot_be_done_is_refused_by_name() {
    let server = Server::start().await;
    let orphan =
        json!([{"role": "user", "content": "hi"}, {"type": "function_call_output", "call_id": "none", "output": "1"}]);
    for (fields, status, param) in [
        (json!({"input": null}), 400, "input"),
        (json!({"input": ""}), 400, "input"),
        (json!({"input": []}), 400, "input"),
        (json!({"input": 1}), 400, "input"),
        (json!({"input": ["hi"]}), 400, "input[0]"),
        (json!({"input": [{"type": "smell"}]}), 400, "input[0].type"),
        (json!({"input": [{"role": "tool", "content": "x"}]}), 400, "input[0].role"),
        (json!({"input": [{"role": "user"}]}), 400, "input[0].content"),
        (
            json!({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}),
            400,
            "input[0].content[0].input_image",
        ),
        (json!({"input": orphan}), 400, "input[1].call_id"),
        (json!({"input": [{"type": "item_reference", "id": "msg_x"}]}), 404, "input[0].id"),
        (json!({"input": "refuse me"}), 400, "input"),
        (json!({"previous_response_id": "resp_x"}), 404, "previous_response_id"),
        (json!({"truncation": "auto"}), 400, "truncation"),
        (json!({"conversation": "c"}), 400, "conversation"),
        (json!({"background": true, "store": false}), 400, "background"),
        (json!({"background": true, "service_tier": "priority"}), 400, "background"),
        (json!({"text": {"format": {"type": "xml"}}}), 400, "text.format.type"),
        (json!({"text": {"format": {"type": "json_schema", "name": "x"}}}), 400, "text.format.schema"),
        (json!({"reasoning": {"effort": "vast"}}), 400, "reasoning.effort"),
        (json!({"max_output_tokens": 0}), 400, "max_output_tokens"),
        (json!({"metadata": {"a": 1}}), 400, "metadata.a"),
        (json!({"include": "x"}), 400, "include"),
        (json!({"tools": [{"name": "x"}]}), 400, "tools[0].type"),
        (json!({"input": "x".repeat(5000)}), 400, "input"),
    ] {
        let response = server.post(RESPONSES, &hello(fields.clone())).await;
        assert_eq!(response.status, status, "{fields} → {}", response.body);
        assert_eq!(response.json()["error"]["param"], param, "{}", response.body);
    }
}

#[tokio::test]
async fn a_cut_answer_is_incomplete_and_a_failed_one_failed() {
    let server = Server::start().await;
    let told = events(&server, &hello(json!({"stream": true, "max_output_tokens": 2}))).await;
    let last = told.last().expect("events");
    assert_eq!(last["type"], "response.incomplete");
    assert_eq!(last["response"]["incomplete_details"], json!({"reason": "max_output_tokens"}));
    assert_eq!(last["response"]["output"][0]["status"], "incomplete");
    assert_eq!(server.last_request().stop.max_tokens, Some(Tokens(2)));
    let fault = Fault::Fail(2, EngineError::Internal("bug".to_owned()));
    let server = Server::with(Fake { fault, ..Fake::default() }, ServerConfig::default()).await;
    let told = events(&server, &hello(json!({"stream": true}))).await;
    let [error, failed] = &told[told.len() - 2..] else { panic!("two events") };
    assert_eq!((&error["type"], &error["code"]), (&json!("error"), &json!("server_error")));
    assert_eq!((&failed["type"], &failed["response"]["status"]), (&json!("response.failed"), &json!("failed")));
    assert_eq!(failed["response"]["error"]["message"], "internal error: bug");
    assert_eq!(server.post(RESPONSES, &hello(json!({}))).await.status, 500);
}

#[tokio::test]
async fn log_probabilities_come_if_included() {
    let server = Server::start().await;
    let body = hello(json!({"include": ["message.output_text.logprobs"], "top_logprobs": 2}));
    let part = server.post(RESPONSES, &body).await.json()["output"][0]["content"][0].clone();
    assert_eq!(part["logprobs"].as_array().map(Vec::len), Some(LENGTH));
    assert_eq!(part["logprobs"][0]["top_logprobs"].as_array().map(Vec::len), Some(2));
}

/// A server whose engine generates as many tokens as the test permits.
async fn gated(permits: usize) -> (Server, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(permits));
    let fake = Fake { gate: Some(Arc::clone(&gate)), ..Fake::default() };
    (Server::with(fake, ServerConfig::default()).await, gate)
}

/// Waits until a response has this status.
async fn wait_for_status(server: &Server, path: &str, status: &str) -> Value {
    let waiting = async {
        loop {
            let response = server.get(path).await.json();
            if response["status"] == status {
                return response;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("in time")
}

#[tokio::test]
async fn work_in_the_background_goes_on_by_itself() {
    let (server, gate) = gated(0).await;
    let queued = server.post(RESPONSES, &hello(json!({"background": true}))).await.json();
    assert_eq!((&queued["status"], &queued["service_tier"]), (&json!("queued"), &json!("flex")));
    assert_eq!(server.last_request().class, Class::Proactive);
    let path = format!("{RESPONSES}/{}", queued["id"].as_str().expect("an id"));
    assert_eq!(server.get(&path).await.json()["status"], "queued");
    let early = server.post(RESPONSES, &hello(json!({"previous_response_id": queued["id"]}))).await;
    assert_eq!(early.json()["error"]["param"], "previous_response_id");
    gate.add_permits(1);
    wait_for_status(&server, &path, "in_progress").await;
    gate.add_permits(LENGTH);
    let done = wait_for_status(&server, &path, "completed").await;
    assert_eq!(done["usage"]["output_tokens"], LENGTH + 1);
    assert_eq!(*server.fake.cancelled.borrow(), 0);
    // What has ended is not cancelled.
    assert_eq!(server.ask(&format!("POST {path}/cancel"), &[], None).await.json()["status"], "completed");
}

#[tokio::test]
async fn work_in_the_background_is_cancelled_or_deleted() {
    let (server, _gate) = gated(1).await;
    for (count, how) in [(1, "cancel"), (2, "delete")] {
        let queued = server.post(RESPONSES, &hello(json!({"background": true}))).await.json();
        let path = format!("{RESPONSES}/{}", queued["id"].as_str().expect("an id"));
        if how == "cancel" {
            let cancelled = server.ask(&format!("POST {path}/cancel"), &[], None).await.json();
            assert_eq!(cancelled["status"], "cancelled");
            assert_eq!(server.get(&path).await.json()["status"], "cancelled");
        } else {
            assert_eq!(server.ask(&format!("DELETE {path}"), &[], None).await.status, 200);
            assert_eq!(server.get(&path).await.status, 404);
        }
        server.wait_for_cancelled(count).await;
    }
}

#[tokio::test]
async fn work_in_the_background_does_not_end_with_its_watcher() {
    let (server, gate) = gated(1).await;
    let mut incoming = server.stream(RESPONSES, &hello(json!({"background": true, "stream": true}))).await;
    let (name, created) = incoming.named_event().await.expect("an event");
    assert_eq!(name, "response.created");
    let created: Value = serde_json::from_str(&created).expect("JSON");
    assert_eq!(incoming.named_event().await.expect("an event").0, "response.queued");
    drop(incoming);
    gate.add_permits(LENGTH);
    let path = format!("{RESPONSES}/{}", created["response"]["id"].as_str().expect("an id"));
    wait_for_status(&server, &path, "completed").await;
    let (server, _gate) = gated(LENGTH + 1).await;
    let told = events(&server, &hello(json!({"background": true, "stream": true}))).await;
    assert_eq!(names(&told)[..3], ["response.created", "response.queued", "response.in_progress"]);
    assert_eq!(names(&told).last(), Some(&"response.completed"));
}

#[tokio::test]
async fn hanging_up_ends_work_that_is_not_in_the_background() {
    let (server, _gate) = gated(1).await;
    let incoming = server.stream(RESPONSES, &hello(json!({"stream": true}))).await;
    drop(incoming);
    server.wait_for_cancelled(1).await;
}

#[tokio::test]
async fn titles_are_background_unless_the_client_says_otherwise() {
    const TITLES: &str = "You are a title generator. You output only a title.";
    let tags = "### Task:\nGenerate 1-3 broad tags.";
    let system = |content| json!([{"role": "system", "content": content}, {"role": "user", "content": "hi"}]);
    let server = Server::start().await;
    for (fields, class, tier) in [
        (json!({"instructions": TITLES}), Class::Proactive, "flex"),
        (json!({"input": system(TITLES)}), Class::Proactive, "flex"),
        (json!({"instructions": "Be brief.", "input": system(TITLES)}), Class::Proactive, "flex"),
        (json!({"input": tags}), Class::Proactive, "flex"),
        (json!({"input": tags, "service_tier": "priority"}), Class::Reactive, "priority"),
        (
            json!({"input": [{"role": "user", "content": tags}, {"role": "user", "content": "hi"}]}),
            Class::Reactive,
            "default",
        ),
        (json!({"input": system("Write titles.")}), Class::Reactive, "default"),
    ] {
        let answer = server.post(RESPONSES, &hello(fields.clone())).await.json();
        assert_eq!((server.last_request().class, &answer["service_tier"]), (class, &json!(tier)), "{fields}");
    }
    let config = ServerConfig { behind_answers: BehindAnswers::AsSaid, ..ServerConfig::default() };
    let server = Server::with(Fake::default(), config).await;
    assert_eq!(server.post(RESPONSES, &hello(json!({"instructions": TITLES}))).await.status, 200);
    assert_eq!(server.last_request().class, Class::Reactive);
}
