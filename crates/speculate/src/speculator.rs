//! One request's drafting: the drafters' candidates, merged into one tree, the likeliest path first.
//!
//! The tree grows best-first: of all tokens that could be added, the one whose path is likeliest is next. So candidates
//! of several drafters merge where they agree, a sure path becomes long and an unsure one broad, and the rows come out in
//! the order of their worth. What was said of a place when it was drafted is what is learned from when its token comes.
//! How many rows are verified is not decided here: that depends on what rows cost, which the
//! scheduler knows. (CoordGen §3.3-3.4: tree drafts from several sources)

use crate::confidence::{Confidence, Judged, Opinions};
use crate::draft::{Draft, DraftRow};
use crate::draft_model::{NOT_NAMED, Told};
use crate::drafter::{Candidate, Drafter, Kind, Place, Rejected};
use crate::guide::{Guide, Unguided};
use crate::successors::Successors;
use duet_types::TokenId;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ops::Range;

/// Drafts for one request.
#[derive(Debug)]
pub struct Speculator {
    drafters: Vec<Box<dyn Drafter>>,
    confidence: Confidence,
    heard: Heard,
    scratch: Scratch,
}

/// A place on the likeliest path from the end of the sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ahead {
    /// The chance that the sequence comes here.
    pub worth: f32,
    /// The token that comes next most likely, and the chance that it does; absent if nobody knows one.
    pub next: Option<(TokenId, f32)>,
    /// Whether a draft model has said what it thinks of this place.
    pub is_told: bool,
}

#[derive(Debug, Default)]
struct Scratch {
    candidates: Vec<Candidate>,
    merged: Vec<Judged>,
    /// Whether a draft model spoke of the place that was merged.
    is_told: bool,
    /// Tokens that may follow a row, and how likely each is.
    chances: Vec<(TokenId, f32)>,
    /// Of each row of the draft, and first of its root, where each drafter is.
    places: Vec<Place>,
    open: BinaryHeap<Open>,
}

/// What was said of the places of the latest draft.
#[derive(Debug, Default)]
struct Heard {
    /// The candidates of all places.
    candidates: Vec<Judged>,
    places: Vec<HeardOf>,
    /// The place that the sequence has come to; absent once it has left the draft.
    at: Option<usize>,
}

/// What was said of one place.
#[derive(Clone, Debug)]
struct HeardOf {
    /// The place that it comes after, and the token that leads to it; absent for the first.
    after: Option<(usize, TokenId)>,
    depth: usize,
    /// Its candidates among all; absent where nobody was asked.
    candidates: Option<Range<usize>>,
    is_told: bool,
}

/// A token that could be added to the tree.
#[derive(Clone, Copy, Debug)]
struct Open {
    worth: f32,
    /// Earlier ones first among equals.
    order: u32,
    token: TokenId,
    parent: Option<usize>,
}

impl Speculator {
    /// With these drafters, and what is known of how far to trust them.
    #[must_use]
    pub fn new(drafters: Vec<Box<dyn Drafter>>, confidence: Confidence) -> Self {
        Self { drafters, confidence, heard: Heard::default(), scratch: Scratch::default() }
    }

    /// Reads the prompt, or some tokens more of it.
    pub fn read(&mut self, prompt: &[TokenId]) {
        for &token in prompt {
            self.drafters.iter_mut().for_each(|drafter| drafter.observe(token));
        }
    }

    /// The answer has one token more: a trial of all that could have been drafted in its place.
    pub fn accept(&mut self, token: TokenId) {
        if self.heard.here().is_none() {
            self.scratch.places.clear();
            self.scratch.places.extend(self.drafters.iter().map(|drafter| drafter.end()));
            self.merge(0);
        }
        let Self { confidence, heard, scratch, .. } = self;
        let fresh = (scratch.merged.as_slice(), 0, scratch.is_told);
        let (candidates, depth, is_told) = heard.here().unwrap_or(fresh);
        confidence.chances(candidates, depth, &mut scratch.chances);
        if is_told {
            confidence.learn_told(likeliest(&scratch.chances).map(|(likeliest, _)| likeliest) == Some(token));
        }
        confidence.learn(candidates, depth, &scratch.chances, token);
        heard.follow(token);
        self.drafters.iter_mut().for_each(|drafter| drafter.observe(token));
    }

