//! What a tile fetches while it is computed: a tile alone its own panels, some groups before it needs them; tiles together the
//! panels that follow. No bit depends on it.

use super::weights::Quantized;
use crate::fetch_to::{FetchTo, to_first_cache, to_second_cache};
use crate::packed::Panel;
use crate::read_ahead::ReadAhead;

/// Which of the tiles that read the same panels this is. A tile alone fetches its own panels from memory, some groups before
/// it needs them; whole ones together fetch the next panels while they compute, each a share of the groups.
#[derive(Clone, Copy)]
pub(super) struct Ahead<'a, const P: usize> {
    pub(super) index: usize,
    pub(super) count: usize,
    /// The panels as they lie in the matrix.
    pub(super) packed: &'a [Panel; P],
    /// How many panels further those lie that come after them: where several tiles take a pair one after the other, the second
    /// one is there already.
    pub(super) next: usize,
}

/// More tiles than this compute longer than the next panels need to arrive.
const AHEAD_TILES: usize = 8;

/// How many groups a tile that fetches its own panels is ahead: more than arrive while it computes, and much less than the
/// cache holds which they go to. Half as many and twice as many are as good. (`examples/reading` with weights beyond the last
/// cache: to the first one on Zen 5, one panel after another; to the second on Zen 4, then with four panels side by side.)
const fn groups_ahead<W: Quantized, const P: usize>(to: FetchTo) -> usize {
    let ahead = match to {
        FetchTo::FirstCache => 8 << 10,
        FetchTo::SecondCache => 12 << 10,
    };
    let bytes = P * W::FORM.registers() * 64;
    if bytes < ahead { ahead / bytes } else { 1 }
}

/// What a tile fetches while it is computed, group after group.
pub(super) struct Fetching<'a, const P: usize> {
    packed: &'a [Panel; P],
    next: usize,
    groups: usize,
    distance: usize,
    to: FetchTo,
    /// Groups until this tile fetches one, and from there to its next.
    turn: usize,
    sharers: usize,
}

impl<'a, const P: usize> Fetching<'a, P> {
    /// What a tile fetches.
    #[inline(always)]
    pub(super) fn of<W: Quantized>(ahead: Ahead<'a, P>, groups: usize) -> Self {
        let to = if ahead.count == 1 { ReadAhead::current().to } else { FetchTo::FirstCache };
        Self::fetching_to::<W>(to, ahead, groups)
    }

    #[inline(always)]
    fn fetching_to<W: Quantized>(to: FetchTo, ahead: Ahead<'a, P>, groups: usize) -> Self {
        let sharers = ahead.count.min(AHEAD_TILES);
        let distance = if ahead.count == 1 { groups_ahead::<W, P>(to) } else { groups };
        let turn = if ahead.index < sharers { ahead.index } else { usize::MAX };
        Self { packed: ahead.packed, next: ahead.next, groups, distance, to, turn, sharers }
    }

    /// Fetches what is this tile's to fetch when it comes to a group.
    #[inline(always)]
    pub(super) fn at<W: Quantized>(&mut self, group: usize) {
        if let Some(group) = self.due(group) {
            match self.to {
                FetchTo::FirstCache => fetch_group::<W, P>(self.packed, self.next, group, self.groups, to_first_cache),
                FetchTo::SecondCache => {
                    fetch_group::<W, P>(self.packed, self.next, group, self.groups, to_second_cache)
                }
            }
        }
    }

    /// The group that this tile fetches when it comes to `group`, if it is its turn.
    #[inline(always)]
    fn due(&mut self, group: usize) -> Option<usize> {
        let is_due = self.turn == 0;
        if is_due {
            self.turn = self.sharers;
        }
        self.turn = self.turn.wrapping_sub(1);
        is_due.then_some(group + self.distance)
    }
}

