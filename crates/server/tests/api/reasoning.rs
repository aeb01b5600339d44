//! Reasoning that is bounded, by each route's own field.

use crate::fake::Fake;
use crate::{Server, chunks};
use duet_agents::{Begins, ReasoningFormat};
use duet_engine::ThoughtBound;
use duet_server::{Families, ServerConfig};
use duet_types::{TokenId, Tokens};
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";
const THOUGHT: &str = "<think>one two three</think>";

/// A server whose model thinks of numbers before it says this. Its tokens are bytes.
async fn saying(says: &str) -> Server {
    let families = Families { reasoning: Some(ReasoningFormat::Think), ..Fake::default().families };
    let says = Some(format!("{THOUGHT}{says}"));
    Server::with(Fake { says, families, ..Fake::default() }, ServerConfig::default()).await
}

/// A body of the route, with these fields.
fn body(path: &str, more: Value) -> Value {
    let messages = json!([{"role": "user", "content": "hi"}]);
    let mut body = match path {
        RESPONSES => json!({"input": "hi"}),
        MESSAGES => json!({"messages": messages, "max_tokens": 200}),
        _ => json!({"messages": messages}),
    };
    body.as_object_mut().expect("an object").extend(more.as_object().expect("fields").clone());
    body
}

fn bound(max: u32) -> ThoughtBound {
    let closing = "</think>".bytes().map(|byte| TokenId(u32::from(byte))).collect();
    ThoughtBound { format: ReasoningFormat::Think, begins: Begins::Outside, max: Tokens(max), closing }
}

fn prompt(server: &Server) -> String {
    server.last_request().prompt.iter().map(|token| char::from(token.0 as u8)).collect()
}

/// What was thought goes back to the template, whatever the route calls it.
#[tokio::test]
async fn thoughts_of_earlier_calls_reach_the_template() {
    let server = saying("Yes.").await;
    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": {}}});
    let user = json!({"role": "user", "content": "hi"});
    let result = json!({"role": "tool", "tool_call_id": "c", "content": "7"});
    let calling = |name: &str| json!({"role": "assistant", "content": null, "tool_calls": [call], name: "hm"});
    for name in ["reasoning_content", "reasoning"] {
        let answer = server.post(CHAT, &json!({"messages": [user, calling(name), result]})).await;
        assert_eq!((answer.status, answer.header("x-duet-ignored-fields")), (200, None), "{}", answer.body);
        assert_eq!(prompt(&server), "<user>hi<assistant>(hm)<tool>7");
    }
    let answer = server
        .post(
            "/api/chat",
            &json!({"model": "default", "messages": [user, calling("thinking"), result], "stream": false}),
        )
        .await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(prompt(&server), "<user>hi<assistant>(hm)<tool>7");

    let thought = json!({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]});
    let called = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"});
    let output = json!({"type": "function_call_output", "call_id": "c", "output": "7"});
    let answer = server.post(RESPONSES, &json!({"input": [user, thought, called, output], "store": false})).await;
    assert_eq!((answer.status, answer.header("x-duet-ignored-fields")), (200, None), "{}", answer.body);
    assert_eq!(prompt(&server), "<user>hi<assistant>(hm)<tool>7");
    // Nothing was said after it.
    let said = json!({"type": "message", "role": "assistant", "content": "yes"});
    let answer = server.post(RESPONSES, &json!({"input": [user, thought, said, thought, user], "store": false})).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(prompt(&server), "<user>hi<assistant>(hm\nhm)yes<user>hi");
}

#[tokio::test]
async fn each_route_has_its_field() {
    let server = saying("Yes.").await;
    for (path, fields, max) in [
        (CHAT, json!({"thinking_budget": 7}), Some(7)),
        (CHAT, json!({"reasoning": {"max_tokens": 7}}), Some(7)),
        (CHAT, json!({"thinking_budget": 7, "reasoning": {"max_tokens": 7, "effort": "low"}}), Some(7)),
        (CHAT, json!({"thinking_budget": 0}), Some(0)),
        (CHAT, json!({"thinking_budget": u32::MAX as u64 + 9}), Some(u32::MAX)),
        (CHAT, json!({"thinking_budget": -1}), None),
        (CHAT, json!({"reasoning": {"effort": "high"}}), None),
        (CHAT, json!({}), None),
        (RESPONSES, json!({"reasoning": {"max_tokens": 9}}), Some(9)),
        (RESPONSES, json!({"thinking_budget": 9}), Some(9)),
        (MESSAGES, json!({"thinking": {"type": "enabled", "budget_tokens": 1024}}), Some(1024)),
        (MESSAGES, json!({"thinking": {"type": "enabled"}}), None),
    ] {
        let response = server.post(path, &body(path, fields.clone())).await;
        assert_eq!((response.status, response.header("x-duet-ignored-fields")), (200, None), "{path} {fields}");
        assert_eq!(server.last_request().thought, max.map(bound), "{path} {fields}");
    }
}

