//! Tools, forms and reasoning: what reaches the prompt, what comes back, and what is refused by name.

use crate::fake::Fake;
use crate::{Server, chunks};
use duet_agents::ReasoningFormat;
use duet_server::{Families, ServerConfig};
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
const CALLS: &str = "Let me see.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\"}}\n</tool_call>\n\
                     <tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call>";

async fn saying(text: &str) -> Server {
    Server::with(Fake { says: Some(text.to_owned()), ..Fake::default() }, ServerConfig::default()).await
}

fn asking(more: Value) -> Value {
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}});
    let mut body = json!({
        "messages": [{"role": "user", "content": "hello"}],
        "tools": [tool("weather"), {"type": "web_search"}, tool("clock")],
    });
    body.as_object_mut().expect("an object").extend(more.as_object().expect("fields").clone());
    body
}

fn prompt(server: &Server) -> String {
    let bytes = server.last_request().prompt.iter().map(|token| token.0 as u8).collect();
    String::from_utf8(bytes).expect("text")
}

#[tokio::test]
async fn calls_come_back_in_openais_shape() {
    let server = saying(CALLS).await;
    let response = server.post(CHAT, &asking(json!({}))).await;
    assert_eq!(response.header("x-duet-ignored-fields"), Some("tools[1]"));
    assert_eq!(prompt(&server), "<tool>weather<tool>clock<user>hello");
    let choice = &response.json()["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(choice["message"]["content"], "Let me see.");
    let calls = choice["message"]["tool_calls"].as_array().expect("calls");
    let names: Vec<&Value> = calls.iter().map(|call| &call["function"]["name"]).collect();
    assert_eq!(names, ["weather", "clock"]);
    assert_eq!(calls[0]["type"], "function");
    assert!(calls[0]["id"].as_str().expect("an id").starts_with("call_") && calls[0]["id"] != calls[1]["id"]);
    let arguments: Value =
        serde_json::from_str(calls[0]["function"]["arguments"].as_str().expect("text")).expect("JSON");
    assert_eq!(arguments, json!({"city": "Bern"}));
}

#[tokio::test]
async fn streamed_calls_are_put_together_by_their_index() {
    let server = saying(CALLS).await;
    let chunks = chunks(&server.events(CHAT, &asking(json!({"stream": true}))).await);
    let deltas = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]);
    let text: String = deltas.clone().filter_map(|delta| delta["content"].as_str()).collect();
    assert_eq!(text, "Let me see.");
    let calls: Vec<&Value> = deltas.filter_map(|delta| delta["tool_calls"].get(0)).collect();
    let heads: Vec<(&Value, &Value)> = calls
        .iter()
        .filter(|call| call["id"].is_string())
        .map(|call| (&call["index"], &call["function"]["name"]))
        .collect();
    assert_eq!(heads, [(&json!(0), &json!("weather")), (&json!(1), &json!("clock"))]);
    let of = |index: u64| {
        let of_call = calls.iter().filter(move |call| call["index"] == index);
        of_call.filter_map(|call| call["function"]["arguments"].as_str()).collect::<String>()
    };
    assert_eq!(serde_json::from_str::<Value>(&of(0)).expect("JSON"), json!({"city": "Bern"}));
    assert_eq!(serde_json::from_str::<Value>(&of(1)).expect("JSON"), json!({}));
    assert_eq!(chunks.last().expect("a last chunk")["choices"][0]["finish_reason"], "tool_calls");
}

#[tokio::test]
async fn a_call_that_is_none_is_text() {
    let broken = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": </tool_call> so";
    let server = saying(broken).await;
    let choice = &server.post(CHAT, &asking(json!({}))).await.json()["choices"][0];
    assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!(broken), &json!("stop")));
    assert_eq!(choice["message"].get("tool_calls"), None);
}