/// Fetches the lines of a group of `panels`, or, where they have no such group, of those that lie `next` panels further.
#[inline(always)]
fn fetch_group<W: Quantized, const P: usize>(
    panels: &[Panel; P],
    next: usize,
    group: usize,
    groups: usize,
    fetch: impl Fn(*const u8),
) {
    let bytes = W::FORM.registers() * 64;
    let (skipped, group) = if group < groups { (0, group) } else { (next, group - groups) };
    for panel in panels {
        let quants = panel.quants.wrapping_add((skipped * groups + group) * bytes);
        for register in 0..W::FORM.registers() {
            fetch(quants.wrapping_add(register * 64));
        }
        fetch(panel.scales.wrapping_add(skipped * W::FORM.scale_bytes(groups) + W::FORM.scales_at(group)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::weights::{Q4K, Q8_0};
    use super::*;
    use crate::packed::{PackedMatrix, WeightGroup};
    use std::ops::Range;

    const GROUPS: usize = 100;

    /// The lines that tile `index` of `count` fetches of `P` panels, from panel `first` on, those after them being `next` further.
    fn fetched<W: Quantized, const P: usize>(
        to: FetchTo,
        weights: &PackedMatrix,
        (index, count): (usize, usize),
        (first, next): (usize, usize),
    ) -> Vec<usize> {
        let section = &weights.sections()[0];
        let panels: [Panel; P] = std::array::from_fn(|p| section.panel(first + p));
        let mut fetching = Fetching::fetching_to::<W>(to, Ahead { index, count, packed: &panels, next }, GROUPS);
        let lines = std::cell::RefCell::new(Vec::new());
        for group in 0..GROUPS {
            if let Some(group) = fetching.due(group) {
                fetch_group::<W, P>(&panels, next, group, GROUPS, |line| lines.borrow_mut().push(line.addr()));
            }
        }
        let mut lines = lines.into_inner();
        // Scales of several groups are on a line.
        lines.sort_unstable();
        lines.dedup();
        lines
    }

    fn matrix(form: crate::packed::Form) -> PackedMatrix {
        PackedMatrix::new(16 * 8, 32 * GROUPS, form, |_, _| WeightGroup::zeros(form)).expect("zeros can be packed")
    }

    /// Whether some of `lines` are the quants of groups `from..to` of a panel, whole.
    fn covers<W: Quantized>(weights: &PackedMatrix, lines: &[usize], panel: usize, groups: Range<usize>) -> bool {
        let quants = weights.sections()[0].panel(panel).quants.addr();
        let bytes = W::FORM.registers() * 64;
        (quants + groups.start * bytes..quants + groups.end * bytes).step_by(64).all(|line| lines.contains(&line))
    }

    fn check<W: Quantized>(to: FetchTo) {
        let weights = matrix(W::FORM);
        let far = groups_ahead::<W, 1>(to);
        let alone = fetched::<W, 1>(to, &weights, (0, 1), (0, 1));
        assert!(covers::<W>(&weights, &alone, 0, far..GROUPS), "its own panel beyond what is too near");
        assert!(!covers::<W>(&weights, &alone, 0, far - 1..far) && covers::<W>(&weights, &alone, 1, 0..far));
        assert!(!covers::<W>(&weights, &alone, 1, far..far + 1), "of the next one as much as it is ahead");
        let both = (0..3).flat_map(|index| fetched::<W, 2>(to, &weights, (index, 3), (0, 2)));
        let turns = [0, 1].into_iter().flat_map(|first| (0..3).map(move |index| (index, first)));
        let in_turn = turns.flat_map(|(index, first)| fetched::<W, 1>(to, &weights, (index, 3), (first, 2)));
        for together in [both.collect::<Vec<_>>(), in_turn.collect()] {
            assert!(covers::<W>(&weights, &together, 2, 0..GROUPS) && covers::<W>(&weights, &together, 3, 0..GROUPS));
            assert!([0, 1, 4].iter().all(|&panel| !covers::<W>(&weights, &together, panel, 0..1)));
        }
    }

    #[test]
    fn a_tile_alone_fetches_its_own_panels_and_several_the_next_ones() {
        for to in [FetchTo::FirstCache, FetchTo::SecondCache] {
            check::<Q4K>(to);
            check::<Q8_0>(to);
        }
    }
}
