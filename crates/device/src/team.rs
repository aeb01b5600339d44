//! Teams: lanes that run one job together.

use crate::absence::{LOOK_EVERY, Looked, verdicts};
use crate::lane_thread::Mailbox;
use crate::round::{Meeting, run_together};
use crate::topology::Speed;
use duet_kernels::crew::{Crew, SpinBarrier, Worker};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Instant;

/// The crew of a job: the leader, which runs the job, and every other thread of the team's lanes that is not
/// [away](crate::absence). A thread keeps its rank as long as the same threads take part, so that it finds its share of the
/// weights in its own cache. Who takes part changes between two rounds only.
///
/// It is not `Sync`: only the thread that runs the job may start a round.
#[derive(Debug)]
pub struct Team {
    mailboxes: Arc<[Mailbox]>,
    leader: usize,
    /// The other threads of its lanes.
    others: Vec<usize>,
    formation: RefCell<Formation>,
    /// Rounds so far.
    rounds: Cell<u32>,
    /// When it was last seen who takes part.
    seen: Cell<Instant>,
}

/// Who takes part, and how.
#[derive(Debug)]
struct Formation {
    /// Which mailboxes belong to ranks 1 and up.
    members: Vec<usize>,
    /// What the threads' shares are ([`Worker::sharing`]); empty where all cores are equally fast.
    cuts: Vec<u32>,
    /// Where they meet: the same lines of memory in all rounds, so that a round begins without others' caches having to
    /// give any up.
    barrier: SpinBarrier,
}

impl Team {
    /// A team of `leader` and those of `others` that are not away.
    pub(crate) fn new(mailboxes: Arc<[Mailbox]>, leader: usize, others: Vec<usize>, now: Instant) -> Self {
        let members = present(&mailboxes, &others, now).collect();
        let formation = RefCell::new(Formation::new(&mailboxes, leader, members));
        Self { mailboxes, leader, others, formation, rounds: Cell::new(0), seen: Cell::new(now) }
    }

    /// Sees who of those who take part holds the others up. Called by the leader's thread, between rounds.
    pub(crate) fn look(&self, now: Instant) {
        let formation = self.formation.borrow();
        // Alone it holds nobody up; and beside a leader that is away and stays for its job, the others are not to go as well.
        if formation.size() == 1 || self.mailboxes[self.leader].absence.until(now).is_some() {
            return;
        }
        let threads = || [self.leader].into_iter().chain(formation.members.iter().copied());
        let (looked_at, looked): (Vec<usize>, Vec<Looked>) =
            threads().filter_map(|thread| Some((thread, self.mailboxes[thread].look(now)?))).unzip();
        let speed = threads().map(|thread| u64::from(self.mailboxes[thread].speed().0)).sum();
        for (thread, verdict) in looked_at.into_iter().zip(verdicts(&looked, speed, formation.size())) {
            self.mailboxes[thread].absence.judge(now, verdict);
        }
    }

    /// Looks, where a job takes long, and goes on without those who stay away, and with those who are back.
    fn form_anew(&self, now: Instant) {
        self.seen.set(now);
        self.look(now);
        let members: Vec<usize> = present(&self.mailboxes, &self.others, now).collect();
        if members != self.formation.borrow().members {
            self.formation.replace(Formation::new(&self.mailboxes, self.leader, members));
        }
    }
}

/// Those of `threads` that are not away.
fn present(mailboxes: &[Mailbox], threads: &[usize], now: Instant) -> impl Iterator<Item = usize> {
    threads.iter().copied().filter(move |&thread| mailboxes[thread].absence.until(now).is_none())
}

impl Formation {
    fn new(mailboxes: &[Mailbox], leader: usize, members: Vec<usize>) -> Self {
        let speeds = || std::iter::once(&leader).chain(&members).map(|&member| mailboxes[member].speed());
        let cuts = if speeds().all(|speed| speed == mailboxes[leader].speed()) { Vec::new() } else { cuts(speeds()) };
        let barrier = SpinBarrier::new(1 + members.len());
        Self { members, cuts, barrier }
    }

    fn size(&self) -> usize {
        1 + self.members.len()
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
        self.formation.borrow().size()
    }

