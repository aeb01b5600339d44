//! The CPU's cores in lanes, one thread a core.

use crate::absence::{Absence, Absences};
use crate::affinity::available_cores;
use crate::core_time::CoreTime;
use crate::gate::Gate;
use crate::job::{Job, LanesStopped};
use crate::lane_thread::{Mailbox, Posted, lane_main};
use crate::team::Team;
use crate::topology::{Core, CoreKind};
use duet_types::LaneSet;
use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

/// How the cores are divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuConfig {
    /// Threads of each lane.
    pub lanes: Vec<usize>,
    /// Whether threads stay on their cores.
    pub pinning: Pinning,
}

/// Whether threads stay on their cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pinning {
    /// Each thread is bound to one core, in order, as long as there are cores.
    Pinned,
    /// So many first threads float, since each waits for a device most of the time; the others as [`Self::Pinned`].
    AllButFirst(usize),
    /// The operating system moves threads as it likes.
    Floating,
}

/// The threads. Dropping it waits for the jobs under way and joins them; it must not be dropped by a job.
#[derive(Debug)]
pub struct Cpu {
    lanes: CpuLanes,
    threads: Vec<JoinHandle<()>>,
}

/// The lanes of a [`Cpu`], to launch jobs on. Clones share them; none keeps the threads alive.
#[derive(Clone, Debug)]
pub struct CpuLanes {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    all: LaneSet,
    /// The threads of each lane.
    lanes: Vec<Range<usize>>,
    /// One per thread.
    mailboxes: Arc<[Mailbox]>,
    gate: Gate,
}

impl CpuConfig {
    /// `threads` cores in two lanes, so that prefill and decode can run side by side and also join in one team; one
    /// lane where there is only one thread. The odd core goes to the first lane.
    #[must_use]
    pub fn prefill_and_decode(threads: usize) -> Self {
        let threads = threads.max(1);
        let lanes = if threads == 1 { vec![1] } else { vec![threads.div_ceil(2), threads / 2] };
        Self { lanes, pinning: Pinning::Pinned }
    }

    /// As many threads on the machine's cores: a lane of its fast cores and one of its slow ones, where it has both, so that
    /// each is as fast as it is predicted; else as [`Self::prefill_and_decode`].
    #[must_use]
    pub fn by_speed(threads: usize) -> Self {
        Self::on(&available_cores(), threads)
    }

    fn on(cores: &[Core], threads: usize) -> Self {
        let used = &cores[..threads.min(cores.len())];
        let fast = used.iter().filter(|core| core.kind == CoreKind::Fast).count();
        if fast == 0 || fast == used.len() {
            return Self::prefill_and_decode(threads);
        }
        Self { lanes: vec![fast, threads - fast], pinning: Pinning::Pinned }
    }

    /// A lane of one thread for each of so many devices, which waits for it, before a lane of `threads` cores.
    #[must_use]
    pub fn beside_devices(devices: usize, threads: usize) -> Self {
        let lanes = [vec![1; devices], vec![threads.max(1)]].concat();
        Self { lanes, pinning: Pinning::AllButFirst(devices) }
    }
}

impl Cpu {
    /// Starts the threads.
    ///
    /// # Errors
    /// If the operating system refuses a thread; those that were started are stopped.
    ///
    /// # Panics
    /// If there is no lane, too many for a [`LaneSet`], or one without threads.
    pub fn start(config: &CpuConfig) -> std::io::Result<Self> {
        assert!(!config.lanes.is_empty(), "there must be a lane");
        assert!(config.lanes.iter().all(|&threads| threads > 0), "a lane needs a thread");
        let count = u8::try_from(config.lanes.len()).expect("a machine has a handful of lanes");
        let mut lanes = Vec::new();
        let mut first = 0;
        for threads in &config.lanes {
            lanes.push(first..first + threads);
            first += threads;
        }
        let mailboxes = (0..first).map(|_| Mailbox::default()).collect();
        let inner = Arc::new(Inner { all: LaneSet::first(count), lanes, mailboxes, gate: Gate::default() });
        let mut cpu = Self { lanes: CpuLanes { inner }, threads: Vec::new() };
        let cores = available_cores();
        for index in 0..first {
            let core = match config.pinning {
                Pinning::Pinned => cores.get(index).copied(),
                Pinning::AllButFirst(floating) => index.checked_sub(floating).and_then(|at| cores.get(at).copied()),
                Pinning::Floating => None,
            };
            if let Some(core) = core {
                cpu.lanes.inner.mailboxes[index].runs_at(core.speed);
            }
            let (core, inner) = (core.map(|core| core.id), Arc::clone(&cpu.lanes.inner));
            let thread = std::thread::Builder::new()
                .name(format!("duet-lane-{index}"))
                .spawn(move || lane_main(index, core, &inner.mailboxes, &inner.gate))?;
            cpu.lanes.inner.mailboxes[index].belongs_to(thread.thread().clone());
            cpu.threads.push(thread);
        }
        Ok(cpu)
    }

    /// The lanes, to launch jobs on.
    #[must_use]
    pub fn lanes(&self) -> CpuLanes {
        self.lanes.clone()
    }

