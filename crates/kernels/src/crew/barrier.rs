//! Where the members of a crew meet, and how much of each one's share has been taken since they last did.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A barrier that spins briefly and then yields: kernels' steps are microseconds apart.
#[derive(Debug)]
pub struct SpinBarrier {
    size: usize,
    arrived: AtomicUsize,
    generation: AtomicUsize,
    /// Things taken of each member's share; none where there is one member.
    taken: Box<[Taken]>,
}

/// Alone on its cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Taken(AtomicUsize);

impl SpinBarrier {
    /// A barrier for `size` threads.
    #[must_use]
    pub fn new(size: usize) -> Self {
        let taken = if size > 1 { (0..size).map(|_| Taken::default()).collect() } else { Box::default() };
        Self { size, arrived: AtomicUsize::new(0), generation: AtomicUsize::new(0), taken }
    }

    /// For how many threads.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Takes `piece` things of the share of `len` that member `rank` has: the first of them, if one was left.
    pub(super) fn take(&self, rank: usize, piece: usize, len: usize) -> Option<usize> {
        let taken = &self.taken[rank].0;
        // Who looks at a share that is used up does not write to it. Things are handed over by the barrier, not by this.
        let left = taken.load(Ordering::Relaxed) < len;
        let first = if left { taken.fetch_add(piece, Ordering::Relaxed) } else { len };
        (first < len).then_some(first)
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
        self.wait_while(|| {});
    }

    /// The same, and calls `idle` again and again while it waits.
    pub(super) fn wait_while(&self, mut idle: impl FnMut()) {
        if self.size == 1 {
            return;
        }
        let generation = self.generation.load(Ordering::Acquire);
        if generation & POISONED != 0 {
            resume_unwind(Box::new(OTHER_PANICKED));
        }
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.size {
            self.arrived.store(0, Ordering::Relaxed);
            self.taken.iter().for_each(|taken| taken.0.store(0, Ordering::Relaxed));
            self.generation.fetch_add(1, Ordering::Release);
            return;
        }
        let mut spins = 0_u32;
        while self.generation.load(Ordering::Acquire) == generation {
            spins += 1;
            if spins < SPINS_BEFORE_YIELD {
                idle();
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
