//! BERT: an encoder, whose rows see all of their text. Positions are learned, norms come after what they norm, and
//! matrices have biases. (MiniLM, bge, e5; XLM-R is the same with another vocabulary)

use crate::encoder::Pooling;
use crate::gguf::{GgufFile, Metadata};
use crate::load::LoadError;

/// GGUF `general.architecture`.
pub(crate) const NAME: &str = "bert";

/// An encoder by its settings, checked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EncoderBlueprint {
    /// Longest text.
    pub context: usize,
    /// Tokens in the vocabulary.
    pub vocabulary: usize,
    /// Kinds of segments that a token may be of.
    pub segments: usize,
    /// Layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width of the feed-forward block.
    pub ffn: usize,
    /// Heads.
    pub heads: usize,
    /// Of all norms.
    pub epsilon: f32,
    /// What becomes of a text's rows.
    pub pooling: Pooling,
}

/// Reads and checks the settings of `file`.
pub(crate) fn blueprint(file: &GgufFile) -> Result<EncoderBlueprint, LoadError> {
    let metadata = file.metadata();
    let hidden = number(metadata, "embedding_length")?;
    let heads = number(metadata, "attention.head_count")?;
    let layers = number(metadata, "block_count")?;
    if layers > LAYERS_MAX {
        return Err(refuse("block_count", format!("{layers} layers, more than {LAYERS_MAX}")));
    }
    if !hidden.is_multiple_of(heads) || !(hidden / heads).is_multiple_of(16) || hidden / heads > HEAD_DIM_MAX {
        let problem =
            format!("{heads} heads of a width of {hidden}; supported: heads of multiples of 16 to {HEAD_DIM_MAX}");
        return Err(refuse("attention.head_count", problem));
    }
    if metadata.opt_bool(&key("attention.causal"))? == Some(true) {
        return Err(refuse("attention.causal", "rows of an encoder see all of their text".to_owned()));
    }
    let epsilon = metadata.f32(&key("attention.layer_norm_epsilon"))?;
    if !(epsilon.is_finite() && epsilon > 0.0) {
        return Err(refuse("attention.layer_norm_epsilon", format!("{epsilon}")));
    }
    let rows = |name: &str| table(file, name, hidden);
    Ok(EncoderBlueprint {
        context: number(metadata, "context_length")?.min(rows("position_embd.weight")?),
        vocabulary: rows("token_embd.weight")?,
        segments: rows("token_types.weight")?,
        layers,
        hidden,
        ffn: number(metadata, "feed_forward_length")?,
        heads,
        epsilon,
        pooling: pooling(file)?,
    })
}

/// Rows of a table of vectors.
fn table(file: &GgufFile, name: &str, hidden: usize) -> Result<usize, LoadError> {
    let tensor = file.tensor(name).ok_or_else(|| LoadError::MissingTensor { name: name.to_owned() })?;
    let rows = tensor.info.rows();
    if tensor.info.row_len() != hidden || rows == 0 {
        let found = tensor.info.shape.clone();
        return Err(LoadError::Shape { tensor: name.to_owned(), expected: vec![hidden, rows.max(1)], found });
    }
    Ok(rows)
}

/// What the file says of pooling. One that says nothing has a head for scores, or is pooled as most are.
fn pooling(file: &GgufFile) -> Result<Pooling, LoadError> {
    let default = if file.tensor("cls.weight").is_some() { RANK } else { MEAN };
    match file.metadata().opt_u32(&key("pooling_type"))?.unwrap_or(default) {
        MEAN => Ok(Pooling::Mean),
        CLS => Ok(Pooling::First),
        LAST => Ok(Pooling::Last),
        RANK => Ok(Pooling::Score),
        other => Err(refuse("pooling_type", format!("{other}; supported: 1 (mean), 2 (first), 3 (last), 4 (rank)"))),
    }
}

/// `pooling_type` of any architecture, if the file has one.
pub(crate) fn pooling_type(metadata: &Metadata, architecture: &str) -> Result<Option<u32>, LoadError> {
    Ok(metadata.opt_u32(&format!("{architecture}.pooling_type"))?)
}

const MEAN: u32 = 1;
const CLS: u32 = 2;
pub(crate) const LAST: u32 = 3;
pub(crate) const RANK: u32 = 4;

/// More than any published model, few enough that tables of layers stay small.
const LAYERS_MAX: usize = 1024;
/// As far as the kernels were tested.
const HEAD_DIM_MAX: usize = 256;
/// So that products of two settings cannot overflow.
const SETTING_MAX: u32 = 1 << 24;

fn key(name: &str) -> String {
    format!("{NAME}.{name}")
}

fn refuse(name: &str, problem: String) -> LoadError {
    LoadError::Setting { key: key(name), problem }
}

fn number(metadata: &Metadata, name: &str) -> Result<usize, LoadError> {
    let value = metadata.u32(&key(name))?;
    if (1..=SETTING_MAX).contains(&value) {
        Ok(value as usize)
    } else {
        Err(refuse(name, format!("{value} is not within 1..={SETTING_MAX}")))
    }
}
