//! Calibration of drafts from the prompt: what the model would say after each of its tokens. (CoordGen §3.3)
//!
//! The paper keeps the top successors of all rows, for which the whole head must be computed for them: a quarter of a
//! small model's prefill. A [head over the prompt's tokens](crate::backend::Backend::vocabulary_of) costs a hundredth of
//! that and gives other drafts: the likeliest successors among the prompt's tokens, where the paper has the likeliest of
//! all. One that the prompt does not hold is never drafted from it, and one that is not among the likeliest of all may be.
//!
//! Rows of a prompt that nothing else reads behind the last layer are not computed there ([`Backend::set_head_rows`]); the head
//! over the prompt's tokens reads what the layer before left, and is right as often.

use crate::backend::Backend;
use duet_kernels::crew::Crew;
use duet_speculate::successors::SUCCESSORS;
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
            Calibrate::Context => backend.vocabulary_of(prompt).map(Self::Context),
            Calibrate::Full => Some(Self::Full),
        }
    }

    /// The likeliest successors of some rows of a pass, after all nodes.
    pub(crate) fn successors(
        &self,
        backend: &B,
        pass: &mut B::Pass,
        rows: Range<usize>,
        crew: &dyn Crew,
    ) -> Vec<Vec<(TokenId, f32)>> {
        let among = match self {
            Self::Context(vocabulary) => Some(vocabulary),
            Self::Full => None,
        };
        backend.successors(pass, rows, among, KEPT, crew)
    }
}

/// Successors that are kept of a row of logits.
pub(crate) const KEPT: usize = SUCCESSORS;
