//! Kernels as they ran: when, for how long, and how much was in them. Of a recorded run or of a simulated one.

use duet_driver::Observer;
use duet_scheduler::heg::Load;
use duet_scheduler::{Command, Event, Kernel};
use duet_types::{Instant, KernelId, LaneSet, Nanos, Stage};
use std::collections::BTreeMap;
use std::ops::Range;

/// Notes every kernel that comes to its end.
#[derive(Clone, Debug, Default)]
pub struct KernelLog {
    running: BTreeMap<KernelId, KernelRun>,
    done: Vec<KernelRun>,
}

/// One kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelRun {
    /// When it was launched.
    pub at: Instant,
    /// From its launch to the next decision: with what the engine did for its tokens.
    pub took: Nanos,
    /// On which team.
    pub lanes: LaneSet,
    /// Prefill if any member read its prompt.
    pub stage: Stage,
    /// Members of its pass.
    pub members: usize,
    /// What was in it.
    pub load: Load,
    /// Its nodes.
    pub nodes: Range<usize>,
    /// How long the scheduler thought that it would take, by what it had learned so far.
    pub predicted: Nanos,
}

impl KernelLog {
    /// Kernels that came to their end, in the order of their ends.
    #[must_use]
    pub fn done(&self) -> &[KernelRun] {
        &self.done
    }

    /// Whether a kernel is on its lanes.
    #[must_use]
    pub fn is_running(&self, kernel: KernelId) -> bool {
        self.running.contains_key(&kernel)
    }

    /// What is on the lanes: prefill if any kernel is.
    #[must_use]
    pub fn running_stage(&self) -> Option<Stage> {
        let mut stages = self.running.values().map(|run| run.stage);
        let first = stages.next()?;
        Some(if stages.any(|stage| stage == Stage::Prefill) { Stage::Prefill } else { first })
    }

    /// How long lanes were busy, all lanes together.
    #[must_use]
    pub fn busy(&self) -> Nanos {
        self.done.iter().map(|run| Nanos(run.took.0 * run.lanes.len() as u64)).sum()
    }
}

impl Observer for KernelLog {
    fn event(&mut self, now: Instant, event: &Event) {
        match event {
            Event::KernelDone { kernel, .. } => {
                if let Some(run) = self.running.remove(kernel) {
                    self.done.push(KernelRun { took: now - run.at, ..run });
                }
            }
            Event::KernelFailed { kernel } => {
                self.running.remove(kernel);
            }
            Event::LaneLost { lane } => self.running.retain(|_, run| !run.lanes.contains(*lane)),
            _ => {}
        }
    }

    fn command(&mut self, now: Instant, command: &Command) {
        let Command::Launch { lanes, kernel, .. } = command else { return };
        let run = KernelRun {
            at: now,
            took: Nanos::ZERO,
            lanes: *lanes,
            stage: kernel.stage(),
            members: kernel.members.len(),
            load: load(kernel),
            nodes: kernel.nodes.clone(),
            predicted: kernel.predicted,
        };
        self.running.insert(kernel.id, run);
    }
}

/// What is in a kernel: its rows' part of the pass.
pub(crate) fn load(kernel: &Kernel) -> Load {
    let load = Load::of(&kernel.members);
    load.part(f64::from(kernel.rows.end - kernel.rows.start) / load.rows)
}
