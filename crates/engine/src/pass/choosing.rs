//! The end of a pass: the next tokens of its members, and which rows of each stay.

use super::drafting::Drafters;
use super::looking::Known;
use super::rows::{Rows, message};
use crate::backend::{Accepted, Backend};
use crate::executors::Site;
use crate::request::EngineError;
use crate::sampling::{Candidate, Scratch};
use crate::sequence::{Sequence, Workspace, Yielding};
use duet_kernels::crew::Crew;
use duet_scheduler::{Generated, Kernel, Outcome, Yields};
use duet_types::{FinishReason, Nanos, RequestId, Stage};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// A member whose next token is to be chosen.
struct Choice<'a, B: Backend> {
    request: RequestId,
    sequence: &'a mut Sequence<B>,
    rows: Yielding<'a>,
    outcome: Option<(Generated, Accepted)>,
}

impl<B: Backend> Rows<B> {
    /// Ends the pass after its last node: chooses tokens, and gives the tables back.
    pub(super) fn complete(
        &mut self,
        kernel: &Kernel,
        backend: &B,
        site: Site<'_>,
        workspace: &mut Workspace,
        drafters: &Drafters<'_, B>,
    ) -> Result<Outcome, EngineError> {
        let begun = Instant::now();
        self.count_experts(kernel, backend);
        self.read(kernel, backend, site.crew);
        self.score(kernel, backend, site, workspace)?;
        let known = self.look(kernel, backend, site, workspace)?;
        self.members.iter_mut().for_each(|(_, sequence)| sequence.recovered());
        let (mut generated, accepted) = self.choose(kernel, backend, &known, site.crew, workspace);
        self.end(backend, &accepted)?;
        self.spent += begun.elapsed();
        self.draft_at_last(kernel, &mut generated, drafters, backend, site);
        Ok(Outcome::Tokens(generated))
    }

    /// Says to each member where its rows' experts were computed, and how many experts the pass had to read: all members waited.
    fn count_experts(&mut self, kernel: &Kernel, backend: &B) {
        let Some(pass) = &self.pass else { return };
        let mut start = 0;
        for ((_, sequence), member) in self.members.iter_mut().zip(&kernel.members) {
            let rows = start..start + member.len().as_usize();
            start = rows.end;
            sequence.routed(backend.fates(pass, rows), backend.expert_reads(pass));
        }
    }

    /// Members whose prompts were read say so, are pooled if that is what they are for, and calibrate their drafts.
    fn read(&mut self, kernel: &Kernel, backend: &B, crew: &dyn Crew) {
        let Some(pass) = &mut self.pass else { return };
        let mut start = 0;
        for ((_, sequence), member) in self.members.iter_mut().zip(&kernel.members) {
            let rows = start..start + member.len().as_usize();
            start = rows.end;
            if member.stage == Stage::Prefill {
                sequence.has_read(member.rows.end);
                sequence.pool(backend, pass, member, rows.clone());
                sequence.encode(backend, pass);
                sequence.calibrate(backend, pass, member, rows, crew);
            }
        }
    }

    /// Chooses the next tokens of every member that yields some, and says which rows of each member stay. The crew shares
    /// the members: a vocabulary is long.
    fn choose(
        &mut self,
        kernel: &Kernel,
        backend: &B,
        known: &Known,
        crew: &dyn Crew,
        workspace: &mut Workspace,
    ) -> (Vec<Generated>, Vec<Accepted>) {
        let vocabulary = backend.shape().vocabulary;
        let (logits, scratches) = workspace.parts(crew);
        let logits = known.of_all(logits, vocabulary);
        let choices = self.choices(kernel, vocabulary, logits, &known.likeliest);
        let workers = AtomicUsize::new(1);
        if choices.len() == 1 {
            choices.iter().for_each(|choice| choose_one(choice, backend, &scratches[0]));
        } else {
            crew.run(&|worker| {
                workers.store(worker.size(), Ordering::Relaxed);
                for choice in choices.iter().skip(worker.rank()).step_by(worker.size()) {
                    choose_one(choice, backend, &scratches[worker.rank()]);
                }
            });
        }
        let mut outcomes: Vec<_> = choices
            .into_iter()
            .filter_map(|choice| choice.into_inner().unwrap_or_else(PoisonError::into_inner).outcome)
            .collect();
        keep_longest_wait(outcomes.iter_mut().map(|(generated, _)| &mut generated.waited), workers.into_inner());
        let mut outcomes = outcomes.into_iter();
        let (mut generated, mut accepted) = (Vec::new(), Vec::new());
        for member in &kernel.members {
            let outcome = if member.yields == Yields::Token { outcomes.next() } else { None };
            let (new, rows) = outcome.map_or((None, Accepted::All), |(new, rows)| (Some(new), rows));
            generated.extend(new);
            accepted.push(rows);
        }
        (generated, accepted)
    }

