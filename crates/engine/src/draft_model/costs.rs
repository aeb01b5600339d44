//! What a draft model's passes take, as measured, by lanes.
//!
//! A pass over a few rows takes as long as its weights take to read, one over many as long as these take to compute with.
//! Before anything was measured a pass is thought to take the share of the large model's that its weights are of the large
//! model's.

use duet_types::LaneSet;
use std::collections::BTreeMap;

/// Times of passes, in seconds.
#[derive(Debug)]
pub(super) struct Costs {
    /// Its weights over those of the model that verifies.
    share: f64,
    of_lanes: BTreeMap<LaneSet, Measured>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    /// Of a pass over few rows.
    few: Option<f64>,
    /// Of each row of a pass over many.
    each: Option<f64>,
}

/// What passes on some lanes take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cost {
    few: f64,
    each: f64,
}

impl Costs {
    pub(super) fn new(share: f64) -> Self {
        Self { share, of_lanes: BTreeMap::new() }
    }

    /// On these lanes, where the model that verifies has just taken `pass` seconds.
    pub(super) fn on(&self, lanes: LaneSet, pass: f64) -> Cost {
        let measured = self.of_lanes.get(&lanes).copied().unwrap_or_default();
        let few = measured.few.unwrap_or(pass * self.share);
        Cost { few, each: measured.each.unwrap_or(few / EACH_FIRST) }
    }

    /// A pass over so many rows took so long.
    pub(super) fn learn(&mut self, lanes: LaneSet, rows: usize, seconds: f64) {
        let measured = self.of_lanes.entry(lanes).or_default();
        let learn =
            |known: &mut Option<f64>, new: f64| *known = Some(known.map_or(new, |old| old + RATE * (new - old)));
        match rows {
            0 => {}
            1..=FEW => learn(&mut measured.few, seconds),
            _ => learn(&mut measured.each, seconds / rows as f64),
        }
    }
}

impl Cost {
    /// Seconds of a pass over so many rows.
    pub(super) fn of(&self, rows: usize) -> f64 {
        if rows <= FEW { self.few } else { self.few.max(self.each * rows as f64) }
    }

    /// Seconds of reading a long text.
    pub(super) fn reading(&self, rows: usize) -> f64 {
        self.each * rows as f64
    }

    /// Rows that are read in so many seconds.
    pub(super) fn rows_in(&self, seconds: f64) -> usize {
        ((seconds / self.each.max(1e-9)) as usize).clamp(FEW + 1, READ_ROWS)
    }
}

/// Rows of a pass that mostly waits for weights.
pub(super) const FEW: usize = 12;
/// Rows of a piece of a text that is read at once, at most.
pub(super) const READ_ROWS: usize = 128;
/// Rows of a text that are read in the time of a pass over a few, before that was measured: a cautious guess.
const EACH_FIRST: f64 = 8.0;
/// How much one measurement weighs.
const RATE: f64 = 0.2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_a_share_of_the_other_model_s_until_they_are_measured() {
        let lanes = LaneSet::first(2);
        let mut costs = Costs::new(0.25);
        assert_eq!(costs.on(lanes, 0.08), Cost { few: 0.02, each: 0.0025 });
        (0..40).for_each(|_| costs.learn(lanes, 1, 0.01));
        costs.learn(lanes, 100, 0.1);
        let cost = costs.on(lanes, 0.08);
        assert!((cost.of(FEW) - 0.01).abs() < 1e-4 && (cost.reading(50) - 0.05).abs() < 1e-9, "{cost:?}");
        assert_eq!((cost.rows_in(0.05), cost.rows_in(1e9), cost.rows_in(0.0)), (50, READ_ROWS, FEW + 1));
        assert!((cost.of(64) - 0.064).abs() < 1e-4);
        assert_eq!(costs.on(LaneSet::first(1), 0.08).few, 0.02, "of other lanes nothing is known");
    }
}
