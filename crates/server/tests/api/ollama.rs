//! Ollama's routes: shapes, streams and what reaches the engine.

use crate::Server;
use crate::fake::{Fake, Fault};
use crate::http::Connection;
use duet_agents::{ReasoningFormat, ToolFormat};
use duet_engine::EngineError;
use duet_server::{Families, ServerConfig};
use duet_types::{Class, Tokens};
use serde_json::{Value, json};

const CHAT: &str = "/api/chat";
const GENERATE: &str = "/api/generate";

fn hello(more: Value) -> Value {
    with(json!({"model": "vendor/fake", "messages": [{"role": "user", "content": "hello"}]}), more)
}

fn with(mut body: Value, more: Value) -> Value {
    body.as_object_mut().expect("an object").extend(more.as_object().expect("fields").clone());
    body
}

async fn saying(text: &str) -> Server {
    let families = Families { tools: ToolFormat::Hermes, reasoning: Some(ReasoningFormat::Think) };
    Server::with(Fake { says: Some(text.to_owned()), families, ..Fake::default() }, ServerConfig::default()).await
}

/// The objects of a streamed answer.
async fn lines(server: &Server, path: &str, body: &Value) -> Vec<Value> {
    let response = server.post(path, body).await;
    assert_eq!(response.status, 200, "{}", response.body);
    assert_eq!(response.header("content-type"), Some("application/x-ndjson"));
    response.body.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn prompt(server: &Server) -> String {
    String::from_utf8(server.last_request().prompt.iter().map(|token| token.0 as u8).collect()).expect("text")
}

#[tokio::test]
async fn a_chat_is_streamed_unless_it_is_to_be_whole() {
    let server = saying("good day").await;
    let whole = server.post(CHAT, &hello(json!({"stream": false}))).await.json();
    assert_eq!(whole["model"], "vendor/fake");
    assert_eq!(whole["message"], json!({"role": "assistant", "content": "good day"}));
    assert_eq!((&whole["done"], &whole["done_reason"]), (&json!(true), &json!("stop")));
    assert_eq!((&whole["total_duration"], &whole["load_duration"]), (&json!(2_000_000), &json!(0)));
    assert_eq!((&whole["prompt_eval_duration"], &whole["eval_duration"]), (&json!(1_000_000), &json!(1_000_000)));
    assert_eq!((&whole["prompt_eval_count"], &whole["eval_count"]), (&json!(11), &json!(9)));
    assert!(whole["created_at"].as_str().is_some_and(|time| time.ends_with('Z') && time.starts_with("20")));

    let streamed = lines(&server, CHAT, &hello(json!({}))).await;
    let (last, pieces) = streamed.split_last().expect("lines");
    assert!(pieces.iter().all(|piece| piece["done"] == json!(false) && piece["message"]["role"] == "assistant"));
    let text: String = pieces.iter().filter_map(|piece| piece["message"]["content"].as_str()).collect();
    assert_eq!(text, "good day");
    assert_eq!(last["message"]["content"], "");
    for field in ["done", "done_reason", "eval_count", "prompt_eval_count", "total_duration"] {
        assert_eq!(last[field], whole[field], "{field}");
    }
}

#[tokio::test]
async fn calls_have_objects_for_arguments() {
    let server = saying("<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>").await;
    let tools = json!([{"type": "function", "function": {"name": "add", "description": "adds", "parameters": {
        "type": "object", "properties": {"a": {"type": "integer"}}}}}]);
    let body = hello(json!({"tools": tools, "stream": false}));
    let whole = server.post(CHAT, &body).await.json();
    let call = &whole["message"]["tool_calls"][0];
    assert_eq!(call["function"], json!({"index": 0, "name": "add", "arguments": {"a": 1}}));
    assert_eq!((&whole["message"]["content"], &whole["done_reason"]), (&json!(""), &json!("stop")));
    let streamed = lines(&server, CHAT, &hello(json!({"tools": tools}))).await;
    let calls: Vec<&Value> = streamed.iter().filter_map(|line| line["message"].get("tool_calls")).collect();
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0][0]["function"], call["function"]);

    // And back: what the client sends of them reaches the template.
    let messages = json!([
        {"role": "user", "content": "add"},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "add", "arguments": {"a": 1}}}]},
        {"role": "tool", "tool_name": "add", "content": "2"},
    ]);
    let response = server.post(CHAT, &json!({"model": "default", "messages": messages, "stream": false})).await;
    assert_eq!((response.status, response.header("x-duet-ignored-fields")), (200, None));
    assert_eq!(prompt(&server), "<user>add<assistant><tool>2");
}

