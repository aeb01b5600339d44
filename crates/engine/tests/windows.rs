//! Sequences too long for memory, of models some of whose layers see a window only: their windows pass, and answers are those
//! of an engine that has room for all of it, through turns, disk and drafts.

use duet_engine::{Engine, EngineConfig, GenerateRequest, Generation, GenerationEvent, Method, StopConditions, Verify};
use duet_model::kv::KvFormat;
use duet_model::{LoadOptions, Model};
use duet_types::{Bytes, TokenId, Tokens};
use std::path::Path;
use std::sync::Arc;

/// Pages that there are: 512 positions whole.
const PAGES: u64 = 8;

/// The model of a fixture, with a context of 2,048 tokens.
fn model(name: &str) -> Arc<Model> {
    let path = format!("{}/../model/tests/fixtures/golden_{name}.gguf", env!("CARGO_MANIFEST_DIR"));
    let mut file = std::fs::read(path).unwrap();
    let key = b".context_length";
    let at = file.windows(key.len()).position(|bytes| bytes == key).unwrap() + key.len() + 4;
    file[at..at + 4].copy_from_slice(&2048_u32.to_le_bytes());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.gguf");
    std::fs::write(&path, file).unwrap();
    Arc::new(Model::load(&path, &LoadOptions::default(), &mut |_| {}).unwrap())
}

fn engine(model: &Arc<Model>, folder: &Path, pages: Option<u64>, speculate: Method) -> Engine {
    let page = model.kv_layout(KvFormat::default()).page_bytes() as u64;
    let config = EngineConfig {
        threads: Some(2),
        chunk: Tokens(32),
        batch: 4,
        speculate,
        verify: Verify::All,
        kv_bytes: pages.map(|pages| Bytes(pages * page)),
        spill_bytes: Some(Bytes(100 * page)),
        spill_folder: Some(folder.join("spill")),
        profile_folder: Some(folder.to_owned()),
        ..EngineConfig::default()
    };
    Engine::start(Arc::clone(model), config).unwrap()
}

fn start(engine: &Engine, prompt: &[TokenId], tokens: u32) -> Generation {
    let stop = StopConditions { max_tokens: Some(Tokens(tokens)), ignore_eos: true, ..StopConditions::default() };
    engine.submit(GenerateRequest { prompt: prompt.to_vec(), stop, ..GenerateRequest::default() }).unwrap()
}

/// What it says, and how many tokens of its prompt were there.
fn said(mut generation: Generation) -> (Vec<TokenId>, u32) {
    let (mut said, mut cached) = (Vec::new(), 0);
    while let Some(event) = generation.next_blocking() {
        match event {
            GenerationEvent::Token { token, .. } => said.push(token),
            GenerationEvent::Finished { usage, .. } => cached = usage.cached.0,
            GenerationEvent::Failed(error) => panic!("{error}"),
            _ => {}
        }
    }
    (said, cached)
}

fn answer(engine: &Engine, prompt: &[TokenId], tokens: u32) -> (Vec<TokenId>, u32) {
    said(start(engine, prompt, tokens))
}

fn text(count: usize, seed: usize) -> Vec<TokenId> {
    (0..count).map(|i| TokenId(((i * 37 + seed * 101 + i * i % 11) % 250) as u32)).collect()
}

#[test]
fn long_answers_are_those_of_an_engine_with_room() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["gemma3", "gemma4", "gptoss"] {
        let model = model(name);
        let ample = engine(&model, folder.path(), None, Method::None);
        for method in [Method::None, Method::Duet] {
            let little = engine(&model, folder.path(), Some(PAGES), method);
            assert!(little.context() > Tokens(64 * PAGES as u32), "{name}: {}", little.context());
            // A prompt that is too long from the start, one that an answer makes too long, and one that says itself again.
            let length = little.context().0.min(900) as usize;
            for (prompt, tokens) in [(text(length - 50, 1), 40), (text(470, 2), 60), (text(9, 3).repeat(50), 80)] {
                let expected = answer(&ample, &prompt, tokens).0;
                assert_eq!(answer(&little, &prompt, tokens).0, expected, "{name}, {method:?}, {}", prompt.len());
            }
        }
    }
}

#[test]
fn turns_of_a_long_conversation_go_on_from_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let model = model("gemma3");
    let ample = engine(&model, folder.path(), None, Method::None);
    let little = engine(&model, folder.path(), Some(PAGES), Method::None);
    // Two of them, which take each other's pages and come back from the disk.
    let mut conversations = [text(700, 1), text(640, 5)];
    let mut kept = [0, 0];
    for turn in 0..4 {
        for (conversation, kept) in conversations.iter_mut().zip(&mut kept) {
            let (said, cached) = answer(&little, conversation, 20);
            assert_eq!(said, answer(&ample, conversation, 20).0, "turn {turn}");
            assert!(cached >= *kept, "{cached} of {kept}");
            conversation.extend(said);
            *kept = conversation.len() as u32 - 1;
            conversation.extend(text(9, turn + 2));
        }
    }
    // Of a branch nothing is there, and it is read from its beginning.
    let mut branch = conversations[0][..300].to_vec();
    branch.extend(text(400, 8));
    let (said, cached) = answer(&little, &branch, 10);
    assert_eq!((said, cached), (answer(&ample, &branch, 10).0, 0));
}

#[test]
fn conversations_that_become_too_long_go_on_from_memory_and_from_disk() {
    let folder = tempfile::tempdir().unwrap();
    let model = model("gemma3");
    let ample = engine(&model, folder.path(), None, Method::None);
    // One alone stays in memory; two send each other to disk.
    for count in 1..3 {
        let little = engine(&model, folder.path(), Some(PAGES), Method::None);
        let mut conversations: Vec<_> = (0..count).map(|seed| text(330, seed)).collect();
        let mut kept = vec![0; count];
        for turn in 0..6 {
            for (conversation, kept) in conversations.iter_mut().zip(&mut kept) {
                let (said, cached) = answer(&little, conversation, 6);
                assert_eq!(said, answer(&ample, conversation, 6).0, "{count}, turn {turn}");
                assert!(cached >= *kept, "{count}, turn {turn}: {cached} of {kept}");
                conversation.extend(said);
                *kept = conversation.len() as u32 - 1;
                conversation.extend(text(60, turn + 9));
            }
        }
    }
}

#[test]
fn long_ones_and_short_ones_share_memory() {
    let folder = tempfile::tempdir().unwrap();
    let model = model("gemma3");
    let ample = engine(&model, folder.path(), None, Method::None);
    let little = engine(&model, folder.path(), Some(PAGES), Method::Duet);
    let prompts: Vec<_> =
        [600, 90, 1200, 40, 300, 700].into_iter().zip(1..).map(|(len, seed)| text(len, seed)).collect();
    for _ in 0..2 {
        let started: Vec<_> = prompts.iter().map(|prompt| start(&little, prompt, 30)).collect();
        for (generation, prompt) in started.into_iter().zip(&prompts) {
            assert_eq!(said(generation).0, answer(&ample, prompt, 30).0, "{}", prompt.len());
        }
    }
}
