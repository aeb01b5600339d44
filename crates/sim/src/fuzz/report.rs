//! What happened in a run, counted: a fuzzer whose faults do not happen finds nothing.

use crate::client::{Client, Graphs};
use crate::world::VirtualWorld;
use duet_driver::Observer;
use duet_scheduler::{Command, End, Event, GraphId};
use duet_types::{FinishReason, Instant, RequestId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::AddAssign;

/// Something that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Happening {
    /// A request came.
    Request,
    /// It was answered.
    Answer,
    /// It failed.
    Failure,
    /// It was given up while it was there.
    Cancellation,
    /// It was given up before it came or after its end.
    IdleCancellation,
    /// A kernel was launched.
    Kernel,
    /// A kernel failed.
    KernelFailure,
    /// A kernel hung.
    Hang,
    /// A lane was lost.
    LaneLoss,
    /// A lost lane worked again.
    LaneReturn,
    /// KV was sent to disk.
    Spill,
    /// It did not get there.
    SpillFailure,
    /// KV of a live request was read back.
    ReadBack,
    /// A live request had to begin again.
    Discard,
    /// KV of an ended request was used.
    Reuse,
    /// A graph was compiled in time.
    Graph,
    /// It took too long.
    SlowGraph,
    /// It could not be compiled, or loaded.
    GraphFailure,
    /// A graph took the place of another one.
    Exchange,
    /// A pass waited for a disk without a lane.
    DiskWait,
}

/// How often everything happened, in one run or in many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    counts: BTreeMap<Happening, u64>,
}

impl Happening {
    /// Everything that is counted.
    pub const ALL: [Self; 20] = [
        Self::Request,
        Self::Answer,
        Self::Failure,
        Self::Cancellation,
        Self::IdleCancellation,
        Self::Kernel,
        Self::KernelFailure,
        Self::Hang,
        Self::LaneLoss,
        Self::LaneReturn,
        Self::Spill,
        Self::SpillFailure,
        Self::ReadBack,
        Self::Discard,
        Self::Reuse,
        Self::Graph,
        Self::SlowGraph,
        Self::GraphFailure,
        Self::Exchange,
        Self::DiskWait,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Request => "requests",
            Self::Answer => "answered",
            Self::Failure => "failed",
            Self::Cancellation => "cancelled while there",
            Self::IdleCancellation => "cancelled before or after",
            Self::Kernel => "kernels",
            Self::KernelFailure => "kernels failed",
            Self::Hang => "kernels hung",
            Self::LaneLoss => "lanes lost",
            Self::LaneReturn => "lanes that came back",
            Self::Spill => "spills",
            Self::SpillFailure => "spills failed",
            Self::ReadBack => "read back",
            Self::Discard => "discards",
            Self::Reuse => "prefixes reused",
            Self::Graph => "graphs compiled",
            Self::SlowGraph => "graphs slow",
            Self::GraphFailure => "graphs failed",
            Self::Exchange => "graphs exchanged",
            Self::DiskWait => "waits for a disk",
        }
    }
}

impl Report {
    /// How often this happened.
    #[must_use]
    pub fn count(&self, happening: Happening) -> u64 {
        self.counts.get(&happening).copied().unwrap_or_default()
    }

    fn add(&mut self, happening: Happening, times: u64) {
        *self.counts.entry(happening).or_default() += times;
    }
}

impl AddAssign<&Self> for Report {
    fn add_assign(&mut self, other: &Self) {
        other.counts.iter().for_each(|(&happening, &times)| self.add(happening, times));
    }
}

/// One line for each happening.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = Happening::ALL.into_iter();
        all.try_for_each(|happening| writeln!(f, "{:>12}  {}", self.count(happening), happening.name()))
    }
}

/// Counts while it happens.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    report: Report,
    clients: Vec<Client>,
    graphs: BTreeMap<GraphId, RequestId>,
    live: BTreeSet<RequestId>,
}

impl Tally {
    pub(super) fn new(clients: &[Client]) -> Self {
        let (report, clients) = (Report::default(), clients.to_vec());
        Self { report, clients, graphs: BTreeMap::new(), live: BTreeSet::new() }
    }

    /// What was counted, and what only the world knows.
    pub(super) fn report(mut self, world: &VirtualWorld) -> Report {
        self.report.add(Happening::Hang, world.hangs());
        self.report
    }

    fn graph(&self, graph: GraphId) -> Happening {
        let client = self.graphs.get(&graph).and_then(|request| self.clients.get(request.0 as usize));
        match client.map(|client| client.graph) {
            Some(Graphs::Slow(_)) => Happening::SlowGraph,
            _ => Happening::Graph,
        }
    }
}

impl Observer for Tally {
    fn event(&mut self, _: Instant, event: &Event) {
        let happening = match event {
            Event::Submitted(request) => {
                self.live.insert(request.id);
                Happening::Request
            }
            Event::Restored { source: Some(_), .. } => Happening::Reuse,
            Event::Restored { cached, source: None, .. } if cached.0 > 0 => Happening::ReadBack,
            Event::KernelFailed { .. } => Happening::KernelFailure,
            Event::GraphReady { graph } => self.graph(*graph),
            Event::GraphFailed { .. } => Happening::GraphFailure,
            Event::GraphLoadFailed { .. } => Happening::GraphFailure,
            Event::LaneLost { .. } => Happening::LaneLoss,
            Event::DataReady { .. } => Happening::DiskWait,
            Event::LaneBack { .. } => Happening::LaneReturn,
            Event::SpillFailed { .. } => Happening::SpillFailure,
            Event::Cancelled(request) if self.live.contains(request) => Happening::Cancellation,
            Event::Cancelled(_) => Happening::IdleCancellation,
            Event::Restored { .. }
            | Event::KernelDone { .. }
            | Event::Spilled { .. }
            | Event::GraphLoaded { .. }
            | Event::Dropped { .. }
            | Event::LaneSlow { .. }
            | Event::Timer => return,
        };
        self.report.add(happening, 1);
    }

    fn command(&mut self, _: Instant, command: &Command) {
        let happening = match command {
            Command::Launch { .. } => Happening::Kernel,
            Command::Prepare(graph) => {
                self.graphs.insert(graph.id, graph.request);
                return;
            }
            Command::LoadGraph(_) => Happening::Exchange,
            Command::Spill(_) => Happening::Spill,
            Command::Discard(_) => Happening::Discard,
            Command::Release { request, end } => {
                self.live.remove(request);
                match end {
                    End::Finished(FinishReason::Cancelled) => return,
                    End::Finished(FinishReason::Stop | FinishReason::Length) => Happening::Answer,
                    End::Failed => Happening::Failure,
                }
            }
            Command::Restore(_)
            | Command::Reclaim(_)
            | Command::Forget(_)
            | Command::DropCopy { .. }
            | Command::Probe(_)
            | Command::SetTimer { .. } => return,
        };
        self.report.add(happening, 1);
    }
}
