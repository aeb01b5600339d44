//! Calibration of drafts from the prompt: what the model would say after each of its tokens. (CoordGen §3.3)
//!
//! The paper keeps the top successors of all rows, for which the whole head must be computed for them: a quarter of a
//! small model's prefill. Only tokens of the prompt are followed, so a [head over the prompt's
//! tokens](crate::backend::Backend::vocabulary_of) gives the same drafts for a hundredth of that.

use crate::backend::Backend;
use crate::sampling::{Scratch, likeliest};
use crate::speculation::KEPT;
use duet_kernels::crew::Crew;
use duet_types::TokenId;
use std::ops::Range;

/// How much of the head is computed for the rows of a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Calibrate {
    /// Nothing: the prompt does not calibrate.
    Off,
    /// The tokens of the prompt.
    #[default]
    Context,
    /// All tokens, as the paper has it.
    Full,
}

/// One prompt's vocabulary.
pub(crate) enum Vocabulary<B: Backend> {
    Context(B::Vocabulary),
    Full,
}

impl<B: Backend> Vocabulary<B> {
    /// Nothing if the prompt does not calibrate.
    pub(crate) fn new(backend: &B, calibrate: Calibrate, prompt: &[TokenId]) -> Option<Self> {
        match calibrate {
            Calibrate::Off => None,
            Calibrate::Context => Some(Self::Context(backend.vocabulary_of(prompt))),
            Calibrate::Full => Some(Self::Full),
        }
    }

    /// The likeliest successors of some rows of a pass, after all nodes.
    pub(crate) fn successors(
        &self,
        backend: &B,
        pass: &mut B::Pass,
        rows: Range<usize>,
        logits: &mut Vec<f32>,
        crew: &dyn Crew,
    ) -> Vec<Vec<(TokenId, f32)>> {
        match self {
            Self::Context(vocabulary) => backend.successors(pass, rows, vocabulary, KEPT, crew),
            Self::Full => {
                let (rows, mut scratch) = (rows.collect::<Vec<_>>(), Scratch::default());
                let width = backend.shape().vocabulary;
                let mut successors = Vec::with_capacity(rows.len());
                for rows in rows.chunks(ROWS) {
                    backend.logits(pass, rows, logits, crew);
                    successors.extend(logits.chunks_exact(width).map(|row| likeliest(row, KEPT, &mut scratch)));
                }
                successors
            }
        }
    }
}

/// Rows whose logits are in memory at once.
const ROWS: usize = 32;
