//! Drawn answers that are drafted keep the model's distribution: a drafted token is accepted as often as the model says
//! it, and the tokens of answers come as often as without drafts.
//!
//! The model here is a table: what it says depends on the last token, and a little on the whole text before it, so that
//! logits of a wrong row are another distribution. Drafts come from the engine's own drafters, as chains where one
//! successor is likely, and as trees where several are.

use super::*;
use crate::backend::{Accepted, Backend as _, Rows};
use crate::calibration::KEPT;
use crate::chi_squared::ChiSquared;
use crate::clock::Clock;
use crate::fake_model::{FakeModel, FakeTable, VOCABULARY};
use crate::outbox::Outbox;
use crate::request::{GenerateRequest, SamplingParams, StopConditions};
use crate::sampling::{Scratch, likeliest};
use crate::sequence::{Sequence, Yielding};
use duet_kernels::crew::Solo;
use duet_scheduler::{HeadRows, Member, Yields};
use duet_speculate::Method;
use duet_types::{Class, Net, RequestId, Stage};

const LETTERS: usize = 4;
/// Enough answers that each test verifies a hundred thousand drafts.
const ANSWERS: u64 = 7000;
const ANSWER_TOKENS: u32 = 24;

/// A model of four letters: how likely those are that come one, two, three and four places after the last one.
#[derive(Clone, Copy)]
struct Letters {
    /// After one half of all texts, and after the other.
    shares: [[f64; LETTERS]; 2],
    /// Drafted rows that are verified, of those that are offered.
    rows_max: u32,
}

/// One letter mostly follows another, so drafts are chains.
const CHAINS: Letters = Letters { shares: [[0.86, 0.07, 0.04, 0.03], [0.80, 0.03, 0.07, 0.10]], rows_max: 3 };
/// Two are about as likely, so drafts are trees.
const TREES: Letters = Letters { shares: [[0.47, 0.38, 0.09, 0.06], [0.41, 0.42, 0.05, 0.12]], rows_max: 6 };

impl Letters {
    /// Which of the eight distributions follows a text.
    fn place(text: &[TokenId]) -> usize {
        let hash = text.iter().fold(3_u32, |hash, token| (hash ^ token.0).wrapping_mul(0x9e37_79b1).rotate_left(7));
        text[text.len() - 1].0 as usize * 2 + (hash >> 31) as usize
    }

    fn shares(&self, place: usize) -> [f64; LETTERS] {
        let (last, half) = (place / 2, place % 2);
        std::array::from_fn(|letter| self.shares[half][(letter + 2 * LETTERS - last - 1) % LETTERS])
    }

    fn logits_after(&self, text: &[TokenId]) -> Vec<f32> {
        let shares = self.shares(Self::place(text));
        let logit = |token: usize| shares.get(token).map_or(f32::NEG_INFINITY, |share| share.ln() as f32);
        (0..VOCABULARY).map(logit).collect()
    }
}

/// What was seen in many answers.
#[derive(Default)]
struct Seen {
    /// How often each letter came in each place.
    letters: [[u64; LETTERS]; 2 * LETTERS],
    /// Rows behind which something was drafted, and how often that came true.
    tried: u64,
    accepted: u64,
    /// How often it should have come true, and the variance of that.
    expected: f64,
    variance: f64,
    trees: u64,
}

impl Seen {
    /// A row was computed, behind which `drafted` were; the next token was one of them, or none.
    fn row(&mut self, shares: [f64; LETTERS], drafted: &[TokenId], came_true: bool) {
        let share: f64 = drafted.iter().map(|token| shares[token.0 as usize]).sum();
        // What is certain tells nothing.
        if share > 0.0 && share < 0.999 {
            self.tried += 1;
            self.accepted += u64::from(came_true);
            self.expected += share;
            self.variance += share * (1.0 - share);
        }
    }

    fn answer(&mut self, prompt: usize, text: &[TokenId]) {
        for at in prompt..text.len() {
            self.letters[Letters::place(&text[..at])][text[at].0 as usize] += 1;
        }
    }

    /// How many standard deviations the accepted drafts are from their expected number.
    fn deviation(&self) -> f64 {
        (self.accepted as f64 - self.expected) / self.variance.sqrt()
    }

    fn check(&self, model: &Letters) {
        let of = |place: usize| ChiSquared::of(&self.letters[place], &model.shares(place));
        let distance: ChiSquared = (0..2 * LETTERS).map(of).sum();
        assert!(distance.fits(), "{distance:?}: {:?}", self.letters);
        let deviation = self.deviation();
        assert!(deviation.abs() < DEVIATION_MAX, "{} of {} accepted: {deviation}", self.accepted, self.tried);
        // Another share of accepted drafts, by a hundredth of it, would have been seen.
        let hundredth = 0.01 * self.expected / self.variance.sqrt();
        assert!(hundredth > 1.5 * DEVIATION_MAX, "a hundredth is {hundredth} standard deviations");
    }
}

