//! The program on a GPU: answers that come from its lane, a lane that is lost in the middle of one and comes back, and what is
//! told of GPUs.

mod support;

use duet_engine::{
    Device, Engine, EngineConfig, EngineError, Fallback, GenerateRequest, GenerationEvent, Method, SamplingParams,
    StopConditions,
};
use duet_gpu::{Adapter, Adapters, Fault, GpuModel};
use duet_model::{LoadOptions, Model};
use duet_testing::Need;
use duet_types::{Bytes, Class, TokenId, Tokens};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::server::Server;
use support::{duet, run};

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_llama.gguf");
const SINKS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_gptoss.gguf");

/// The adapter that `DUET_TEST_GPU` names, or the first, a program on the processor or not.
fn adapter() -> Option<Adapter> {
    let found = Adapters::look();
    let name = std::env::var(Need::Gpu.variable()).unwrap_or_else(|_| "gpu:0".to_owned());
    match found.named(&name) {
        Ok(adapter) => Some(adapter.clone()),
        Err(error) => {
            duet_testing::skip(Need::Gpu, error);
            None
        }
    }
}

/// Runs `duet run` twice: the second time the profile says that the GPU is far quicker than the cores, so that it does all.
fn answer_on(name: &str, model: &str, flags: &[&str]) -> support::Run {
    let cache = tempfile::tempdir().unwrap();
    let ask = [&["run", model, "--device", name, "--no-fallback", "--temperature", "0"], flags].concat();
    let first = run(&mut duet(cache.path(), &ask));
    assert_eq!(first.status, 0, "{first:#?}");
    duet_testing::prefer_devices(&cache.path().join("profiles"));
    run(&mut duet(cache.path(), &ask))
}

#[test]
fn the_lane_of_a_gpu_answers() {
    let Some(adapter) = adapter() else { return };
    let answer = answer_on(&adapter.name, MODEL, &["ab", "--raw", "--max-tokens", "4", "--speculate", "off"]);
    assert_eq!(answer.status, 0, "{answer:#?}");
    assert!(answer.stderr.contains(&format!("100.0 % on {}", adapter.name)), "{answer:#?}");
}

/// A profile that is asked for is the one that later starts find.
#[test]
fn a_profile_is_of_the_lane_of_a_gpu_as_well() {
    let Some(adapter) = adapter() else { return };
    let cache = tempfile::tempdir().unwrap();
    let profile = ["profile", MODEL, "--device", &adapter.name, "--effort", "quick", "--check", "--json"];
    let measured = run(&mut duet(cache.path(), &profile));
    assert_eq!(measured.status, 0, "{measured:#?}");
    let report: serde_json::Value = serde_json::from_str(&measured.stdout).unwrap();
    let lanes: Vec<&str> =
        report["lanes"].as_array().unwrap().iter().map(|lane| lane["name"].as_str().unwrap()).collect();
    assert!(lanes.contains(&adapter.name.as_str()), "{lanes:?}");
    let profiles = || {
        let files = std::fs::read_dir(cache.path().join("profiles")).unwrap().map(|file| file.unwrap().path());
        files.map(|path| (std::fs::read(&path).unwrap(), path)).collect::<BTreeSet<_>>()
    };
    let before = profiles();
    let ask = ["run", MODEL, "ab", "--raw", "--max-tokens", "1", "--speculate", "off", "--device", &adapter.name];
    let answer = run(&mut duet(cache.path(), &ask));
    assert_eq!(answer.status, 0, "{answer:#?}");
    assert!(profiles() == before, "neither this one nor another was measured: {before:?}");
}

#[test]
fn throughput_is_that_of_the_lane_of_a_gpu() {
    let Some(adapter) = adapter() else { return };
    let cache = tempfile::tempdir().unwrap();
    let few = ["--prompt", "16", "--gen", "2", "--batch", "2", "--samples", "1", "--json"];
    let ask = [&["bench", "throughput", MODEL, "--device", &adapter.name], &few[..]].concat();
    assert_eq!(run(&mut duet(cache.path(), &ask)).status, 0);
    duet_testing::prefer_devices(&cache.path().join("profiles"));
    let measured = run(&mut duet(cache.path(), &ask));
    let report: serde_json::Value = serde_json::from_str(&measured.stdout).unwrap();
    assert_eq!(report["shares"][0], serde_json::json!({"of": adapter.name, "share": 1.0}), "{measured:#?}");
    assert!(report["decode"][0]["tok_s"].as_f64().unwrap() > 0.0, "{report}");
}

