//! A model whose layers have a recurrent state: turns that follow, prompts that begin alike and answers that are drafted are
//! those of an engine that keeps and drafts nothing.

use duet_engine::{Engine, EngineConfig, GenerateRequest, GenerationEvent, Method, StopConditions, Verify};
use duet_model::{LoadOptions, Model};
use duet_types::{TokenId, Tokens};
use std::path::Path;
use std::sync::Arc;

fn model(name: &str) -> Arc<Model> {
    let path = format!("{}/../model/tests/fixtures/golden_{name}.gguf", env!("CARGO_MANIFEST_DIR"));
    Arc::new(Model::load(Path::new(&path), &LoadOptions::default(), &mut |_| {}).unwrap())
}

fn engine(model: &Arc<Model>, folder: &Path, speculate: Method) -> Engine {
    let folder = Some(folder.to_owned());
    let config = EngineConfig {
        threads: Some(2),
        speculate,
        verify: Verify::All,
        profile_folder: folder,
        ..EngineConfig::default()
    };
    Engine::start(Arc::clone(model), config).unwrap()
}

fn answer(engine: &Engine, prompt: &[TokenId], tokens: u32) -> Vec<TokenId> {
    let stop = StopConditions { max_tokens: Some(Tokens(tokens)), ignore_eos: true, ..StopConditions::default() };
    let mut generation =
        engine.submit(GenerateRequest { prompt: prompt.to_vec(), stop, ..GenerateRequest::default() }).unwrap();
    let mut said = Vec::new();
    while let Some(event) = generation.next_blocking() {
        match event {
            GenerationEvent::Token { token, .. } => said.push(token),
            GenerationEvent::Failed(error) => panic!("{error}"),
            _ => {}
        }
    }
    said
}

fn text(count: usize, seed: usize) -> Vec<TokenId> {
    (0..count).map(|i| TokenId(((i * 37 + seed * 101 + i * i % 11) % 250) as u32)).collect()
}

#[test]
fn what_is_kept_and_drafted_changes_no_answer() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["lfm2", "lfm2moe", "qwen3next", "qwen35", "granitehybrid"] {
        let model = model(name);
        let keeping = engine(&model, folder.path(), Method::Duet);
        let alone = |prompt: &[TokenId], tokens| answer(&engine(&model, folder.path(), Method::None), prompt, tokens);
        let mut conversation = text(70, 1);
        for turn in 0..3 {
            let said = answer(&keeping, &conversation, 12);
            assert_eq!(said, alone(&conversation, 12), "{name}, turn {turn}");
            conversation.extend(said);
            conversation.extend(text(9, turn + 2));
        }
        // It begins as that one does, for a page and some more.
        let mut branch = conversation[..90].to_vec();
        branch.extend(text(5, 9));
        assert_eq!(answer(&keeping, &branch, 8), alone(&branch, 8), "{name}, a branch");
        // What repeats itself is drafted.
        let repeated = text(8, 3).repeat(6);
        assert_eq!(answer(&keeping, &repeated, 40), alone(&repeated, 40), "{name}, drafted");
    }
}