#[tokio::test]
async fn what_the_model_thinks_is_apart() {
    let server = saying("<think>hm</think>yes").await;
    let whole = server.post(CHAT, &hello(json!({"think": "high", "stream": false}))).await.json();
    assert_eq!(whole["message"], json!({"role": "assistant", "content": "yes", "thinking": "hm"}));
    assert!(prompt(&server).starts_with("<enable_thinking=true><reasoning_effort=\"high\">"));
    let streamed = lines(&server, GENERATE, &json!({"model": "default", "prompt": "well?", "think": true})).await;
    let said = |field: &str| streamed.iter().filter_map(|line| line[field].as_str()).collect::<String>();
    assert_eq!((said("thinking").as_str(), said("response").as_str()), ("hm", "yes"));
    assert_eq!(server.post(CHAT, &hello(json!({"think": "wild"}))).await.status, 400);
}

#[tokio::test]
async fn a_text_goes_through_the_template_unless_it_is_raw() {
    let server = saying("ok").await;
    let body = json!({"model": "vendor/fake:latest", "system": "brief", "prompt": "go", "stream": false});
    let whole = server.post(GENERATE, &body).await.json();
    assert_eq!((&whole["response"], &whole["model"]), (&json!("ok"), &json!("vendor/fake:latest")));
    assert_eq!(prompt(&server), "<system>brief<user>go");
    server.post(GENERATE, &json!({"model": "vendor/fake", "prompt": "go", "raw": true, "stream": false})).await;
    assert_eq!(prompt(&server), "go");
}

#[tokio::test]
async fn titles_are_background_on_both_routes() {
    let server = Server::start().await;
    let title = "### Task:\nGenerate a concise, 3-5 word title.";
    for (path, fields, class) in [
        (CHAT, json!({"messages": [{"role": "user", "content": title}]}), Class::Proactive),
        (GENERATE, json!({"prompt": title}), Class::Proactive),
        (GENERATE, json!({"prompt": "hi", "system": title}), Class::Proactive),
        (GENERATE, json!({"prompt": title, "background": false, "priority": 0}), Class::Reactive),
        (GENERATE, json!({"prompt": "hi"}), Class::Reactive),
    ] {
        let response = server.post(path, &with(json!({"model": "vendor/fake", "stream": false}), fields.clone())).await;
        assert_eq!((response.status, server.last_request().class), (200, class), "{path} {fields}");
    }
}

