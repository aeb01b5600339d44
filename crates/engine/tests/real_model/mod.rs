//! The model that `DUET_TEST_MODEL` names, prompts in its template, small engines of it, and whole answers.

use duet_engine::{Engine, EngineConfig, GenerateRequest, GenerationEvent, Usage};
use duet_model::template::{ChatMessage, Turn};
use duet_model::tokenizer::SpecialTokens;
use duet_model::{LoadOptions, Model};
use duet_testing::Need;
use duet_types::{Bytes, TokenId, Tokens};
use std::path::Path;
use std::sync::Arc;

/// The model; without one the test is skipped.
#[track_caller]
pub(crate) fn model() -> Option<Arc<Model>> {
    let path = duet_testing::path(Need::Model)?;
    Some(Arc::new(Model::load(&path, &LoadOptions::default(), &mut |_| {}).unwrap()))
}

/// The turn that follows on a user's message, begun with `opening`.
pub(crate) fn prompt(model: &Model, message: &str, opening: &str) -> Vec<TokenId> {
    let text = model.template().render(&[ChatMessage::new("user", message)], None, Turn::Generate).unwrap();
    model.tokenizer().encode_prompt(&(text + opening), SpecialTokens::Parse)
}

/// An engine of a short context, whose profile is in `folder`: several of a test need only one.
pub(crate) fn small(folder: &Path) -> EngineConfig {
    EngineConfig {
        context: Some(Tokens(1024)),
        kv_bytes: Some(Bytes(64 << 20)),
        spill_bytes: Some(Bytes(0)),
        profile_folder: Some(folder.to_owned()),
        ..EngineConfig::default()
    }
}

/// An answer to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) tokens: Vec<TokenId>,
    pub(crate) text: String,
    pub(crate) usage: Usage,
}

pub(crate) fn answer(engine: &Engine, request: GenerateRequest) -> Answer {
    let mut generation = engine.submit(request).unwrap();
    let (mut tokens, mut text) = (Vec::new(), String::new());
    while let Some(event) = generation.next_blocking() {
        match event {
            GenerationEvent::Reading { .. } | GenerationEvent::Embedding(_) | GenerationEvent::Prompt(_) => {}
            GenerationEvent::Token { token, text: piece, .. } => {
                tokens.push(token);
                text += &piece;
            }
            GenerationEvent::Finished { text: rest, usage, .. } => return Answer { tokens, text: text + &rest, usage },
            GenerationEvent::Failed(error) => panic!("{error}"),
        }
    }
    panic!("a generation has an end");
}