    /// A draft model said something of what may come.
    pub fn told(&mut self, told: &Told<'_>) {
        self.drafters.iter_mut().for_each(|drafter| drafter.told(told));
    }

    /// The likeliest path from here, of at most `most` tokens: each place on it down to a worth of `floor`, the last of
    /// which may be one of which nobody knows what comes next.
    pub fn outlook(&mut self, most: usize, floor: f32) -> Vec<Ahead> {
        let count = self.drafters.len();
        self.scratch.places.clear();
        self.scratch.places.extend(self.drafters.iter().map(|drafter| drafter.end()));
        let (mut path, mut worth) = (Vec::new(), 1.0);
        loop {
            self.think(path.len(), path.len());
            let next = likeliest(&self.scratch.chances);
            path.push(Ahead { worth, next, is_told: self.scratch.is_told });
            let Some((token, chance)) = next.filter(|(_, chance)| worth * chance >= floor && path.len() <= most) else {
                return path;
            };
            worth *= chance;
            for index in (path.len() - 1) * count..path.len() * count {
                let place = self.drafters[index % count].step(self.scratch.places[index], token);
                self.scratch.places.push(place);
            }
        }
    }

    /// The model would say one of `successors` after a text that ends with `context`.
    pub fn calibrate(&mut self, context: [TokenId; 2], successors: &Successors) {
        self.drafters.iter_mut().for_each(|drafter| drafter.calibrate(context, successors));
    }

    /// A part of a draft was rejected.
    pub fn rejected(&mut self, rejected: &Rejected<'_>) {
        self.drafters.iter_mut().for_each(|drafter| drafter.rejected(rejected));
    }

    /// What may come next: at most `rows` rows, each worth at least `floor`.
    pub fn draft(&mut self, rows: usize, floor: f32) -> Draft {
        self.draft_guided(rows, floor, &mut Unguided)
    }

    /// The same of an answer that not every token can follow, or that some token must.
    pub fn draft_guided(&mut self, rows: usize, floor: f32, guide: &mut dyn Guide) -> Draft {
        let mut draft = Draft::default();
        self.scratch.open.clear();
        self.scratch.places.clear();
        self.scratch.places.extend(self.drafters.iter().map(|drafter| drafter.end()));
        self.heard.begin();
        if rows > 0 {
            self.expand((&draft, None), 1.0, floor, guide);
        }
        while let Some(Open { worth, token, parent, .. }) = self.scratch.open.pop() {
            draft.push(DraftRow { token, parent, worth });
            self.heard.add(parent.map_or(0, |parent| parent + 1), token);
            if draft.len() == rows {
                break;
            }
            let from = parent.map_or(0, |parent| parent + 1) * self.drafters.len();
            for (index, drafter) in self.drafters.iter().enumerate() {
                let place = drafter.step(self.scratch.places[from + index], token);
                self.scratch.places.push(place);
            }
            self.expand((&draft, Some(draft.len() - 1)), worth, floor, guide);
        }
        draft
    }

