//! Mixtures whose experts are on disk: answers are those of experts in memory, token for token, greedy and drawn, whoever
//! preempts whom; and an expert that cannot be read is an error of the requests that need it.

#[cfg(target_os = "linux")]
mod failing_reads;

use duet_engine::{
    Engine, EngineConfig, EngineError, GenerateRequest, GenerationEvent, SamplingParams, StopConditions,
};
use duet_model::gguf::GgufFile;
use duet_model::{ExpertMemoryError, LoadError, LoadOptions, Model};
use duet_types::{Bytes, Class, TokenId, Tokens};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const REQUESTS: u64 = 8;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../model/tests/fixtures/golden_{name}.gguf"))
}

fn load(name: &str, folder: &Path, memory: Option<Bytes>) -> Result<Model, LoadError> {
    let options =
        LoadOptions { packed: Some(folder.to_owned()), expert_memory: memory, threads: 1, ..LoadOptions::default() };
    Model::load(&fixture(name), &options, &mut |_| {})
}

/// A model with as little memory for experts as will do, and its file of packed weights.
fn on_disk(name: &str, folder: &Path) -> (Arc<Model>, PathBuf) {
    let Err(LoadError::NotPacked { path, .. }) = load(name, folder, Some(Bytes(1))) else { panic!("{name}") };
    let file = File::create(&path).unwrap();
    Model::pack_into(&GgufFile::open(&fixture(name)).unwrap(), &file, &LoadOptions::default(), &mut |_| {}).unwrap();
    let least = match load(name, folder, Some(Bytes(1))) {
        Err(LoadError::ExpertMemory(ExpertMemoryError::TooSmall { least, .. })) => least,
        other => panic!("{:?}", other.map(drop)),
    };
    (Arc::new(load(name, folder, Some(least)).unwrap()), path)
}

/// Greedy or drawn, of a person or of an agent.
fn request(model: &Model, seed: u64) -> GenerateRequest {
    let count = 10 + (seed as usize * 13) % 40;
    let vocabulary = model.config().vocabulary;
    let token = |i: usize| TokenId(((i * 7919 + seed as usize * 104_729 + 1000) % vocabulary) as u32);
    let drawn = SamplingParams { temperature: 0.9, seed: Some(seed), ..SamplingParams::default() };
    GenerateRequest {
        prompt: (0..count).map(token).collect(),
        sampling: if seed.is_multiple_of(2) { drawn } else { SamplingParams { temperature: 0.0, ..drawn } },
        stop: StopConditions { max_tokens: Some(Tokens(12)), ignore_eos: true, ..StopConditions::default() },
        class: if seed.is_multiple_of(3) { Class::Reactive } else { Class::Proactive },
        ..GenerateRequest::default()
    }
}

