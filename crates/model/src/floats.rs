//! Weights as floats, for devices that have formats of their own.
//!
//! Rows are in the order in which the kernels have them (rope on halves), so a device's projection means the same. They
//! are read from the file when they are asked for, and not kept.

use crate::load::{LoadError, Model};
use crate::weights::Packer;
use duet_kernels::matmul::Gating;

/// A matrix of weights.
#[derive(Clone, Debug, PartialEq)]
pub struct FloatMatrix {
    /// Rows.
    pub outputs: usize,
    /// Columns.
    pub inputs: usize,
    /// Row by row.
    pub values: Vec<f32>,
}

/// The weights of a layer's token-wise kernels.
#[derive(Clone, Debug, PartialEq)]
pub struct FloatLayer {
    /// Before the projection to queries, keys and values.
    pub attention_norm: Vec<f32>,
    /// Query heads, key heads and value heads, one below the other.
    pub qkv: FloatMatrix,
    /// Added to the projection.
    pub qkv_bias: Option<Vec<f32>>,
    /// From the attention's heads to the residual stream.
    pub output: FloatMatrix,
    /// Of the output projection before it is added.
    pub output_norm: Option<Vec<f32>>,
    /// Before the feed-forward block.
    pub ffn_norm: Vec<f32>,
    /// The block's gates.
    pub gate: FloatMatrix,
    /// The block's values.
    pub up: FloatMatrix,
    /// Back to the residual stream.
    pub down: FloatMatrix,
    /// Of the block's result before it is added.
    pub feed_norm: Option<Vec<f32>>,
}

impl FloatMatrix {
    /// Its rows.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.values.chunks_exact(self.inputs)
    }
}

impl Model {
    /// The weights of a layer.
    ///
    /// # Errors
    /// As [`Model::load`], if the file has changed since.
    pub fn float_layer(&self, layer: usize) -> Result<FloatLayer, LoadError> {
        let packer = Packer { file: self.file(), blueprint: self.blueprint() };
        let floats = packer.float_layer(layer, &self.weights().layers[layer])?;
        packer.forget_layer(layer);
        Ok(floats)
    }

    /// The weights of the head.
    ///
    /// # Errors
    /// As [`Self::float_layer`].
    pub fn float_head(&self) -> Result<FloatMatrix, LoadError> {
        Packer { file: self.file(), blueprint: self.blueprint() }.float_head()
    }

    /// The norm before the head.
    #[must_use]
    pub fn final_norm(&self) -> &[f32] {
        &self.weights().final_norm
    }

    /// What is added to the mean square in every norm.
    #[must_use]
    pub fn epsilon(&self) -> f32 {
        self.blueprint().epsilon
    }

    /// The nonlinearity of the feed-forward block.
    #[must_use]
    pub fn gating(&self) -> Gating {
        self.blueprint().gating
    }
}
