//! Crews: the threads that run one kernel together.
//!
//! A kernel is written once, as a function of a [`Worker`]: every member of the crew calls it with the same
//! arguments and does the share that its rank names; [`Worker::sync`] separates steps that read what others wrote.
//! Invariant: what a kernel computes never depends on the crew's size, only who computes it does.

use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Threads that can run one function together.
pub trait Crew {
    /// How many workers take part, at least one.
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
}

impl<'a> Worker<'a> {
    /// Member `rank` of `size` that meets the others at `barrier`.
    ///
    /// # Panics
    /// If `rank` is not below `size`, or the barrier is for another number of threads.
    #[must_use]
    pub fn new(rank: usize, size: usize, barrier: &'a SpinBarrier) -> Self {
        assert!(rank < size);
        assert!(barrier.size == size);
        Self { rank, size, barrier, cuts: &[] }
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
        self.barrier.wait();
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

/// A barrier that spins briefly and then yields: kernels' steps are microseconds apart.
#[derive(Debug)]
pub struct SpinBarrier {
    size: usize,
    arrived: AtomicUsize,
    generation: AtomicUsize,
}

impl SpinBarrier {
    /// A barrier for `size` threads.
    #[must_use]
    pub const fn new(size: usize) -> Self {
        Self { size, arrived: AtomicUsize::new(0), generation: AtomicUsize::new(0) }
    }

    /// Makes every [`Self::wait`], under way or to come, unwind: one of the threads panicked and will not arrive.
    pub fn poison(&self) {
        // A bit of the word that waiters watch anyway, so that poisoning costs the fast path nothing.
        self.generation.fetch_or(POISONED, Ordering::Release);
    }

    /// Returns once `size` threads have called it; may then be used again.
    ///
    /// # Panics
    /// If the barrier is poisoned; silently, since the thread that poisoned it has told why.
    pub fn wait(&self) {
        if self.size == 1 {
            return;
        }
        let generation = self.generation.load(Ordering::Acquire);
        if generation & POISONED != 0 {
            resume_unwind(Box::new(OTHER_PANICKED));
        }
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.size {
            self.arrived.store(0, Ordering::Relaxed);
            self.generation.fetch_add(1, Ordering::Release);
            return;
        }
        let mut spins = 0_u32;
        while self.generation.load(Ordering::Acquire) == generation {
            spins += 1;
            if spins < SPINS_BEFORE_YIELD {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
        if self.generation.load(Ordering::Acquire) & POISONED != 0 {
            resume_unwind(Box::new(OTHER_PANICKED));
        }
    }
}

const POISONED: usize = 1 << (usize::BITS - 1);
const OTHER_PANICKED: &str = "another worker of the crew panicked";

/// About 20 µs: longer than any balanced step, shorter than a scheduling quantum when a partner lost its core.
const SPINS_BEFORE_YIELD: u32 = 2_000;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

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
