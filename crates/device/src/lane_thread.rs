//! One thread of a lane: serves rounds that a team's leader publishes, and runs the jobs of teams that it leads.
//!
//! Between two rounds of a job there are microseconds, between two tokens a few more: the thread spins that long before
//! it parks, because waking a parked thread costs more than the gap. A parked thread uses no CPU.

use crate::absence::{Absence, Looked};
use crate::affinity::keep_on;
use crate::core_time::{CoreTime, Told};
use crate::gate::Gate;
use crate::job::Job;
use crate::round::Slot;
use crate::team::Team;
use crate::topology::{CoreId, Speed};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// What others leave for a thread.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    /// The round it is to take part in.
    pub(crate) slot: Slot,
    jobs: Mutex<VecDeque<Posted>>,
    /// Length of `jobs`, so that a spinning thread takes no lock.
    jobs_posted: AtomicUsize,
    thread: OnceLock<Thread>,
    /// How fast its core is; absent where it has none of its own.
    speed: OnceLock<Speed>,
    /// Where the thread's time is told.
    time: OnceLock<Told>,
    /// Whether it takes part in teams.
    pub(crate) absence: Absence,
}

/// A job and the team that runs it.
pub(crate) struct Posted {
    pub(crate) team: Team,
    pub(crate) job: Job,
}

impl Mailbox {
    /// Tells the mailbox whose it is; before that, nobody can be woken.
    pub(crate) fn belongs_to(&self, thread: Thread) {
        self.thread.set(thread).expect("a mailbox belongs to one thread");
    }

    /// Tells how fast the thread's core is.
    pub(crate) fn runs_at(&self, speed: Speed) {
        // A mailbox has one thread, and that one core.
        let _ = self.speed.set(speed);
    }

    /// How fast the thread's core is, as far as it is known.
    pub(crate) fn speed(&self) -> Speed {
        self.speed.get().copied().unwrap_or(Speed::FULL)
    }

    /// Tells where the thread's time is told.
    pub(crate) fn is_told_of_by(&self, told: Told) {
        // A mailbox has one thread, which begins once.
        let _ = self.time.set(told);
    }

    /// Appends a job and wakes the thread.
    pub(crate) fn post(&self, posted: Posted) {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).push_back(posted);
        self.jobs_posted.fetch_add(1, Ordering::Release);
        self.wake();
    }

    /// Makes the thread look at its mailbox. Costs one atomic swap if it is awake.
    pub(crate) fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// What the thread got of its core; nothing before it began, and where nobody tells.
    pub(crate) fn core_time(&self) -> Option<CoreTime> {
        self.time.get().and_then(Told::read)
    }

    /// What the thread, which takes part in a team, got of its core since the last look, if that is to be judged. One
    /// without a core of its own goes where there is room.
    pub(crate) fn look(&self, now: Instant) -> Option<Looked> {
        let speed = *self.speed.get()?;
        self.absence.look(now, speed, || self.time.get()?.read())
    }

    fn take_job(&self) -> Option<Posted> {
        if self.jobs_posted.load(Ordering::Acquire) == 0 {
            return None;
        }
        let posted = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).pop_front()?;
        self.jobs_posted.fetch_sub(1, Ordering::Relaxed);
        Some(posted)
    }
}

/// The life of a lane's thread: until the gate is closed.
pub(crate) fn lane_main(own: usize, core: Option<CoreId>, mailboxes: &Arc<[Mailbox]>, gate: &Gate) {
    if let Some(core) = core {
        keep_on(core);
    }
    let mailbox = &mailboxes[own];
    if let Some(told) = Told::of_this_thread() {
        mailbox.is_told_of_by(told);
    }
    let mut idle_since = Instant::now();
    while !gate.is_closed() {
        if mailbox.slot.serve() {
            idle_since = Instant::now();
        } else if let Some(Posted { team, job }) = mailbox.take_job() {
            // A job answers for its own panics; one that it let through must not take the lane along. The message has
            // been printed by the panic hook.
            let _ = catch_unwind(AssertUnwindSafe(|| job(&team)));
            if gate.leave() {
                mailboxes.iter().for_each(Mailbox::wake);
            }
            idle_since = Instant::now();
            team.look(idle_since);
        } else if idle_since.elapsed() < SPIN_MAX {
            // Rounds are what is to be seen at once; a look at the clock takes longer than one at the slot.
            for _ in 0..LOOKS_AT_SLOT {
                std::hint::spin_loop();
                if mailbox.slot.is_full() {
                    break;
                }
            }
        } else {
            // Whoever fills the mailbox wakes it afterwards, and a wake that comes before the park ends it at once.
            std::thread::park();
            // What it was woken for need not be there yet to be seen, nor be for this thread: then it parks again.
        }
    }
}

/// How long a thread spins before it parks: longer than sampling and scheduling between two tokens take, and about what
/// two wake-ups would cost. Larger only burns power.
const SPIN_MAX: Duration = Duration::from_micros(100);
/// Looks at the slot, tens of nanoseconds each, between two at the jobs and the clock.
const LOOKS_AT_SLOT: u32 = 16;

impl std::fmt::Debug for Posted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Posted").field("team", &self.team).finish_non_exhaustive()
    }
}
