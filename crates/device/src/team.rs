//! Teams: lanes that run one job together.

use crate::lane_thread::Mailbox;
use crate::round::run_together;
use crate::topology::Speed;
use duet_kernels::crew::{Crew, Worker};
use std::cell::Cell;
use std::marker::PhantomData;
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
    not_sync: PhantomData<Cell<()>>,
}

impl Team {
    pub(crate) fn new(mailboxes: Arc<[Mailbox]>, leader: usize, members: Vec<usize>) -> Self {
        let speeds = || std::iter::once(&leader).chain(&members).map(|&member| mailboxes[member].speed());
        let cuts = if speeds().all(|speed| speed == mailboxes[leader].speed()) { Vec::new() } else { cuts(speeds()) };
        Self { mailboxes, members, cuts, not_sync: PhantomData }
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
        run_together(slots, &self.cuts, |index| self.mailboxes[self.members[index]].wake(), work);
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