/// Whoever bounds a model's reasoning wants some, and none if the bound is nothing; what is said of that itself goes first.
#[tokio::test]
async fn a_bound_tells_the_template_to_reason() {
    let server = saying("Yes.").await;
    for (fields, told) in [
        (json!({"thinking_budget": 5}), "<enable_thinking=true>"),
        (json!({"reasoning": {"max_tokens": 0}}), "<enable_thinking=false>"),
        (json!({"reasoning": {"max_tokens": 5, "enabled": false}}), "<enable_thinking=false>"),
        (json!({"thinking_budget": 5, "enable_thinking": false}), "<enable_thinking=false>"),
    ] {
        assert_eq!(server.post(CHAT, &body(CHAT, fields.clone())).await.status, 200);
        assert!(prompt(&server).contains(told), "{fields}: {}", prompt(&server));
    }
}

#[tokio::test]
async fn chats_get_the_thought_cut_and_the_whole_answer() {
    let server = saying("Yes.").await;
    let mut body = body(CHAT, json!({"thinking_budget": 7}));
    let answer = server.post(CHAT, &body).await.json();
    let message = &answer["choices"][0]["message"];
    assert_eq!((&message["reasoning_content"], &message["content"]), (&json!("one two"), &json!("Yes.")));
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    // The marks and the end of the turn were generated, too.
    assert_eq!(answer["usage"]["completion_tokens"], "<think>one two</think>Yes.".len() + 1);

    body["stream"] = json!(true);
    let chunks = chunks(&server.events(CHAT, &body).await);
    let of =
        |name: &str| chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"][name].as_str()).collect::<String>();
    assert_eq!((of("reasoning_content").as_str(), of("content").as_str()), ("one two", "Yes."));
}

#[tokio::test]
async fn calls_and_forms_follow_a_bounded_thought() {
    let server = saying("<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>").await;
    let add = json!({"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}});
    let fields = json!({"thinking_budget": 7, "tools": [add], "tool_choice": "required"});
    let answer = server.post(CHAT, &body(CHAT, fields)).await.json();
    let message = &answer["choices"][0]["message"];
    assert_eq!(message["reasoning_content"], "one two");
    assert_eq!(message["tool_calls"][0]["function"]["arguments"], "{\"a\":1}");

    let server = saying("{\"a\": 1}").await;
    let fields = json!({"reasoning": {"max_tokens": 3}, "response_format": {"type": "json_object"}});
    let answer = server.post(CHAT, &body(CHAT, fields)).await.json();
    let message = &answer["choices"][0]["message"];
    assert_eq!((&message["reasoning_content"], &message["content"]), (&json!("one"), &json!("{\"a\": 1}")));
}

#[tokio::test]
async fn items_and_blocks_are_cut_as_well() {
    let server = saying("Yes.").await;
    let answer = server.post(RESPONSES, &body(RESPONSES, json!({"reasoning": {"max_tokens": 7}}))).await.json();
    assert_eq!(answer["output"][0]["content"][0]["text"], "one two", "{answer}");
    assert_eq!(answer["output"][1]["content"][0]["text"], "Yes.");
    assert_eq!(answer["usage"]["output_tokens_details"]["reasoning_tokens"], 7);

    let fields = json!({"thinking": {"type": "enabled", "budget_tokens": 7}});
    let answer = server.post(MESSAGES, &body(MESSAGES, fields)).await.json();
    assert_eq!((&answer["content"][0]["thinking"], &answer["content"][1]["text"]), (&json!("one two"), &json!("Yes.")));
}

#[tokio::test]
async fn what_is_no_bound_is_refused_by_name() {
    let server = saying("Yes.").await;
    for (path, fields, param) in [
        (CHAT, json!({"thinking_budget": -2}), "thinking_budget"),
        (CHAT, json!({"thinking_budget": "long"}), "thinking_budget"),
        (CHAT, json!({"reasoning": "long"}), "reasoning"),
        (CHAT, json!({"reasoning": {"max_tokens": -1}}), "reasoning.max_tokens"),
        (CHAT, json!({"reasoning": {"effort": "vast"}}), "reasoning.effort"),
        (CHAT, json!({"reasoning": {"max_tokens": 1}, "thinking_budget": 2}), "thinking_budget"),
        (RESPONSES, json!({"reasoning": {"max_tokens": 0.5}}), "reasoning.max_tokens"),
        (MESSAGES, json!({"thinking": {"type": "enabled", "budget_tokens": 0}}), "thinking.budget_tokens"),
    ] {
        let response = server.post(path, &body(path, fields.clone())).await;
        let error = &response.json()["error"];
        assert_eq!(response.status, 400, "{path} {fields} → {error}");
        assert!(error["message"].as_str().expect("words").contains(&format!("'{param}'")), "{fields} → {error}");
        assert!(error.get("param").is_none_or(|named| named == param), "{fields} → {error}");
    }
}

#[tokio::test]
async fn where_nothing_is_bounded_the_field_is_listed() {
    let server = Server::start().await;
    for (path, fields, ignored) in [
        (CHAT, json!({"thinking_budget": 5}), "thinking_budget"),
        (CHAT, json!({"reasoning": {"max_tokens": 5, "exclude": true}}), "reasoning.max_tokens, reasoning.exclude"),
        (MESSAGES, json!({"thinking": {"type": "enabled", "budget_tokens": 5}}), "thinking.budget_tokens"),
        (MESSAGES, json!({"thinking": {"type": "disabled", "budget_tokens": 5}}), "thinking.budget_tokens"),
    ] {
        let response = server.post(path, &body(path, fields.clone())).await;
        assert_eq!((response.status, response.header("x-duet-ignored-fields")), (200, Some(ignored)), "{fields}");
        assert_eq!(server.last_request().thought, None);
    }
}