/// One answer, pass by pass: the model is asked for the rows that the engine wants.
struct Answering<'a> {
    model: &'a Letters,
    backend: &'a FakeModel,
    sequence: Sequence<FakeModel>,
    scratch: Scratch,
}

impl<'a> Answering<'a> {
    fn begin(
        model: &'a Letters,
        backend: &'a FakeModel,
        drafting: &Arc<Drafting>,
        prompt: &[TokenId],
        seed: u64,
    ) -> Self {
        let request = GenerateRequest {
            prompt: prompt.to_vec(),
            sampling: SamplingParams { temperature: 1.0, seed: Some(seed), ..SamplingParams::default() },
            stop: StopConditions { max_tokens: Some(Tokens(ANSWER_TOKENS)), ..StopConditions::default() },
            ..GenerateRequest::default()
        };
        let (sender, _receiver) = tokio::sync::mpsc::unbounded_channel();
        let speculation = Speculation::begin(drafting, &request);
        let sequence = Sequence::new(backend, request, (speculation, None), 0, Outbox::new(sender), Clock::start());
        Self { model, backend, sequence, scratch: Scratch::default() }
    }

    fn finish(mut self, seen: &mut Seen) {
        let prompt = self.sequence.tokens().len();
        let mut drafted = Some(Tokens::ZERO);
        while let Some(rows) = drafted {
            drafted = self.pass(rows, seen);
        }
        seen.answer(prompt, self.sequence.tokens());
    }

    /// One pass, with so many drafted rows. Returns how many the next one has, if there is one.
    fn pass(&mut self, drafted: Tokens, seen: &mut Seen) -> Option<Tokens> {
        let known = self.sequence.tokens().to_vec();
        let rows = self.rows(&known, drafted);
        let parents: Vec<Option<usize>> = match &rows.parents {
            Some(parents) => parents.clone(),
            None => (0..rows.tokens.len()).map(|row| row.checked_sub(1)).collect(),
        };
        let texts: Vec<Vec<TokenId>> = (0..rows.tokens.len())
            .map(|row| {
                let mut path: Vec<usize> = std::iter::successors(Some(row), |&row| parents[row]).collect();
                path.pop();
                known.iter().copied().chain(path.iter().rev().map(|&row| rows.tokens[row])).collect()
            })
            .collect();
        let mut logits: Vec<f32> = texts.iter().flat_map(|text| self.model.logits_after(text)).collect();
        let likeliest = likeliest(&logits, VOCABULARY, KEPT, &Solo);
        let mut yielding = Yielding { logits: Some(&mut logits), likeliest: &likeliest };
        let (generated, accepted) = self.sequence.yields(self.backend, RequestId(0), &mut yielding, &mut self.scratch);
        if let Accepted::Path(path) = accepted {
            seen.trees += u64::from(rows.parents.is_some());
            for (at, &row) in path.iter().enumerate() {
                let children = (1..rows.tokens.len()).filter(|&child| parents[child] == Some(row));
                let children: Vec<TokenId> = children.map(|child| rows.tokens[child]).collect();
                seen.row(self.model.shares(Letters::place(&texts[row])), &children, at + 1 < path.len());
            }
        }
        generated.finished.is_none().then(|| generated.offer.len().min(Tokens(self.model.rows_max)))
    }

    /// The rows that the sequence wants computed.
    fn rows(&mut self, known: &[TokenId], drafted: Tokens) -> Rows<FakeTable> {
        self.sequence.put_back(self.backend.table());
        let start = Tokens(known.len() as u32 - 1);
        let rows = start..start + Tokens(1) + drafted;
        let stage = if drafted > Tokens::ZERO { Stage::Verify } else { Stage::Decode };
        let member = Member {
            request: RequestId(0),
            class: Class::Reactive,
            stage,
            rows,
            yields: Yields::Token,
            head: HeadRows::Last,
            net: Net::Decoder,
        };
        self.sequence.take_rows(self.backend, &member).expect("it has a table")
    }
}

/// Answers to a prompt in which every letter follows every other, those that are near more often.
fn seen(model: &Letters) -> Seen {
    let backend = FakeModel::new(1000, 100);
    let prompt = [0, 1, 2, 3, 0, 2, 0, 1, 3, 1, 2, 3, 0, 3, 2, 1, 0, 1, 2].map(TokenId);
    let drafting = Drafting::new(Method::Duet, Calibrate::Off, None, None);
    let mut seen = Seen::default();
    for seed in 0..ANSWERS {
        Answering::begin(model, &backend, &drafting, &prompt, seed).finish(&mut seen);
    }
    seen
}

#[test]
fn chains_are_accepted_as_often_as_the_model_says_them() {
    let seen = seen(&CHAINS);
    seen.check(&CHAINS);
}

#[test]
fn trees_are_accepted_as_often_as_the_model_says_them() {
    let seen = seen(&TREES);
    assert!(seen.trees > 10_000, "only {} drafts branched", seen.trees);
    seen.check(&TREES);
}

/// Chance exceeds this once in ten thousand times.
const DEVIATION_MAX: f64 = 3.9;
