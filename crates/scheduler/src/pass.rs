//! Passes under way: how far each has come, and which of its rows are on a lane.
//!
//! A pass holds one activation buffer from its first kernel to its last. There are two of each stage, one for reactive
//! and one for proactive work, so that a reactive pass can go between two kernels of a proactive one and nothing is
//! copied. (Agent.xpu §4.1: recurrent activation double buffer; §4.4 ①)

use crate::drift::Kind;
use crate::heg::Load;
use crate::kernel::{Completes, Member, PassId, Span, class_of, stage_of};
use duet_types::{Class, Instant, LaneId, LaneSet, Stage};
use std::ops::Range;

/// Some rows on their way through the nodes.
#[derive(Clone, Debug)]
pub struct Pass {
    /// Its number.
    pub id: PassId,
    /// Whose rows.
    pub members: Vec<Member>,
    /// Reactive if any member is.
    pub class: Class,
    /// Prefill if any member reads its prompt, else verify if any has a draft.
    pub stage: Stage,
    /// Whose activation buffer it holds: prefill's or decode's, as its first member is. Rows of a prompt that ride in a decode pass are
    /// in the decode buffer.
    pub buffer: Stage,
    /// What it costs.
    pub load: Load,
    /// All rows.
    pub rows: u32,
    /// The next node that is not complete.
    pub node: usize,
    /// Rows of `node` that were given to a lane, in the order in which they were.
    pub(crate) assigned: Vec<Range<u32>>,
    /// The node that the kernels on its parts go to.
    pub(crate) assigned_to: usize,
    /// Rows of `node` that are done.
    pub(crate) done: u32,
    /// Where its last kernel ran, or runs.
    pub(crate) lanes: LaneSet,
    /// How many of its attention nodes ran on each device with memory of its own; of parts of a node, their part.
    pub(crate) attended: Vec<(LaneId, f64)>,
    /// Kernels of it on lanes.
    pub(crate) running: usize,
    /// Whether another pass had its lane since its last kernel.
    pub(crate) interrupted: bool,
    /// Rows of `node` that were begun, and that no lane has: they need data that is on disk.
    pub(crate) begun: Option<Begun>,
    /// Why it cannot go on: then it is undone when its kernels have ended.
    pub(crate) broken: Option<Broken>,
}

/// Rows that a kernel has begun and not ended, since it gave its lanes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Begun {
    pub(crate) rows: Range<u32>,
    pub(crate) data: Data,
}

/// What such rows need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    /// It is being read.
    Coming {
        /// Since when.
        since: Instant,
        /// Until when, probably.
        until: Instant,
    },
    There,
}

/// Why a pass cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// A lane was lost: nobody is to blame.
    LaneLost,
    /// A kernel of it failed.
    KernelFailed,
    /// All of its members were cancelled.
    Unwanted,
}

impl Pass {
    pub(crate) fn new(id: PassId, members: Vec<Member>, load: Load) -> Self {
        let rows = members.iter().map(|member| member.len().0).sum();
        let (class, stage) = (class_of(&members), stage_of(&members));
        let buffer = match members.first().map_or(stage, |member| member.stage) {
            Stage::Verify => Stage::Decode,
            buffer => buffer,
        };
        Self {
            id,
            members,
            class,
            stage,
            buffer,
            load,
            rows,
            node: 0,
            assigned: Vec::new(),
            assigned_to: 0,
            done: 0,
            lanes: LaneSet::EMPTY,
            attended: Vec::new(),
            running: 0,
            interrupted: false,
            begun: None,
            broken: None,
        }
    }

    /// A span of it with so many attention nodes ran on a device with memory of its own.
    pub(crate) fn attended(&mut self, lane: LaneId, nodes: usize, span: &Span) {
        let part = nodes as f64 * f64::from(span.rows.end - span.rows.start) / f64::from(self.rows.max(1));
        match self.attended.iter_mut().find(|(on, _)| *on == lane) {
            Some((_, before)) => *before += part,
            None => self.attended.push((lane, part)),
        }
    }

    /// What predictions of kernels on all its rows are corrected by.
    #[must_use]
    pub(crate) fn kind(&self) -> Kind {
        self.kind_of(&(0..self.rows))
    }

    /// What predictions of kernels on some of its rows are corrected by.
    #[must_use]
    pub(crate) fn kind_of(&self, rows: &Range<u32>) -> Kind {
        Kind { net: self.load.net, stage: self.stage, rows: f64::from(rows.end - rows.start) }
    }

