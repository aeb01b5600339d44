//! The forward pass in plain floats, to measure the kernels by.
//!
//! [`ExactReader`] follows the same [`Blueprint`] through the same file as [`Model`](crate::Model), and shares nothing else
//! with it: no packed weights, no fused kernels, no paged cache. Weights are read from the file row by row when a product
//! needs them, so a reader of any model holds some rows and one layer's keys and values; sums are kept in `f64`. It is
//! written to be read: what takes the time, products of matrices in double precision, is a library's.
//!
//! It reads in two ways ([`Rounding`]). With nothing rounded, its logits are what the file's weights mean: what the kernels
//! lose against it is the cost of their eight bits. Rounded as the kernels round, what is left is the order of additions,
//! and where such a difference turns one rounded value: a wrong constant anywhere shows far above that.

mod attention;
mod beside;
mod convolution;
mod feed;
mod layer_inputs;
mod products;
mod recurrence;
mod rounding;
mod rows;
mod tensors;
#[cfg(test)]
mod tests;
mod threads;

pub use rounding::Rounding;

use crate::arch::{Blueprint, Extra, Mixer, Recurrent, blueprint};
use crate::gguf::GgufFile;
use crate::load::LoadError;
use attention::ReadAgain;
use duet_types::{TokenId, Tokens};
use rows::Rows;
use std::path::Path;
use tensors::Tensors;

/// A model's file, read in plain floats.
#[derive(Debug)]
pub struct ExactReader {
    file: GgufFile,
    blueprint: Blueprint,
    rounding: Rounding,
}

/// The residual stream of a text behind the last layer.
#[derive(Clone, Debug)]
pub struct Residual(Rows);

/// Why there are no logits.
#[derive(Debug, thiserror::Error)]
pub enum ExactError {
    /// A tensor that is missing or of another shape.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A token without an embedding.
    #[error("token {token} is not in the vocabulary of {vocabulary}")]
    Token {
        /// The token.
        token: TokenId,
        /// How many there are.
        vocabulary: usize,
    },
    /// More tokens than the model's context holds.
    #[error("{tokens} tokens are more than the model's context of {context}")]
    Context {
        /// Tokens given.
        tokens: usize,
        /// The longest sequence.
        context: usize,
    },
    /// Logits of a row that was not given.
    #[error("logits of row {row} are asked for, but there are {rows}")]
    Row {
        /// The row.
        row: usize,
        /// Rows given.
        rows: usize,
    },
}

impl ExactReader {
    /// Opens a model's file. Its tensors are checked when they are read.
    ///
    /// # Errors
    /// [`LoadError`] names the field at fault.
    pub fn open(path: &Path, rounding: Rounding) -> Result<Self, LoadError> {
        Self::open_for(path, rounding, None)
    }

    /// The same for sequences of at most `context`, as [`LoadOptions::context`](crate::LoadOptions::context).
    ///
    /// # Errors
    /// [`LoadError`] names the field at fault.
    pub fn open_for(path: &Path, rounding: Rounding, context: Option<Tokens>) -> Result<Self, LoadError> {
        let file = GgufFile::open(path)?;
        let blueprint = blueprint(&file, context)?;
        Ok(Self { file, blueprint, rounding })
    }

    /// What it follows.
    #[must_use]
    pub fn blueprint(&self) -> &Blueprint {
        &self.blueprint
    }

    /// Reads a text from its first position on: `result[i * vocabulary..]` are the logits of row `rows[i]`, which say what
    /// follows `tokens[rows[i]]`.
    ///
    /// # Errors
    /// [`ExactError`].
    pub fn logits(&self, tokens: &[TokenId], rows: &[usize]) -> Result<Vec<f32>, ExactError> {
        check_rows(rows, tokens.len())?;
        self.head(&self.read(tokens)?, rows)
    }

    /// The final hidden states of some rows, after the final norm: `result[i * hidden..]` is row `rows[i]`.
    ///
    /// # Errors
    /// [`ExactError`].
    pub fn hidden(&self, tokens: &[TokenId], rows: &[usize]) -> Result<Vec<f32>, ExactError> {
        check_rows(rows, tokens.len())?;
        Ok(self.norm(&self.tensors(), self.blueprint.final_norm(), &self.read(tokens)?.0.pick(rows))?.into_values())
    }