#[tokio::test]
async fn options_reach_the_engine() {
    let server = Server::start().await;
    server.post(CHAT, &hello(json!({}))).await;
    let request = server.last_request();
    assert_eq!((request.sampling.temperature, request.sampling.top_p, request.sampling.seed), (0.8, 0.9, None));
    assert_eq!(request.stop.max_tokens, None);
    let options = json!({
        "temperature": 0, "top_k": 40, "top_p": 0.5, "min_p": 0.25, "seed": 7, "num_predict": 3, "stop": ["x"],
        "repeat_penalty": 1.5, "presence_penalty": 0.5, "frequency_penalty": 0.25, "num_ctx": 4096, "num_gpu": 1,
    });
    let response = server.post(CHAT, &hello(json!({"options": options, "background": true, "keep_alive": "5m"}))).await;
    let listed: std::collections::BTreeSet<_> =
        response.header("x-duet-ignored-fields").expect("some").split(", ").map(str::to_owned).collect();
    assert_eq!(listed.into_iter().collect::<Vec<_>>(), ["keep_alive", "options.num_gpu"]);
    let request = server.last_request();
    assert_eq!((request.sampling.temperature, request.sampling.top_k, request.sampling.seed), (0.0, 40, Some(7)));
    assert_eq!((request.sampling.min_p, request.sampling.repetition_penalty), (0.25, 1.5));
    assert_eq!((request.stop.max_tokens, request.stop.stop.as_slice()), (Some(Tokens(3)), &["x".to_owned()][..]));
    assert_eq!(request.class, Class::Proactive);
    let last: Value = serde_json::from_str(response.body.lines().last().expect("lines")).expect("JSON");
    assert_eq!((&last["done_reason"], &last["eval_count"]), (&json!("length"), &json!(3)));

    // Home Assistant's numbers all have points.
    let options = json!({"num_ctx": 4096.0, "num_predict": 3.0, "top_k": 40.0, "seed": 7.0});
    let response = server.post(CHAT, &hello(json!({"options": options, "stream": false}))).await;
    let request = server.last_request();
    assert_eq!((response.status, request.stop.max_tokens), (200, Some(Tokens(3))));
    assert_eq!((request.sampling.top_k, request.sampling.seed), (40, Some(7)));
    let response = server.post(CHAT, &hello(json!({"options": {"top_k": 1.5}, "stream": false}))).await;
    assert_eq!(response.status, 400);

    for options in [json!({"num_ctx": 65_536}), json!({"num_predict": -1, "seed": -1}), json!({"num_predict": -2})] {
        let response = server.post(CHAT, &hello(json!({"options": options, "stream": false}))).await;
        let listed = options.get("num_ctx").map(|_| "options.num_ctx");
        assert_eq!((response.status, response.header("x-duet-ignored-fields")), (200, listed));
    }
}

#[tokio::test]
async fn without_a_prompt_the_model_is_there_and_stays() {
    let server = Server::start().await;
    for (path, field, empty) in
        [(CHAT, "message", json!({"role": "assistant", "content": ""})), (GENERATE, "response", json!(""))]
    {
        for (more, reason) in
            [(json!({}), "load"), (json!({"keep_alive": 0}), "unload"), (json!({"keep_alive": "0s"}), "unload")]
        {
            let answer = server.post(path, &with(json!({"model": "vendor/fake"}), more)).await.json();
            assert_eq!((&answer["done"], &answer["done_reason"]), (&json!(true), &json!(reason)));
            assert_eq!(answer[field], empty);
        }
    }
    assert!(server.fake.requests.lock().expect("no test panicked").is_empty());
    assert_eq!(server.post(CHAT, &json!({"model": "llama3"})).await.status, 404);
}

#[tokio::test]
async fn the_model_is_told_of() {
    let config = ServerConfig { aliases: vec!["small".to_owned()], ..ServerConfig::default() };
    let server = Server::with(Fake::default(), config).await;
    let tags = server.get("/api/tags").await.json();
    let names: Vec<_> = tags["models"].as_array().expect("models").iter().map(|model| model["name"].clone()).collect();
    assert_eq!(names, ["vendor/fake:latest", "small:latest"]);
    assert_eq!(tags["models"][0]["digest"].as_str().map(str::len), Some(64));
    let running = server.get("/api/ps").await.json();
    assert_eq!(running["models"][1]["model"], "small:latest");
    assert_eq!(running["models"][0]["context_length"], 4096);
    for body in [json!({"model": "small"}), json!({"name": "small:latest"})] {
        let shown = server.post("/api/show", &body).await.json();
        assert_eq!(shown["capabilities"], json!(["completion", "tools"]));
        let architecture = shown["model_info"]["general.architecture"].as_str().expect("a text").to_owned();
        assert_eq!(shown["model_info"][format!("{architecture}.context_length")], 4096);
    }
    let shown = server.post("/api/show", &json!({"model": "llama3"})).await;
    assert_eq!(shown.status, 404);
    assert!(shown.json()["error"].as_str().is_some_and(|error| error.contains("'llama3' is not loaded")));
    assert_eq!(server.get("/api/version").await.json()["version"], "0.35.0");
    assert_eq!(server.get("/").await.body, "Ollama is running");
    // A response to HEAD has a length and no body.
    let head = Connection::send(server.address, "HEAD /", &[], None).await.head().await;
    assert_eq!(head.status, 200);
}

