//! A pass under way: the sequences whose rows it carries, and what the model holds of them between nodes.
//!
//! One kernel has it at a time ([`SharedPass`](crate::shared_pass::SharedPass)). Whatever happens in a kernel, each sequence
//! gets its table back: after the last node with its new rows, and after an error or a panic as it was before the pass, so
//! that it can be run again.

use crate::backend::{Accepted, Backend, Refused};
use crate::executors::Site;
use crate::request::EngineError;
use crate::sampling::{Candidate, Scratch, likeliest};
use crate::sequence::{Sequence, Workspace, Yielding};
use crate::speculation::KEPT;
use duet_kernels::crew::Crew;
use duet_scheduler::{Completes, Generated, Kernel, Outcome, Yields};
use duet_types::{Class, FinishReason, RequestId, Stage};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

/// Some rows on their way through the nodes.
pub(crate) struct PassUnderWay<B: Backend> {
    /// In the order of their rows.
    members: Vec<(RequestId, Box<Sequence<B>>)>,
    /// Present while it is under way.
    pass: Option<B::Pass>,
    life: Life,
}

/// Kernels may still come when the pass was undone: those that ran beside the one that failed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    NotBegun,
    UnderWay,
    Over,
}

/// A member whose next token is to be chosen.
struct Choice<'a, B: Backend> {
    request: RequestId,
    sequence: &'a mut Sequence<B>,
    rows: Yielding<'a>,
    outcome: Option<(Generated, Accepted)>,
}

impl<B: Backend> PassUnderWay<B> {
    pub(crate) fn new(members: Vec<(RequestId, Box<Sequence<B>>)>) -> Self {
        Self { members, pass: None, life: Life::NotBegun }
    }

    /// The sequences, after the pass ended or was undone.
    pub(crate) fn take_members(&mut self) -> Vec<(RequestId, Box<Sequence<B>>)> {
        std::mem::take(&mut self.members)
    }

    /// Does some work on it. After an error or a panic the pass is undone; what fails after that says nothing new.
    pub(crate) fn guarded<R>(
        &mut self,
        backend: &B,
        work: impl FnOnce(&mut Self) -> Result<R, EngineError>,
    ) -> Result<R, EngineError> {
        let was = self.life;
        let result = Self::caught(|| work(self));
        if let (Err(error), Life::NotBegun | Life::UnderWay) = (&result, was) {
            for (_, sequence) in &mut self.members {
                sequence.fail(error.clone());
            }
            self.undo(backend);
        }
        result
    }

