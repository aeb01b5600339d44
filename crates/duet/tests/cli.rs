//! The program with a real model: `DUET_TEST_MODEL` is the path of a GGUF file with a chat template. Without it these
//! tests are skipped. Unix only, because signals are part of what is tested.

#![cfg(unix)]

mod support;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use support::server::Server;
use support::{Run, duet, run, run_with_input, tiny_gguf};

/// Even the smallest models know this. (Without the second sentence SmolLM2-135M answers in French verse, in llama.cpp
/// as well.)
const QUESTION: &str = "What is the capital of France? Answer in one sentence.";

/// The model, or an excuse.
fn model() -> Option<String> {
    duet_testing::path(duet_testing::Need::Model).map(|path| path.to_str().unwrap().to_owned())
}

/// A cache that holds no model: only the profile of this machine, so that it is measured once.
fn cache() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

fn duet_run(arguments: &[&str]) -> Run {
    run(&mut duet(cache(), arguments))
}

#[test]
fn run_prints_the_answer_and_nothing_else() {
    let Some(model) = model() else { return };
    let arguments = ["run", &model, QUESTION, "--max-tokens", "30"];
    let answered = duet_run(&arguments);
    assert_eq!(answered.status, 0, "{answered:#?}");
    assert!(answered.stdout.contains("Paris"), "{answered:#?}");
    assert!(answered.stdout.ends_with('\n') && !answered.stdout.ends_with("\n\n"), "{answered:#?}");
    assert!(!answered.stdout.contains("<|"), "no token of the template is part of the answer: {answered:#?}");
    assert_eq!(duet_run(&arguments).stdout, answered.stdout, "without a temperature the answer is always the same");
}

#[test]
fn stdin_is_a_prompt() {
    let Some(model) = model() else { return };
    let arguments = ["run", &model, "-", "--max-tokens", "8"];
    let piped = run_with_input(&mut duet(cache(), &arguments), "Say hello.\n");
    assert_eq!(piped.status, 0, "{piped:#?}");
    assert_eq!(piped.stdout, duet_run(&["run", &model, "Say hello.", "--max-tokens", "8"]).stdout);
}

#[test]
fn raw_continues_the_text() {
    let Some(model) = model() else { return };
    let raw = duet_run(&["run", &model, "The capital of France is", "--raw", "--max-tokens", "5"]);
    assert!(raw.stdout.contains("Paris"), "{raw:#?}");
}

#[test]
fn the_same_seed_gives_the_same_text() {
    let Some(model) = model() else { return };
    let tell = |seed| {
        let told =
            duet_run(&["run", &model, "Tell a story.", "--max-tokens", "24", "--temperature", "1", "--seed", seed]);
        assert_eq!(told.status, 0, "{told:#?}");
        told.stdout
    };
    let first = tell("7");
    assert_eq!(tell("7"), first);
    assert_ne!(tell("8"), first, "24 tokens at temperature 1 do not repeat by chance");
}

#[test]
fn a_chat_over_a_pipe_remembers_what_was_said() {
    let Some(model) = model() else { return };
    let directory = tempfile::tempdir().unwrap();
    let (before, after) = (directory.path().join("before.json"), directory.path().join("after.json"));
    let input = format!(
        "My name is Ada.\n\"\"\"\nWhat is\nmy name?\n\"\"\"\n/save {}\n/reset\nHello.\n/save {}\n/exit\nunread\n",
        before.display(),
        after.display()
    );
    let arguments = ["chat", &model, "--system", "Be brief.", "--max-tokens", "40", "--temperature", "0"];
    let chatted = run_with_input(&mut duet(cache(), &arguments), &input);
    assert_eq!(chatted.status, 0, "{chatted:#?}");
    assert!(chatted.stdout.contains("Ada"), "{chatted:#?}");
    assert!(!chatted.stdout.contains(">>>"), "a pipe sees no prompts: {chatted:#?}");

    let roles = |path: &PathBuf| {
        let saved: serde_json::Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        let roles: Vec<_> =
            saved.as_array().unwrap().iter().map(|turn| turn["role"].as_str().unwrap().to_owned()).collect();
        roles.join(" ")
    };
    assert_eq!(roles(&before), "system user assistant user assistant");
    assert_eq!(roles(&after), "system user assistant");
}