#[tokio::test]
async fn one_model_is_served_and_no_other_is_fetched() {
    let server = Server::start().await;
    let pulled = lines(&server, "/api/pull", &json!({"model": "vendor/fake"})).await;
    assert_eq!(pulled.last(), Some(&json!({"status": "success"})));
    let whole = server.post("/api/pull", &json!({"model": "vendor/fake", "stream": false})).await.json();
    assert_eq!(whole, json!({"status": "success"}));
    assert_eq!(server.post("/api/pull", &json!({"model": "llama3"})).await.status, 404);
    for head in
        ["POST /api/create", "POST /api/copy", "DELETE /api/delete", "POST /api/push", "POST /api/blobs/sha256:1"]
    {
        let response = server.ask(head, &[], Some(&json!({"model": "x"}))).await;
        assert_eq!(response.status, 400, "{head}");
        assert!(response.json()["error"].as_str().is_some_and(|error| error.contains("one model")), "{head}");
    }
    for head in ["GET /api/delete", "TRACE /api/delete", "PUT /api/blobs/sha256:1"] {
        assert_eq!(server.ask(head, &[], None).await.status, 405, "{head}");
    }
}

#[tokio::test]
async fn errors_are_texts() {
    let server = Server::start().await;
    let picture = json!({"messages": [{"role": "user", "content": "see", "images": ["aGk="]}]});
    for (path, body, status, says) in [
        (CHAT, hello(picture), 400, "messages[0].images"),
        (CHAT, json!({"messages": []}), 400, "'model' is required"),
        (CHAT, hello(json!({"options": {"temperature": -1}})), 400, "options.temperature"),
        (CHAT, hello(json!({"format": "yaml"})), 400, "'format'"),
        (CHAT, hello(json!({"format": {"$ref": "#/nowhere"}})), 400, "'format'"),
        (CHAT, hello(json!({"messages": [{"role": "wizard"}]})), 400, "messages[0].role"),
        (GENERATE, json!({"model": "default", "prompt": "x", "suffix": "y"}), 400, "'suffix' is not supported"),
        (GENERATE, json!({"model": "default", "prompt": "x", "context": [1]}), 400, "'context' is not supported"),
        (GENERATE, json!({"model": "default", "prompt": "x".repeat(5000)}), 400, "maximum context length"),
    ] {
        let response = server.post(path, &body).await;
        assert_eq!(response.status, status, "{body}");
        let error = response.json()["error"].as_str().unwrap_or_else(|| panic!("{}", response.body)).to_owned();
        assert!(error.contains(says), "{error}");
    }
    assert!(server.get("/api/chat").await.json()["error"].is_string());
    let locked = crate::keys::locked().await;
    let response = locked.get("/api/tags").await;
    assert_eq!((response.status, response.header("www-authenticate")), (401, Some("Bearer")));
    assert!(response.json()["error"].as_str().is_some_and(|error| error.contains("API key")));
    assert_eq!(locked.get("/").await.status, 200);

    let fault = Fault::Fail(2, EngineError::Internal("bug".to_owned()));
    let server = Server::with(Fake { fault, ..Fake::default() }, ServerConfig::default()).await;
    let streamed = lines(&server, CHAT, &hello(json!({}))).await;
    assert_eq!(streamed.last(), Some(&json!({"error": "internal error: bug"})));
}

#[tokio::test]
async fn a_client_that_goes_away_ends_its_work() {
    let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(2));
    let server = Server::with(Fake { gate: Some(gate), ..Fake::default() }, ServerConfig::default()).await;
    let incoming = server.stream(CHAT, &hello(json!({}))).await;
    assert_eq!(incoming.status, 200);
    drop(incoming);
    server.wait_for_cancelled(1).await;
}