    /// The members that yield tokens, each with what is known of its rows.
    fn choices<'a>(
        &'a mut self,
        kernel: &Kernel,
        vocabulary: usize,
        mut logits: Option<&'a mut [f32]>,
        mut likeliest: &'a [Vec<Candidate>],
    ) -> Vec<Mutex<Choice<'a, B>>> {
        let mut choices = Vec::new();
        for ((request, sequence), member) in self.members.iter_mut().zip(&kernel.members) {
            if member.yields == Yields::Token {
                let count = sequence.token_rows(member);
                let (own, others) = logits.map(|logits| logits.split_at_mut(count * vocabulary)).unzip();
                let (best, others_best) = likeliest.split_at(count);
                (logits, likeliest) = (others, others_best);
                let rows = Yielding { logits: own, likeliest: best };
                choices.push(Mutex::new(Choice { request: *request, sequence, rows, outcome: None }));
            }
        }
        choices
    }
}

/// Of what was waited for by workers at once, each for every `workers`th member, the pass ended as much later as the one that waited
/// longest: what the others waited is none.
fn keep_longest_wait<'a>(waited: impl Iterator<Item = &'a mut Nanos>, workers: usize) {
    let mut waited: Vec<_> = waited.collect();
    let of = |rank: usize| waited.iter().skip(rank).step_by(workers).map(|nanos| nanos.0).sum::<u64>();
    let longest = (0..workers).max_by_key(|&rank| of(rank)).unwrap_or(0);
    let others = waited.iter_mut().enumerate().filter(|(index, _)| index % workers != longest);
    others.for_each(|(_, waited)| **waited = Nanos::ZERO);
}

/// A panic here is the sequence's own, and ends it: its token may be out, so it must not be run again.
fn choose_one<B: Backend>(choice: &Mutex<Choice<'_, B>>, backend: &B, scratch: &Mutex<Scratch>) {
    let mut choice = choice.lock().unwrap_or_else(PoisonError::into_inner);
    let Choice { request, sequence, rows, outcome } = &mut *choice;
    let mut scratch = scratch.lock().unwrap_or_else(PoisonError::into_inner);
    let chosen = catch_unwind(AssertUnwindSafe(|| sequence.yields(backend, *request, rows, &mut scratch)));
    *outcome = Some(chosen.unwrap_or_else(|panic| {
        sequence.fail(EngineError::Internal(message(&*panic)));
        // Whatever it was about to say, no row but the first is certain.
        let accepted = if rows.likeliest.len() <= 1 { Accepted::All } else { Accepted::Path(vec![0]) };
        (Generated::one(*request, Some(FinishReason::Stop)), accepted)
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_at_the_same_time_are_counted_once() {
        let kept = |waited: [u64; 5], workers| {
            let mut waited = waited.map(Nanos);
            keep_longest_wait(waited.iter_mut(), workers);
            waited.map(|nanos| nanos.0)
        };
        assert_eq!(kept([1, 2, 3, 4, 5], 1), [1, 2, 3, 4, 5]);
        assert_eq!(kept([1, 9, 3, 4, 5], 2), [0, 9, 0, 4, 0]);
        assert_eq!(kept([0, 0, 3, 0, 0], 4), [0, 0, 3, 0, 0]);
        assert_eq!(kept([0; 5], 8), [0; 5]);
    }
}
