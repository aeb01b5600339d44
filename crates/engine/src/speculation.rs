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

use crate::calibration::Calibrate;
use crate::drafting::Drafting;
use duet_history::TaskKey;
use duet_scheduler::{Chance, Offer};
use duet_speculate::drafter::Rejected;
use duet_speculate::guide::{Guide, Unguided};
use duet_speculate::successors::{SUCCESSORS, Successors};
use duet_speculate::{Draft, Learns, ROWS_MAX, Speculator, WORTH_MIN};
use duet_types::{Bytes, TokenId, Tokens};
use std::sync::Arc;
use std::time::Duration;

/// A generation's drafter and its latest draft.
#[derive(Debug)]
pub(crate) struct Speculation {
    drafting: Arc<Drafting>,
    speculator: Speculator,
    learns: Learns,
    /// Where the answer is kept; absent if it is not.
    key: Option<TaskKey>,
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

impl Speculation {
    /// Of a generation that has not begun.
    pub(crate) fn new(drafting: &Arc<Drafting>, speculator: Speculator, key: Option<TaskKey>) -> Self {
        let (draft, counts) = (Draft::default(), DraftCounts::default());
        Self { drafting: Arc::clone(drafting), speculator, learns: drafting.learns(), key, draft, counts }
    }

    /// What may follow, at most `most` rows, to be offered to the scheduler.
    pub(crate) fn draft(&mut self, most: Tokens) -> Offer {
        self.draft_guided(most, &mut Unguided)
    }

    /// The same of an answer that is held to something.
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
    }

    /// Reads the prompt, which takes a microsecond a few tokens and some hundred bytes each: not before its first pass,
    /// since a thousand requests may wait.
    pub(crate) fn read(&mut self, prompt: &[TokenId]) {
        self.speculator.read(prompt);
    }

