//! Whether a draft model's next step is worth its time.
//!
//! Time is worth the tokens that are made in it without the step: those of a pass over what it and its drafting take. A
//! step says what comes in a place of the likeliest path, and so raises the chance of the token there from what the other
//! drafters think to what the model has earned. Where that brings more than the time is worth, the step is taken; the
//! steps that follow bring less, so the first one that does not pay is the last. (The stopping rule of a renewal process;
//! "the marginal cost under the current batch" as in `scheduler::speculation`)
//!
//! A text is read first, which pays if the answer to come is long enough. How long it will be nobody knows: as long as
//! answers were, or as it is already.

use super::costs::Cost;
use duet_scheduler::Verify;
use duet_speculate::{Ahead, ROWS_MAX};

/// What the next pass will be like, by the one that has just ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// What it takes, in seconds.
    pub(crate) pass: f64,
    /// What its members' drafting by the model takes lately.
    pub(crate) drafting: f64,
    /// Tokens that all of its members make in a pass lately.
    pub(crate) tokens: f64,
    /// The share of its time that one row more takes.
    pub(crate) row_share: f64,
    /// Whether a draft is to pay at all.
    pub(crate) verify: Verify,
}

/// An answer that may be drafted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prospect {
    /// How often the likeliest token comes where the model has spoken.
    pub(super) told: f64,
    /// Tokens that it makes in a pass lately.
    pub(super) tokens: f64,
    /// Tokens that are expected to come.
    pub(super) left: f64,
}

impl Terms {
    /// Tokens that a second is worth.
    fn rate(&self) -> f64 {
        self.tokens / (self.pass + self.drafting).max(1e-9)
    }

    /// Tokens that a row more costs.
    fn row(&self) -> f64 {
        self.tokens * self.row_share
    }

    /// Of places ahead the one to ask the model of, if there is one, and the tokens that it brings beyond its row. A draft
    /// has at most `room` tokens.
    pub(super) fn best_place(&self, ahead: &[Ahead], room: usize, prospect: &Prospect) -> Option<(usize, f64)> {
        let gain = |place: &Ahead| {
            let known = place.next.map_or(0.0, |(_, chance)| f64::from(chance));
            f64::from(place.worth) * (prospect.told - known) - self.row()
        };
        let untold = ahead.iter().enumerate().take(room).filter(|(_, place)| !place.is_told);
        if self.verify == Verify::All {
            return untold.map(|(at, _)| (at, ALWAYS)).next();
        }
        untold.map(|(at, place)| (at, gain(place))).filter(|&(_, gain)| gain > 0.0).max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// How many of several answers' places are asked of in one pass, those that bring most first: as many as pay.
    pub(super) fn paying(&self, places: &[(f64, usize)], cost: &Cost) -> usize {
        let (mut gains, mut rows, mut best) = (0.0, 0, (0.0, 0));
        for (count, &(gain, of_place)) in (1..).zip(places) {
            (gains, rows) = (gains + gain, rows + of_place);
            let value = gains - self.rate() * cost.of(rows);
            if value > best.0 {
                best = (value, count);
            }
        }
        best.1
    }

    /// Whether reading so many tokens of a text pays.
    pub(super) fn reading_pays(&self, rows: usize, prospect: &Prospect, cost: &Cost) -> bool {
        if self.verify == Verify::All {
            return true;
        }
        // What the best number of steps brings more in a pass than the drafts so far, in tokens.
        let step = self.rate() * cost.of(1) + self.row();
        let (mut chance, mut tokens, mut best) = (1.0, 1.0, (0.0, 1.0));
        for steps in 1..=ROWS_MAX {
            chance *= prospect.told;
            tokens += chance;
            let value = tokens - prospect.tokens - steps as f64 * step;
            if value > best.0 {
                best = (value, tokens);
            }
        }
        let (value, tokens) = best;
        let saved = value / self.rate() * prospect.left / tokens;
        saved > cost.reading(rows)
    }
}

/// Tokens that are worth any time.
const ALWAYS: f64 = 1e9;

#[cfg(test)]
mod tests {
    use super::super::costs::Costs;
    use super::*;
    use duet_types::{LaneSet, TokenId};

    /// A pass of 40 ms that brings a token; the draft model takes a quarter.
    fn terms() -> Terms {
        Terms { pass: 0.04, drafting: 0.0, tokens: 1.0, row_share: 0.05, verify: Verify::Paying }
    }

    fn cost() -> Cost {
        Costs::new(0.25).on(LaneSet::first(1), 0.04)
    }

    fn place(worth: f32, known: Option<f32>, is_told: bool) -> Ahead {
        Ahead { worth, next: known.map(|chance| (TokenId(1), chance)), is_told }
    }

    const GOOD: Prospect = Prospect { told: 0.8, tokens: 1.0, left: 100.0 };

    #[test]
    fn the_model_is_asked_where_the_others_know_least_and_it_is_likely_to_get_to() {
        let best = |ahead: &[Ahead]| terms().best_place(ahead, 10, &GOOD).map(|(at, _)| at);
        assert_eq!(best(&[place(1.0, None, false)]), Some(0));
        assert_eq!(best(&[place(1.0, Some(0.9), false), place(0.9, Some(0.2), false)]), Some(1));
        assert_eq!(best(&[place(1.0, Some(0.9), true), place(0.9, Some(0.9), false)]), None, "nothing is gained");
        assert_eq!(terms().best_place(&[place(1.0, None, false)], 0, &GOOD), None, "there is no room");
        let all = Terms { verify: Verify::All, ..terms() };
        assert_eq!(all.best_place(&[place(1.0, Some(0.9), false)], 1, &GOOD).map(|(at, _)| at), Some(0));
    }

    #[test]
    fn a_step_pays_until_its_tokens_are_worth_less_than_its_time() {
        // A step takes the time of a quarter of a token.
        let paying = |gain| terms().paying(&[(gain, 1)], &cost());
        assert_eq!((paying(0.3), paying(0.2)), (1, 0));
        assert_eq!(terms().paying(&[(0.2, 1), (0.2, 1)], &cost()), 2, "two share a pass");
        let busy = Terms { tokens: 16.0, ..terms() };
        assert_eq!(busy.paying(&[(0.75, 1)], &cost()), 0, "fifteen others wait for it");
    }

    #[test]
    fn reading_pays_for_long_answers_of_an_undrafted_kind() {
        let pays = |rows, prospect: Prospect| terms().reading_pays(rows, &prospect, &cost());
        assert!(pays(100, GOOD));
        assert!(!pays(100, Prospect { left: 5.0, ..GOOD }), "the answer is short");
        assert!(!pays(10_000, GOOD), "the prompt is long");
        assert!(!pays(100, Prospect { told: 0.2, ..GOOD }), "it knows too little");
        assert!(!pays(100, Prospect { tokens: 4.0, ..GOOD }), "others draft well");
    }
}
