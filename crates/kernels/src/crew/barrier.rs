//! Where the members of a crew meet, and how much of each one's share has been taken since they last did.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A barrier that spins briefly and then yields: kernels' steps are microseconds apart.
///
/// What different threads write is not on one cache line, and a meeting writes as few lines as it can: to get a line that
/// another core wrote takes longer than all the rest of it.
#[derive(Debug)]
pub struct SpinBarrier {
    size: usize,
    /// How many have come, to all meetings together.
    arrived: OwnLine<AtomicUsize>,
    /// How many meetings there were.
    generation: OwnLine<AtomicUsize>,
    /// Things taken of each member's share; none where there is one member.
    taken: Box<[OwnLine<AtomicU64>]>,
}

/// Alone on its cache line, and on the one beside it, which some cores fetch along.
#[derive(Debug, Default)]
#[repr(align(128))]
struct OwnLine<T>(T);

impl SpinBarrier {
    /// A barrier for `size` threads.
    #[must_use]
    pub fn new(size: usize) -> Self {
        let taken = if size > 1 { (0..size).map(|_| OwnLine::default()).collect() } else { Box::default() };
        Self { size, arrived: OwnLine::default(), generation: OwnLine::default(), taken }
    }

    /// For how many threads.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Takes `piece` things of the share of `len` that member `rank` has in a step of call `call`: the first of them, if one
    /// was left. Calls are numbered up, so the number of meetings and of calls together are another one for each step.
    pub(super) fn take(&self, rank: usize, call: u32, piece: u32, len: u32) -> Option<u32> {
        let taken = &self.taken[rank].0;
        // A thread between two meetings sees the number of the first: the second waits for it.
        let step = (self.generation.0.load(Ordering::Relaxed) as u32).wrapping_add(call);
        let mut found = taken.load(Ordering::Relaxed);
        loop {
            // What was taken in another step says nothing of this one.
            let first = if (found >> 32) as u32 == step { found as u32 } else { 0 };
            // Who looks at a share that is used up does not write to it.
            if first >= len {
                return None;
            }
            let next = u64::from(step) << 32 | u64::from(first.saturating_add(piece));
            // Things are handed over by the barrier, not by this.
            match taken.compare_exchange_weak(found, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(first),
                Err(other) => found = other,
            }
        }
    }

    /// Makes every meeting, under way or to come, unwind: one of the threads panicked and will not arrive.
    pub fn poison(&self) {
        // A bit of the word that waiters watch anyway, so that poisoning costs the fast path nothing.
        self.generation.0.fetch_or(POISONED, Ordering::Release);
    }

    /// Whether it was poisoned.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.generation.0.load(Ordering::Acquire) & POISONED != 0
    }

    /// Returns once `size` threads have called it, and calls `idle` again and again until then; may then be used again.
    ///
    /// # Panics
    /// If the barrier is poisoned; silently, since the thread that poisoned it has told why.
    pub(super) fn meet(&self, mut idle: impl FnMut()) {
        if self.size == 1 {
            return;
        }
        let generation = self.generation.0.load(Ordering::Acquire);
        if generation & POISONED != 0 {
            resume_unwind(Box::new(OTHER_PANICKED));
        }
        let all = (generation + 1).wrapping_mul(self.size);
        if self.arrived.0.fetch_add(1, Ordering::AcqRel).wrapping_add(1) == all {
            self.generation.0.fetch_add(1, Ordering::Release);
            return;
        }
        let mut spins = 0_u32;
        while self.generation.0.load(Ordering::Acquire) == generation {
            spins += 1;
            if spins < SPINS_BEFORE_YIELD {
                idle();
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
        if self.is_poisoned() {
            resume_unwind(Box::new(OTHER_PANICKED));
        }
    }
}

const POISONED: usize = 1 << (usize::BITS - 1);
const OTHER_PANICKED: &str = "another worker of the crew panicked";

/// About 20 µs: longer than any balanced step, shorter than a scheduling quantum when a partner lost its core.
const SPINS_BEFORE_YIELD: u32 = 2_000;