/// A server whose work a GPU does: whole answers, streamed and not, the same whenever they are asked for.
#[test]
fn a_server_answers_on_the_lane_of_a_gpu() {
    let Some(adapter) = adapter() else { return };
    let cache = tempfile::tempdir().unwrap();
    let flags = ["--device", &adapter.name, "--speculate", "off", "--no-fallback"];
    drop(Server::start_with(cache.path(), MODEL, &flags));
    duet_testing::prefer_devices(&cache.path().join("profiles"));
    let mut server = Server::start_with(cache.path(), MODEL, &flags);
    let body = r#"{"model": "default", "prompt": "ab ab ab", "max_tokens": 8, "temperature": 0, "ignore_eos": true}"#;
    let text = |answer: &str| {
        let json: serde_json::Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        assert_eq!(json["usage"]["completion_tokens"], 8, "{answer}");
        json["choices"][0]["text"].as_str().unwrap().to_owned()
    };
    let first = text(&server.post("/v1/completions", body));
    assert!(!first.is_empty());
    let streamed = server.post("/v1/completions", &body.replace("{\"model\"", "{\"stream\": true, \"model\""));
    assert!(streamed.contains("data: [DONE]"), "{streamed}");
    assert_eq!(text(&server.post("/v1/completions", body)), first);
    let usable = format!("duet_lane_usable{{lane=\"{}\"}} 1", adapter.name);
    let metrics = server.get("/metrics");
    assert!(metrics.contains(&usable), "{metrics}");
    assert_eq!(server.terminate(), Some(0));
}

/// Weights that come from a file are read where the cores have them, by a GPU that shares their memory and was not given a part of
/// it; else it has a copy.
#[test]
fn a_gpu_that_shares_memory_has_no_copy_of_weights() {
    let (Some(adapter), Some(model)) = (adapter(), duet_testing::path(Need::Model)) else { return };
    let shares = {
        let model = Model::load(&model, &LoadOptions::default(), &mut |_| {}).unwrap();
        duet_gpu::shares_weights(&model, &adapter)
    };
    let (cache, path) = (tempfile::tempdir().unwrap(), model.to_str().unwrap());
    let told = |device: &str, flags: &[&str]| {
        let question = ["run", path, "Hi", "--max-tokens", "1", "-v", "--no-fallback", "--device", device];
        let answer = run(&mut duet(cache.path(), &[&question[..], flags].concat()));
        assert_eq!(answer.status, 0, "{answer:#?}");
        let line = answer.stderr.lines().find(|line| line.contains("a GPU has its weights"));
        line.unwrap_or_else(|| panic!("{answer:#?}")).to_owned()
    };
    let in_place = told(&adapter.name, &[]);
    assert_eq!(in_place.contains("copied=0 B"), shares, "{in_place}");
    let copied = told(&format!("{},memory=1G", adapter.name), &[]);
    assert!(copied.contains("shared=0 B"), "{copied}");
}

