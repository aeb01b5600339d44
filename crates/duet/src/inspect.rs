//! What a model file says about itself, and what running it needs. Reads the header only.

use crate::weights::Weights;
use anyhow::Context;
use duet_model::arch::{self, Blueprint};
use duet_model::gguf::{self, GgufFile, Metadata, TensorInfo, Texts};
use duet_model::kv::KvFormat;
use duet_types::Tokens;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// A model file's contents. Absent fields are absent in the file.
#[derive(Debug, Serialize)]
pub(crate) struct Overview {
    /// The file.
    pub(crate) path: PathBuf,
    /// Its size.
    pub(crate) file_bytes: u64,
    /// Version of the layout.
    pub(crate) gguf_version: u32,
    /// What its makers call it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// Which forward pass it needs.
    pub(crate) architecture: String,
    /// Elements of all tensors.
    pub(crate) parameters: u64,
    /// The numbers that describe the architecture.
    #[serde(flatten)]
    pub(crate) shape: Shape,
    /// How text becomes tokens.
    pub(crate) tokenizer: TokenizerOverview,
    /// Whether the file says how conversations look.
    pub(crate) chat_template: bool,
    /// Tensors by type, most bytes first.
    pub(crate) types: Vec<TypeOverview>,
    /// What running it takes.
    pub(crate) memory: Memory,
    /// Every tensor, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tensors: Option<Vec<TensorOverview>>,
}

/// The numbers of an architecture, called as in the GGUF keys.
#[derive(Debug, Serialize)]
pub(crate) struct Shape {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) context: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) layers: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) heads: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kv_heads: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key_length: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) value_length: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) embedding: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ffn: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) experts: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) experts_used: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expert_ffn: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) shared_expert_ffn: Option<u64>,
}

/// A tokenizer, as the file names it.
#[derive(Debug, Serialize)]
pub(crate) struct TokenizerOverview {
    /// `gpt2` (byte pairs), `llama` (SentencePiece) or another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
    /// How text is split first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pre: Option<String>,
    /// How many tokens there are.
    pub(crate) tokens: usize,
}

/// The tensors of one type.
#[derive(Debug, Serialize)]
pub(crate) struct TypeOverview {
    /// ggml's name of the type.
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    /// How many tensors have it.
    pub(crate) tensors: usize,
    /// Their elements.
    pub(crate) elements: u64,
    /// Their bytes in the file.
    pub(crate) bytes: u64,
}

/// What running the model takes.
#[derive(Debug, Serialize)]
pub(crate) struct Memory {
    /// Weights as the kernels read them: an estimate from the tensors' types.
    pub(crate) packed_weights_bytes: u64,
    /// Keys and values of [`KV_TOKENS`] tokens in half precision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kv_f16_bytes_per_1024_tokens: Option<u64>,
    /// The same in eight bits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kv_int8_bytes_per_1024_tokens: Option<u64>,
    /// The same with values in four bits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kv_int4_bytes_per_1024_tokens: Option<u64>,
    /// What layers without attention know of a conversation, where that lies beside its keys and values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) state_bytes: Option<u64>,
}

/// One tensor.
#[derive(Debug, Serialize)]
pub(crate) struct TensorOverview {
    /// Its name.
    pub(crate) name: String,
    /// ggml's name of its type.
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    /// Elements along each dimension, the contiguous one first.
    pub(crate) shape: Vec<u64>,
    /// Its bytes in the file.
    pub(crate) bytes: u64,
}

/// The unit of KV memory.
pub(crate) const KV_TOKENS: u32 = 1024;

impl Overview {
    /// Reads the header of the file at `path`.
    pub(crate) fn read(path: &Path, list_tensors: bool) -> anyhow::Result<Self> {
        let file = GgufFile::open(path)?;
        let file_bytes = path.metadata().with_context(|| path.display().to_string())?.len();
        let metadata = file.metadata();
        let architecture = metadata.str("general.architecture")?.to_owned();
        let blueprint = arch::blueprint(&file, None).ok();
        let shape = Shape::read(metadata, &architecture, blueprint.as_ref());
        let summary = gguf::summary(&file);
        Ok(Self {
            path: path.to_owned(),
            file_bytes,
            gguf_version: file.version(),
            name: text(metadata, "general.name"),
            parameters: summary.elements,
            tokenizer: TokenizerOverview {
                kind: text(metadata, "tokenizer.ggml.model"),
                pre: text(metadata, "tokenizer.ggml.pre"),
                tokens: metadata.opt_strings("tokenizer.ggml.tokens").ok().flatten().map_or(0, Texts::len),
            },
            chat_template: text(metadata, "tokenizer.chat_template").is_some(),
            types: summary
                .kinds
                .iter()
                .map(|kind| TypeOverview {
                    kind: kind.kind.name(),
                    tensors: kind.tensors,
                    elements: kind.elements,
                    bytes: kind.bytes.0,
                })
                .collect(),
            memory: Memory::needed(&file, blueprint.as_ref()),
            tensors: list_tensors.then(|| file.tensors().iter().map(TensorOverview::from).collect()),
            architecture,
            shape,
        })
    }
}

