//! The real model under load: answers are those alone, token for token, though requests are preempted, batched, and
//! spilled to disk. `DUET_TEST_MODEL` is the path of a GGUF file; without it this is skipped.

use duet_engine::{Engine, EngineConfig, GenerateRequest, GenerationEvent, PolicyName, SamplingParams, StopConditions};
use duet_model::{LoadOptions, Model};
use duet_testing::Need;
use duet_types::{Bytes, Class, TokenId, Tokens};
use std::sync::Arc;

const CONTEXT: Tokens = Tokens(640);
const REQUESTS: u64 = 9;

fn model() -> Option<Arc<Model>> {
    let path = duet_testing::path(Need::Model)?;
    Some(Arc::new(Model::load(&path, &LoadOptions::default(), &mut |_| {}).unwrap()))
}

/// Request `seed`: some hundred tokens, drawn with a temperature.
fn request(model: &Model, seed: u64) -> GenerateRequest {
    let count = 40 + (seed as usize * 73) % 500;
    let vocabulary = model.config().vocabulary;
    let prompt =
        (0..count).map(|i| TokenId(((i * 7919 + seed as usize * 104_729 + 1000) % vocabulary) as u32)).collect();
    GenerateRequest {
        prompt,
        sampling: SamplingParams { temperature: 0.8, top_p: 0.95, seed: Some(seed), ..SamplingParams::default() },
        stop: StopConditions { max_tokens: Some(Tokens(24)), ignore_eos: true, ..StopConditions::default() },
        class: if seed.is_multiple_of(3) { Class::Reactive } else { Class::Proactive },
        ..GenerateRequest::default()
    }
}

fn tokens(engine: &Engine, request: GenerateRequest) -> Vec<TokenId> {
    let mut generation = engine.submit(request).unwrap();
    let mut tokens = Vec::new();
    while let Some(event) = generation.next_blocking() {
        match event {
            GenerationEvent::Reading { .. } | GenerationEvent::Embedding(_) | GenerationEvent::Prompt(_) => {}
            GenerationEvent::Token { token, .. } => tokens.push(token),
            GenerationEvent::Finished { .. } => {}
            GenerationEvent::Failed(error) => panic!("{error}"),
        }
    }
    tokens
}

#[test]
fn answers_under_load_are_those_alone() {
    let Some(model) = model() else { return };
    let profiles = tempfile::tempdir().unwrap();
    let config = EngineConfig {
        context: Some(CONTEXT),
        profile_folder: Some(profiles.path().to_owned()),
        ..EngineConfig::default()
    };
    let alone: Vec<Vec<TokenId>> = {
        let engine = Engine::start(Arc::clone(&model), config.clone()).unwrap();
        (0..REQUESTS).map(|seed| tokens(&engine, request(&model, seed))).collect()
    };
    let page = model.kv_pool(config.kv_format, Tokens(64)).page_bytes();
    for policy in [PolicyName::Duet, PolicyName::AgentXpu, PolicyName::CpuBatching, PolicyName::Restart] {
        // Two contexts and a half: some have to go to disk.
        let kv_bytes = Some(Bytes(page.0 * 25));
        let engine = Engine::start(Arc::clone(&model), EngineConfig { policy, kv_bytes, ..config.clone() }).unwrap();
        let together: Vec<Vec<TokenId>> = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..REQUESTS)
                .map(|seed| {
                    let (engine, model) = (&engine, &model);
                    scope.spawn(move || {
                        // Background work first, so that there is something to preempt.
                        std::thread::sleep(std::time::Duration::from_millis(if seed.is_multiple_of(3) {
                            60
                        } else {
                            0
                        }));
                        tokens(engine, request(model, seed))
                    })
                })
                .collect();
            clients.into_iter().map(|client| client.join().unwrap()).collect()
        });
        for (seed, (alone, together)) in alone.iter().zip(&together).enumerate() {
            assert_eq!(alone, together, "{policy}: request {seed}");
        }
        let metrics = engine.metrics_text();
        let spills = metrics.lines().filter(|line| line.starts_with("duet_kv_spills_total"));
        let spilled: f64 = spills.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum();
        assert!(spilled > 0.0, "{policy} spilled nothing: {metrics}");
    }
}