#[test]
fn inspect_tells_what_the_model_is() {
    let Some(model) = model() else { return };
    let shown = duet_run(&["inspect", &model]);
    assert_eq!(shown.status, 0, "{shown:#?}");
    let architecture = shown.stdout.lines().find(|line| line.starts_with("architecture")).unwrap_or_default();
    assert!(architecture.split_whitespace().nth(1).is_some(), "{shown:#?}");

    let shown = duet_run(&["inspect", &model, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!(json["chat_template"], true);
    for field in ["context", "layers", "heads", "kv_heads", "ffn", "parameters"] {
        assert!(json[field].as_u64().is_some_and(|number| number > 0), "{field}: {json}");
    }
    let types = json["types"].as_array().unwrap();
    let elements: u64 = types.iter().map(|kind| kind["elements"].as_u64().unwrap()).sum();
    assert_eq!(json["parameters"], elements);
}

#[test]
fn a_mixed_load_prints_one_json_object_of_what_it_measured() {
    let Some(model) = model() else { return };
    let arguments = ["bench", "load", &model, "--reactive", "60", "--in-flight", "2", "--seconds", "3", "--json"];
    let loaded = duet_run(&arguments);
    assert_eq!((loaded.status, loaded.stdout.lines().count()), (0, 1), "{loaded:#?}");
    let json: serde_json::Value = serde_json::from_str(&loaded.stdout).unwrap();
    assert_eq!(json["policy"], "duet");
    assert_eq!(json["identical_outputs"], true, "a background changes no answer: {json}");
    for figure in ["/reactive/mean_s", "/reactive/norm_ms", "/alone/reactive_mean_s", "/interference/mean_ratio"] {
        assert!(
            json.pointer(figure).and_then(serde_json::Value::as_f64).is_some_and(|it| it > 0.0),
            "{figure}: {json}"
        );
    }
    assert!(json.pointer("/reactive/p99_s").is_none(), "so few requests have no 99th percentile: {json}");
}

#[test]
fn a_workload_that_cannot_be_read_is_refused_by_line_and_field() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("w.jsonl");
    fs::write(&path, "{\"kind\":\"reactive\",\"messages\":[{\"role\":\"user\",\"content\":7}]}\n").unwrap();
    let path = path.to_str().unwrap();
    let refused = duet_run(&["bench", "load", "missing.gguf", "--workload", path]);
    refused.assert_refused(&["w.jsonl", "line 1", "messages[0].content"]);
    let refused = duet_run(&["bench", "load", "missing.gguf", "--workload", "none.jsonl"]);
    refused.assert_refused(&["none.jsonl", "--workload"]);
}

#[test]
fn half_a_model_is_refused_at_once() {
    let Some(model) = model() else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("half.gguf");
    let mut whole = fs::File::open(model).unwrap();
    let half = whole.metadata().unwrap().len() / 2;
    std::io::copy(&mut Read::by_ref(&mut whole).take(half), &mut fs::File::create(&path).unwrap()).unwrap();
    let started = Instant::now();
    duet_run(&["run", path.to_str().unwrap(), "hi"]).assert_refused(&["half.gguf", "truncated"]);
    assert!(started.elapsed() < Duration::from_secs(1), "took {:?}", started.elapsed());
}

#[test]
fn a_tensor_type_that_duet_cannot_read_is_named() {
    // Needs no model, but the loader.
    let Some(_) = model() else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("exotic.gguf");
    fs::write(&path, tiny_gguf(16, 66)).unwrap();
    duet_run(&["run", path.to_str().unwrap(), "hi"]).assert_refused(&["exotic.gguf", "IQ2_XXS"]);
}

#[test]
fn a_prompt_longer_than_the_context_is_refused_with_both_numbers() {
    let Some(model) = model() else { return };
    let prompt = "word ".repeat(300);
    duet_run(&["run", &model, &prompt, "--ctx", "128"]).assert_refused(&["does not fit the context", "128"]);
}

#[test]
fn a_model_that_does_not_exist_is_refused() {
    duet_run(&["run", "missing.gguf", "hi"]).assert_refused(&["missing.gguf: no such file"]);
}

#[test]
fn serve_answers_and_ends_cleanly_at_sigterm() {
    let Some(model) = model() else { return };
    let mut server = Server::start(cache(), &model);
    let health = server.get("/health");
    assert!(health.starts_with("HTTP/1.1 200"), "{health}");

    let messages = serde_json::json!([{"role": "user", "content": QUESTION}]);
    let body = serde_json::json!({"messages": messages, "temperature": 0, "max_tokens": 30}).to_string();
    let answer = server.post("/v1/chat/completions", &body);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("Paris"), "{answer}");

    // A second server cannot have the port, whatever its model.
    let port = server.port.to_string();
    duet_run(&["serve", &model, "--port", &port]).assert_failed(&[&port, "in use"]);

    assert_eq!(server.terminate(), Some(0));
}