impl Shape {
    /// Reads what is there; a missing number is no reason not to show the rest. What all tokens go to beside experts is said in
    /// several ways, which the architectures that run here know.
    fn read(metadata: &Metadata, architecture: &str, blueprint: Option<&Blueprint>) -> Self {
        let number = |name: &str| {
            let key = format!("{architecture}.{name}");
            let one = metadata.opt_u32(&key).ok().flatten();
            // Some architectures have one number per layer; the largest bounds them all.
            let most = || metadata.opt_u32s(&key).ok().flatten().and_then(|numbers| numbers.iter().max().copied());
            one.or_else(most).map(u64::from)
        };
        let (embedding, heads) = (number("embedding_length"), number("attention.head_count"));
        let shared = blueprint.and_then(|blueprint| blueprint.experts?.shared).map(|width| width as u64);
        let head_length = embedding.zip(heads).and_then(|(embedding, heads)| embedding.checked_div(heads));
        Self {
            context: number("context_length"),
            layers: number("block_count"),
            heads,
            kv_heads: number("attention.head_count_kv").or(heads),
            key_length: number("attention.key_length").or(head_length),
            value_length: number("attention.value_length").or(head_length),
            embedding,
            ffn: number("feed_forward_length"),
            experts: number("expert_count"),
            experts_used: number("expert_used_count"),
            expert_ffn: number("expert_feed_forward_length"),
            shared_expert_ffn: shared.or_else(|| number("expert_shared_feed_forward_length")),
        }
    }
}

impl Memory {
    /// Keys and values as the model's pages have them; of a file that cannot be run here nothing is known of these.
    fn needed(file: &GgufFile, blueprint: Option<&Blueprint>) -> Self {
        let kv = |format| Some(blueprint?.kv_bytes(format, Tokens(KV_TOKENS)).0);
        Self {
            packed_weights_bytes: Weights::of(file.tensors()).all.0,
            kv_f16_bytes_per_1024_tokens: kv(KvFormat::F16),
            kv_int8_bytes_per_1024_tokens: kv(KvFormat::Int8),
            kv_int4_bytes_per_1024_tokens: kv(KvFormat::Int4),
            state_bytes: blueprint.and_then(Blueprint::state_bytes).map(|bytes| bytes.0),
        }
    }
}

impl From<&TensorInfo> for TensorOverview {
    fn from(tensor: &TensorInfo) -> Self {
        Self {
            name: tensor.name.clone(),
            kind: tensor.kind.name(),
            shape: tensor.shape.clone(),
            bytes: tensor.bytes() as u64,
        }
    }
}

fn text(metadata: &Metadata, key: &str) -> Option<String> {
    metadata.opt_str(key).ok().flatten().map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;
    use duet_model::{LoadOptions, Model};

    fn fixture(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../model/tests/fixtures/golden_{name}.gguf"))
    }

    fn memory(name: &str) -> Memory {
        Overview::read(&fixture(name), false).unwrap().memory
    }

    /// Two layers of its six read what earlier ones keep; of the others two have a head of 32 dimensions, two one of 64.
    #[test]
    fn layers_that_share_keys_and_values_and_layers_of_other_heads_count_as_they_are() {
        let memory = memory("gemma4");
        let in_halves = 2 * (2 * 32 + 2 * 64) * size_of::<u16>() as u64;
        assert_eq!(memory.kv_f16_bytes_per_1024_tokens, Some(1024 * in_halves));
        assert_eq!(memory.state_bytes, None);
    }

    #[test]
    fn what_all_tokens_go_to_beside_experts_is_told_however_a_file_says_it() {
        for (name, width) in
            [("mixtral", None), ("qwen2moe", Some(64)), ("glm4moe_air", Some(64)), ("gemma4_experts", Some(64))]
        {
            let shape = Overview::read(&fixture(name), false).unwrap().shape;
            assert_eq!(shape.shared_expert_ffn, width, "{name}");
        }
    }

    #[test]
    fn what_is_told_is_what_a_loaded_model_takes() {
        let gemmas = ["gemma3", "gemma4", "gemma4_dense", "gemma4_experts"];
        for name in ["llama", "lfm2", "qwen35", "granitehybrid"].into_iter().chain(gemmas) {
            let model = Model::load(&fixture(name), &LoadOptions::default(), &mut |_| {}).unwrap();
            let pool = |format| model.kv_pool_of_pages(format, 100);
            let taken = |format| Some(16 * pool(format).page_bytes().0);
            let memory = memory(name);
            assert_eq!(memory.kv_f16_bytes_per_1024_tokens, taken(KvFormat::F16), "{name}");
            assert_eq!(memory.kv_int8_bytes_per_1024_tokens, taken(KvFormat::Int8), "{name}");
            assert_eq!(memory.kv_int4_bytes_per_1024_tokens, taken(KvFormat::Int4), "{name}");
            let state = pool(KvFormat::Int8).states().map(|states| states.floats as u64 * 4);
            assert_eq!(memory.state_bytes, state, "{name}");
            assert_eq!(state.is_some(), ["qwen35", "granitehybrid"].contains(&name), "{name}");
        }
    }
}
