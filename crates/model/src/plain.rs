//! Weights as the file has them, for devices that have forms of their own.
//!
//! Rows are in the order in which the kernels have them (rope on halves), so a device's projection means the same. They
//! are read from the file row by row when they are asked for, and not kept. Where the file holds groups of 32, they can be
//! read as such: that is what the CPU's kernels compute with, to the bit.

use crate::gguf::{Group, GroupForm, Tensor};
use crate::load::{LoadError, Model};
use crate::weights::{ExpertsIn, Packer};
use duet_kernels::matmul::Gating;

/// A matrix of weights in a file.
#[derive(Debug)]
pub struct PlainMatrix<'a> {
    inputs: usize,
    /// Where each row is.
    rows: Vec<(Tensor<'a>, usize)>,
}

/// The weights of a layer's token-wise kernels.
#[derive(Debug)]
pub struct PlainLayer<'a> {
    /// Before the projection to queries, keys and values.
    pub attention_norm: Vec<f32>,
    /// Query heads, key heads and value heads, one below the other.
    pub qkv: PlainMatrix<'a>,
    /// Added to the projection.
    pub qkv_bias: Option<Vec<f32>>,
    /// From the attention's heads to the residual stream.
    pub output: PlainMatrix<'a>,
    /// Of the output projection before it is added.
    pub output_norm: Option<Vec<f32>>,
    /// Before the feed-forward block.
    pub ffn_norm: Vec<f32>,
    /// The block's gates.
    pub gate: PlainMatrix<'a>,
    /// The block's values.
    pub up: PlainMatrix<'a>,
    /// Back to the residual stream.
    pub down: PlainMatrix<'a>,
    /// Of the block's result before it is added.
    pub feed_norm: Option<Vec<f32>>,
}

/// The weights of a layer whose feed-forward block is experts, but for its router, which is the crew's.
#[derive(Debug)]
pub struct PlainExperts<'a> {
    /// Before the projection to queries, keys and values.
    pub attention_norm: Vec<f32>,
    /// Query heads, key heads and value heads, one below the other.
    pub qkv: PlainMatrix<'a>,
    /// Added to the projection.
    pub qkv_bias: Option<Vec<f32>>,
    /// From the attention's heads to the residual stream.
    pub output: PlainMatrix<'a>,
    /// Added to the output projection.
    pub output_bias: Option<Vec<f32>>,
    /// In their order.
    pub experts: Vec<PlainFeed<'a>>,
    /// The one that all rows go to.
    pub shared: Option<PlainFeed<'a>>,
    /// Whether norms have biases, which takes their means off before.
    pub norm_form: NormForm,
}

/// What a model's norms are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormForm {
    /// By root mean squares.
    Rms,
    /// By deviations, with biases.
    Layer,
}

/// The weights of a gated block.
#[derive(Debug)]
pub struct PlainFeed<'a> {
    /// Its gates.
    pub gate: PlainMatrix<'a>,
    /// What is gated.
    pub up: PlainMatrix<'a>,
    /// Back to the residual stream.
    pub down: PlainMatrix<'a>,
}

impl<'a> PlainMatrix<'a> {
    /// `inputs` columns; where each row is.
    pub(crate) fn new(inputs: usize, rows: Vec<(Tensor<'a>, usize)>) -> Self {
        Self { inputs, rows }
    }

    /// Columns.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Rows.
    #[must_use]
    pub fn outputs(&self) -> usize {
        self.rows.len()
    }

    /// Its rows as floats.
    pub fn floats(&self) -> impl ExactSizeIterator<Item = Vec<f32>> {
        self.rows.iter().map(|(tensor, row)| {
            let mut floats = vec![0.0; self.inputs];
            tensor.dequantize_row(*row, &mut floats);
            floats
        })
    }

    /// What its groups of 32 are like; nothing if the file holds others, or rows of several types.
    #[must_use]
    pub fn group_form(&self) -> Option<GroupForm> {
        let kind = self.rows.first()?.0.info.kind;
        if self.rows.iter().any(|(tensor, _)| tensor.info.kind != kind) {
            return None;
        }
        kind.group_form()
    }

    /// Its rows as groups, if it has a [`Self::group_form`]; else nothing.
    pub fn groups(&self) -> impl Iterator<Item = Vec<Group>> {
        let rows = if self.group_form().is_some() { self.rows.as_slice() } else { &[] };
        rows.iter().map(|(tensor, row)| {
            let mut groups = vec![Group::default(); self.inputs / 32];
            tensor.groups_row(*row, &mut groups);
            groups
        })
    }
}

impl Model {
    /// Calls `read` with the weights of a layer. The file's pages behind them are let go of afterwards.
    ///
    /// # Errors
    /// [`LoadError::Experts`]; or as [`Model::load`], if the file has changed since.
    pub fn read_layer<T>(&self, layer: usize, read: impl FnOnce(PlainLayer<'_>) -> T) -> Result<T, LoadError> {
        let packer = self.packer();
        let result = read(packer.plain_layer(layer, &self.weights().layers[layer])?);
        packer.forget_layer(layer);
        Ok(result)
    }

    /// Calls `read` with the weights of a layer of experts; nothing if it has none. The file's pages behind them are let go
    /// of afterwards.
    ///
    /// # Errors
    /// As [`Model::load`], if the file has changed since.
    pub fn read_experts<T>(
        &self,
        layer: usize,
        read: impl FnOnce(PlainExperts<'_>) -> T,
    ) -> Result<Option<T>, LoadError> {
        let packer = self.packer();
        let result = packer.plain_experts(layer, &self.weights().layers[layer])?.map(read);
        packer.forget_layer(layer);
        Ok(result)
    }

    /// The weights of the head.
    ///
    /// # Errors
    /// As [`Self::read_layer`].
    pub fn plain_head(&self) -> Result<PlainMatrix<'_>, LoadError> {
        self.packer().plain_head()
    }

    /// The norm before the head.
    #[must_use]
    pub fn final_norm(&self) -> &[f32] {
        &self.weights().before_head().weight
    }

    /// What is added to the mean square in norms of the residual stream.
    #[must_use]
    pub fn epsilon(&self) -> f32 {
        self.blueprint().stream_epsilon()
    }

    /// The nonlinearity of the feed-forward block.
    #[must_use]
    pub fn gating(&self) -> Gating {
        self.blueprint().gating
    }

    fn packer(&self) -> Packer<'_> {
        Packer { file: self.file(), blueprint: self.blueprint(), packed: None, experts_in: ExpertsIn::Memory }
    }
}
