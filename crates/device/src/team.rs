//! Teams: lanes that run one job together.

use crate::lane_thread::Mailbox;
use crate::round::run_together;
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
    not_sync: PhantomData<Cell<()>>,
}

impl Team {
    pub(crate) fn new(mailboxes: Arc<[Mailbox]>, members: Vec<usize>) -> Self {
        Self { mailboxes, members, not_sync: PhantomData }
    }
}

impl Crew for Team {
    fn size(&self) -> usize {
        1 + self.members.len()
    }

    /// Panics with the first panic of any rank, after all ranks have returned.
    fn run(&self, work: &(dyn Fn(Worker<'_>) + Sync)) {
        let slots = self.members.iter().map(|&member| &self.mailboxes[member].slot);
        run_together(slots, |index| self.mailboxes[self.members[index]].wake(), work);
    }
}
