//! A real engine behind the real server: keys, a full queue, clients that do not read.

#![cfg(unix)]

mod support;

use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};
use support::server::Server;

const CHAT: &str = "/v1/chat/completions";

/// The model, or an excuse.
fn model() -> Option<String> {
    let path = std::env::var("DUET_TEST_MODEL").ok().filter(|path| !path.is_empty());
    if path.is_none() {
        // Past the test harness, which would hide it.
        let _ = writeln!(std::io::stderr(), "skipped: DUET_TEST_MODEL names no model");
    }
    path
}

/// A cache that holds no model: only the profile of this machine, so that it is measured once.
fn cache() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

const COMPLETIONS: &str = "/v1/completions";

/// Sends a chat of one message; the status and the body of the answer.
fn ask(server: &Server, headers: &str, content: &str, fields: &Value) -> (u16, Value) {
    let mut body = json!({"messages": [{"role": "user", "content": content}], "temperature": 0});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    post(server, CHAT, headers, &body)
}

/// The status and the body of an answer.
fn post(server: &Server, route: &str, headers: &str, body: &Value) -> (u16, Value) {
    let response = server.send("POST", route, headers, &body.to_string());
    let status = response.split(' ').nth(1).unwrap().parse().unwrap();
    let (_, body) = response.split_once("\r\n\r\n").unwrap();
    (status, serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {response}")))
}

#[test]
fn nothing_of_one_key_is_used_for_another() {
    let Some(model) = model() else { return };
    let directory = tempfile::tempdir().unwrap();
    let keys = directory.path().join("keys");
    std::fs::write(&keys, "ada:first-key\ngrace:second-key\nadmin root:third-key\n").unwrap();
    let mut server =
        Server::start_with(cache(), &model, &["--api-key-file", keys.to_str().unwrap(), "--history", "off"]);
    let instructions = "Name three colours of flags. ".repeat(30);
    let cached = |key: &str| {
        let header = format!("Authorization: Bearer {key}\r\n");
        let (status, answer) = ask(&server, &header, &instructions, &json!({"max_tokens": 4}));
        assert_eq!(status, 200, "{answer}");
        answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    };
    assert_eq!(cached("first-key"), 0);
    assert!(cached("first-key") > 100, "the same prompt by the same key");
    assert_eq!(cached("second-key"), 0, "the same prompt by another key");

    let (status, refusal) = ask(&server, "", &instructions, &json!({}));
    assert_eq!((status, refusal["error"]["code"].as_str()), (401, Some("invalid_api_key")));
    let flows = |key: &str| {
        let response = server.send("GET", "/v1/flows", &format!("Authorization: Bearer {key}\r\n"), "");
        let (_, body) = response.split_once("\r\n\r\n").unwrap();
        let body: Value = serde_json::from_str(body).unwrap();
        let mut tenants: Vec<String> =
            body["data"].as_array().unwrap().iter().map(|flow| flow["tenant"].as_str().unwrap().to_owned()).collect();
        tenants.sort();
        tenants.dedup();
        tenants
    };
    assert_eq!(flows("first-key"), ["ada"]);
    assert_eq!(flows("second-key"), ["grace"]);
    assert_eq!(flows("third-key"), ["ada", "grace"]);
    assert_eq!(server.terminate(), Some(0));
}

/// A token is as likely in a prompt as it is when it is generated, to the bit: rows do not depend on what they are in.
#[test]
fn a_prompt_is_as_likely_as_its_tokens_were_when_they_were_generated() {
    let Some(model) = model() else { return };
    let mut server = Server::start_with(cache(), &model, &["--history", "off"]);
    let complete = |prompt: &Value, fields: &Value| {
        let mut body = json!({"prompt": prompt, "temperature": 0, "logprobs": 5});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let (status, answer) = post(&server, COMPLETIONS, "", &body);
        assert_eq!(status, 200, "{answer}");
        answer["choices"].as_array().unwrap().clone()
    };
    let list = |choice: &Value, name: &str| choice["logprobs"][name].as_array().unwrap().clone();
    let prompt = "The lighthouse keeper counted ships for forty years. ".repeat(31) + "The capital of France is";
    let generated = &complete(&json!(prompt), &json!({"max_tokens": 6, "ignore_eos": true}))[0];
    let text = prompt.clone() + generated["text"].as_str().unwrap();
    let scored = &complete(&json!(text), &json!({"max_tokens": 0, "echo": true}))[0];
    assert_eq!((&scored["text"], &scored["finish_reason"]), (&json!(text), &json!("length")));
    let tokens = list(scored, "tokens");
    let said = list(generated, "tokens");
    assert!(tokens.ends_with(&said), "{tokens:?} {said:?}");
    let tail = tokens.len() - said.len();
    assert!(tail > 256, "more than a chunk");
    let in_background = json!({"max_tokens": 0, "echo": true, "service_tier": "flex"});
    assert_eq!(&complete(&json!(text), &in_background)[0], scored);
    for name in ["token_logprobs", "top_logprobs"] {
        assert_eq!(list(scored, name)[tail..], list(generated, name), "{name}");
        assert_eq!(list(scored, name)[0], Value::Null);
    }
    assert_eq!(list(scored, "text_offset")[tail], prompt.chars().count());

    // As evaluation harnesses ask: one continuation beside the other.
    let continuations = json!(["The capital of France is Paris", "The capital of France is Tuesday"]);
    let fields = json!({"max_tokens": 1, "echo": true, "background": true});
    let likely = |choice: &Value| {
        let logprobs = list(choice, "token_logprobs");
        logprobs[1..logprobs.len() - 1].iter().map(|logprob| logprob.as_f64().unwrap()).sum::<f64>()
    };
    let sums: Vec<f64> = complete(&continuations, &fields).iter().map(likely).collect();
    assert!(sums[0] > sums[1], "{sums:?}");
    assert_eq!(server.terminate(), Some(0));
}

/// What the prompt's tokens cost is counted by the engine, whatever the answer says of it.
#[test]
fn several_answers_read_their_prompt_once_and_are_those_that_each_is_alone() {
    let Some(model) = model() else { return };
    let mut server = Server::start_with(cache(), &model, &["--history", "off"]);
    let computed = || {
        let metrics = server.get("/metrics");
        let lines = metrics.lines().filter(|line| line.starts_with("duet_prompt_tokens_computed_total"));
        lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum::<u64>()
    };
    let story = "Name three colours of flags, and say where they fly. ".repeat(30);
    let asked = |n: u32, seed: u32| {
        let fields = json!({"n": n, "seed": seed, "temperature": 0.8, "max_tokens": 12});
        let before = computed();
        let (status, answer) = ask(&server, "", &story, &fields);
        assert_eq!(status, 200, "{answer}");
        let choices = answer["choices"].as_array().unwrap();
        let texts: Vec<String> =
            choices.iter().map(|choice| choice["message"]["content"].as_str().unwrap().to_owned()).collect();
        (texts, answer["usage"].clone(), computed() - before)
    };
    let (texts, usage, read) = asked(4, 7);
    let prompt = usage["prompt_tokens"].as_u64().unwrap();
    // The last token of a prompt is read for each answer: it yields the first one of it.
    assert_eq!((&usage["prompt_tokens_details"]["cached_tokens"], read), (&json!(0), prompt + 4));
    for (choice, text) in texts.iter().enumerate() {
        assert_eq!(asked(1, 7 + choice as u32).0[0], *text);
    }
    let (again, usage, read) = asked(4, 7);
    let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert_eq!((again, cached, read), (texts, prompt - 1, 1 + 4));
    assert_eq!(server.terminate(), Some(0));
}

/// Eight connections, so three requests of a class may wait.
#[test]
fn more_than_may_wait_are_told_to_come_again() {
    let Some(model) = model() else { return };
    let mut server = Server::start_with(cache(), &model, &["--connections", "8", "--batch", "1", "--history", "off"]);
    let asking = |index: usize| {
        let content = format!("{index}. Tell me of the sea and of ships.");
        ask(&server, "", &content, &json!({"service_tier": "flex", "max_tokens": 150, "ignore_eos": true}))
    };
    let answers: Vec<(u16, Value)> = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..7).map(|index| scope.spawn(move || asking(index))).collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    let of = |status: u16| answers.iter().filter(|answer| answer.0 == status).count();
    assert_eq!(of(200) + of(429), 7, "{answers:?}");
    assert!(of(200) >= 3 && of(429) >= 1, "{answers:?}");
    let (_, refused) = answers.iter().find(|answer| answer.0 == 429).unwrap();
    assert_eq!(refused["error"]["type"], "rate_limit_error");
    assert_eq!(server.terminate(), Some(0));
}

/// A client that never reads its stream is in nobody's way, and does not keep the server from ending.
#[test]
fn a_client_that_does_not_read_is_in_nobodys_way() {
    let Some(model) = model() else { return };
    let mut server = Server::start_with(cache(), &model, &["--history", "off"]);
    let messages = json!([{"role": "user", "content": "Tell me of the sea."}]);
    let body = json!({"messages": messages, "stream": true, "ignore_eos": true, "logprobs": true, "top_logprobs": 20});
    let body = body.to_string();
    let mut deaf = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    let head = format!("POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    deaf.write_all(head.as_bytes()).unwrap();
    // It has begun.
    deaf.read_exact(&mut [0; 12]).unwrap();
    let (status, answer) = ask(&server, "", "What is the capital of France?", &json!({"max_tokens": 20}));
    assert_eq!(status, 200, "{answer}");
    let begun = Instant::now();
    assert_eq!(server.terminate(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
    drop(deaf);
}
