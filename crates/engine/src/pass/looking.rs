//! What is known of the rows of a pass when tokens are chosen: their likeliest tokens, and all their logits where somebody needs
//! them.
//!
//! A row of logits is as long as the vocabulary. A device that computed them, and finds the best of them itself, brings nothing
//! else back if no member of the pass needs more. Everywhere else all logits are here, as they were before.

use super::rows::{Rows, lost};
use crate::backend::Backend;
use crate::calibration::KEPT;
use crate::executors::Site;
use crate::request::EngineError;
use crate::sampling::{Candidate, Wanted, likeliest};
use crate::sequence::Workspace;
use duet_model::forward::BestOfRow;
use duet_scheduler::Kernel;

/// Of all rows that yield a token, in their order.
pub(super) struct Known {
    /// At least those that drafts learn from.
    pub(super) likeliest: Vec<Vec<Candidate>>,
    logits: Logits,
}

/// Where their logits are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Logits {
    /// In the workspace.
    Here,
    /// Nobody needs them.
    Left,
}

impl Known {
    /// The logits of all rows, if they are in the workspace, whose logits these are.
    pub(super) fn of_all<'a>(&self, logits: &'a mut [f32], vocabulary: usize) -> Option<&'a mut [f32]> {
        match self.logits {
            Logits::Here => Some(logits.get_mut(..self.likeliest.len() * vocabulary).unwrap_or_default()),
            Logits::Left => None,
        }
    }
}

impl<B: Backend> Rows<B> {
    /// Finds out what its members need to know of the rows that yield their tokens.
    pub(super) fn look(
        &mut self,
        kernel: &Kernel,
        backend: &B,
        site: Site<'_>,
        workspace: &mut Workspace,
    ) -> Result<Known, EngineError> {
        let (rows, wanted) = self.yielding_rows(kernel);
        let pass = self.pass.as_mut().ok_or_else(lost)?;
        if let (Wanted::Best(count), false) = (wanted, rows.is_empty())
            && let Some(best) = backend.best(pass, &rows, count, site)?
        {
            return Ok(Known { likeliest: best.into_iter().map(candidates).collect(), logits: Logits::Left });
        }
        if !rows.is_empty() {
            backend.logits(pass, &rows, &mut workspace.logits, site)?;
        }
        let vocabulary = backend.shape().vocabulary;
        let logits = workspace.logits.get(..rows.len() * vocabulary).unwrap_or_default();
        Ok(Known { likeliest: likeliest(logits, vocabulary, KEPT, site.crew), logits: Logits::Here })
    }

    /// Says what is going to be looked at, before the last nodes are run.
    pub(super) fn seek(&mut self, kernel: &Kernel, backend: &B) {
        if let (rows, Wanted::Best(count)) = self.yielding_rows(kernel)
            && let Some(pass) = self.pass.as_mut().filter(|_| !rows.is_empty())
        {
            backend.seek_best(pass, &rows, count);
        }
    }

    /// The rows that are looked at, the last row of each member that yields a token and all rows of a draft, and what is wanted of
    /// them together.
    fn yielding_rows(&self, kernel: &Kernel) -> (Vec<usize>, Wanted) {
        let (mut end, mut rows, mut wanted) = (0, Vec::new(), Wanted::Best(KEPT));
        for ((_, sequence), member) in self.members.iter().zip(&kernel.members) {
            end += member.len().as_usize();
            let own = end - sequence.token_rows(member)..end;
            if !own.is_empty() {
                wanted = wanted.and(sequence.wanted());
                rows.extend(own);
            }
        }
        (rows, wanted)
    }
}

fn candidates(best: BestOfRow) -> Vec<Candidate> {
    best.into_iter().map(|(token, logit)| (token.0, logit)).collect()
}