    /// How many threads there are.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads.len()
    }
}

impl CpuLanes {
    /// All lanes.
    #[must_use]
    pub fn all(&self) -> LaneSet {
        self.inner.all
    }

    /// Queues `job` for the team of `lanes`, without those of their threads whose cores other programs have, as long as there
    /// are others; it runs after what its leader was given before. The caller must see to it that jobs of overlapping teams
    /// are not under way together: the scheduler does.
    ///
    /// # Errors
    /// [`LanesStopped`]; the job is dropped.
    ///
    /// # Panics
    /// If `lanes` is empty, or names a lane that there is not.
    pub fn launch(&self, lanes: LaneSet, job: Job) -> Result<(), LanesStopped> {
        assert!(self.inner.all.contains_all(lanes), "no such lanes: {lanes}");
        let now = Instant::now();
        let (leader, others) = self.inner.crew_of(lanes, now);
        let team = Team::new(Arc::clone(&self.inner.mailboxes), leader, others, now);
        self.inner.gate.enter()?;
        self.inner.mailboxes[leader].post(Posted { team, job });
        Ok(())
    }

    /// What the threads of each lane got of their cores; absent where the operating system does not say. Takes some
    /// microseconds a thread.
    #[must_use]
    pub fn core_times(&self) -> Vec<Vec<Option<CoreTime>>> {
        let of =
            |threads: &Range<usize>| self.inner.mailboxes[threads.clone()].iter().map(Mailbox::core_time).collect();
        self.inner.lanes.iter().map(of).collect()
    }

    /// How the threads of each lane stay away from teams, because other programs have their cores.
    #[must_use]
    pub fn absences(&self) -> Vec<Absences> {
        let now = Instant::now();
        let of = |threads: &Range<usize>| {
            let absences = || self.inner.mailboxes[threads.clone()].iter().map(|mailbox| &mailbox.absence);
            let away = absences().filter(|absence| absence.until(now).is_some()).count();
            Absences { away: u32::try_from(away).unwrap_or(u32::MAX), begun: absences().map(Absence::begun).sum() }
        };
        self.inner.lanes.iter().map(of).collect()
    }
}

impl Inner {
    /// The thread of `lanes` that leads, and the others: the first that is not away. If all are, the one that may be back
    /// first.
    fn crew_of(&self, lanes: LaneSet, now: Instant) -> (usize, Vec<usize>) {
        let mut threads: Vec<usize> = lanes.iter().flat_map(|lane| self.lanes[usize::from(lane.0)].clone()).collect();
        // Those that are here come before all that will be, and the first of equals is taken.
        let leader = (0..threads.len()).min_by_key(|&at| self.mailboxes[threads[at]].absence.until(now));
        (threads.remove(leader.expect("a job needs a lane")), threads)
    }
}

impl Drop for Cpu {
    fn drop(&mut self) {
        if self.lanes.inner.gate.stop() {
            self.lanes.inner.mailboxes.iter().for_each(Mailbox::wake);
        }
        for thread in self.threads.drain(..) {
            // A lane's thread catches what its jobs throw, so it has nothing to report.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{CoreId, Speed};
    use std::time::Duration;

    #[test]
    fn lanes_are_of_one_speed() {
        let cores = |fast: usize, slow: usize| {
            let kind = |id| if id < fast { CoreKind::Fast } else { CoreKind::Slow };
            (0..fast + slow).map(|id| Core { id: CoreId(id), kind: kind(id), speed: Speed::FULL }).collect::<Vec<_>>()
        };
        let lanes = |cores: &[Core], threads| CpuConfig::on(cores, threads).lanes;
        assert_eq!(lanes(&cores(6, 8), 14), [6, 8]);
        assert_eq!(lanes(&cores(6, 8), 8), [6, 2]);
        assert_eq!(lanes(&cores(6, 8), 6), [3, 3], "the fast ones alone");
        assert_eq!(lanes(&cores(4, 0), 4), [2, 2]);
        assert_eq!(lanes(&cores(0, 4), 4), [2, 2]);
        assert_eq!(lanes(&cores(2, 0), 5), [3, 2], "more threads than cores");
    }

    #[test]
    fn the_first_that_is_not_away_leads() {
        let cpu = Cpu::start(&CpuConfig { lanes: vec![2, 1], pinning: Pinning::Floating }).unwrap();
        let (inner, now) = (&cpu.lanes.inner, Instant::now());
        let stays_away = |thread: usize, from| inner.mailboxes[thread].absence.begin(from);
        let both = LaneSet::first(2);
        assert_eq!(inner.crew_of(both, now), (0, vec![1, 2]));
        let later = stays_away(0, now) - Duration::from_millis(1);
        assert_eq!(inner.crew_of(both, now), (1, vec![0, 2]));
        assert_eq!(inner.crew_of(LaneSet::first(1), now), (1, vec![0]));
        stays_away(1, later);
        stays_away(2, later);
        assert_eq!(inner.crew_of(both, later), (0, vec![1, 2]), "all are away, and it is back first");
        let begun: Vec<u64> = cpu.lanes().absences().iter().map(|lane| lane.begun).collect();
        assert_eq!(begun, [2, 1]);
    }
}
