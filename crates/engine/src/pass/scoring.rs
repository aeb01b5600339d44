//! How likely prompts are: rows of a pass through the head, for members that want to know.
//!
//! A row of logits is as long as the vocabulary, so a few rows go at a time, and only what is told of them stays. The crew
//! shares them.

use super::rows::Rows;
use crate::backend::Backend;
use crate::executors::Site;
use crate::request::{EngineError, TokenLogprobs};
use crate::sampling::logprobs;
use crate::sequence::{Sequence, Workspace};
use duet_kernels::crew::Crew;
use duet_scheduler::Kernel;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

impl<B: Backend> Rows<B> {
    /// Members whose prompts are scored tell of the tokens that their rows speak of. What was told of a pass that fails
    /// stays told.
    pub(super) fn score(
        &mut self,
        kernel: &Kernel,
        backend: &B,
        site: Site<'_>,
        workspace: &mut Workspace,
    ) -> Result<(), EngineError> {
        let Some(pass) = &mut self.pass else { return Ok(()) };
        let mut start = 0;
        for ((_, sequence), member) in self.members.iter_mut().zip(&kernel.members) {
            let rows = start..start + member.len().as_usize();
            start = rows.end;
            let Some(scored) = sequence.scored_rows(member, rows) else { continue };
            score_rows(sequence, scored, pass, backend, site, workspace)?;
        }
        Ok(())
    }
}

fn score_rows<B: Backend>(
    sequence: &mut Sequence<B>,
    rows: Range<usize>,
    pass: &mut B::Pass,
    backend: &B,
    site: Site<'_>,
    workspace: &mut Workspace,
) -> Result<(), EngineError> {
    // A prompt of one token has no row to score.
    sequence.tell_scores(Vec::new());
    let rows: Vec<usize> = rows.collect();
    for rows in rows.chunks(ROWS_AT_ONCE) {
        backend.logits(pass, rows, &mut workspace.logits, site)?;
        let told = scores(sequence, rows.len(), backend.shape().vocabulary, workspace, site.crew);
        sequence.tell_scores(told);
    }
    Ok(())
}

/// What so many rows of logits say of the next tokens of a prompt.
fn scores<B: Backend>(
    sequence: &Sequence<B>,
    rows: usize,
    vocabulary: usize,
    workspace: &mut Workspace,
    crew: &dyn Crew,
) -> Vec<TokenLogprobs> {
    let (logits, scratches) = workspace.parts(crew);
    let (tokens, alternatives) = sequence.to_score(rows);
    let told: Vec<Mutex<Option<TokenLogprobs>>> = tokens.iter().map(|_| Mutex::default()).collect();
    crew.run(&|worker| {
        let mut scratch = scratches[worker.rank()].lock().unwrap_or_else(PoisonError::into_inner);
        let rows = logits.chunks_exact(vocabulary).zip(tokens).zip(&told);
        for ((logits, &token), told) in rows.skip(worker.rank()).step_by(worker.size()) {
            let scored = logprobs(logits, token, alternatives, &mut scratch);
            *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(scored);
        }
    });
    told.into_iter().filter_map(|told| told.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
}

/// With a vocabulary of 256 Ki tokens their logits are 32 MB; fewer would read the head's weights more often than needed.
const ROWS_AT_ONCE: usize = 32;
