//! The rows of a call, sorted by expert: where each expert's rows lie in the buffers, and who computes what.
//!
//! Every worker makes the same plan from the same choices. An expert's rows follow each other in the order of the call,
//! and begin at a tile; nothing is padded. Places that somebody else computes, or nobody, have no slot.
//!
//! The experts' work is laid end to end and cut into the workers' shares. An expert that lies in one share, or almost, is that
//! worker's from beginning to end: what its steps hand on stays in the core's cache, and nobody waits for anybody. Only
//! experts across a cut are divided, step by step. **Invariant:** each other place of each row is one slot, and each unit
//! of each expert's product is one worker's.

use super::super::buffers::stride;
use crate::crew::Worker;
use crate::quantize::{SharedRows, TILE};
use std::ops::Range;

/// Which places of a call are computed in it.
#[derive(Clone, Copy, Debug)]
pub enum Places<'a> {
    /// All of them.
    All,
    /// Those that are marked, by row × experts of a row; one that all rows go to has a place, too.
    Marked(&'a [bool]),
}

impl Places<'_> {
    fn has(self, place: usize) -> bool {
        match self {
            Self::All => true,
            Self::Marked(marks) => marks[place],
        }
    }
}

/// The rows of one expert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) expert: usize,
    /// Its slots; there is one at least.
    pub(super) slots: Range<usize>,
    /// Where its rows are gathered, quantised at the width of the residual stream, in blocks ([`SharedRows::narrow`]); not
    /// used by an expert that has all rows.
    pub(super) hidden_at: usize,
    /// The same at the expert's width.
    pub(super) inner_at: usize,
    /// Where its gated rows begin, in floats.
    pub(super) gated_at: usize,
    /// Which part of all work it is.
    work: Range<usize>,
}

/// All batches of a call, in the order of the experts.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) batches: Vec<Batch>,
    /// For each slot the place (row × places + place) that is computed there.
    pub(super) places: Vec<usize>,
    /// The reverse; nothing for places that are not computed here.
    pub(super) slots: Vec<Option<usize>>,
}

impl Plan {
    /// `chosen` are the experts of each place, below `experts`; `width` is the width of an expert.
    pub(super) fn new(
        chosen: &[u32],
        wanted: Places<'_>,
        experts: usize,
        hidden: usize,
        width: impl Fn(usize) -> usize,
    ) -> Self {
        let here = || chosen.iter().enumerate().filter(|(place, _)| wanted.has(*place));
        let mut next = vec![0; experts + 1];
        here().for_each(|(_, &expert)| next[expert as usize + 1] += 1);
        for expert in 0..experts {
            next[expert + 1] += next[expert];
        }
        let batches = batches(&next, hidden, width);
        let (mut places, mut slots) = (vec![0; next[experts]], vec![None; chosen.len()]);
        for (place, &expert) in here() {
            let slot = &mut next[expert as usize];
            (slots[place], places[*slot]) = (Some(*slot), place);
            *slot += 1;
        }
        Self { batches, places, slots }
    }

    /// The batches of some experts, by their numbers. All slots stay where they are.
    pub(super) fn only(mut self, experts: &[bool]) -> Self {
        self.batches.retain(|batch| experts.get(batch.expert) == Some(&true));
        let mut start = 0;
        for batch in &mut self.batches {
            batch.work = start..start + batch.work.len();
            start = batch.work.end;
        }
        self
    }

    /// The batches that this worker computes alone.
    pub(super) fn whole(&self, worker: &Worker<'_>) -> impl Iterator<Item = &Batch> {
        self.batches.iter().filter(|batch| self.owner(batch, worker) == Some(worker.rank()))
    }

    /// Those that all compute together.
    pub(super) fn divided(&self, worker: &Worker<'_>) -> impl Iterator<Item = &Batch> {
        self.batches.iter().filter(|batch| self.owner(batch, worker).is_none())
    }

    /// What of each of those is this worker's: some of its `units`.
    pub(super) fn parts(
        &self,
        worker: &Worker<'_>,
        units: impl Fn(&Batch) -> usize,
    ) -> impl Iterator<Item = (&Batch, Range<usize>)> {
        let mine = worker.share(self.work());
        self.divided(worker).filter_map(move |batch| {
            let (Range { start, end }, count) = (batch.work.clone(), units(batch));
            // A unit is whose share its beginning lies in.
            let unit = |at: usize| (at.clamp(start, end) - start) * count;
            let range = unit(mine.start).div_ceil(end - start)..unit(mine.end).div_ceil(end - start);
            (!range.is_empty()).then_some((batch, range))
        })
    }

    /// The same for rows: whole tiles.
    pub(super) fn rows(&self, worker: &Worker<'_>) -> impl Iterator<Item = (&Batch, Range<usize>)> {
        let tiles = self.parts(worker, |batch| batch.slots.len().div_ceil(TILE));
        tiles.map(|(batch, tiles)| (batch, tiles.start * TILE..(tiles.end * TILE).min(batch.slots.len())))
    }

    fn work(&self) -> usize {
        self.batches.last().map_or(0, |batch| batch.work.end)
    }

