//! Makes a mixture of experts of a dense model: the same neurons, of which each token goes to some.
//!
//! A model with experts is what accelerators with static shapes are hard to program for (NPUMoE), and few are small
//! enough for a test machine. This makes one of any dense model of Llama's or Qwen 2's kind, without training: the
//! neurons of each feed-forward block are carved into a shared expert and clusters ([`mod@carve`]), layer by layer, on texts
//! that are read ([`stream`]), and written as a GGUF file that other programs load as well ([`mod@write`]).
//!
//! Routers alone can be fitted as well, to any number of experts, for the rows that a model's layers are given ([`Router`],
//! [`read()`]): that says where rows would go, without experts that compute anything.
//!
//! All routers made here are fitted afterwards. They say little about the balance of routers that were trained with their
//! model.
//!
//! It is deterministic: the same model, texts and settings give the same file. What it costs is measured, not promised:
//! [`perplexity()`] on texts that were not read. A dense model's neurons were not trained to be left out, so how many
//! each token still goes to decides.

mod block;
mod carve;
mod clusters;
mod matrix;
mod perplexity;
mod reading;
mod ridge;
mod router;
mod stream;
mod write;

pub use perplexity::perplexity;
pub use reading::{Brought, read};
pub use router::{Chosen, Router};

use block::Block;
use carve::{Carved, Sample, carve, length};
use duet_kernels::isa::IsaError;
use duet_model::forward::PassError;
use duet_model::gguf::{GgufError, GgufFile};
use duet_model::{LoadError, Model};
use duet_types::TokenId;
use matrix::{Hands, Matrix};
use std::io::Write;
use stream::Stream;

/// The experts to make of each block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// How many, the shared one not counted.
    pub experts: usize,
    /// How many of them a token goes to.
    pub chosen: usize,
    /// Neurons of the shared expert; none, if zero.
    pub shared: usize,
    /// Neurons of each other.
    pub width: usize,
}

/// How much of what a block's neurons contribute the experts keep that tokens go to: sums of contributions' lengths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kept {
    /// Of all neurons, the shared expert's included.
    pub all: f64,
    /// Of those that are routed.
    pub routed: f64,
}