/// What was decided while people and agents used the server is decided again from the log of it, to the last command;
/// and the timeline of it is JSON.
#[test]
fn a_served_load_is_decided_again_from_its_log() {
    let Some(model) = model() else { return };
    let directory = tempfile::tempdir().unwrap();
    let [log, trace] = ["events.log", "trace.json"].map(|name| directory.path().join(name));
    let files = [log.to_str().unwrap(), trace.to_str().unwrap()];
    // Little memory, so that KV goes to disk and comes back.
    let arguments =
        ["--event-log", files[0], "--trace", files[1], "--ctx", "1024", "--kv-memory", "48M", "--proactive-age", "1"];
    let mut server = Server::start_with(cache(), &model, &arguments);
    std::thread::scope(|scope| {
        for client in 0..8 {
            let server = &server;
            scope.spawn(move || {
                let text = format!("{client}. ") + &"Tell me of the sea and of ships. ".repeat(20 + 9 * client);
                let tier = if client % 2 == 0 { "priority" } else { "flex" };
                let messages = serde_json::json!([{"role": "user", "content": text}]);
                let body = serde_json::json!({"messages": messages, "max_tokens": 24, "service_tier": tier});
                let answer = server.post("/v1/chat/completions", &body.to_string());
                assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            });
        }
    });
    let metrics = server.get("/metrics");
    assert!(metrics.contains("duet_"), "{metrics}");
    assert_eq!(server.terminate(), Some(0));
    let replayed = duet_run(&["replay", files[0]]);
    assert_eq!(replayed.status, 0, "{replayed:#?}");
    assert!(replayed.stdout.contains("led to the same"), "{replayed:#?}");

    // The same load in the simulator, beside what was measured; how near it comes is not for a busy machine to say.
    let judged = duet_run(&["simulate", "--replay", files[0]]);
    assert_eq!(judged.status, 0, "{judged:#?}");
    for expected in ["reactive mean TTFT", "proactive P90 latency", "drift-corrected", "where it is wrong"] {
        assert!(judged.stdout.contains(expected), "no `{expected}` in {judged:#?}");
    }
    let judged = duet_run(&["simulate", "--replay", files[0], "--json"]);
    let judged: serde_json::Value = serde_json::from_str(&judged.stdout).unwrap();
    assert_eq!((judged["reactive"]["n"].as_u64(), judged["proactive"]["n"].as_u64()), (Some(4), Some(4)), "{judged}");
    assert!(judged["reactive"]["mean_s"]["measured"].as_f64() > Some(0.0), "{judged}");
    assert!(judged["speed"]["n"].as_u64() > Some(0), "{judged}");

    let text = fs::read_to_string(&trace).unwrap();
    let closed = if text.trim_end().ends_with(']') {
        text.clone()
    } else {
        format!("{}]", text.trim_end().trim_end_matches(','))
    };
    let events: serde_json::Value = serde_json::from_str(&closed).unwrap();
    let has_reason = |event: &serde_json::Value| event.pointer("/args/reason").is_some();
    assert!(events.as_array().unwrap().iter().any(has_reason), "{text}");

    // A log in which something else was decided is found out.
    let log_text = fs::read_to_string(&log).unwrap();
    fs::write(&log, log_text.replacen("ReactiveFirst", "Background", 1)).unwrap();
    duet_run(&["replay", files[0]]).assert_failed(&["line ", "but the scheduler"]);
    duet_run(&["replay", "missing.log"]).assert_refused(&["missing.log"]);
}
