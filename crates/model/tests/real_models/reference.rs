//! A model, and what llama.cpp says of it.

use duet_model::{LoadOptions, Model};
use duet_testing::Need;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
pub(crate) struct Reference {
    /// The model's file.
    file: String,
    pub(crate) tokenizer: TokenizerReference,
    /// By the number of windows.
    pub(crate) perplexity: BTreeMap<usize, f64>,
    /// Whether the file has a chat template, by which the prompts of `greedy` are rendered; else they are plain texts.
    pub(crate) chat: bool,
    pub(crate) greedy: Vec<Continuation>,
}

#[derive(Deserialize)]
pub(crate) struct TokenizerReference {
    pub(crate) vocabulary: usize,
    pub(crate) shown: Vec<Shown>,
    /// Of the texts of `tokenizer_smollm.json`.
    pub(crate) texts: Vec<Digests>,
    pub(crate) fuzz: Digests,
    pub(crate) wonderland: Digests,
}

/// With special tokens as text, and parsed.
pub(crate) type Digests = [Digest; 2];

#[derive(Debug, Deserialize, PartialEq)]
pub(crate) struct Digest {
    pub(crate) count: usize,
    pub(crate) fnv: String,
}

#[derive(Deserialize)]
pub(crate) struct Shown {
    pub(crate) text: String,
    pub(crate) ids: Vec<u32>,
    pub(crate) parsed: Vec<u32>,
}

#[derive(Deserialize)]
pub(crate) struct Continuation {
    pub(crate) prompt: String,
    /// Of the prompt as the model reads it.
    pub(crate) tokens: Vec<u32>,
    pub(crate) continuation: Vec<u32>,
    /// The token that came second at each step, and by how much the first one led it.
    pub(crate) second: Vec<u32>,
    pub(crate) lead: Vec<f64>,
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

pub(crate) fn fixture<T: DeserializeOwned>(name: &str) -> T {
    serde_json::from_slice(&std::fs::read(fixtures().join(name)).unwrap()).unwrap()
}

pub(crate) fn wonderland() -> String {
    std::fs::read_to_string(fixtures().join("wonderland.txt")).unwrap()
}

pub(crate) fn reference(name: &str) -> Reference {
    fixture(&format!("real_models/{name}.json"))
}

/// The model's file; else the test is skipped.
pub(crate) fn path(reference: &Reference) -> Option<PathBuf> {
    let path = duet_testing::path(Need::RealModels)?.join(&reference.file);
    if !path.exists() {
        duet_testing::skip(Need::RealModels, format_args!("{} is not there", reference.file));
        return None;
    }
    Some(path)
}

pub(crate) fn load(reference: &Reference) -> Option<Model> {
    let path = path(reference)?;
    Some(Model::load(&path, &LoadOptions::default(), &mut |_| {}).unwrap())
}
