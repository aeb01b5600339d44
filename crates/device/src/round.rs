//! Rounds: one function, run by every thread of a team, borrowed from the leader's stack.
//!
//! The leader claims each member's [`Slot`], publishes a pointer to its [`Round`] there, takes part as rank 0, and waits.
//! A slot is full from the moment the leader fills it until its member has returned from the function, and the leader does
//! not return, nor unwind, before every slot is empty again: so the function and all that it borrows outlive every call.
//! The member's last touch is of the slot, which both share for good, never of the round.
//!
//! A panic in one thread poisons the barrier, so that threads which wait for it there leave too; when all have
//! come back, the leader goes on with the first panic. This is the only file that hands borrows between threads.

use duet_kernels::crew::{SpinBarrier, Worker};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Where a member finds the round it is to take part in. Served by one thread only, alone on its cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Slot {
    round: AtomicPtr<Round<'static>>,
    rank: AtomicUsize,
    claim: Claim,
}

/// Whether a leader has the slot for a round of its own. Only leaders look, so it is not on the line at which the member does.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Claim(AtomicBool);

/// One call of a function by all threads of a team.
pub(crate) struct Round<'a> {
    work: &'a (dyn Fn(Worker<'_>) + Sync),
    meeting: Meeting<'a>,
    size: usize,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

/// How the threads of a round divide its work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meeting<'a> {
    /// For all of them. Not poisoned, and a round that has another one's barrier has a larger number than that.
    pub(crate) barrier: &'a SpinBarrier,
    /// The round's number.
    pub(crate) number: u32,
    /// What their shares are ([`Worker::sharing`]).
    pub(crate) cuts: &'a [u32],
}

/// Calls `work` on this thread as rank 0 and on the thread behind every slot, and returns when all have returned.
/// `wake` must see to it that the thread behind `slots[i]` serves it soon.
pub(crate) fn run_together<'s>(
    slots: impl Iterator<Item = &'s Slot> + Clone,
    meeting: Meeting<'_>,
    wake: impl Fn(usize),
    work: &(dyn Fn(Worker<'_>) + Sync),
) {
    let size = 1 + slots.clone().count();
    let round = Round { work, meeting, size, panic: Mutex::new(None) };
    {
        let mut returned = AllReturned { slots: slots.clone(), filled: 0, round: &round };
        for (index, slot) in slots.enumerate() {
            slot.fill(&round, index + 1);
            returned.filled += 1;
            wake(index);
        }
        round.take_part(0);
        drop(returned);
    }
    let first_panic = round.panic.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(panic) = first_panic {
        resume_unwind(panic);
    }
}

impl Slot {
    /// Whether a round waits in it or is under way.
    pub(crate) fn is_full(&self) -> bool {
        !self.round.load(Ordering::Acquire).is_null()
    }

    /// Takes part in the round that waits in the slot, if any. Returns whether there was one.
    /// Must only be called by the one thread that the slot belongs to.
    pub(crate) fn serve(&self) -> bool {
        let round = self.round.load(Ordering::Acquire);
        if round.is_null() {
            return false;
        }
        let rank = self.rank.load(Ordering::Relaxed);
        // A non-null pointer was stored by `fill`, which `run_together` alone calls, with a round on its own stack;
        // `AllReturned` keeps that frame alive, even while it unwinds, until this slot is null again.
        // SAFETY: so the round is alive until this thread, which alone does so, makes the slot null after the call; the
        // acquiring load above makes its contents visible here.
        unsafe { &*round }.take_part(rank);
        self.round.store(ptr::null_mut(), Ordering::Release);
        true
    }

    fn fill(&self, round: &Round<'_>, rank: usize) {
        assert!(!self.claim.0.swap(true, Ordering::Acquire), "a thread takes part in one round at a time");
        self.rank.store(rank, Ordering::Relaxed);
        let round = ptr::from_ref(round).cast::<Round<'static>>().cast_mut();
        self.round.store(round, Ordering::Release);
    }
}

impl Round<'_> {
    /// Runs this rank's share. Never unwinds.
    fn take_part(&self, rank: usize) {
        let Meeting { barrier, number, cuts } = self.meeting;
        let share = || (self.work)(Worker::new(rank, self.size, barrier).sharing(cuts).in_call(number));
        if let Err(panic) = catch_unwind(AssertUnwindSafe(share)) {
            // First note the panic, then release the others: theirs only echo it.
            self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
            barrier.poison();
        }
    }
}

/// Waits, when dropped, until every slot that was filled is empty, and gives it up.
struct AllReturned<'r, 's, S: Iterator<Item = &'s Slot> + Clone> {
    slots: S,
    filled: usize,
    round: &'r Round<'r>,
}

impl<'s, S: Iterator<Item = &'s Slot> + Clone> Drop for AllReturned<'_, 's, S> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The leader did not come to take part: nobody may wait for it.
            self.round.meeting.barrier.poison();
        }
        for slot in self.slots.clone().take(self.filled) {
            let mut spins = 0_u32;
            while slot.is_full() {
                spins += 1;
                if spins < SPINS_BEFORE_YIELD {
                    std::hint::spin_loop();
                } else {
                    std::thread::yield_now();
                }
            }
            slot.claim.0.store(false, Ordering::Release);
        }
    }
}

/// About 20 µs: members end within microseconds of each other unless one lost its core, and then it should get it.
const SPINS_BEFORE_YIELD: u32 = 2_000;

#[cfg(test)]
mod tests {
    use super::*;
    use std::iter::once;

    #[test]
    fn a_slot_has_one_round_at_a_time() {
        let (slot, called, refused) = (Slot::default(), AtomicUsize::new(0), AtomicBool::new(false));
        let run = |work: &(dyn Fn(Worker<'_>) + Sync)| {
            let meeting = Meeting { barrier: &SpinBarrier::new(2), number: 1, cuts: &[] };
            run_together(once(&slot), meeting, |_| {}, work);
        };
        std::thread::scope(|scope| {
            scope.spawn(|| (0..2).for_each(|_| while !slot.serve() {}));
            run(&|worker| {
                if worker.rank() == 0 {
                    let other = catch_unwind(AssertUnwindSafe(|| run(&|_| {})));
                    refused.store(other.is_err(), Ordering::Relaxed);
                }
                worker.sync();
                called.fetch_add(1, Ordering::Relaxed);
            });
            run(&|_| {
                called.fetch_add(1, Ordering::Relaxed);
            });
        });
        // After both rounds: a panic between them would leave the other thread waiting.
        assert!(refused.into_inner());
        assert_eq!(called.into_inner(), 4, "the round was not disturbed, and the slot is free after it");
    }
}