#[tokio::test]
async fn without_tools_marks_are_text() {
    let server = saying(CALLS).await;
    let body = json!({"messages": [{"role": "user", "content": "hello"}]});
    assert_eq!(server.post(CHAT, &body).await.json()["choices"][0]["message"]["content"], CALLS);
    let none = server.post(CHAT, &asking(json!({"tool_choice": "none"}))).await;
    assert_eq!(none.json()["choices"][0]["message"]["content"], CALLS);
    assert_eq!(prompt(&server), "<user>hello");
}

#[tokio::test]
async fn reasoning_comes_apart_from_the_answer() {
    let families = Families { reasoning: Some(ReasoningFormat::Think), ..Fake::default().families };
    let fake = Fake { says: Some("<think>\nhm\n</think>\n\nYes.".to_owned()), families, ..Fake::default() };
    let server = Server::with(fake, ServerConfig::default()).await;
    let mut body = json!({"messages": [{"role": "user", "content": "hello"}], "reasoning_effort": "low"});
    let message = &server.post(CHAT, &body).await.json()["choices"][0]["message"];
    assert_eq!(message["content"], "Yes.");
    assert_eq!(message["reasoning_content"].as_str().map(str::trim), Some("hm"));
    assert!(prompt(&server).contains("<enable_thinking=true><reasoning_effort=\"low\">"), "{}", prompt(&server));
    body["stream"] = json!(true);
    let chunks = chunks(&server.events(CHAT, &body).await);
    let of =
        |name: &str| chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"][name].as_str()).collect::<String>();
    assert_eq!((of("reasoning_content").trim(), of("content").as_str()), ("hm", "Yes."));
}

#[tokio::test]
async fn several_answers_have_their_index_and_one_usage() {
    let server = Server::start().await;
    let body = json!({"messages": [{"role": "user", "content": "hello"}], "n": 3, "seed": 5, "temperature": 1, "stream": true,
        "stream_options": {"include_usage": true}});
    let chunks = chunks(&server.events(CHAT, &body).await);
    let text = |index: u64| {
        let of_choice = chunks.iter().filter(move |chunk| chunk["choices"][0]["index"] == index);
        of_choice.filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect::<String>()
    };
    assert!(text(0) != text(1) && text(1) != text(2), "each is drawn by itself");
    let usage = &chunks.last().expect("a last chunk")["usage"];
    assert_eq!(usage["prompt_tokens"], "<user>hello".len());
    assert_eq!(usage["completion_tokens"], 3 * (crate::fake::LENGTH + 1));
    let prompts = json!({"prompt": ["a", "bc"], "n": 2, "echo": true});
    let answer = server.post("/v1/completions", &prompts).await.json();
    let texts: Vec<&str> =
        answer["choices"].as_array().expect("choices").iter().filter_map(|c| c["text"].as_str()).collect();
    assert_eq!(texts.len(), 4);
    assert!(texts[1].starts_with("a ") && texts[2].starts_with("bc ") && answer["usage"]["prompt_tokens"] == 3);
}

/// A form that cannot be, in all the ways to ask for it: each refusal is of the field that was sent.
#[tokio::test]
async fn a_refused_form_is_named_by_the_field_that_asked_for_it() {
    let server = Server::start().await;
    let (far, long) = (json!({"$ref": "https://other/schema"}), "a".repeat(70_000));
    let schema =
        json!({"type": "json_schema", "name": "a", "schema": far, "json_schema": {"name": "a", "schema": far}});
    let forms = [
        ("response_format", schema.clone()),
        ("response_format", json!({"type": "regex", "pattern": long})),
        ("grammar", json!("root ::= missing")),
        ("json_schema", far.clone()),
        ("guided_json", far.clone()),
        ("guided_regex", json!(long)),
        ("guided_choice", json!([])),
        ("guided_grammar", json!(long)),
        ("structured_outputs", json!({"regex": long})),
    ];
    for (name, form) in forms {
        refused_form(&server, CHAT, asking(json!({name: form})), name).await;
        refused_form(&server, "/v1/completions", json!({"prompt": "hi", name: form}), name).await;
    }
    let body = json!({"input": "hi", "text": {"format": schema}});
    refused_form(&server, "/v1/responses", body, "text.format").await;
    for (name, field, value) in [
        ("output_config", "output_config.format", json!({"format": schema})),
        ("output_format", "output_format", schema.clone()),
    ] {
        let messages = json!([{"role": "user", "content": "hi"}]);
        let body = json!({"max_tokens": 9, "messages": messages, name: value});
        refused_form(&server, "/v1/messages", body, field).await;
    }
    for (path, body) in [
        ("/api/chat", json!({"messages": [{"role": "user", "content": "hi"}]})),
        ("/api/generate", json!({"prompt": "hi"})),
        ("/api/generate", json!({"prompt": "hi", "raw": true})),
    ] {
        let mut body = body;
        (body["model"], body["format"]) = (json!("default"), far.clone());
        refused_form(&server, path, body, "format").await;
    }
}