    /// What was learned of the drafters.
    #[must_use]
    pub fn confidence(&self) -> &Confidence {
        &self.confidence
    }

    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.drafters.iter().map(|drafter| drafter.bytes()).sum()
    }

    /// Opens the candidates that follow a row.
    fn expand(&mut self, (draft, row): (&Draft, Option<usize>), worth: f32, floor: f32, guide: &mut dyn Guide) {
        let place = row.map_or(0, |row| row + 1);
        self.think(place, self.heard.places[place].depth);
        self.heard.keep(place, &self.scratch);
        let path = || row.map_or_else(Vec::new, |row| draft.path(row));
        let mut chances = std::mem::take(&mut self.scratch.chances);
        guide.rule(&path, &mut chances);
        for &(token, chance) in &chances {
            let worth = worth * chance;
            if worth >= floor {
                let order = u32::MAX - self.scratch.open.len() as u32;
                self.scratch.open.push(Open { worth, order, token, parent: row });
            }
        }
        self.scratch.chances = chances;
    }

    /// What all together think of their places number `at`, `depth` tokens into a draft.
    fn think(&mut self, at: usize, depth: usize) {
        self.merge(at);
        let Scratch { merged, chances, .. } = &mut self.scratch;
        self.confidence.chances(merged, depth, chances);
    }

    /// The candidates of all drafters at their places number `at`, each with all opinions on it.
    fn merge(&mut self, at: usize) {
        let Scratch { candidates, merged, places, is_told, .. } = &mut self.scratch;
        merged.clear();
        *is_told = false;
        let places = &places[at * self.drafters.len()..][..self.drafters.len()];
        for (drafter, &place) in self.drafters.iter().zip(places) {
            candidates.clear();
            drafter.propose(place, candidates);
            *is_told |= drafter.kind() == Kind::Model && !candidates.is_empty();
            for candidate in &*candidates {
                let known = merged.iter().position(|(token, _)| *token == candidate.token);
                let known = known.unwrap_or_else(|| {
                    merged.push((candidate.token, Opinions::default()));
                    merged.len() - 1
                });
                // Of several drafters of a kind the one with the longer match has its say.
                let opinion = &mut merged[known].1[drafter.kind() as usize];
                opinion.0 = opinion.0.max(candidate.evidence.0);
            }
        }
        if *is_told {
            for (_, opinions) in merged {
                let opinion = &mut opinions[Kind::Model as usize];
                opinion.0 = opinion.0.max(NOT_NAMED.0);
            }
        }
    }
}

impl Heard {
    /// A draft begins.
    fn begin(&mut self) {
        self.candidates.clear();
        self.places.clear();
        self.places.push(HeardOf { after: None, depth: 0, candidates: None, is_told: false });
        self.at = Some(0);
    }

    /// A token was drafted after a place.
    fn add(&mut self, after: usize, token: TokenId) {
        let depth = self.places[after].depth + 1;
        self.places.push(HeardOf { after: Some((after, token)), depth, candidates: None, is_told: false });
    }

    /// Keeps what was said of a place.
    fn keep(&mut self, place: usize, scratch: &Scratch) {
        let begin = self.candidates.len();
        self.candidates.extend(&scratch.merged);
        self.places[place].candidates = Some(begin..self.candidates.len());
        self.places[place].is_told = scratch.is_told;
    }

    /// What was said of the place where the sequence is, how deep that is, and whether a draft model spoke of it.
    fn here(&self) -> Option<(&[Judged], usize, bool)> {
        let place = &self.places[self.at?];
        Some((&self.candidates[place.candidates.clone()?], place.depth, place.is_told))
    }

    /// A token came.
    fn follow(&mut self, token: TokenId) {
        let after = |at: usize| self.places.iter().position(|place| place.after == Some((at, token)));
        self.at = self.at.and_then(after);
    }
}

/// The likeliest of some candidates.
fn likeliest(chances: &[(TokenId, f32)]) -> Option<(TokenId, f32)> {
    chances.iter().copied().reduce(|best, other| if other.1 > best.1 { other } else { best })
}

impl Ord for Open {
    fn cmp(&self, other: &Self) -> Ordering {
        self.worth.total_cmp(&other.worth).then(self.order.cmp(&other.order))
    }
}

impl PartialOrd for Open {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Open {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Open {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draft_model::Said;
    use crate::recycling::Recycled;
    use crate::{Known, Method};
    use proptest::prelude::*;
    use std::sync::Arc;

    fn tokens(text: &[u32]) -> Vec<TokenId> {
        text.iter().map(|&token| TokenId(token)).collect()
    }

    fn speculator(method: Method, prompt: &[u32]) -> Speculator {
        let mut speculator = Speculator::new(method.drafters(&Known::default()), Confidence::default());
        speculator.read(&tokens(prompt));
        speculator
    }

