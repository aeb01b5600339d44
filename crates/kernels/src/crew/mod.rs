//! Crews: the threads that run one kernel together.
//!
//! A kernel is written once, as a function of a [`Worker`]: every member of the crew calls it with the same
//! arguments and does the share that its rank names, or, where a step is long, what it takes of all shares piece by piece
//! ([`Worker::pieces`]); [`Worker::sync`] separates steps that read what others wrote.
//! Invariant: what a kernel computes never depends on the crew's size, nor on who was faster: only who computes it does.

mod barrier;
mod pieces;

pub use barrier::SpinBarrier;
pub use pieces::Pieces;

use std::ops::Range;

/// Threads that can run one function together.
pub trait Crew {
    /// How many workers take part in the next call of [`Self::run`], at least one.
    fn size(&self) -> usize;

    /// Calls `work` once on every worker, the calling thread being rank 0, and returns when all have returned.
    fn run(&self, work: &(dyn Fn(Worker<'_>) + Sync));
}

/// The calling thread alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct Solo;

impl Crew for Solo {
    fn size(&self) -> usize {
        1
    }

    fn run(&self, work: &(dyn Fn(Worker<'_>) + Sync)) {
        work(Worker::new(0, 1, &SpinBarrier::new(1)));
    }
}

/// A crew of scoped threads started for each call: correct everywhere, for tests and tools. Engines use pinned lanes.
#[derive(Clone, Copy, Debug)]
pub struct Scoped {
    /// How many threads take part.
    pub threads: usize,
}

impl Crew for Scoped {
    fn size(&self) -> usize {
        self.threads.max(1)
    }

    fn run(&self, work: &(dyn Fn(Worker<'_>) + Sync)) {
        run_scoped(self.size(), &[], work);
    }
}

/// The same with threads of unequal speed, as [`Worker::sharing`] has them.
#[derive(Clone, Copy, Debug)]
pub struct Unequal<'a> {
    /// Where the members' shares begin, and where the last ends.
    pub cuts: &'a [u32],
}

impl Crew for Unequal<'_> {
    fn size(&self) -> usize {
        self.cuts.len().saturating_sub(1).max(1)
    }

    fn run(&self, work: &(dyn Fn(Worker<'_>) + Sync)) {
        run_scoped(self.size(), self.cuts, work);
    }
}

fn run_scoped(size: usize, cuts: &[u32], work: &(dyn Fn(Worker<'_>) + Sync)) {
    let barrier = SpinBarrier::new(size);
    let share = |rank| {
        let _poison = PoisonOnPanic(&barrier);
        work(Worker::new(rank, size, &barrier).sharing(cuts));
    };
    std::thread::scope(|scope| {
        for rank in 1..size {
            scope.spawn(move || share(rank));
        }
        share(0);
    });
}

/// One member of a crew during one call.
#[derive(Clone, Copy, Debug)]
pub struct Worker<'a> {
    rank: usize,
    size: usize,
    barrier: &'a SpinBarrier,
    /// Where the members' shares begin, and where the last ends; empty if they are equal.
    cuts: &'a [u32],
    /// The number of the call.
    call: u32,
}

impl<'a> Worker<'a> {
    /// Member `rank` of `size` that meets the others at `barrier`.
    ///
    /// # Panics
    /// If `rank` is not below `size`, or the barrier is for another number of threads.
    #[must_use]
    pub fn new(rank: usize, size: usize, barrier: &'a SpinBarrier) -> Self {
        assert!(rank < size);
        assert!(barrier.size() == size);
        Self { rank, size, barrier, cuts: &[], call: 0 }
    }

    /// The same in another call of the crew, where calls have a barrier in common: each has a larger number than those before.
    #[must_use]
    pub fn in_call(self, call: u32) -> Self {
        Self { call, ..self }
    }

    /// The same where members have unequal shares, since they are not equally fast: member `i` has what lies between
    /// numbers `i` and `i + 1` of `cuts`, of all that lies between the first, 0, and the last. Without cuts they are equal.
    ///
    /// # Panics
    /// If there are cuts, and not one more than members, from 0 up.
    #[must_use]
    pub fn sharing(self, cuts: &'a [u32]) -> Self {
        let fit = cuts.len() == self.size + 1 && cuts[0] == 0 && cuts[self.size] > 0 && cuts.is_sorted();
        assert!(cuts.is_empty() || fit, "a share for each member");
        Self { cuts, ..self }
    }

    /// This member's number, from 0.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many members the crew has.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Waits until every member has come here; what they wrote before is then visible to all.
    pub fn sync(&self) {
        self.barrier.meet(|| {});
    }

    /// The same, and calls `idle` again and again until then: for what may be done any number of times, or never.
    pub fn sync_while(&self, idle: impl FnMut()) {
        self.barrier.meet(idle);
    }

    /// What this member computes of `items` things in a step that takes long: its own share, some things at a time, and then
    /// what others have not begun of theirs. So a member whose core is slower than it was thought to be, or was taken away
    /// for a moment, keeps nobody waiting for longer than one piece takes. All members together get each thing once.
    /// Pieces have `least` things or a multiple, but the last of a share.
    ///
    /// Each member must call this once between two syncs at most, with the same numbers, and use up what it gets.
    #[must_use]
    pub fn pieces(&self, items: usize, least: usize) -> Pieces<'a> {
        Pieces::new(*self, items, least)
    }

    /// This member's contiguous share of `items` things; the shares of all members cover them once.
    #[must_use]
    pub fn share(&self, items: usize) -> Range<usize> {
        self.share_of(self.rank, items)
    }

    /// The share that member `rank` has.
    ///
    /// # Panics
    /// If there is no such member.
    #[must_use]
    pub fn share_of(&self, rank: usize, items: usize) -> Range<usize> {
        let cut = |rank: usize| match self.cuts {
            [] => items * rank / self.size,
            cuts => (items as u64 * u64::from(cuts[rank]) / u64::from(cuts[self.size])) as usize,
        };
        cut(rank)..cut(rank + 1)
    }

    /// In whose share item `at` of `items` lies; the last member's if it is none of them.
    #[must_use]
    pub fn whose(&self, at: usize, items: usize) -> usize {
        (0..self.size).find(|&rank| at < self.share_of(rank, items).end).unwrap_or(self.size - 1)
    }
}

/// Releases the other workers when this one panics.
struct PoisonOnPanic<'a>(&'a SpinBarrier);

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    #[test]
    fn shares_cover_everything_once() {
        for size in 1..6 {
            let barrier = SpinBarrier::new(size);
            for items in [0, 1, 2, 5, 17, 100] {
                let covered: Vec<usize> =
                    (0..size).flat_map(|rank| Worker::new(rank, size, &barrier).share(items)).collect();
                assert_eq!(covered, (0..items).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn unequal_shares_cover_everything_once_too() {
        for cuts in [&[0, 1024, 1584][..], &[0, 3, 3, 4], &[0, 7]] {
            let size = cuts.len() - 1;
            let barrier = SpinBarrier::new(size);
            let workers = || (0..size).map(|rank| Worker::new(rank, size, &barrier).sharing(cuts));
            for items in [0, 1, 2, 5, 17, 100] {
                let covered: Vec<usize> = workers().flat_map(|worker| worker.share(items)).collect();
                assert_eq!(covered, (0..items).collect::<Vec<_>>());
                let whose = |at| workers().next().map_or(0, |worker| worker.whose(at, items));
                assert!(workers().all(|worker| worker.share(items).all(|at| whose(at) == worker.rank())));
            }
            let most = workers().map(|worker| worker.share(1000).len()).max();
            assert!(most >= Some(640), "the fastest has the most: {most:?}");
        }
    }

    proptest! {
        #[test]
        fn pieces_cover_everything_once_whoever_is_slow(
            speeds in prop::collection::vec(1_u32..5, 1..5), items in 0_usize..200, least in 0_usize..4, slow in 0_usize..5,
        ) {
            let ends = speeds.iter().scan(0, |end, &speed| { *end += speed; Some(*end) });
            let cuts: Vec<u32> = std::iter::once(0).chain(ends).collect();
            let counts: Vec<AtomicUsize> = (0..items).map(|_| AtomicUsize::new(0)).collect();
            Unequal { cuts: &cuts }.run(&|worker| {
                for round in 1..=3 {
                    for piece in worker.pieces(items, least) {
                        for count in &counts[piece] {
                            count.fetch_add(1, Ordering::Relaxed);
                            if worker.rank() == slow {
                                std::thread::yield_now();
                            }
                        }
                    }
                    worker.sync();
                    let all = counts.iter().all(|count| count.load(Ordering::Relaxed) == round);
                    assert!(all, "once a round, round {round}");
                    worker.sync();
                }
            });
        }
    }

    #[test]
    fn who_is_fast_takes_over_what_others_have_not_begun() {
        let taken = [AtomicUsize::new(0), AtomicUsize::new(0)];
        Scoped { threads: 2 }.run(&|worker| {
            if worker.rank() == 1 {
                // Begins when all has been taken.
                while taken[0].load(Ordering::Acquire) < 100 {
                    std::thread::yield_now();
                }
            }
            for piece in worker.pieces(100, 1) {
                taken[worker.rank()].fetch_add(piece.len(), Ordering::AcqRel);
            }
        });
        assert_eq!(taken.map(AtomicUsize::into_inner), [100, 0]);
    }

    #[test]
    fn those_who_wait_do_something_else_meanwhile() {
        let done = AtomicUsize::new(0);
        Scoped { threads: 2 }.run(&|worker| {
            if worker.rank() == 1 {
                while done.load(Ordering::Acquire) < 10 {
                    std::thread::yield_now();
                }
            }
            worker.sync_while(|| {
                done.fetch_add(1, Ordering::AcqRel);
            });
        });
        assert!(done.into_inner() >= 10);
    }

    #[test]
    fn a_panic_releases_those_who_wait_for_the_panicked() {
        let left = AtomicU64::new(0);
        let call = std::panic::catch_unwind(|| {
            Scoped { threads: 3 }.run(&|worker| {
                worker.sync();
                if worker.rank() == 1 {
                    panic!("rank 1 fails");
                }
                left.fetch_add(1, Ordering::Relaxed);
                worker.sync();
                left.fetch_add(100, Ordering::Relaxed);
            });
        });
        assert!(call.is_err());
        assert_eq!(left.into_inner(), 2);
    }

    #[test]
    fn sync_separates_steps() {
        let sum = AtomicU64::new(0);
        Scoped { threads: 3 }.run(&|worker| {
            for round in 1..=200 {
                sum.fetch_add(1, Ordering::Relaxed);
                worker.sync();
                assert_eq!(sum.load(Ordering::Relaxed), 3 * round);
                worker.sync();
            }
        });
    }
}