    /// The answer is complete.
    pub(crate) fn finished(&mut self, prompt: &[TokenId], answer: &[TokenId]) {
        if let Some(key) = self.key.take() {
            self.drafting.keep(key, prompt, answer);
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

/// Successors that are kept of a row of logits.
pub(crate) const KEPT: usize = SUCCESSORS;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Accepted, Backend};
    use crate::calibration::Calibrate;
    use crate::clock::Clock;
    use crate::fake_model::{FakeModel, VOCABULARY};
    use crate::outbox::Outbox;
    use crate::request::{GenerateRequest, SamplingParams, StopConditions};
    use crate::sampling::{Scratch, likeliest};
    use crate::sequence::{Sequence, Yielding};
    use duet_kernels::crew::Solo;
    use duet_scheduler::{HeadRows, Member, Yields};
    use duet_speculate::Method;
    use duet_types::{Class, RequestId, Stage};

    /// Enough that a hundredth more or less of any token is four standard deviations.
    const SAMPLES: u64 = 40_000;
    const LETTERS: usize = 4;

    /// What the model says after a text: four letters, never the same way.
    fn logits_after(text: &[TokenId]) -> Vec<f32> {
        let seed = text.iter().fold(3_u32, |seed, token| seed.wrapping_mul(31).wrapping_add(token.0 + 7));
        let letter = |token: usize| ((seed >> (token * 3)) % 8) as f32 / 4.0;
        (0..VOCABULARY).map(|token| if token < LETTERS { letter(token) } else { f32::NEG_INFINITY }).collect()
    }

    fn shares(logits: &[f32]) -> [f64; LETTERS] {
        let weights: [f64; LETTERS] = std::array::from_fn(|token| f64::from(logits[token]).exp());
        weights.map(|weight| weight / weights.iter().sum::<f64>())
    }

    /// Whether draws look as if they came with these shares: each within four standard deviations.
    fn fits(counts: [u64; LETTERS], shares: [f64; LETTERS]) -> bool {
        let all = counts.iter().sum::<u64>() as f64;
        counts.iter().zip(shares).all(|(&count, share)| {
            let deviation = (share * (1.0 - share) / all).sqrt();
            (count as f64 / all - share).abs() < 4.0 * deviation
        })
    }

    /// The tokens of one drawn answer to a prompt whose every continuation is drafted.
    fn drawn(backend: &FakeModel, drafting: &Arc<Drafting>, prompt: &[TokenId], seed: u64) -> Vec<TokenId> {
        let request = GenerateRequest {
            prompt: prompt.to_vec(),
            sampling: SamplingParams { temperature: 1.0, seed: Some(seed), ..SamplingParams::default() },
            stop: StopConditions { max_tokens: Some(Tokens(4)), ..StopConditions::default() },
            ..GenerateRequest::default()
        };
        let (sender, _receiver) = tokio::sync::mpsc::unbounded_channel();
        let speculation = drafting.begin(&request);
        let mut sequence = Sequence::new(backend, request, (speculation, None), 0, Outbox::new(sender), Clock::start());
        let mut scratch = Scratch::default();
        let (mut drafted, mut left) = (0, true);
        while left {
            let known = sequence.tokens().to_vec();
            sequence.put_back(backend.table());
            let start = Tokens(known.len() as u32 - 1);
            let rows = start..start + Tokens(1 + drafted);
            let stage = if drafted > 0 { Stage::Verify } else { Stage::Decode };
            let member = Member {
                request: RequestId(0),
                class: Class::Reactive,
                stage,
                rows,
                yields: Yields::Token,
                head: HeadRows::Last,
            };
            let rows = sequence.take_rows(backend, &member).expect("it has a table");
            let parent = |row: usize| match &rows.parents {
                Some(parents) => parents[row],
                None => row.checked_sub(1),
            };
            let mut logits = Vec::new();
            for row in 0..rows.tokens.len() {
                let mut path: Vec<usize> = std::iter::successors(Some(row), |&row| parent(row)).collect();
                path.pop();
                let tail = path.iter().rev().map(|&row| rows.tokens[row]);
                logits.extend(logits_after(&known.iter().copied().chain(tail).collect::<Vec<_>>()));
            }
            let likeliest = likeliest(&logits, VOCABULARY, KEPT, &Solo);
            let mut rows = Yielding { logits: &mut logits, likeliest: &likeliest };
            let (generated, accepted) = sequence.yields(backend, RequestId(0), &mut rows, &mut scratch);
            assert!(matches!(&accepted, Accepted::All) == (drafted == 0));
            drafted = generated.offer.len().0;
            left = generated.finished.is_none();
        }
        sequence.tokens()[prompt.len()..].to_vec()
    }

    /// Trees of drafts that are right as often as the model says so: at every place tokens come as often as they should.
    #[test]
    fn drawn_answers_keep_the_model_s_distribution() {
        let backend = FakeModel::new(1000, 100);
        // Every pair of letters, so that several successors of each are drafted.
        let prompt: Vec<TokenId> = [0, 1, 0, 2, 0, 3, 1, 2, 1, 3, 2, 3, 3, 0, 0, 1, 1, 2, 2].map(TokenId).to_vec();
        let drafting = Drafting::new(Method::Duet, Calibrate::Off, None, None);
        let mut counts: std::collections::BTreeMap<Vec<TokenId>, [u64; LETTERS]> = std::collections::BTreeMap::new();
        for seed in 0..SAMPLES {
            let answer = drawn(&backend, &drafting, &prompt, seed);
            for at in 0..2 {
                counts.entry(answer[..at].to_vec()).or_default()[answer[at].0 as usize] += 1;
            }
        }
        for (before, counts) in &counts {
            let text: Vec<TokenId> = prompt.iter().chain(before).copied().collect();
            let shares = shares(&logits_after(&text));
            assert!(fits(*counts, shares), "after {before:?}: {counts:?}, not {shares:?}");
        }
        // The first place has all samples: a hundredth too much of any token would have been seen.
        let first = shares(&logits_after(&prompt));
        for token in 0..LETTERS {
            let mut biased = first;
            biased[token] += 0.01;
            biased[(token + 1) % LETTERS] -= 0.01;
            let counts = biased.map(|share| (share * SAMPLES as f64).round() as u64);
            assert!(!fits(counts, first), "a bias of a hundredth is not seen");
        }
    }
}