/// Why a model was not made into experts.
#[derive(Debug, thiserror::Error)]
pub enum MoefyError {
    /// Neurons that cannot be divided so.
    #[error("{ffn} neurons a layer cannot be a shared expert of {shared} and {experts} experts of a multiple of 32")]
    Split {
        /// Neurons of a block.
        ffn: usize,
        /// Of the shared expert.
        shared: usize,
        /// Experts.
        experts: usize,
    },
    /// More experts for a token than there are, or none.
    #[error("each token can go to 1 to {experts} experts, not to {chosen}")]
    Chosen {
        /// Experts.
        experts: usize,
        /// How many a token should go to.
        chosen: usize,
    },
    /// A model whose experts no file format has a name for.
    #[error("a model of architecture `{architecture}` cannot be made into experts: {problem}")]
    Architecture {
        /// GGUF `general.architecture`.
        architecture: String,
        /// What about the model stands against it.
        problem: &'static str,
    },
    /// A block of another kind.
    #[error("only blocks with SiLU gates and without norms behind them can be made into experts")]
    Block,
    /// Too few rows to make a router of.
    #[error("{rows} rows are too few for a router to {experts} experts")]
    Router {
        /// Rows that there are.
        rows: usize,
        /// Experts that were asked for.
        experts: usize,
    },
    /// Rows that are no whole vectors.
    #[error("a residual stream of {0} values is not supported here: it must be a multiple of 16")]
    Width(usize),
    /// Nothing to learn from, or to measure on.
    #[error("the texts have too few tokens")]
    NoText,
    /// The model's weights could not be read again.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The environment names an instruction set that cannot be used.
    #[error(transparent)]
    Isa(#[from] IsaError),
    /// A text could not be read.
    #[error(transparent)]
    Pass(#[from] PassError),
    /// The file would not be one.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The file could not be written.
    #[error("cannot write the file: {0}")]
    Write(#[from] std::io::Error),
}

/// A model's experts, layer by layer.
#[derive(Debug)]
pub struct Moefied {
    shape: Shape,
    layers: Vec<Carved>,
}

impl Shape {
    /// The experts that `ffn` neurons come to.
    ///
    /// # Errors
    /// If they do not divide so.
    pub fn new(ffn: usize, experts: usize, chosen: usize, shared: usize) -> Result<Self, MoefyError> {
        let routed = ffn.checked_sub(shared).filter(|routed| experts > 0 && *routed > 0);
        let whole = routed.filter(|routed| routed.is_multiple_of(experts * GROUP) && shared.is_multiple_of(GROUP));
        let Some(routed) = whole else { return Err(MoefyError::Split { ffn, shared, experts }) };
        if !(1..=experts).contains(&chosen) {
            return Err(MoefyError::Chosen { experts, chosen });
        }
        Ok(Self { experts, chosen, shared, width: routed / experts })
    }

    /// The experts to make of `model`; without `shared`, the shared one is as wide as may be.
    ///
    /// # Errors
    /// If they do not divide so, or it is not a model to make experts of.
    pub fn for_model(model: &Model, experts: usize, chosen: usize, shared: Option<usize>) -> Result<Self, MoefyError> {
        let ffn = model.blueprint().ffn;
        let shared = shared.unwrap_or_else(|| Self::widest_shared(ffn, experts));
        write::check(model, shared)?;
        Self::new(ffn, experts, chosen, shared)
    }

    /// The widest shared expert, which leaves each of the others as few neurons as may be.
    fn widest_shared(ffn: usize, experts: usize) -> usize {
        let least = experts * GROUP;
        if ffn.is_multiple_of(GROUP) { ffn.saturating_sub(least) } else { 0 }
    }

    /// The share of a block's neurons that a token goes to.
    #[must_use]
    pub fn active(&self) -> f64 {
        let all = self.shared + self.experts * self.width;
        (self.shared + self.chosen * self.width) as f64 / all as f64
    }
}

/// Neurons that are kept together: what a file's blocks and the kernels' groups hold.
const GROUP: usize = 32;

impl Moefied {
    /// Carves all layers of `model` on `texts`; `each` is told of every layer.
    ///
    /// # Errors
    /// [`MoefyError`].
    pub fn of(
        model: &Model,
        texts: &[Vec<TokenId>],
        shape: Shape,
        threads: usize,
        each: &mut dyn FnMut(usize, Kept),
    ) -> Result<Self, MoefyError> {
        write::check(model, shape.shared)?;
        if texts.iter().all(Vec::is_empty) {
            return Err(MoefyError::NoText);
        }
        let texts: Vec<Vec<TokenId>> = texts.iter().filter(|text| !text.is_empty()).cloned().collect();
        let hands = Hands { isa: model.isa(), threads };
        // What the dense model has is what the experts should come to: errors of a layer are made good by the next.
        let (mut dense, mut ours) = (Stream::new(model, &texts, threads)?, Stream::new(model, &texts, threads)?);
        let mut layers = Vec::with_capacity(model.config().layers);
        for layer in 0..model.config().layers {
            let block = Block::of(model, layer)?;
            let should = dense_residual(&block, &mut dense, layer, hands)?;
            let carved = carve_layer(&block, &mut ours, layer, &should, &shape, hands)?;
            dense.go_on(layer, should)?;
            each(layer, carved.kept);
            layers.push(carved);
        }
        Ok(Self { shape, layers })
    }

    /// Writes the model as a file: what is not in experts comes from `file`, the one it was loaded from.
    ///
    /// # Errors
    /// [`MoefyError`].
    pub fn write(&self, model: &Model, file: &GgufFile, out: &mut dyn Write) -> Result<(), MoefyError> {
        write::write(model, file, &self.shape, &self.layers, out)
    }
}

/// The residual stream behind a layer of the dense model.
fn dense_residual(block: &Block, stream: &mut Stream<'_>, layer: usize, hands: Hands) -> Result<Matrix, MoefyError> {
    let mut brought = stream.bring(layer)?;
    block.attend(&brought.attended, &mut brought.residual, hands);
    let neurons = block.neurons(&block.normed(&brought.residual), hands);
    brought.residual.add(&neurons.times_rows_of(&block.down.transposed(), hands));
    Ok(brought.residual)
}

fn carve_layer(
    block: &Block,
    stream: &mut Stream<'_>,
    layer: usize,
    should: &Matrix,
    shape: &Shape,
    hands: Hands,
) -> Result<Carved, MoefyError> {
    let mut brought = stream.bring(layer)?;
    block.attend(&brought.attended, &mut brought.residual, hands);
    let normed = block.normed(&brought.residual);
    let neurons = block.neurons(&normed, hands);
    let mut target = should.clone();
    for row in 0..target.rows() {
        target.row_mut(row).iter_mut().zip(brought.residual.row(row)).for_each(|(to, from)| *to -= from);
    }
    let counts: Vec<f32> = (0..should.rows()).map(|row| 1.0 / length(should.row(row)).max(1e-6)).collect();
    let sample = Sample { normed: &normed, neurons: &neurons, target: &target, counts: &counts };
    let (carved, added) = carve(block, &sample, shape, hands);
    brought.residual.add(&added);
    stream.go_on(layer, brought.residual)?;
    Ok(carved)
}
