//! How good answers are: perplexity of a text, and how far what the kernels say lies from a reference.
//!
//! A text is read in [`Chunks`] as `llama-perplexity` reads it, so that figures compare digit by digit. At each position
//! that counts, the negative logarithm of the chance of the token that came is what the model is surprised by; perplexity
//! is `e` to the mean. Against a [`Reference`] (the same weights read in plain floats, or a file that llama.cpp or this
//! wrote), a position's divergence is that of Kullback and Leibler: what is lost by believing the kernels where the
//! reference is right, in nats.
//!
//! **Invariant:** whatever the context and the vocabulary, the logits of some rows only are in memory at once.

mod base_file;
mod chunks;
mod divergence;
mod kernels;
mod reference;

pub use base_file::{BaseFile, BaseFileError, BaseWriter};
pub use chunks::{Chunks, ChunksError};
pub use divergence::{Divergence, Quality};
pub use kernels::Kernels;
pub use reference::{ExactReference, Reference};

use crate::forward::ForwardError;
pub(crate) use divergence::log_total;
use divergence::{Divergences, Row, log_softmax};
use duet_model::exact::ExactError;
use duet_types::TokenId;
use std::io;
use std::ops::Range;

/// Rows whose logits are in memory at once.
const ROWS: usize = 64;

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum QualityError {
    /// The kernels' pass came to nothing.
    #[error(transparent)]
    Forward(#[from] ForwardError),
    /// The exact reader does not read the file.
    #[error(transparent)]
    Exact(#[from] ExactError),
    /// The reference file is not what it should be.
    #[error(transparent)]
    Base(#[from] BaseFileError),
    /// The reference cannot be written.
    #[error("the reference could not be written: {0}")]
    Write(#[source] io::Error),
}

impl QualityError {
    /// Whether what was given is wrong, rather than that running failed.
    #[must_use]
    pub fn is_bad_input(&self) -> bool {
        matches!(self, Self::Base(_) | Self::Exact(_))
    }
}

/// Told after every chunk: how many there were, of how many, and what is measured so far.
pub type Progress<'a> = &'a mut dyn FnMut(usize, usize, &Quality);

/// The perplexity of a text; what the kernels say is written to `copy`, if there is one.
///
/// # Errors
/// [`QualityError`].
pub fn perplexity(
    kernels: &mut Kernels<'_>,
    mut copy: Option<&mut BaseWriter>,
    chunks: &Chunks,
    progress: Progress<'_>,
) -> Result<Quality, QualityError> {
    let mut sums = Divergences::default();
    for (index, chunk) in chunks.each().enumerate() {
        kernels.begin(chunk)?;
        for rows in blocks(chunks.scored()) {
            for (row, logits) in rows.clone().zip(kernels.rows(rows.clone())?.chunks_exact(chunks.vocabulary())) {
                if let Some(copy) = &mut copy {
                    copy.row(logits).map_err(QualityError::Write)?;
                }
                sums.add_alone(Row { logits, next: chunk[row + 1] });
            }
        }
        progress(index + 1, chunks.count(), &sums.quality());
    }
    Ok(sums.quality())
}

/// How far the kernels are from a reference on a text; what the reference says is written to `copy`, if there is one.
///
/// # Errors
/// [`QualityError`].
pub fn divergence(
    kernels: &mut Kernels<'_>,
    reference: &mut dyn Reference,
    mut copy: Option<&mut BaseWriter>,
    chunks: &Chunks,
    progress: Progress<'_>,
) -> Result<Quality, QualityError> {
    let (mut sums, mut expected) = (Divergences::default(), Vec::new());
    let vocabulary = chunks.vocabulary();
    for (index, chunk) in chunks.each().enumerate() {
        kernels.begin(chunk)?;
        reference.begin(chunk)?;
        for rows in blocks(chunks.scored()) {
            reference.rows(rows.clone(), &mut expected)?;
            let found = kernels.rows(rows.clone())?;
            let pairs = found.chunks_exact(vocabulary).zip(expected.chunks_exact_mut(vocabulary));
            for (row, (logits, expected)) in rows.zip(pairs) {
                if let Some(copy) = &mut copy {
                    copy.row(expected).map_err(QualityError::Write)?;
                }
                if !reference.is_normalised() {
                    log_softmax(expected);
                }
                sums.add(Row { logits, next: chunk[row + 1] }, expected);
            }
        }
        progress(index + 1, chunks.count(), &sums.quality());
    }
    Ok(sums.quality())
}

/// A range in parts of [`ROWS`].
fn blocks(rows: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = rows.end;
    rows.step_by(ROWS).map(move |start| start..(start + ROWS).min(end))
}

/// A chunk of a text.
type Chunk = [TokenId];