    #[test]
    fn a_draft_model_is_followed_where_it_is_likelier_than_the_text() {
        let mut speculator = speculator(Method::DuetDraft, &[1, 2, 3, 4, 1, 2]);
        let said = |token, other: f32| Said::of_logits(&[(TokenId(token), 9.0), (TokenId(99), other)]);
        let ahead = |speculator: &mut Speculator| {
            let outlook = speculator.outlook(3, 0.02);
            outlook.iter().map(|ahead| (ahead.next.map(|next| next.0.0), ahead.is_told)).collect::<Vec<_>>()
        };
        assert_eq!(ahead(&mut speculator)[..2], [(Some(3), false), (Some(4), false)], "what the text says");
        speculator.told(&Told { path: &[TokenId(7)], said: &[said(7, 1.0), said(8, 8.5)] });
        assert_eq!(ahead(&mut speculator), [(Some(7), true), (Some(8), true), (None, false)]);
        let rows: Vec<u32> = speculator.draft(3, 0.02).rows().iter().map(|row| row.token.0).collect();
        assert_eq!(rows[..2], [7, 8]);
        let trusted = speculator.confidence().told_chance();
        for turn in 0..20 {
            speculator.told(&Told { path: &[], said: &[said(7, 1.0)] });
            speculator.accept(TokenId(100 + turn));
        }
        assert!(speculator.confidence().told_chance() < trusted / 2.0, "it has lost its trust");
    }

    #[test]
    fn what_was_said_is_drafted_again() {
        let reads_the_text = |method: &Method| !matches!(method, Method::None | Method::Recycling | Method::DraftModel);
        for method in Method::ALL.into_iter().filter(reads_the_text) {
            let mut speculator = speculator(method, &[1, 2, 3, 4, 5, 6, 9, 1, 2, 3]);
            let draft = speculator.draft(3, 0.0);
            let path: Vec<u32> = draft.rows().iter().map(|row| row.token.0).collect();
            assert_eq!(path[0], 4, "{method}");
        }
    }

    /// Lets odd tokens come only after even ones, and 9 after 5 always.
    #[derive(Debug)]
    struct Alternating(TokenId);

    impl Guide for Alternating {
        fn rule(&mut self, path: &dyn Fn() -> Vec<TokenId>, chances: &mut Vec<(TokenId, f32)>) {
            let last = path().last().copied().unwrap_or(self.0);
            chances.retain(|(token, _)| token.0 % 2 != last.0 % 2);
            if last.0 == 5 {
                *chances = vec![(TokenId(9), 1.0)];
            }
        }
    }

    #[test]
    fn what_is_ruled_out_is_not_drafted_and_what_is_certain_is() {
        let mut speculator = speculator(Method::Sam, &[1, 2, 3, 4, 5, 7, 1, 2, 3]);
        let path = |draft: &Draft| draft.rows().iter().map(|row| row.token.0).collect::<Vec<_>>();
        assert_eq!(path(&speculator.draft(4, 0.0))[..3], [4, 5, 7]);
        let guided = speculator.draft_guided(3, 0.0, &mut Alternating(TokenId(3)));
        assert_eq!(path(&guided), [4, 5, 9]);
        assert_eq!(guided.rows()[2].worth, guided.rows()[1].worth, "what is certain loses nothing");
        assert!(speculator.draft_guided(3, 0.0, &mut Alternating(TokenId(4))).is_empty());
    }

    #[test]
    fn a_drafter_that_is_always_wrong_is_not_believed_any_more() {
        let mut speculator = speculator(Method::Sam, &[1, 2]);
        // Always the same beginning, and never the same end.
        for turn in 0..200 {
            tokens(&[1, 2, 100 + turn]).into_iter().for_each(|token| speculator.accept(token));
        }
        tokens(&[1, 2]).into_iter().for_each(|token| speculator.accept(token));
        let draft = speculator.draft(1, 0.0);
        assert!(draft.rows()[0].worth < 0.1, "{draft:?}");
    }

