//! A model that drafts for another changes no token of it: tiny ones with the same tokens, greedy and drawn, alone and in
//! batches with background work; and it must have the same tokens.

use duet_engine::{
    Engine, EngineConfig, EngineError, GenerateRequest, GenerationEvent, Method, SamplingParams, StopConditions, Usage,
    Verify,
};
use duet_model::{LoadOptions, Model};
use duet_types::{Bytes, Class, TokenId, Tokens};
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../model/tests/fixtures/golden_{name}.gguf"))
}

fn load(path: &Path) -> Arc<Model> {
    Arc::new(Model::load(path, &LoadOptions::default(), &mut |_| {}).unwrap())
}

fn start(draft: Option<&Arc<Model>>, kv: u64, folder: &Path) -> Result<Engine, EngineError> {
    let config = EngineConfig {
        threads: Some(2),
        kv_bytes: Some(Bytes(kv)),
        spill_bytes: Some(Bytes(1 << 20)),
        profile_folder: Some(folder.to_owned()),
        speculate: if draft.is_some() { Method::DuetDraft } else { Method::None },
        draft: draft.cloned(),
        verify: Verify::All,
        ..EngineConfig::default()
    };
    Engine::start(load(&fixture("llama")), config)
}

fn requests() -> Vec<GenerateRequest> {
    let request = |index: usize| {
        let prompt = (0..20 + index * 17).map(|at| TokenId(((at * 31 + index * 7) % 250) as u32)).collect();
        let temperature = [0.0, 0.8][index % 2];
        GenerateRequest {
            prompt,
            sampling: SamplingParams { temperature, seed: Some(index as u64), ..SamplingParams::default() },
            stop: StopConditions { max_tokens: Some(Tokens(30)), ignore_eos: true, ..StopConditions::default() },
            class: if index.is_multiple_of(3) { Class::Reactive } else { Class::Proactive },
            ..GenerateRequest::default()
        }
    };
    (0..8).map(request).collect()
}

/// All at once.
fn answers(engine: &Engine) -> Vec<(Vec<TokenId>, Usage)> {
    let open: Vec<_> = requests().into_iter().map(|request| engine.submit(request).unwrap()).collect();
    let answer = |mut generation: duet_engine::Generation| {
        let mut tokens = Vec::new();
        loop {
            match generation.next_blocking() {
                Some(GenerationEvent::Token { token, .. }) => tokens.push(token),
                Some(GenerationEvent::Finished { usage, .. }) => return (tokens, usage),
                other => panic!("{other:?}"),
            }
        }
    };
    open.into_iter().map(answer).collect()
}

#[test]
fn answers_are_the_same_whoever_drafts_however_little_memory_there_is() {
    let profiles = tempfile::tempdir().unwrap();
    let plain = answers(&start(None, 64 << 20, profiles.path()).unwrap());
    let (other, same) = (load(&fixture("qwen3")), load(&fixture("llama")));
    let page = load(&fixture("llama")).kv_pool(EngineConfig::default().kv_format, Tokens(64)).page_bytes().0;
    for (draft, kv) in [(&other, 64 << 20), (&same, 64 << 20), (&same, 16 * page)] {
        let drafted = answers(&start(Some(draft), kv, profiles.path()).unwrap());
        for (plain, drafted) in plain.iter().zip(&drafted) {
            assert_eq!(plain.0, drafted.0, "{} with {kv} bytes", draft.config().name);
        }
        if Arc::ptr_eq(draft, &same) && kv > 1 << 20 {
            let accepted: u32 = drafted.iter().map(|(_, usage)| usage.drafts.accepted.0).sum();
            assert!(accepted > 10, "the same model drafts well where nobody waits: {accepted} of 240");
        }
    }
}

#[test]
fn a_draft_model_has_the_same_tokens() {
    let folder = tempfile::tempdir().unwrap();
    // The same model, but for what one of its tokens is called.
    let mut bytes = std::fs::read(fixture("llama")).unwrap();
    let at = bytes.windows(7).position(|bytes| bytes == b"<|eos|>").unwrap();
    bytes[at..at + 7].copy_from_slice(b"<|end|>");
    let other = folder.path().join("other.gguf");
    std::fs::write(&other, bytes).unwrap();
    let error = start(Some(&load(&other)), 64 << 20, folder.path()).unwrap_err();
    assert!(matches!(error, EngineError::Configuration(_)), "{error:?}");
    for words in ["cannot draft for golden_llama", "token 257", "<|end|>", "<|eos|>", "same tokenizer"] {
        assert!(error.to_string().contains(words), "{error}");
    }
}
