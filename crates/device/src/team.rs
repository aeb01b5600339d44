//! Teams: lanes that run one job together.

use crate::lane_thread::Mailbox;
use crate::round::{Meeting, run_together};
use crate::topology::Speed;
use duet_kernels::crew::{Crew, SpinBarrier, Worker};
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// The crew of a job: the leading lane's thread, which runs the job, and every other thread of the team's lanes.
/// A thread keeps its rank for the whole job, so that it finds its share of the weights in its own cache.
///
/// It is not `Sync`: only the thread that runs the job may start a round.
#[derive(Debug)]
pub struct Team {
    mailboxes: Arc<[Mailbox]>,
    /// Which mailboxes belong to ranks 1 and up.
    members: Vec<usize>,
    /// What their shares are ([`Worker::sharing`]); empty where all cores are equally fast.
    cuts: Vec<u32>,
    /// Where they meet: the same lines of memory in all rounds, so that a round begins without others' caches having to
    /// give any up.
    barrier: RefCell<SpinBarrier>,
    /// Rounds so far.
    rounds: Cell<u32>,
}

impl Team {
    pub(crate) fn new(mailboxes: Arc<[Mailbox]>, leader: usize, members: Vec<usize>) -> Self {
        let speeds = || std::iter::once(&leader).chain(&members).map(|&member| mailboxes[member].speed());
        let cuts = if speeds().all(|speed| speed == mailboxes[leader].speed()) { Vec::new() } else { cuts(speeds()) };
        let barrier = RefCell::new(SpinBarrier::new(1 + members.len()));
        Self { mailboxes, members, cuts, barrier, rounds: Cell::new(0) }
    }
}

/// Where shares begin that are as large as these speeds, and where the last ends.
fn cuts(speeds: impl Iterator<Item = Speed>) -> Vec<u32> {
    let ends = speeds.scan(0, |end, speed| {
        *end += speed.0;
        Some(*end)
    });
    std::iter::once(0).chain(ends).collect()
}

impl Crew for Team {
    fn size(&self) -> usize {
        1 + self.members.len()
    }

    /// Panics with the first panic of any rank, after all ranks have returned.
    fn run(&self, work: &(dyn Fn(Worker<'_>) + Sync)) {
        let slots = self.members.iter().map(|&member| &self.mailboxes[member].slot);
        if self.barrier.borrow().is_poisoned() {
            // By a round that panicked; somebody caught that.
            self.barrier.replace(SpinBarrier::new(self.size()));
        }
        self.rounds.update(|rounds| rounds.wrapping_add(1));
        let barrier = self.barrier.borrow();
        let meeting = Meeting { barrier: &barrier, number: self.rounds.get(), cuts: &self.cuts };
        run_together(slots, meeting, |index| self.mailboxes[self.members[index]].wake(), work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn shares_are_as_large_as_cores_are_fast() {
        let mailboxes: Arc<[Mailbox]> = (0..4).map(|_| Mailbox::default()).collect();
        assert!(Team::new(Arc::clone(&mailboxes), 0, vec![1, 2, 3]).cuts.is_empty());
        mailboxes[2].runs_at(Speed(500));
        let team = Team::new(Arc::clone(&mailboxes), 0, vec![1, 2]);
        let shares = Mutex::new(vec![0..0; 3]);
        std::thread::scope(|scope| {
            for member in 1..3 {
                let mailboxes = &mailboxes;
                scope.spawn(move || while !mailboxes[member].slot.serve() {});
            }
            team.run(&|worker| shares.lock().unwrap()[worker.rank()] = worker.share(10));
        });
        assert_eq!(shares.into_inner().unwrap(), [0..4, 4..8, 8..10]);
    }
}
