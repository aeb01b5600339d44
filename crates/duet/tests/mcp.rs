//! `duet mcp` with a real model, spoken to as clients do: lines of JSON-RPC on stdin and stdout.

#![cfg(unix)]

mod support;

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};
use support::duet;

/// The model, or an excuse.
fn model() -> Option<String> {
    duet_testing::path(duet_testing::Need::Model).map(|path| path.to_str().unwrap().to_owned())
}

/// A cache that holds no model: only the profile of this machine, so that it is measured once.
fn cache() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// A client and the server that it started, which is killed if the test fails.
struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    last: u64,
}

impl Client {
    /// Starts the server and shakes hands.
    fn start(model: &str, arguments: &[&str]) -> Self {
        let mut command = duet(cache(), &[&["mcp", model], arguments].concat());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut client = Self { child, stdin, stdout, last: 0 };
        let about = json!({"name": "test", "version": "1"});
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about});
        let welcome = client.request("initialize", hello);
        assert_eq!(welcome["result"]["serverInfo"]["name"], "duet", "{welcome}");
        assert!(welcome["result"]["capabilities"]["tools"].is_object(), "{welcome}");
        client.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    fn say(&mut self, message: &Value) {
        writeln!(self.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    /// Sends a request, and does not wait for its answer. Returns its number.
    fn send(&mut self, method: &str, params: Value) -> u64 {
        self.last += 1;
        self.say(&json!({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params}));
        self.last
    }

    /// The next message, which has to be the answer to request `id`.
    #[track_caller]
    fn answer(&mut self, id: u64) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let message: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        assert_eq!(message["jsonrpc"], "2.0", "{message}");
        assert_eq!(message["id"], id, "{message}");
        message
    }

    #[track_caller]
    fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.answer(id)
    }

    /// The result of a call.
    #[track_caller]
    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let mut answer = self.request("tools/call", json!({"name": tool, "arguments": arguments}));
        assert!(answer["result"].is_object(), "{answer}");
        answer["result"].take()
    }

    /// The text of a call that has to be answered.
    #[track_caller]
    fn text(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments);
        assert_ne!(result["isError"], true, "{result}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// Fails unless the call is refused in words that hold all of these.
    #[track_caller]
    fn assert_refused(&mut self, tool: &str, arguments: Value, words: &[&str]) {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], true, "{result}");
        let said = result["content"][0]["text"].as_str().unwrap();
        for word in words {
            assert!(said.contains(word), "{word:?} is missing: {said}");
        }
    }

    /// The processor time that the server took so far, in hundredths of a second.
    #[cfg(target_os = "linux")]
    fn ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        // The name in parentheses may hold anything; user and system time are the 12th and 13th fields after it.
        let (_, fields) = stat.rsplit_once(')').unwrap();
        fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
    }

    /// Closes stdin; the status with which the server ends, within `most`.
    #[track_caller]
    fn close(mut self, most: Duration) -> Option<i32> {
        drop(self.stdin.take());
        let begun = Instant::now();
        while begun.elapsed() < most {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the server did not end");
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn each_tool_does_what_it_says() {
    let Some(model) = model() else { return };
    let mut client = Client::start(&model, &[]);
    let listed = client.request("tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    assert_eq!(
        tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect::<Vec<_>>(),
        ["generate", "classify", "summarise"]
    );
    assert!(tools.iter().all(|tool| tool["inputSchema"]["additionalProperties"] == false), "{listed}");

    let question = "What is the capital of France? Answer in one sentence.";
    let answer = client.text("generate", json!({"prompt": question, "max_tokens": 30}));
    assert!(answer.contains("Paris"), "{answer}");
    let cut = client.call("generate", json!({"prompt": question, "max_tokens": 2}));
    assert_eq!(cut["_meta"]["duet/finish_reason"], "length", "{cut}");

    let schema = json!({"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"],
        "additionalProperties": false});
    let held = client.text("generate", json!({"prompt": question, "schema": schema, "system": "Answer in JSON."}));
    let held: Value = serde_json::from_str(&held).unwrap();
    assert!(["Paris", "Rome"].contains(&held["city"].as_str().unwrap()), "{held}");

    let text = "Cats sleep for most of the day. They hunt at dawn and at dusk, and they clean their fur for hours.";
    let summary = client.text("summarise", json!({"text": text, "words": 20}));
    assert!(summary.to_lowercase().contains("cat"), "{summary}");
    assert_eq!(client.close(Duration::from_secs(20)), Some(0));
}

#[test]
fn a_text_gets_one_of_the_labels() {
    let Some(model) = model() else { return };
    let mut client = Client::start(&model, &[]);
    // One is the beginning of another, one has a quote, one is no ASCII.
    let labels = ["positive", "positive or so", "negative", "\"naïve\" ✓"];
    let mut found = |text: &str| {
        let arguments = json!({"text": text, "labels": labels, "question": "How does the text feel?"});
        let result = client.call("classify", arguments);
        let told: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(told, result["structuredContent"], "clients without structured content read the same");
        told
    };
    let share = |found: &Value, label: &str| found["probabilities"][label].as_f64().unwrap();
    let (good, bad) = ("I love this film. It is wonderful!", "I hate this film. It is terrible.");
    let [fine, awful] = [good, bad].map(&mut found);
    assert_eq!(found(good), fine, "the same each time");
    for found in [&fine, &awful] {
        assert_eq!(found["probabilities"].as_object().unwrap().len(), labels.len(), "{found}");
        let sum: f64 = labels.iter().map(|label| share(found, label)).sum();
        assert!((sum - 1.0).abs() < 1e-6, "{found}");
        let best = labels.into_iter().max_by(|a, b| share(found, a).total_cmp(&share(found, b)));
        assert_eq!(found["label"].as_str(), best, "{found}");
    }
    // The smallest model is no judge of films, but it is moved.
    let ratio = |found: &Value| share(found, "positive") / share(found, "negative");
    assert!(ratio(&fine) > ratio(&awful), "{fine} {awful}");
    assert_eq!(client.close(Duration::from_secs(20)), Some(0));
}

#[test]
fn bad_calls_are_refused_by_name() {
    let Some(model) = model() else { return };
    let mut client = Client::start(&model, &["--ctx", "1024"]);
    for (tool, arguments, words) in [
        ("generate", json!({}), &["prompt: expected"][..]),
        ("generate", json!({"prompt": 5}), &["prompt: expected a text"]),
        ("generate", json!({"prompt": "Hi", "max_tokens": 0}), &["max_tokens", "from 1 to 8192"]),
        ("generate", json!({"prompt": "Hi", "temperature": 3}), &["temperature", "from 0 to 2"]),
        ("generate", json!({"prompt": "Hi", "tokens": 3}), &["tokens", "no such argument"]),
        ("generate", json!({"prompt": "Hi", "schema": "no"}), &["schema: expected an object"]),
        ("generate", json!({"prompt": "Hi", "schema": {"type": "stone"}}), &["schema: "]),
        ("generate", json!({"prompt": "Hi", "max_tokens": 1024}), &["max_tokens", "1024 tokens"]),
        (
            "generate",
            json!({"prompt": "Hi", "max_tokens": 4, "schema": {"type": "object", "required": ["a"],
            "properties": {"a": {"const": "a text that is longer than that"}}}}),
            &["max_tokens", "4 tokens"],
        ),
        ("classify", json!({"text": "Hi", "labels": ["a"]}), &["labels", "2 to 64"]),
        ("classify", json!({"text": "Hi", "labels": ["a", "a"]}), &["labels[1]"]),
        ("classify", json!({"labels": ["a", "b"]}), &["text: expected"]),
        (
            "summarise",
            json!({"text": "word ".repeat(2000), "words": 50}),
            &["text: its 10000 characters", "context of 1024"],
        ),
    ] {
        client.assert_refused(tool, arguments, words);
    }
    let unknown = client.request("tools/call", json!({"name": "translate", "arguments": {}}));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    assert!(unknown["error"]["message"].as_str().unwrap().contains("summarise"), "{unknown}");
    assert_eq!(client.close(Duration::from_secs(20)), Some(0));
}

/// What a client cancels is answered by nothing, and is in nobody's way.
#[test]
fn a_cancelled_call_ends() {
    let Some(model) = model() else { return };
    let mut client = Client::start(&model, &["--ctx", "8192"]);
    // Held to what cannot end before its limit.
    let schema = json!({"type": "array", "minItems": 2000, "items": {"type": "integer"}});
    let endless = json!({"prompt": "Count to ten thousand.", "max_tokens": 8000, "schema": schema});
    let id = client.send("tools/call", json!({"name": "generate", "arguments": endless}));
    std::thread::sleep(Duration::from_secs(2));
    client.say(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    // The next message is the answer to the next request, so the first one has none.
    client.text("generate", json!({"prompt": "Hello!", "max_tokens": 4}));
    #[cfg(target_os = "linux")]
    {
        let before = client.ticks();
        std::thread::sleep(Duration::from_secs(1));
        let ticks = client.ticks() - before;
        assert!(ticks < 20, "nothing is computed any more, but {ticks} hundredths of a second were");
    }
    assert_eq!(client.close(Duration::from_secs(4)), Some(0), "nothing is under way any more");
}

#[test]
fn a_client_that_goes_at_once_is_no_failure() {
    let Some(model) = model() else { return };
    // At whatever the threads that load and look for devices are about.
    for moment in (0..200).step_by(20).map(Duration::from_millis) {
        let mut command = duet(cache(), &["mcp", &model]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(moment);
        drop(child.stdin.take());
        let ended = support::Run::from(child.wait_with_output().unwrap());
        assert_eq!((ended.status, ended.stdout.as_str()), (0, ""), "after {moment:?}: {ended:#?}");
    }
}

#[test]
fn a_model_that_is_not_there_is_told_on_stderr() {
    let mut command = duet(cache(), &["mcp", "no-such-model.gguf"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Held open: it is not the client that ends this.
    let stdin = child.stdin.take();
    let ended = support::Run::from(child.wait_with_output().unwrap());
    ended.assert_refused(&["no-such-model.gguf"]);
    drop(stdin);
}