/// The message names the field, and so does `param` where errors have one.
async fn refused_form(server: &Server, path: &str, body: Value, field: &str) {
    let response = server.post(path, &body).await;
    let error = &response.json()["error"];
    let message = error["message"].as_str().or(error.as_str()).expect("words");
    assert_eq!(response.status, 400, "{path} {body} → {error}");
    assert!(message.starts_with(&format!("'{field}': ")), "{path} {body} → {error}");
    assert!(error.get("param").is_none_or(|param| param == field), "{path} {body} → {error}");
}

#[tokio::test]
async fn what_cannot_be_held_to_is_refused_by_name() {
    let server = Server::start().await;
    let schema =
        |schema: Value| json!({"type": "json_schema", "json_schema": {"name": "a", "strict": true, "schema": schema}});
    for (fields, param, words) in [
        (json!({"tools": "x"}), "tools", "an array"),
        (json!({"tools": [{"type": "function"}]}), "tools[0].function", "required"),
        (json!({"tools": [{"type": "function", "function": {}}]}), "tools[0].function.name", "required"),
        (
            json!({"tools": [{"function": {"name": "f"}}, {"function": {"name": "f"}}]}),
            "tools[1].function.name",
            "of its own",
        ),
        (
            json!({"tools": [{"function": {"name": "f", "parameters": 5}}]}),
            "tools[0].function.parameters",
            "a JSON schema",
        ),
        (json!({"tools": [{"function": {"name": "no spaces"}}]}), "tools", "cannot be a tool's name"),
        (json!({"tool_choice": {"type": "function", "function": {"name": "gone"}}}), "tool_choice", "'gone'"),
        (json!({"tools": [], "tool_choice": "required"}), "tool_choice", "no tools"),
        (json!({"tool_choice": "maybe"}), "tool_choice", "one of none, auto, required"),
        (json!({"response_format": {}}), "response_format.type", "required"),
        (json!({"response_format": {"type": "xml"}}), "response_format.type", "one of text"),
        (json!({"response_format": {"type": "json_schema"}}), "response_format.json_schema", "required"),
        (
            json!({"response_format": schema(json!({"$ref": "https://other/schema"}))}),
            "response_format",
            "'https://other/schema'",
        ),
        (json!({"response_format": schema(json!({"type": "string", "not": {}}))}), "response_format", "'not'"),
        (
            json!({"response_format": schema(json!({"type": "object", "description": "x".repeat(1 << 20)}))}),
            "response_format",
            "bytes",
        ),
        (json!({"grammar": "root ::= \"a\"", "guided_regex": "b"}), "guided_regex", "'grammar'"),
        (json!({"chat_template_kwargs": {"messages": []}}), "chat_template_kwargs.messages", "other fields"),
    ] {
        let response = server.post(CHAT, &asking(fields.clone())).await;
        let error = &response.json()["error"];
        assert_eq!((response.status, error["param"].as_str()), (400, Some(param)), "{fields} → {error}");
        assert!(error["message"].as_str().expect("words").contains(words), "{fields} → {error}");
    }
}