    /// Reads a text from its first position on, through all layers.
    ///
    /// # Errors
    /// [`ExactError`].
    pub fn read(&self, tokens: &[TokenId]) -> Result<Residual, ExactError> {
        self.check(tokens)?;
        let tensors = self.tensors();
        let mut residual = self.embed(&tensors, tokens)?;
        let inputs = self.layer_inputs(&tensors, tokens, &residual)?;
        let mut read_again = ReadAgain::new();
        for layer in 0..self.blueprint.layers.len() {
            match (self.blueprint.layers[layer].mixer, self.blueprint.recurrent) {
                (Mixer::Recurrent, Some(Recurrent::ShortConvolution { taps })) => {
                    self.convolve(&tensors, layer, taps, &mut residual)?;
                }
                (Mixer::Recurrent, Some(Recurrent::Matrices(shape))) => {
                    self.recur(&tensors, layer, &shape, &mut residual)?;
                }
                _ => self.attend(&tensors, layer, &mut residual, &mut read_again)?,
            }
            self.feed(&tensors, layer, &mut residual)?;
            self.end_layer(&tensors, layer, inputs.as_ref(), &mut residual)?;
            tensors.forget_layer(layer);
        }
        Ok(Residual(residual))
    }

    /// The logits of some rows of a text that was read: a vocabulary of each.
    ///
    /// # Errors
    /// [`ExactError`].
    pub fn head(&self, read: &Residual, rows: &[usize]) -> Result<Vec<f32>, ExactError> {
        check_rows(rows, read.0.len())?;
        let (b, tensors) = (&self.blueprint, self.tensors());
        let normed = self.norm(&tensors, self.blueprint.final_norm(), &read.0.pick(rows))?;
        let mut logits = self.product(&tensors.head()?, &normed);
        if b.has(Extra::HeadBias) {
            logits.add_to_each(&tensors.vector("output.bias", b.vocabulary)?);
        }
        logits.scale(b.logit_scale);
        if let Some(cap) = b.logit_cap.map(f64::from) {
            let capped = |logit: f32| ((f64::from(logit) / cap).tanh() * cap) as f32;
            logits.each_mut().flatten().for_each(|logit| *logit = capped(*logit));
        }
        Ok(logits.into_values())
    }

    /// Adds what a part of a layer makes of the residual stream to it.
    fn add(&self, residual: &mut Rows, mut result: Rows) {
        result.scale(self.blueprint.residual_scale);
        residual.add(&result);
    }

    fn check(&self, tokens: &[TokenId]) -> Result<(), ExactError> {
        let Blueprint { context, vocabulary, .. } = self.blueprint;
        if tokens.len() > context {
            return Err(ExactError::Context { tokens: tokens.len(), context });
        }
        if let Some(&token) = tokens.iter().find(|token| token.0 as usize >= vocabulary) {
            return Err(ExactError::Token { token, vocabulary });
        }
        Ok(())
    }

    fn tensors(&self) -> Tensors<'_> {
        Tensors { file: &self.file, blueprint: &self.blueprint }
    }

    fn embed(&self, tensors: &Tensors<'_>, tokens: &[TokenId]) -> Result<Rows, LoadError> {
        let embeddings = tensors.embeddings()?;
        let mut residual = Rows::zeros(tokens.len(), self.blueprint.hidden);
        for (row, token) in residual.each_mut().zip(tokens) {
            embeddings.dequantize_row(token.0 as usize, row);
            row.iter_mut().for_each(|x| *x *= self.blueprint.embedding_scale);
        }
        Ok(residual)
    }

    /// Each row after the norm of the residual stream that is called `name`.
    fn norm(&self, tensors: &Tensors<'_>, name: &str, rows: &Rows) -> Result<Rows, LoadError> {
        let (hidden, epsilon) = (self.blueprint.hidden, self.blueprint.epsilon);
        let weight = tensors.vector(&format!("{name}.weight"), hidden)?;
        let mut normed = rows.clone();
        if self.blueprint.has(Extra::LayerNorms) {
            let bias = tensors.vector(&format!("{name}.bias"), hidden)?;
            normed.each_mut().for_each(|row| rows::layer_norm(row, &weight, &bias, epsilon));
        } else {
            normed.each_mut().for_each(|row| rows::rms_norm(row, &weight, epsilon));
        }
        Ok(normed)
    }
}

fn check_rows(rows: &[usize], given: usize) -> Result<(), ExactError> {
    match rows.iter().find(|&&row| row >= given) {
        Some(&row) => Err(ExactError::Row { row, rows: given }),
        None => Ok(()),
    }
}