    #[test]
    fn the_model_s_preference_is_drafted_where_the_text_says_something_else() {
        let mut speculator = speculator(Method::Calibrated, &[1, 2, 3, 8, 4, 5, 8]);
        let say = |token| Successors::new(&[(TokenId(token), 9.0), (TokenId(99), 1.0)]);
        speculator.calibrate([TokenId(7), TokenId(1)], &say(4));
        speculator.accept(TokenId(1));
        let draft = speculator.draft(4, 0.0);
        let path: Vec<(u32, Option<usize>)> = draft.rows().iter().map(|row| (row.token.0, row.parent)).collect();
        // The text went on with 2; the model would rather have said 4, after which the text says 5.
        let four = path.iter().position(|row| *row == (4, None)).expect("it is drafted");
        assert!(path.contains(&(2, None)) && path.contains(&(5, Some(four))), "{path:?}");
    }

    #[test]
    fn what_was_recycled_is_drafted_where_the_text_says_nothing() {
        let mut recycled = Recycled::default();
        recycled.learn([TokenId(1), TokenId(2)], &Successors::new(&[(TokenId(7), 9.0), (TokenId(8), 8.0)]));
        let known = Known { recycled: Arc::new(recycled), ..Known::default() };
        for method in [Method::Recycling, Method::Duet] {
            let mut speculator = Speculator::new(method.drafters(&known), Confidence::default());
            speculator.read(&tokens(&[1, 2]));
            let draft = speculator.draft(4, 0.0);
            let path: Vec<(u32, Option<usize>)> = draft.rows().iter().map(|row| (row.token.0, row.parent)).collect();
            assert_eq!(path, [(7, None), (8, None)], "{method}");
        }
    }

    proptest! {
        /// Any prefix of a draft is a tree, worths do not rise, and no two children of a row are the same token.
        #[test]
        fn a_draft_is_a_tree_in_the_order_of_its_worth(
            prompt in prop::collection::vec(0..5_u32, 1..50),
            answer in prop::collection::vec(0..5_u32, 1..50),
            rows in 0..20_usize,
        ) {
            let mut recycled = Recycled::default();
            for pair in answer.windows(2) {
                let successors = Successors::new(&[(TokenId(pair[1]), 2.0), (TokenId(pair[0]), 1.0)]);
                recycled.learn([TokenId(pair[0]), TokenId(pair[1])], &successors);
            }
            let known = Known { recycled: Arc::new(recycled), ..Known::default() };
            let mut speculator = Speculator::new(Method::Duet.drafters(&known), Confidence::default());
            speculator.read(&tokens(&prompt));
            for pair in prompt.windows(2) {
                let successors = Successors::new(&[(TokenId(pair[0]), 2.0), (TokenId(pair[1]), 1.0)]);
                speculator.calibrate([TokenId(pair[0]), TokenId(pair[1])], &successors);
            }
            tokens(&answer).into_iter().for_each(|token| speculator.accept(token));
            let draft = speculator.draft(rows, 0.0);
            prop_assert!(draft.len() <= rows);
            for (at, row) in draft.rows().iter().enumerate() {
                prop_assert!(row.parent.is_none_or(|parent| parent < at));
                prop_assert!((0.0..=1.0).contains(&row.worth));
                let same = |other: &DraftRow| (other.parent, other.token) == (row.parent, row.token);
                prop_assert!(!draft.rows()[..at].iter().any(same));
            }
            prop_assert!(draft.rows().is_sorted_by(|a, b| a.worth >= b.worth));
            for parent in (0..draft.len()).map(Some).chain([None]) {
                let children = draft.rows().iter().filter(|row| row.parent == parent);
                let worth = parent.map_or(1.0, |parent| draft.rows()[parent].worth);
                prop_assert!(children.map(|row| row.worth).sum::<f32>() <= worth + 1e-4, "siblings share what there is");
            }
        }

        /// The same tokens give the same drafts.
        #[test]
        fn drafting_is_deterministic(answer in prop::collection::vec(0..5_u32, 1..80)) {
            let draft = || {
                let mut speculator = speculator(Method::Duet, &[1, 2, 3]);
                tokens(&answer).into_iter().for_each(|token| speculator.accept(token));
                speculator.draft(16, 0.01)
            };
            prop_assert_eq!(draft(), draft());
        }
    }
}
