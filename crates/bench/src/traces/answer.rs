//! One answer: draft, verify, accept, until the model ends its turn. (CoordGen §3.1, Figure 7)
//!
//! As the engine has it: a token is the likeliest after the last row that was right, and if it was drafted, its row is the
//! next one that is right.

use super::TraceError;
use super::stream::{Likeliest, Prompt, Stream};
use duet_scheduler::Chance;
use duet_sim::DraftStep;
use duet_speculate::drafter::Rejected;
use duet_speculate::successors::Successors;
use duet_speculate::{Draft, Learns, ROWS_MAX, Speculator};
use duet_types::TokenId;

/// An answer under way.
pub(super) struct Answer {
    /// The prompt, then what was answered.
    all: Vec<TokenId>,
    prompt: usize,
    learns: Learns,
    limits: Limits,
    pub(super) speculator: Speculator,
    pub(super) steps: Vec<DraftStep>,
    pub(super) misfits: Vec<Misfit>,
    /// What the model would have said after each two tokens of the answer.
    pub(super) said: Vec<([TokenId; 2], Successors)>,
}

/// Where a draft was not what the model said.
pub(super) struct Misfit {
    /// The place in the answer.
    pub(super) at: usize,
    /// The rest of the draft's best path.
    pub(super) drafted: Vec<TokenId>,
}

/// Bounds of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Its longest.
    pub(super) output: usize,
    /// What a row of a draft is worth at least.
    pub(super) floor: f32,
}

/// Whether there is more to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    GoesOn,
    Ends,
}

impl Answer {
    /// Reads the prompt, and what the model would say in it if the method learns from that.
    pub(super) fn new(prompt: &Prompt, mut speculator: Speculator, learns: Learns, limits: Limits) -> Self {
        speculator.read(&prompt.tokens);
        if learns.prompt {
            for (at, successors) in prompt.successors.iter().enumerate() {
                speculator.calibrate([prompt.tokens[at.saturating_sub(1)], prompt.tokens[at]], successors);
            }
        }
        let (all, prompt) = (prompt.tokens.clone(), prompt.tokens.len());
        Self { all, prompt, learns, limits, speculator, steps: Vec::new(), misfits: Vec::new(), said: Vec::new() }
    }

    /// What was answered.
    pub(super) fn tokens(&self) -> &[TokenId] {
        &self.all[self.prompt..]
    }

    /// To its end.
    pub(super) fn run(&mut self, stream: &mut Stream<'_>, prompt: &Prompt) -> Result<(), TraceError> {
        let mut table = stream.table(prompt)?;
        let first = prompt.successors.last().and_then(Successors::first).unwrap_or(TokenId(0));
        let mut then = self.push(stream, first);
        while then == Then::GoesOn {
            // The last token that may come needs no row.
            let room = self.limits.output.saturating_sub(self.tokens().len() + 1);
            let draft = self.speculator.draft(ROWS_MAX.min(room), self.limits.floor);
            let verified = stream.verify(table, self.all[self.all.len() - 1], &draft)?;
            let before = self.all.len();
            let path;
            (path, then) = self.walk(stream, &draft, &verified.likeliest);
            self.learn(before, &path, &draft, &verified.likeliest, then);
            let chances = draft.rows().iter().map(|row| Chance::new(row.worth)).collect();
            self.steps.push(DraftStep { chances, right: path[1..].iter().map(|row| row - 1).collect() });
            table = stream.accept(verified, path);
        }
        Ok(())
    }

    /// Adds the likeliest token after each row that is right. Returns these rows.
    fn walk(&mut self, stream: &Stream<'_>, draft: &Draft, likeliest: &[Likeliest]) -> (Vec<usize>, Then) {
        let mut path = vec![0];
        loop {
            let row = path[path.len() - 1];
            let token = first(&likeliest[row]);
            let then = self.push(stream, token);
            match draft.follows(row, token, draft.len()).filter(|_| then == Then::GoesOn) {
                Some(next) => path.push(next),
                None => return (path, then),
            }
        }
    }

    fn push(&mut self, stream: &Stream<'_>, token: TokenId) -> Then {
        self.all.push(token);
        if stream.ends_turn(token) || self.tokens().len() >= self.limits.output {
            return Then::Ends;
        }
        self.speculator.accept(token);
        Then::GoesOn
    }

    /// Learns from the rows of a pass before which there were `before` tokens, and of which those of `path` were right.
    fn learn(&mut self, before: usize, path: &[usize], draft: &Draft, likeliest: &[Likeliest], then: Then) {
        if self.learns.answer {
            for (at, &row) in (before - 1..).zip(path) {
                let context = [self.all[at.saturating_sub(1)], self.all[at]];
                let successors = Successors::new(&likeliest[row]);
                self.speculator.calibrate(context, &successors);
                self.said.push((context, successors));
            }
        }
        let rejected = draft.rejected(path, draft.len());
        if rejected.is_empty() || then == Then::Ends {
            return;
        }
        let drafted: Vec<TokenId> = rejected.iter().map(|&row| draft.rows()[row - 1].token).collect();
        let last = self.all[self.all.len() - 1];
        let after = rejected.iter().map(|&row| first(&likeliest[row]));
        let predicted: Vec<TokenId> = std::iter::once(last).chain(after).collect();
        if self.learns.rejected {
            self.speculator.rejected(&Rejected { drafted: &drafted, predicted: &predicted });
        }
        self.misfits.push(Misfit { at: self.tokens().len() - 1, drafted });
    }
}

/// A model whose logits are all no numbers has no likeliest token; it says the first.
fn first(likeliest: &Likeliest) -> TokenId {
    likeliest.first().map_or(TokenId(0), |&(token, _)| token)
}