    /// Who of a worker's crew computes a batch alone: in whose share its middle lies, unless too much of it is outside.
    fn owner(&self, batch: &Batch, worker: &Worker<'_>) -> Option<usize> {
        let (Range { start, end }, total) = (batch.work.clone(), self.work());
        let rank = worker.whose(start + (end - start) / 2, total);
        let share = worker.share_of(rank, total);
        let outside = share.start.saturating_sub(start) + end.saturating_sub(share.end);
        (outside * OUTSIDE_MAX <= share.len()).then_some(rank)
    }
}

/// Of a share, this part may be done by another than its worker: about what syncs would cost.
const OUTSIDE_MAX: usize = 32;

/// `starts` are the first slots of each expert, and behind the last.
fn batches(starts: &[usize], hidden: usize, width: impl Fn(usize) -> usize) -> Vec<Batch> {
    let (mut hidden_at, mut inner_at, mut gated_at, mut start) = (0, 0, 0, 0);
    let bounds = starts.windows(2).enumerate().filter(|(_, bounds)| bounds[0] < bounds[1]);
    bounds
        .map(|(expert, bounds)| {
            let rows = bounds[1] - bounds[0];
            // Reading the weights is worth some rows.
            let work = start..start + (rows + TILE) * width(expert).max(1);
            start = work.end;
            let batch = Batch { expert, slots: bounds[0]..bounds[1], hidden_at, inner_at, gated_at, work };
            hidden_at += SharedRows::blocks(rows, hidden);
            inner_at += SharedRows::blocks(rows, width(expert));
            gated_at += rows * stride(width(expert));
            batch
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crew::SpinBarrier;
    use proptest::prelude::*;

    #[test]
    fn rows_are_sorted_by_expert_and_keep_their_order() {
        let plan = Plan::new(&[2, 0, 0, 3, 2, 0], Places::All, 4, 32, |_| 32);
        assert_eq!(plan.places, [1, 2, 5, 0, 4, 3]);
        assert_eq!(plan.slots, [3, 0, 1, 5, 4, 2].map(Some));
        let batches: Vec<_> = plan.batches.iter().map(|batch| (batch.expert, batch.slots.clone())).collect();
        assert_eq!(batches, [(0, 0..3), (2, 3..5), (3, 5..6)]);
    }

    #[test]
    fn places_of_others_have_no_slot() {
        let marks = [true, false, true, false, true, true];
        let plan = Plan::new(&[2, 0, 0, 3, 2, 0], Places::Marked(&marks), 4, 32, |_| 32);
        assert_eq!(plan.places, [2, 5, 0, 4]);
        assert_eq!(plan.slots, [Some(2), None, Some(0), None, Some(3), Some(1)]);
        let batches: Vec<_> = plan.batches.iter().map(|batch| (batch.expert, batch.slots.clone())).collect();
        assert_eq!(batches, [(0, 0..2), (2, 2..4)]);
    }

    #[test]
    fn experts_of_any_width_lie_beside_each_other() {
        let chosen: Vec<u32> = (0..20).map(|place| u32::from(place >= 9)).collect();
        let plan = Plan::new(&chosen, Places::All, 2, 64, |expert| [40, 100][expert]);
        let at: Vec<_> = plan.batches.iter().map(|batch| [batch.hidden_at, batch.inner_at, batch.gated_at]).collect();
        assert_eq!(at, [[0, 0, 0], [2 * 2, 2 * 2, 9 * 48]]);
    }

    /// Four experts for two workers, and one expert for two.
    #[test]
    fn experts_across_a_cut_are_divided_and_no_others() {
        let barrier = SpinBarrier::new(2);
        let workers = [0, 1].map(|rank| Worker::new(rank, 2, &barrier));
        let four = Plan::new(&[0, 1, 2, 3], Places::All, 4, 32, |_| 32);
        let whole = workers.map(|worker| four.whole(&worker).map(|batch| batch.expert).collect::<Vec<_>>());
        assert_eq!(whole, [[0, 1], [2, 3]]);
        let one = Plan::new(&[0; 32], Places::All, 1, 32, |_| 32);
        let rows = workers.map(|worker| one.rows(&worker).flat_map(|(_, rows)| rows).collect::<Vec<_>>());
        assert_eq!(rows.concat(), (0..32).collect::<Vec<_>>());
        assert_eq!(rows[0].len(), 16);
    }

    proptest! {
        #[test]
        fn every_unit_is_one_workers(
            chosen in prop::collection::vec(0_u32..12, 1..60),
            size in 1_usize..6,
            units in 1_usize..7,
            wave in 0_u32..1 << 12,
        ) {
            let plan = Plan::new(&chosen, Places::All, 12, 64, |expert| 32 + 32 * (expert / 11));
            let in_wave: Vec<bool> = (0..12).map(|expert| wave >> expert & 1 == 1).collect();
            let plan = plan.only(&in_wave);
            let barrier = SpinBarrier::new(size);
            let mut seen = vec![vec![0; units]; 12];
            for rank in 0..size {
                let worker = Worker::new(rank, size, &barrier);
                for batch in plan.whole(&worker) {
                    seen[batch.expert].iter_mut().for_each(|count| *count += 1);
                }
                for (batch, range) in plan.parts(&worker, |_| units) {
                    range.for_each(|unit| seen[batch.expert][unit] += 1);
                }
            }
            for (expert, seen) in seen.iter().enumerate() {
                let used = i32::from(in_wave[expert] && chosen.contains(&(expert as u32)));
                prop_assert!(seen.iter().all(|count| *count == used));
            }
        }
    }
}
