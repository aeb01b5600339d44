//! One generation's drafts: what was drafted is verified by the pass that would have computed one token.
//!
//! Verifying *is* decoding: the next token is chosen from the logits of the last row, as without a draft; if it was
//! drafted, its row was computed as it would have been next, to the bit, so the token after it is chosen from that row's
//! logits, and so on until a token was not drafted. Every choice has the same logits, penalties, random numbers and stop
//! strings as without drafts, so the answer is the same, token by token, for a given seed too. For drafts that are
//! tokens and not distributions, as retrieved ones are, this accepts as often as rejection sampling on trees does
//! (a row with the model's own probability of its token), and keeps the distribution for the same reason.
//! (CoordGen §3.4; Leviathan et al. 2023, Appendix A, with a point mass as the draft's distribution)
//!
//! A grammar would rule tokens out before the choice, and so prunes what is drafted at [`Speculation::draft`].

use crate::calibration::Calibrate;
use crate::drafting::Drafting;
use duet_scheduler::{Chance, Offer};
use duet_speculate::drafter::Rejected;
use duet_speculate::successors::{SUCCESSORS, Successors};
use duet_speculate::{Draft, Learns, Speculator};
use duet_types::{Bytes, TokenId, Tokens};
use std::sync::Arc;
use std::time::Duration;

/// A generation's drafter and its latest draft.
#[derive(Debug)]
pub(crate) struct Speculation {
    drafting: Arc<Drafting>,
    speculator: Speculator,
    learns: Learns,
    draft: Draft,
    counts: DraftCounts,
}

/// What came of a generation's drafts, and what they cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftCounts {
    /// Drafted tokens that were right.
    pub accepted: Tokens,
    /// Drafted tokens that were computed for nothing.
    pub rejected: Tokens,
    /// Time that drafting and learning took, between two passes.
    pub drafting: Duration,
    /// Time that calibration from the prompt took.
    pub calibration: Duration,
    /// Memory that the drafters hold.
    pub memory: Bytes,
}

/// The rows of one generation in a verify pass: the last token, then the first rows of its draft.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VerifyRows {
    pub(crate) tokens: Vec<TokenId>,
    /// Absent for a chain.
    pub(crate) parents: Option<Vec<Option<usize>>>,
}

impl Speculation {
    /// Reads the prompt, which takes a microsecond a few tokens.
    pub(crate) fn new(drafting: &Arc<Drafting>, speculator: Speculator, prompt: &[TokenId]) -> Self {
        let mut speculator = speculator;
        speculator.read(prompt);
        let (draft, counts) = (Draft::default(), DraftCounts::default());
        Self { drafting: Arc::clone(drafting), speculator, learns: drafting.learns(), draft, counts }
    }

    /// What may follow, at most `most` rows, to be offered to the scheduler.
    pub(crate) fn draft(&mut self, most: Tokens) -> Offer {
        self.draft = self.speculator.draft(most.as_usize().min(ROWS_MAX), WORTH_MIN);
        Offer::new(self.draft.rows().iter().map(|row| Chance::new(row.worth)).collect())
    }

    /// The rows of a pass that verifies the first `drafted` rows of the draft after `last`.
    pub(crate) fn rows(&self, last: TokenId, drafted: usize) -> VerifyRows {
        let rows = &self.draft.rows()[..drafted];
        let tokens = std::iter::once(last).chain(rows.iter().map(|row| row.token)).collect();
        let parents = rows.iter().map(|row| row.parent.map_or(0, |parent| parent + 1));
        if parents.clone().eq(0..rows.len()) {
            return VerifyRows { tokens, parents: None };
        }
        VerifyRows { tokens, parents: Some(std::iter::once(None).chain(parents.map(Some)).collect()) }
    }

    /// The row of the pass that computed `token` after row `row`, if it is among the first `drafted`.
    pub(crate) fn follows(&self, row: usize, token: TokenId, drafted: usize) -> Option<usize> {
        let child = self.draft.child(row.checked_sub(1), token)?;
        (child < drafted).then_some(child + 1)
    }

    /// A token was chosen.
    pub(crate) fn accept(&mut self, token: TokenId) {
        self.speculator.accept(token);
    }

    /// The pass is over: `path` are the rows that were right, the first of which was no draft.
    pub(crate) fn verified(&mut self, path: &[usize], drafted: usize) {
        let accepted = path.len() - 1;
        self.counts.accepted += Tokens(accepted as u32);
        self.counts.rejected += Tokens((drafted - accepted) as u32);
    }

    /// How its prompt calibrates.
    pub(crate) fn calibrate_from_prompt(&self) -> Calibrate {
        self.drafting.calibrate()
    }

    /// What this generation learns from.
    pub(crate) fn learns(&self) -> Learns {
        self.learns
    }

    /// Where row `row` of the pass stands: its token, and the one before it; `before` is the one before the pass.
    pub(crate) fn context(&self, row: usize, last: TokenId, before: TokenId) -> [TokenId; 2] {
        let token = |row: Option<usize>| row.map_or(last, |row| self.draft.rows()[row].token);
        match row.checked_sub(1) {
            None => [before, last],
            Some(row) => [token(self.draft.rows()[row].parent), token(Some(row))],
        }
    }

    /// The model would say one of `likeliest` after a text that ends with `context`.
    pub(crate) fn calibrate(&mut self, context: [TokenId; 2], likeliest: &[(TokenId, f32)]) {
        self.speculator.calibrate(context, &Successors::new(likeliest));
    }

    /// The rows of the draft's best path from the first that was not accepted on, which `path` says.
    pub(crate) fn rejected_rows(&self, path: &[usize], drafted: usize) -> Vec<usize> {
        let last = path.last().and_then(|row| row.checked_sub(1));
        let mut rows = Vec::new();
        let mut at = self.draft.first_child(last).filter(|&row| row < drafted);
        while let Some(row) = at {
            rows.push(row + 1);
            at = self.draft.first_child(Some(row)).filter(|&row| row < drafted);
        }
        rows
    }

    /// What the model would have said in the places of the rejected `rows`, given what was drafted before them.
    pub(crate) fn rejected(&mut self, rows: &[usize], predicted: &[TokenId]) {
        let drafted: Vec<TokenId> = rows.iter().map(|&row| self.draft.rows()[row - 1].token).collect();
        self.speculator.rejected(&Rejected { drafted: &drafted, predicted });
    }

    /// Learning from a pass and drafting for the next one took this long.
    pub(crate) fn took(&mut self, time: Duration) {
        self.counts.drafting += time;
        self.drafting.took(time);
    }

    /// Calibration from some of the prompt's rows took this long.
    pub(crate) fn calibration_took(&mut self, time: Duration) {
        self.counts.calibration += time;
    }

    /// What came of all drafts.
    pub(crate) fn counts(&self) -> DraftCounts {
        DraftCounts { memory: Bytes(self.speculator.bytes() as u64), ..self.counts }
    }
}

impl Drop for Speculation {
    fn drop(&mut self) {
        self.drafting.learned(self.speculator.confidence());
    }
}

/// The longest draft: with its root it fills half of a page, which a tree must fit in. The saturating length of the
/// papers' NPU (sd.npu §5.1); how much of it is verified is the scheduler's to say.
const ROWS_MAX: usize = 31;
/// A row that is worth less never pays.
const WORTH_MIN: f32 = 0.02;
/// Successors that are kept of a row of logits.
pub(crate) const KEPT: usize = SUCCESSORS;