/// A model that the GPU has no room for: some of its layers are there, and the cores have the others.
#[test]
fn a_model_is_divided_between_a_gpu_and_the_cores() {
    let Some(adapter) = adapter() else { return };
    let on = |memory: &str| {
        let name = format!("{},memory={memory}", adapter.name);
        answer_on(&name, MODEL, &["ab ab ab", "--raw", "--max-tokens", "4", "--speculate", "off"])
    };
    let none = {
        let cache = tempfile::tempdir().unwrap();
        let name = format!("{},memory=4096", adapter.name);
        run(&mut duet(cache.path(), &["run", MODEL, "ab", "--raw", "--device", &name]))
    };
    none.assert_refused(&["a layer takes", "more memory"]);
    let whole = on("1G");
    assert!(whole.status == 0 && whole.stderr.contains("100.0 % on"), "{whole:#?}");
    // What the tiny model's last layer takes, with rows on their way, and not the first as well.
    let some = on(&least_memory(&adapter).to_string());
    assert_eq!(some.status, 0, "{some:#?}");
    assert!(some.stderr.contains(", layers 1 to 1"), "{some:#?}");
    let share = some.stderr.split("linear work: ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    let share: f64 = share.parse().unwrap();
    assert!(share > 10.0 && share < 90.0, "{some:#?}");
}

/// The least memory in which a layer of the model has room.
fn least_memory(adapter: &Adapter) -> u64 {
    let model = Arc::new(Model::load(Path::new(MODEL), &LoadOptions::default(), &mut |_| {}).unwrap());
    let mut memory = 1 << 10;
    while GpuModel::within(Arc::clone(&model), adapter, Some(Bytes(memory))).is_err() {
        memory += memory / 16;
    }
    memory
}

#[test]
fn what_is_no_gpu_is_refused() {
    let Some(adapter) = adapter() else { return };
    let cache = tempfile::tempdir().unwrap();
    let ask = |model, device: &str, flags: &[&str]| {
        let question = ["run", model, "ab", "--raw", "--max-tokens", "2", "--device", device];
        run(&mut duet(cache.path(), &[&question[..], flags].concat()))
    };
    ask(MODEL, "gpu:99", &[]).assert_refused(&["gpu:99", &adapter.name]);
    ask(MODEL, "gpu,shapes=fixed", &[]).assert_refused(&["compiles no graphs"]);
    ask(MODEL, &adapter.name, &["--graph-memory", "1G"]).assert_refused(&["compiles no graphs"]);
    // Sinks have no kernels there: the cores answer, and the person is told.
    let sinks = ask(SINKS, &adapter.name, &[]);
    assert!(sinks.status == 0 && sinks.stderr.contains("its attention has sinks"), "{sinks:#?}");
    ask(SINKS, &adapter.name, &["--no-fallback"]).assert_failed(&["its attention has sinks"]);
}

#[test]
fn gpus_are_listed() {
    let Some(adapter) = adapter() else { return };
    let cache = tempfile::tempdir().unwrap();
    let shown = run(&mut duet(cache.path(), &["devices"]));
    let line = shown.stdout.lines().skip_while(|line| !line.trim().starts_with(&adapter.name)).collect::<Vec<_>>();
    assert!(line[0].contains(&adapter.full_name), "{shown:#?}");
    assert!(line[1].contains("self-test passed") && line[1].contains("keys and values"), "{shown:#?}");
}

/// A driver without adapters is none: the loader is told to look where nothing is.
#[cfg(target_os = "linux")]
#[test]
fn without_a_driver_that_is_told() {
    let cache = tempfile::tempdir().unwrap();
    let nothing = cache.path().join("none.json");
    let without = |arguments: &[&str]| {
        let mut command = duet(cache.path(), arguments);
        run(command.env("VK_ICD_FILENAMES", &nothing).env("VK_DRIVER_FILES", &nothing))
    };
    let shown = without(&["devices"]);
    assert!(shown.stdout.contains("gpu: no GPU was found"), "{shown:#?}");
    let ask = ["run", MODEL, "ab", "--raw", "--max-tokens", "2", "--device", "gpu"];
    let answer = without(&ask);
    assert!(answer.status == 0 && answer.stderr.contains("no GPU was found"), "{answer:#?}");
}

fn answer(engine: &Engine) -> Result<Vec<TokenId>, EngineError> {
    let request = GenerateRequest {
        prompt: (1..60).map(TokenId).collect(),
        sampling: SamplingParams::default(),
        stop: StopConditions { max_tokens: Some(Tokens(6)), ignore_eos: true, ..StopConditions::default() },
        class: Class::Reactive,
        ..GenerateRequest::default()
    };
    let mut generation = engine.submit(request).unwrap();
    let mut tokens = Vec::new();
    while let Some(event) = generation.next_blocking() {
        match event {
            GenerationEvent::Token { token, .. } => tokens.push(token),
            GenerationEvent::Failed(error) => return Err(error),
            _ => {}
        }
    }
    Ok(tokens)
}

/// Zero where nothing was counted yet.
fn figure(engine: &Engine, name: &str) -> f64 {
    let text = engine.metrics_text();
    let line = text.lines().find(|line| line.starts_with(name));
    line.map_or(0.0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(120), "{what} does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Lost, out of memory, hung: the answer is whole, the lane is told to be lost, and the device, opened again, is used again.
#[test]
fn whatever_becomes_of_a_gpu_no_answer_ends() {
    let Some(adapter) = adapter() else { return };
    let model = Arc::new(Model::load(Path::new(MODEL), &LoadOptions::default(), &mut |_| {}).unwrap());
    let gpu = Arc::new(GpuModel::new(Arc::clone(&model), &adapter).unwrap());
    let spans = Some(Arc::clone(&gpu) as _);
    let device = Device { spans, ..Device::new("igpu", "1", Arc::clone(&gpu) as _) };
    let folder = tempfile::tempdir().unwrap();
    let config = EngineConfig {
        devices: vec![device],
        fallback: Fallback::Crew,
        threads: Some(1),
        speculate: Method::None,
        profile_folder: Some(folder.path().to_owned()),
        ..EngineConfig::default()
    };
    drop(Engine::start(Arc::clone(&model), config.clone()).unwrap());
    duet_testing::prefer_devices(folder.path());
    let engine = Engine::start(Arc::clone(&model), config).unwrap();
    let usable = "duet_lane_usable{lane=\"igpu\"}";
    for (losses, fault) in (1..).zip([Fault::Lost, Fault::NoMemory, Fault::Hung]) {
        let before = engine.linear_work().devices[0].macs;
        assert_eq!(answer(&engine).unwrap().len(), 6, "{fault:?}");
        assert!(engine.linear_work().devices[0].macs > before, "before {fault:?}: {:?}", engine.linear_work());
        gpu.provoke(fault);
        assert_eq!(answer(&engine).unwrap().len(), 6, "{fault:?}");
        until("the loss", || figure(&engine, "duet_lane_losses_total{lane=\"igpu\"}") >= f64::from(losses));
        until("the return", || figure(&engine, usable) == 1.0);
    }
    assert_eq!(answer(&engine).unwrap().len(), 6);
}
