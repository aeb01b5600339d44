//! Whether drafting changes an answer: every prompt of a file, answered with drafts and without, token by token.
//!
//! One engine answers both ways, each for a tenant of its own, so that both read the prompt themselves: whatever drafting
//! did to the keys and values of a prompt, the plain answer does not share it. Drafts come from the answers to all prompts
//! before, too.

use super::answer::{Answer, Asked, ask};
use super::{KV_BYTES, Settings, name_of};
use crate::load::{LoadError, Progress, Workload};
use duet_engine::{Drafts, Engine, EngineConfig};
use duet_history::{HistoryStore, Limits};
use duet_model::Model;
use duet_types::{Bytes, TenantId, TokenId};
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;

/// What came of a file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Identity {
    /// The file.
    pub workload: String,
    /// Prompts that were answered; those that the model's context does not hold are not.
    pub n: usize,
    /// Those that are too long.
    pub too_long: usize,
    /// Tokens of the drafted answers.
    pub tokens: usize,
    /// Rows of drafts that were verified.
    pub drafted: u64,
    /// Of these, those that were accepted.
    pub accepted: u64,
    /// Prompts, by their place in the file, whose answers differ.
    pub different: Vec<usize>,
}

/// Answers all prompts of each file both ways, and tells what came of it. The settings' methods are not looked at.
///
/// # Errors
/// [`LoadError`] if a file or the engine fails.
pub fn identity(
    model: &Arc<Model>,
    settings: &Settings,
    progress: Progress<'_>,
    tell: &mut dyn FnMut(&Identity),
) -> Result<(), LoadError> {
    for file in &settings.files {
        let folder = tempfile::tempdir().map_err(|error| LoadError::History(error.to_string()))?;
        let engine = start(model, settings, folder.path())?;
        tell(&of_file(model, &engine, settings, file, progress)?);
    }
    Ok(())
}

fn start(model: &Arc<Model>, settings: &Settings, folder: &Path) -> Result<Engine, LoadError> {
    let history = HistoryStore::open(&folder.join("history"), Limits::default());
    let history = history.map_err(|error| LoadError::History(error.to_string()))?;
    let config = EngineConfig {
        kv_bytes: Some(Bytes(KV_BYTES)),
        spill_bytes: Some(Bytes(0)),
        history: Some(Arc::new(history)),
        ..settings.config.clone()
    };
    Ok(Engine::start(Arc::clone(model), config)?)
}

fn of_file(
    model: &Model,
    engine: &Engine,
    settings: &Settings,
    file: &Path,
    progress: Progress<'_>,
) -> Result<Identity, LoadError> {
    let mut prompts = Workload::in_order(file)?;
    prompts.truncate(settings.limit);
    let workload = name_of(file);
    let mut found = Identity { workload, n: 0, too_long: 0, tokens: 0, drafted: 0, accepted: 0, different: Vec::new() };
    for (index, prompt) in prompts.iter().enumerate() {
        progress(&format!("{}, prompt {} of {}", found.workload, index + 1, prompts.len()));
        let tokens = crate::load::encode(model, &prompt.messages)?;
        if tokens.len() + settings.output.as_usize() > model.config().context.as_usize() {
            found.too_long += 1;
            continue;
        }
        let [drafted, plain] = both_ways(engine, &tokens, settings)?;
        found.add(index, &drafted, &plain);
    }
    Ok(found)
}

/// The drafted answer and the plain one.
fn both_ways(engine: &Engine, prompt: &[TokenId], settings: &Settings) -> Result<[Answer; 2], LoadError> {
    let Settings { output, temperature, .. } = *settings;
    let drafted = Asked { output, temperature, drafts: Drafts::ByMethod, tenant: TenantId(0) };
    let plain = Asked { drafts: Drafts::None, tenant: TenantId(1), ..drafted };
    Ok([ask(engine, prompt, drafted)?, ask(engine, prompt, plain)?])
}

impl Identity {
    fn add(&mut self, index: usize, drafted: &Answer, plain: &Answer) {
        self.n += 1;
        self.tokens += drafted.tokens.len();
        let drafts = &drafted.usage.drafts;
        self.accepted += u64::from(drafts.accepted.0);
        self.drafted += u64::from(drafts.accepted.0) + u64::from(drafts.rejected.0);
        if drafted.tokens != plain.tokens {
            self.different.push(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use duet_engine::EngineConfig;
    use duet_model::LoadOptions;
    use duet_types::Tokens;

    #[test]
    fn both_answers_read_the_prompt_themselves() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_llama.gguf");
        let model = Arc::new(Model::load(Path::new(path), &LoadOptions::default(), &mut |_| {}).unwrap());
        let settings = Settings {
            files: Vec::new(),
            contenders: Vec::new(),
            limit: 1,
            output: Tokens(8),
            temperature: 0.0,
            config: EngineConfig::default(),
        };
        let folder = tempfile::tempdir().unwrap();
        let engine = start(&model, &settings, folder.path()).unwrap();
        let prompt: Vec<TokenId> = (0..100).map(|token| TokenId(token % 7 + 40)).collect();
        let answers = both_ways(&engine, &prompt, &settings).unwrap();
        assert_eq!(answers[0].tokens, answers[1].tokens);
        assert_eq!(answers.map(|answer| answer.usage.cached), [Tokens(0); 2]);
    }
}