    /// Makes an error of a panic.
    pub(crate) fn caught<R>(work: impl FnOnce() -> Result<R, EngineError>) -> Result<R, EngineError> {
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(EngineError::Internal(message(&*panic))))
    }

    /// Gives every sequence its table back, as it was before the pass.
    pub(crate) fn undo(&mut self, backend: &B) {
        self.life = Life::Over;
        let Some(pass) = self.pass.take() else { return };
        // If the model cannot even give it up, the tables are lost, and their sequences will fail when they are run.
        if let Ok(tables) = catch_unwind(AssertUnwindSafe(|| backend.abandon(pass))) {
            self.put_back(tables);
        }
    }

    /// Runs a kernel on all rows; the one that completes the pass ends it.
    pub(crate) fn run(
        &mut self,
        kernel: &Kernel,
        backend: &B,
        site: Site<'_>,
        workspace: &mut Workspace,
    ) -> Result<Outcome, EngineError> {
        let outcome = self.run_part(kernel, backend, site)?;
        if kernel.completes == Completes::Span { Ok(outcome) } else { self.complete(kernel, backend, site, workspace) }
    }

    /// Runs a kernel, and does not end the pass.
    pub(crate) fn run_part(&mut self, kernel: &Kernel, backend: &B, site: Site<'_>) -> Result<Outcome, EngineError> {
        let pass = self.begun(kernel, backend)?;
        backend.run(pass, kernel.nodes.clone(), kernel.rows.start as usize..kernel.rows.end as usize, site)?;
        if kernel.class() == Class::Proactive && kernel.stage() == Stage::Prefill {
            // Nobody waits, and the next chunk, perhaps a person's, finds its memory prepared.
            backend.warm_memory();
        }
        Ok(Outcome::Progressed)
    }

    /// What the nodes of a kernel read, if a device can do without the pass.
    pub(crate) fn inputs(
        &mut self,
        kernel: &Kernel,
        backend: &B,
        site: Site<'_>,
    ) -> Result<Option<B::Inputs>, EngineError> {
        Ok(backend.inputs(self.begun(kernel, backend)?, kernel.nodes.clone(), site))
    }

    /// Takes what a device made of some rows.
    pub(crate) fn join(&mut self, outputs: &[B::Outputs], backend: &B, crew: &dyn Crew) -> Result<(), EngineError> {
        outputs.iter().try_for_each(|outputs| backend.join(self.pass.as_mut().ok_or_else(lost)?, outputs, crew))
    }

    /// Ends the pass after its last node: chooses tokens, and gives the tables back.
    pub(crate) fn complete(
        &mut self,
        kernel: &Kernel,
        backend: &B,
        site: Site<'_>,
        workspace: &mut Workspace,
    ) -> Result<Outcome, EngineError> {
        self.count_experts(kernel, backend);
        self.calibrate(kernel, backend, site.crew);
        let pass = self.pass.as_mut().ok_or_else(lost)?;
        let yielding = yielding_rows(kernel);
        if !yielding.is_empty() {
            backend.logits(pass, &yielding, &mut workspace.logits, site)?;
        }
        let (generated, accepted) = self.choose(kernel, backend, site.crew, workspace);
        let pass = self.pass.take().ok_or_else(lost)?;
        self.life = Life::Over;
        self.put_back(backend.finish(pass, &accepted));
        Ok(Outcome::Tokens(generated))
    }

    fn begun(&mut self, kernel: &Kernel, backend: &B) -> Result<&mut B::Pass, EngineError> {
        if self.life == Life::NotBegun {
            self.begin(kernel, backend)?;
            self.life = Life::UnderWay;
        }
        self.pass.as_mut().ok_or_else(lost)
    }

    /// Says to each member where its rows' experts were computed.
    fn count_experts(&mut self, kernel: &Kernel, backend: &B) {
        let Some(pass) = &self.pass else { return };
        let mut start = 0;
        for ((_, sequence), member) in self.members.iter_mut().zip(&kernel.members) {
            let rows = start..start + member.len().as_usize();
            start = rows.end;
            sequence.routed(backend.fates(pass, rows));
        }
    }

    /// Calibrates the drafts of members whose prompts were read.
    fn calibrate(&mut self, kernel: &Kernel, backend: &B, crew: &dyn Crew) {
        let Some(pass) = &mut self.pass else { return };
        let mut start = 0;
        for ((_, sequence), member) in self.members.iter_mut().zip(&kernel.members) {
            let rows = start..start + member.len().as_usize();
            start = rows.end;
            if member.stage == Stage::Prefill {
                sequence.calibrate(backend, pass, member, rows, crew);
            }
        }
    }

    fn begin(&mut self, kernel: &Kernel, backend: &B) -> Result<(), EngineError> {
        let members = self.members.iter_mut().zip(&kernel.members);
        let rows: Vec<_> = members.map(|((_, sequence), member)| sequence.take_rows(backend, member)).collect();
        if rows.iter().any(Option::is_none) {
            // Somebody's keys and values are lost. The others' are not: each is run alone after this.
            for ((_, sequence), rows) in self.members.iter_mut().zip(rows) {
                rows.map(|rows| sequence.put_back(rows.table));
            }
            return Err(lost());
        }
        let rows = rows.into_iter().flatten().collect();
        match backend.begin(rows) {
            Ok(pass) => self.pass = Some(pass),
            Err(Refused { error, tables }) => {
                self.put_back(tables);
                return Err(error);
            }
        }
        Ok(())
    }

    fn put_back(&mut self, tables: Vec<B::Table>) {
        for ((_, sequence), table) in self.members.iter_mut().zip(tables) {
            sequence.put_back(table);
        }
    }

    /// Chooses the next tokens of every member that yields some, and says which rows of each member stay. The crew shares
    /// the members: a vocabulary is long.
    fn choose(
        &mut self,
        kernel: &Kernel,
        backend: &B,
        crew: &dyn Crew,
        workspace: &mut Workspace,
    ) -> (Vec<Generated>, Vec<Accepted>) {
        let vocabulary = backend.shape().vocabulary;
        let rows: usize = kernel.members.iter().map(|member| member.head_rows().as_usize()).sum();
        let logits = workspace.logits.get_mut(..rows * vocabulary).unwrap_or_default();
        let likeliest = likeliest(logits, vocabulary, KEPT, crew);
        let choices = self.choices(kernel, vocabulary, logits, &likeliest);
        let scratches = &mut workspace.scratches;
        scratches.resize_with(scratches.len().max(crew.size()), Mutex::default);
        let scratches = &*scratches;
        if choices.len() == 1 {
            choices.iter().for_each(|choice| choose_one(choice, backend, &scratches[0]));
        } else {
            crew.run(&|worker| {
                for choice in choices.iter().skip(worker.rank()).step_by(worker.size()) {
                    choose_one(choice, backend, &scratches[worker.rank()]);
                }
            });
        }
        let mut outcomes = choices.into_iter().filter_map(|choice| {
            let Choice { outcome, .. } = choice.into_inner().unwrap_or_else(PoisonError::into_inner);
            outcome
        });
        let (mut generated, mut accepted) = (Vec::new(), Vec::new());
        for member in &kernel.members {
            let outcome = if member.yields == Yields::Token { outcomes.next() } else { None };
            let (new, rows) = outcome.map_or((None, Accepted::All), |(new, rows)| (Some(new), rows));
            generated.extend(new);
            accepted.push(rows);
        }
        (generated, accepted)
    }

    /// The members that yield tokens, each with the logits of its rows.
    fn choices<'a>(
        &'a mut self,
        kernel: &Kernel,
        vocabulary: usize,
        mut logits: &'a mut [f32],
        mut likeliest: &'a [Vec<Candidate>],
    ) -> Vec<Mutex<Choice<'a, B>>> {
        let mut choices = Vec::new();
        for ((request, sequence), member) in self.members.iter_mut().zip(&kernel.members) {
            if member.yields == Yields::Token {
                let count = member.head_rows().as_usize();
                let (own, others) = logits.split_at_mut(count * vocabulary);
                let (best, others_best) = likeliest.split_at(count);
                (logits, likeliest) = (others, others_best);
                let rows = Yielding { logits: own, likeliest: best };
                choices.push(Mutex::new(Choice { request: *request, sequence, rows, outcome: None }));
            }
        }
        choices
    }
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
        let accepted = if rows.likeliest.len() == 1 { Accepted::All } else { Accepted::Path(vec![0]) };
        (Generated::one(*request, Some(FinishReason::Stop)), accepted)
    }));
}

/// The rows whose logits are wanted: the last row of each member that yields a token, and all rows of a draft.
fn yielding_rows(kernel: &Kernel) -> Vec<usize> {
    let mut end = 0;
    let mut rows = Vec::new();
    for member in &kernel.members {
        end += member.len().as_usize();
        rows.extend(end - member.head_rows().as_usize()..end);
    }
    rows
}

fn lost() -> EngineError {
    EngineError::Internal("its keys and values are lost".to_owned())
}

/// What a kernel's panic said.
fn message(panic: &(dyn Any + Send)) -> String {
    format!("a kernel panicked: {}", panic_message(panic))
}

/// What a panic said.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message")
}
