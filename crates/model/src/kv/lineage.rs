//! What a copy of a sequence's keys and values may still be taken for.
//!
//! A table has an id. Whoever copies positions notes how far ([`Lineage::copied_to`]); where positions that were copied
//! may be written again (a fork, a truncation, a pass that is given up or accepted in part), the table takes another id and
//! remembers how many positions the two have in common. What nobody copied can be written again under the same id, so
//! that decoding with drafts changes none.
//!
//! Invariants: no two tables have one id, ever. Under one id, a position that was copied is not written again, but by the
//! pass that was writing it when it was copied. Forgetting an id is always safe: a copy made under it is then made again.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Names what is in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LineageId(u64);

/// A table's id, and its earlier ones.
#[derive(Debug)]
pub(super) struct Lineage {
    id: LineageId,
    /// Positions that somebody copied under this id, at most.
    copied: AtomicUsize,
    /// Earlier ids, the latest last, and how many positions that were copied under each are still these.
    earlier: Vec<(LineageId, usize)>,
}

impl LineageId {
    fn fresh() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl Lineage {
    /// Of a table that nobody has seen.
    pub(super) fn new() -> Self {
        Self { id: LineageId::fresh(), copied: AtomicUsize::new(0), earlier: Vec::new() }
    }

    pub(super) fn id(&self) -> LineageId {
        self.id
    }

    /// Somebody has copied the first `end` positions, or some of them.
    pub(super) fn copied_to(&self, end: usize) {
        self.copied.fetch_max(end, Ordering::Relaxed);
    }

    /// Positions from `len` on may be written anew.
    pub(super) fn cut(&mut self, len: usize) {
        self.earlier.iter_mut().for_each(|(_, common)| *common = (*common).min(len));
        if *self.copied.get_mut() > len {
            *self = self.fork(len);
        }
    }

    /// Of a table that begins with the first `len` positions of this one.
    pub(super) fn fork(&self, len: usize) -> Self {
        let copied = self.copied.load(Ordering::Relaxed);
        let ids = self.earlier.iter().copied().chain([(self.id, copied)]);
        let mut earlier: Vec<_> =
            ids.map(|(id, common)| (id, common.min(len))).filter(|(_, common)| *common > 0).collect();
        earlier.drain(..earlier.len().saturating_sub(EARLIER_MAX));
        Self { earlier, ..Self::new() }
    }

    /// Of what was copied under an id, how many positions are still this table's: all of its own, nothing where it does
    /// not know the id.
    pub(super) fn in_common(&self, id: LineageId) -> usize {
        if id == self.id {
            return usize::MAX;
        }
        self.earlier.iter().find(|(earlier, _)| *earlier == id).map_or(0, |(_, common)| *common)
    }
}

/// Turns of a conversation fork and end; copies are of one or two sequences, and older ids have left them.
const EARLIER_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_lasts_until_what_was_copied_may_be_written_again() {
        let mut lineage = Lineage::new();
        let id = lineage.id();
        lineage.copied_to(100);
        lineage.cut(100);
        assert_eq!((lineage.id(), lineage.in_common(id)), (id, usize::MAX));
        lineage.cut(80);
        assert_ne!(lineage.id(), id);
        assert_eq!(lineage.in_common(id), 80);
        // Nobody has copied under the new id: what comes and goes behind changes nothing.
        let next = lineage.id();
        lineage.cut(90);
        assert_eq!((lineage.id(), lineage.in_common(id)), (next, 80));
        // But it counts for the earlier one.
        lineage.cut(30);
        assert_eq!((lineage.id(), lineage.in_common(id)), (next, 30));
        lineage.cut(0);
        assert_eq!(lineage.in_common(id), 0);
    }

    #[test]
    fn forks_have_ids_of_their_own_and_know_their_parents() {
        let mut parent = Lineage::new();
        parent.copied_to(100);
        let child = parent.fork(40);
        assert_eq!((child.in_common(parent.id()), parent.in_common(child.id())), (40, 0));
        let id = parent.id();
        parent.copied_to(200);
        parent.cut(10);
        assert_eq!((parent.in_common(id), child.in_common(id)), (10, 40));
        child.copied_to(60);
        let grandchild = child.fork(50);
        assert_eq!((grandchild.in_common(id), grandchild.in_common(child.id())), (40, 50));
    }

    #[test]
    fn what_was_not_copied_is_in_nobodys_hands() {
        let parent = Lineage::new();
        let child = parent.fork(40);
        assert_eq!((child.in_common(parent.id()), child.earlier.len()), (0, 0));
    }

    #[test]
    fn only_a_few_ids_are_remembered() {
        let mut lineage = Lineage::new();
        let first = lineage.id();
        for _ in 0..20 {
            lineage.copied_to(10);
            lineage.cut(9);
        }
        assert_eq!((lineage.earlier.len(), lineage.in_common(first)), (EARLIER_MAX, 0));
    }
}