fn tokens(engine: &Engine, request: GenerateRequest) -> Result<Vec<TokenId>, EngineError> {
    let mut generation = engine.submit(request)?;
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

/// All requests at once.
fn together(engine: &Engine, model: &Model) -> Vec<Result<Vec<TokenId>, EngineError>> {
    std::thread::scope(|scope| {
        let client = |seed| scope.spawn(move || tokens(engine, request(model, seed)));
        let clients: Vec<_> = (0..REQUESTS).map(client).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    })
}

fn start(model: &Arc<Model>, profiles: &Path) -> Engine {
    start_with(2, model, profiles)
}

fn start_with(threads: usize, model: &Arc<Model>, profiles: &Path) -> Engine {
    let config =
        EngineConfig { threads: Some(threads), profile_folder: Some(profiles.to_owned()), ..EngineConfig::default() };
    Engine::start(Arc::clone(model), config).unwrap()
}

/// Where the first expert of the second layer begins.
fn first_expert(bytes: &[u8]) -> usize {
    let len = u64::from_le_bytes(bytes[16..24].try_into().unwrap()) as usize;
    let table: serde_json::Value = serde_json::from_slice(&bytes[56..56 + len]).unwrap();
    let matrices = table["matrices"].as_array().unwrap();
    let first = matrices.iter().find(|matrix| matrix["name"] == "blk.1.ffn_gate_up_exps.0").unwrap();
    first["sections"][0]["quants"].as_u64().unwrap() as usize
}

/// Changes a byte of it, in place: the file stays open.
fn damage_first_expert(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let at = first_expert(&bytes);
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

/// Some requests failed, which say that an expert cannot be read and why, and the other answers are right.
fn assert_some_failed(
    answers: &[Result<Vec<TokenId>, EngineError>],
    whole: &[Result<Vec<TokenId>, EngineError>],
    why: &str,
) {
    assert!(answers.iter().any(Result::is_err));
    for (answer, whole) in answers.iter().zip(whole) {
        match answer {
            Ok(_) => assert_eq!(answer, whole, "an answer that comes is right"),
            Err(EngineError::Weights(text)) => {
                assert!(text.contains("cannot be read") && text.contains(why), "{text}");
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn answers_are_those_of_experts_in_memory() {
    for (name, times) in [("qwen3moe", 1), ("qwen2moe", 1), ("gptoss", 1), ("qwen3moe", 4)] {
        let folder = tempfile::tempdir().unwrap();
        let in_memory = Arc::new(load(name, folder.path(), None).unwrap());
        let alone: Vec<_> = {
            let engine = start(&in_memory, folder.path());
            (0..REQUESTS).map(|seed| tokens(&engine, request(&in_memory, seed))).collect()
        };
        let (least, _) = on_disk(name, folder.path());
        let memory = Bytes(times * least.expert_memory().unwrap().0);
        let model = if times > 1 { Arc::new(load(name, folder.path(), Some(memory)).unwrap()) } else { least };
        let engine = start(&model, folder.path());
        for _ in 0..3 {
            assert_eq!(together(&engine, &model), alone, "{name}");
        }
        let stats = model.expert_memory_stats().unwrap();
        assert!(stats.cache.misses > 0 && stats.read > Bytes(0));
        assert!(engine.metrics_text().contains("duet_disk_experts_asked_total{found=\"on_disk\"}"));
        // With the least there is no room to hold what is waited for.
        assert!(times == 1 || stats.given_back > 0, "{stats:?}");
    }
}

#[test]
fn an_expert_that_cannot_be_read_fails_the_requests_that_need_it_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let (model, path) = on_disk("qwen3moe", folder.path());
    let engine = start(&model, folder.path());
    let whole: Vec<_> = together(&engine, &model);
    assert!(whole.iter().all(Result::is_ok));
    damage_first_expert(&path);
    assert_some_failed(&together(&engine, &model), &whole, "not those that were written");
    assert!(!path.exists(), "the next start packs the weights anew");
}

/// The system itself says that a part of the file cannot be read.
#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_fails_fails_the_requests_that_need_it_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    // A start that has a profile reads no expert to measure it; that of one thread is kept if its cores were its own.
    let profiles = folder.path().join("profiles");
    let start = |model: &Arc<Model>| start_with(1, model, &profiles);
    let (model, path) = on_disk("qwen3moe", folder.path());
    let whole = together(&start(&model), &model);
    duet_testing::settle(&profiles);
    assert!(whole.iter().all(Result::is_ok));
    let memory = model.expert_memory().unwrap();
    let block = first_expert(&std::fs::read(&path).unwrap()) / 4096 * 4096;
    drop(model);
    // On a thread of its own, which is the only one with such a disk beside those that it starts.
    std::thread::scope(|scope| {
        let failing = scope.spawn(|| {
            failing_reads::fail_reads_at(block as u64);
            let model = Arc::new(load("qwen3moe", folder.path(), Some(memory)).unwrap());
            let engine = start(&model);
            assert_some_failed(&together(&engine, &model), &whole, "Input/output error");
            assert!(path.exists(), "it may be whole");
            // The engine goes on with what it can read.
            assert_some_failed(&together(&engine, &model), &whole, "Input/output error");
        });
        failing.join().unwrap();
    });
    // And so it is.
    let model = Arc::new(load("qwen3moe", folder.path(), Some(memory)).unwrap());
    assert_eq!(together(&start(&model), &model), whole);
}
