//! From a GGUF file to a model that can run.

use duet_types::{Bytes, Tokens};
use std::path::Path;

/// What a model is, read from its file.
#[derive(Clone, Debug)]
pub struct ModelConfig {
    /// GGUF `general.architecture`: `llama`, `qwen2`, `qwen3`, `gemma3`.
    pub architecture: String,
    /// GGUF `general.name`, or the file's stem.
    pub name: String,
    /// Longest sequence.
    pub context: Tokens,
    /// Vocabulary size.
    pub vocabulary: usize,
    /// Layers.
    pub layers: usize,
}

/// How to load.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {}

/// How far a load has come.
#[derive(Clone, Copy, Debug)]
pub struct LoadProgress {
    /// Bytes of weights packed.
    pub done: Bytes,
    /// Bytes to pack in all.
    pub total: Bytes,
}

/// Why a model could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {}

/// A model in memory: packed weights, tokenizer, chat template. Immutable and shared by all threads.
#[derive(Debug)]
pub struct Model {}

impl Model {
    /// Reads and packs `path`.
    ///
    /// # Errors
    /// [`LoadError`] names the field, tensor or file at fault.
    pub fn load(path: &Path, options: &LoadOptions, progress: &mut dyn FnMut(LoadProgress)) -> Result<Self, LoadError> {
        let _ = (path, options, progress);
        todo!()
    }

    /// What the model is.
    #[must_use]
    pub fn config(&self) -> &ModelConfig {
        todo!()
    }

    /// Bytes of packed weights.
    #[must_use]
    pub fn weight_bytes(&self) -> Bytes {
        todo!()
    }
    // Later: pub fn tokenizer(&self) -> &Tokenizer; pub fn template(&self) -> Option<&ChatTemplate>
}
