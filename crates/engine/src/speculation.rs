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
//! A grammar rules tokens out before the choice, and guides what is drafted ([`Speculation::draft_guided`]).

#[cfg(test)]
mod distribution;

use crate::calibration::Calibrate;
use crate::draft_counts::DraftCounts;
use crate::drafting::{Begun, Drafting, Keeps};
use crate::request::GenerateRequest;
use duet_scheduler::{Chance, Offer};
use duet_speculate::confidence::Confidence;
use duet_speculate::drafter::Rejected;
use duet_speculate::guide::Guide;
use duet_speculate::successors::Successors;
use duet_speculate::{Ahead, Draft, Learns, ROWS_MAX, Speculator, Told, WORTH_MIN};
use duet_types::{Bytes, TokenId, Tokens};
use std::sync::Arc;
use std::time::Duration;

/// A generation's drafter and its latest draft.
#[derive(Debug)]
pub(crate) struct Speculation {
    drafting: Arc<Drafting>,
    speculator: Speculator,
    /// What it began with.
    begun: Confidence,
    learns: Learns,
    keeps: Keeps,
    /// What the model would have said after each two tokens of the answer, if that is kept.
    said: Vec<([TokenId; 2], Successors)>,
    draft: Draft,
    counts: DraftCounts,
    /// Tokens of a pass, lately.
    pace: f64,
    by_model: ByModel,
}

/// What a draft model has to do with a generation.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ByModel {
    /// It may be asked; what that takes in a pass, lately, in seconds.
    May(f64),
    /// It is not among the drafters, or has no room.
    Not,
}

impl Speculation {
    /// Of a generation that has not begun; nothing if none of it is drafted.
    pub(crate) fn begin(drafting: &Arc<Drafting>, request: &GenerateRequest) -> Option<Box<Self>> {
        let Begun { speculator, confidence: begun, keeps } = drafting.begin(request)?;
        let (draft, counts, said) = (Draft::default(), DraftCounts::default(), Vec::new());
        let by_model = if drafting.has_model() { ByModel::May(0.0) } else { ByModel::Not };
        let (drafting, learns) = (Arc::clone(drafting), drafting.learns());
        Some(Box::new(Self { drafting, speculator, begun, learns, keeps, said, draft, counts, pace: 1.0, by_model }))
    }

    /// Whether a draft model may be asked.
    pub(crate) fn asks_model(&self) -> bool {
        self.by_model != ByModel::Not
    }

    /// The likeliest path from here, of at most so many tokens.
    pub(crate) fn outlook(&mut self, most: usize) -> Vec<Ahead> {
        self.speculator.outlook(most, WORTH_MIN)
    }

    /// A draft model said this.
    pub(crate) fn told(&mut self, told: &Told<'_>) {
        self.speculator.told(told);
    }

    /// How often the likeliest token comes where a draft model has spoken.
    pub(crate) fn told_chance(&self) -> f32 {
        self.speculator.confidence().told_chance()
    }

    /// Tokens of a pass, lately.
    pub(crate) fn pace(&self) -> f64 {
        self.pace
    }

    /// How long an answer is expected to be.
    pub(crate) fn answer_expected(&self) -> f64 {
        self.drafting.answer_expected()
    }

    /// A round of the draft model took this long for it.
    pub(crate) fn model_took(&mut self, time: Duration) {
        self.counts.by_model += time;
        if let ByModel::May(seconds) = &mut self.by_model {
            *seconds += PACE_RATE * (time.as_secs_f64() - *seconds);
        }
    }

    /// Seconds that the draft model takes for it in a pass, lately.
    pub(crate) fn model_seconds(&self) -> f64 {
        match self.by_model {
            ByModel::May(seconds) => seconds,
            ByModel::Not => 0.0,
        }
    }

    /// The draft model has no room for it.
    pub(crate) fn leave_out_model(&mut self) {
        self.by_model = ByModel::Not;
    }

    /// What may follow, at most `most` rows, to be offered to the scheduler. `guide` knows what cannot and what must.
    pub(crate) fn draft_guided(&mut self, most: Tokens, guide: &mut dyn Guide) -> Offer {
        self.draft = self.speculator.draft_guided(most.as_usize().min(ROWS_MAX), WORTH_MIN, guide);
        Offer::new(self.draft.rows().iter().map(|row| Chance::new(row.worth)).collect())
    }

    /// The draft.
    pub(crate) fn latest(&self) -> &Draft {
        &self.draft
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
        self.pace += PACE_RATE * (path.len() as f64 - self.pace);
    }

    /// Reads some tokens more of the prompt, which takes a microsecond a few tokens and some hundred bytes each: not before
    /// its first pass, since a thousand requests may wait.
    pub(crate) fn read(&mut self, tokens: &[TokenId]) {
        self.speculator.read(tokens);
    }

    /// The answer is complete, and nobody was told yet: whoever asks next finds what is kept of it.
    pub(crate) fn finished(&mut self, prompt: &[TokenId], answer: &[TokenId]) {
        self.drafting.answered(answer.len());
        if let Some(key) = self.keeps.answer.take() {
            self.drafting.keep(key, prompt, answer);
        }
        self.recycle();
    }

    fn recycle(&mut self) {
        if let Some(user) = self.keeps.successors.take() {
            self.drafting.recycle(&user, &self.said);
        }
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

    /// The same of a row of the answer, for which the model could have said anything.
    pub(crate) fn said(&mut self, context: [TokenId; 2], likeliest: &[(TokenId, f32)]) {
        let successors = Successors::new(likeliest);
        self.speculator.calibrate(context, &successors);
        if self.keeps.successors.is_some() {
            self.said.push((context, successors));
        }
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
        self.drafting.learned(&self.begun, self.speculator.confidence());
        self.recycle();
    }
}

/// How much one pass weighs in what passes are like lately.
const PACE_RATE: f64 = 0.1;