    /// Panics with the first panic of any rank, after all ranks have returned.
    fn run(&self, work: &(dyn Fn(Worker<'_>) + Sync)) {
        if self.formation.borrow().barrier.is_poisoned() {
            // By a round that panicked; somebody caught that.
            let size = self.size();
            self.formation.borrow_mut().barrier = SpinBarrier::new(size);
        }
        self.rounds.update(|rounds| rounds.wrapping_add(1));
        {
            let formation = self.formation.borrow();
            let Formation { members, cuts, barrier } = &*formation;
            let slots = members.iter().map(|&member| &self.mailboxes[member].slot);
            let meeting = Meeting { barrier, number: self.rounds.get(), cuts };
            run_together(slots, meeting, |index| self.mailboxes[members[index]].wake(), work);
        }
        if !self.others.is_empty() {
            let now = Instant::now();
            if now - self.seen.get() >= LOOK_EVERY {
                self.form_anew(now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;

    #[test]
    fn shares_are_as_large_as_cores_are_fast() {
        let mailboxes: Arc<[Mailbox]> = (0..4).map(|_| Mailbox::default()).collect();
        let team = |others| Team::new(Arc::clone(&mailboxes), 0, others, Instant::now());
        assert!(team(vec![1, 2, 3]).formation.into_inner().cuts.is_empty());
        mailboxes[2].runs_at(Speed(500));
        let team = team(vec![1, 2]);
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

    /// Sets it however a job ends.
    struct Ended<'a>(&'a AtomicBool);

    impl Drop for Ended<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }

    /// Runs `job` with threads behind the mailboxes of ranks 1 and up.
    fn with_lanes(mailboxes: &Arc<[Mailbox]>, job: impl FnOnce()) {
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _ended = Ended(&ended);
            for mailbox in &mailboxes[1..] {
                let ended = &ended;
                scope.spawn(move || {
                    while !ended.load(Ordering::Acquire) {
                        mailbox.slot.serve();
                        std::thread::yield_now();
                    }
                });
            }
            job();
        });
    }

    #[test]
    fn who_is_away_takes_no_part_until_it_is_back() {
        let mailboxes: Arc<[Mailbox]> = (0..3).map(|_| Mailbox::default()).collect();
        let begin = Instant::now();
        let back = mailboxes[1].absence.begin(begin);
        with_lanes(&mailboxes, || {
            let team = Team::new(Arc::clone(&mailboxes), 0, vec![1, 2], begin);
            let sizes = || {
                let (size, called) = (team.size(), AtomicUsize::new(0));
                team.run(&|worker| {
                    assert_eq!(worker.size(), size);
                    called.fetch_add(1, Ordering::Relaxed);
                    worker.sync();
                });
                assert_eq!(called.into_inner(), size, "as many as were told of before");
                size
            };
            assert_eq!(sizes(), 2);
            while Instant::now() < back {
                assert!(sizes() <= 3);
            }
            std::thread::sleep(LOOK_EVERY);
            sizes();
            assert_eq!(sizes(), 3, "it is seen between two rounds of a job");
            mailboxes[2].absence.begin(Instant::now() + Duration::from_secs(3600));
            std::thread::sleep(LOOK_EVERY);
            sizes();
            assert_eq!(sizes(), 2);
        });
    }

    /// Rounds of one job while the system's file says of a thread that others have its core for half of the time.
    #[test]
    #[cfg(unix)]
    fn a_thread_whose_core_another_program_has_stays_away() {
        use crate::core_time::Told;
        use std::os::unix::fs::FileExt;
        let mailboxes: Arc<[Mailbox]> = (0..2).map(|_| Mailbox::default()).collect();
        mailboxes.iter().for_each(|mailbox| mailbox.runs_at(Speed::FULL));
        let file = tempfile::tempfile().unwrap();
        mailboxes[1].is_told_of_by(Told::by(file.try_clone().unwrap()));
        let begin = Instant::now();
        with_lanes(&mailboxes, || {
            let team = Team::new(Arc::clone(&mailboxes), 0, vec![1], begin);
            let mut rounds_of = [0, 0];
            // Some thousand times what it takes.
            while rounds_of[0] < 3 && begin.elapsed() < Duration::from_secs(60) {
                let half = begin.elapsed().as_nanos() / 2;
                file.write_all_at(format!("{half} {half} 1\n").as_bytes(), 0).unwrap();
                let (size, called) = (team.size(), AtomicUsize::new(0));
                team.run(&|worker| {
                    worker.sync();
                    called.fetch_add(1, Ordering::Relaxed);
                });
                assert_eq!(called.into_inner(), size, "everything is computed all the same");
                rounds_of[size - 1] += 1;
            }
            assert!(rounds_of[1] > 0, "it took part until it was seen to wait");
            assert!(rounds_of[0] > 0, "it stayed away then");
        });
    }
}