    /// Whether no kernel of it is on a lane.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.running == 0
    }

    /// Whether a kernel of it may be launched: none is on a lane, and what it needs is in memory.
    #[must_use]
    pub fn can_go_on(&self) -> bool {
        self.is_idle() && self.coming().is_none()
    }

    /// Since when it waits for a disk, and until when probably.
    #[must_use]
    pub fn coming(&self) -> Option<Range<Instant>> {
        match self.begun.as_ref()?.data {
            Data::Coming { since, until } => Some(since..until),
            Data::There => None,
        }
    }

    /// Whether another pass went between its kernels.
    #[must_use]
    pub fn was_interrupted(&self) -> bool {
        self.interrupted
    }

    /// Whether no row of the next node was given to a lane.
    #[must_use]
    pub fn is_between_nodes(&self) -> bool {
        self.assigned.is_empty()
    }

    /// The first rows of the next node that no lane was given.
    #[must_use]
    pub fn unassigned(&self) -> Range<u32> {
        self.gaps().into_iter().next().unwrap_or(self.rows..self.rows)
    }

    /// All rows of the next node that no lane was given.
    pub(crate) fn gaps(&self) -> Vec<Range<u32>> {
        let mut assigned = self.assigned.clone();
        assigned.sort_by_key(|rows| rows.start);
        let starts = std::iter::once(0).chain(assigned.iter().map(|rows| rows.end));
        let ends = assigned.iter().map(|rows| rows.start).chain([self.rows]);
        starts.zip(ends).map(|(start, end)| start..end).filter(|gap| !gap.is_empty()).collect()
    }

    /// Whether rows of the next node were given to a lane.
    #[must_use]
    pub fn is_assigned(&self, rows: &Range<u32>) -> bool {
        self.assigned.iter().any(|given| given.start < rows.end && rows.start < given.end)
    }

    /// What of a span is launched: rows that were begun go on as they were, through their node alone if they are a part.
    pub(crate) fn resumed(&self, span: Span) -> Span {
        match &self.begun {
            Some(Begun { rows, .. }) if *rows != (0..self.rows) => {
                Span { nodes: self.node..self.node + 1, rows: rows.clone() }
            }
            Some(Begun { rows, .. }) => Span { rows: rows.clone(), ..span },
            None => span,
        }
    }

    /// Notes a launch.
    pub(crate) fn launch(&mut self, lanes: LaneSet, span: &Span, all_nodes: usize) -> Completes {
        let Span { nodes, rows } = span;
        assert!(self.broken.is_none(), "pass {} is broken", self.id);
        assert_eq!(nodes.start, self.node, "the nodes of pass {} come in order", self.id);
        assert!(rows.start < rows.end && rows.end <= self.rows, "pass {} has no rows {rows:?}", self.id);
        assert!(!self.is_assigned(rows), "rows {rows:?} of pass {} are on a lane already", self.id);
        let begun = self.begun.take();
        let continues = begun.is_none_or(|begun| begun.data == Data::There && begun.rows == *rows);
        assert!(continues, "rows of pass {} wait for a disk, and others are launched", self.id);
        let whole = *rows == (0..self.rows);
        assert!(whole || nodes.end <= nodes.start.max(1) + 1, "a part of the rows goes node by node");
        assert!(self.is_between_nodes() || nodes.end == self.assigned_to, "the parts of a node go equally far");
        self.assigned.push(rows.clone());
        self.assigned_to = nodes.end;
        self.lanes = lanes;
        self.running += 1;
        self.interrupted = false;
        let last = nodes.end == all_nodes && self.unassigned().is_empty();
        if last { Completes::Pass } else { Completes::Span }
    }

    /// Notes that a kernel ended at `node`, which needs data that comes in that time.
    pub(crate) fn kernel_waits(&mut self, node: usize, span: &Span, (since, until): (Instant, Instant)) {
        assert!(span.nodes.contains(&node), "a kernel on {:?} waits in node {node}", span.nodes);
        self.running -= 1;
        self.assigned.retain(|rows| *rows != span.rows);
        // All rows have come there, or it is the first node of a part.
        self.node = node;
        self.begun = Some(Begun { rows: span.rows.clone(), data: Data::Coming { since, until } });
    }

    /// What it waits for is there.
    pub(crate) fn data_ready(&mut self) {
        if let Some(begun) = &mut self.begun {
            begun.data = Data::There;
        }
    }

    /// Notes the end of a kernel. Returns whether the pass is complete.
    pub(crate) fn kernel_done(&mut self, nodes: &Range<usize>, rows: &Range<u32>, all_nodes: usize) -> bool {
        self.running -= 1;
        self.done += rows.end - rows.start;
        if self.done == self.rows {
            self.node = nodes.end;
            self.done = 0;
            self.assigned.clear();
        }
        self.node == all_nodes
    }
}
