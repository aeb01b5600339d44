//! The prefill pipeline: a pass node by node, its token-wise nodes shared by the lanes, its attention on the dynamic one,
//! or all of it on the static lane once a graph for it is ready. (Agent.xpu §4.3 ①④⑤)
//!
//! How a node is shared is decided when it begins and kept until it ends; who may go on, and who goes first, is the
//! policy's to say.
//!
//! On a machine whose lanes are all dynamic (two sets of cores) there are no chunks and no remainders, a graph is never
//! missing, and a kernel that both lanes share is one kernel of their team: the same pipeline, with less to decide.

use super::{Candidate, Decision, if_idle};
use crate::annotation;
use crate::contention;
use crate::elastic::{DecodeStatus, Partition, Times, chunks, partition};
use crate::heg::Load;
use crate::kernel::{PassId, Span};
use crate::machine::Covers;
use crate::mechanism::Mechanism;
use crate::pass::Pass;
use crate::preemption;
use crate::queues::Line;
use crate::reason::Reason;
use crate::span::Cut;
use crate::split::{Share, Split};
use crate::view::View;
use duet_types::{Class, LaneId, LaneSet, Nanos, Net, NodeKind, Stage, Tokens};
use std::collections::BTreeMap;

/// The prefill pipeline: which rows of the current node go to which lane.
#[derive(Debug, Default)]
pub(super) struct Pipeline {
    times: NodeTimes,
    splits: BTreeMap<PassId, Split>,
}

/// By which times a node is shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum NodeTimes {
    /// Those of the annotations alone, as Algorithm 1 has it.
    #[default]
    Annotated,
    /// With what launches cost. (Not with [drift](crate::drift): of two kernels that run beside each other it learns nothing, so
    /// it knows a lane from its other work only.)
    Launched,
}

/// How a token-wise node is shared between the lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// Both lanes end together. (Algorithm 1, scenario 1)
    Balanced,
    /// Chunks on the static lane, the remainder put off. (Algorithm 1, scenario 2)
    KeepOffDecode,
    /// Chunks on the static lane, the remainder on the dynamic one at once.
    Affinity,
    /// Everything on the dynamic lane.
    DynamicOnly,
}

impl Pipeline {
    pub(super) fn by(times: NodeTimes) -> Self {
        Self { times, splits: BTreeMap::new() }
    }

    /// The next kernel of a prefill pass, if a lane is idle for it.
    pub(super) fn next(&mut self, view: &View<'_>, candidate: Candidate<'_>, sharing: Sharing) -> Option<Decision> {
        if candidate.pass().broken.is_some() || candidate.pass().coming().is_some() {
            // It will be undone when the rest of it has ended, or goes on when its data is there.
            return None;
        }
        if candidate.pass().load.net == Net::Encoder {
            return encoder_pass(view, candidate, sharing);
        }
        let machine = &view.config().machine;
        let fixed = view.prefill_lane();
        if !machine.is_static(fixed) {
            return dynamic_prefill(view, candidate, sharing);
        }
        let pass = candidate.pass();
        let exact = machine.lane(fixed).capabilities.exact;
        let fixed = LaneSet::from_iter([fixed]);
        let dynamic = view.dynamic_lanes(&pass.load, pass.stage, &(pass.node..pass.node + 1));
        if sharing == Sharing::DynamicOnly {
            return whole_kernel(view, candidate, dynamic, Reason::OverduePrefill);
        }
        let attends = view.config().heg.order().kind(pass.node) == NodeKind::Attention;
        let goes_on_warm = pass.lanes == fixed && !attends && !self.is_split(pass);
        let covered = !attends || exact.is_some_and(|exact| exact.covers == Covers::Layers);
        if covered && is_warm(view, pass) && (pass.is_between_nodes() || goes_on_warm) {
            return whole_kernel(view, candidate, fixed, Reason::Warm);
        }
        if Tokens(pass.rows) < view.config().limits.chunk && !is_warm(view, pass) {
            return without_chunks(view, candidate);
        }
        if attends {
            return sequence_wise(view, candidate, dynamic);
        }
        let split = self.split(view, pass, sharing);
        let static_share = split.for_static_lane(pass);
        let dynamic_share = split.for_dynamic_lane(view.now(), pass);
        if let (Some(span), Some(lanes)) = (static_share, if_idle(view, fixed)) {
            let reason = match sharing {
                Sharing::Balanced => Reason::Balanced { chunks: split.partition.static_chunks },
                Sharing::KeepOffDecode => Reason::KeepsOffDecode,
                Sharing::Affinity | Sharing::DynamicOnly => Reason::Chunk,
            };
            return self.remember(split, candidate.launch(span, lanes, reason));
        }
        match dynamic_share {
            Share::Now(span) => {
                let lanes = if_idle(view, dynamic)?;
                let reason = match (sharing, split.partition.defer > Nanos::ZERO) {
                    (Sharing::KeepOffDecode, true) => Reason::DeferredRemainder,
                    (Sharing::Balanced, _) => Reason::Balanced { chunks: split.partition.static_chunks },
                    _ => Reason::Dynamic,
                };
                self.remember(split, candidate.launch(span, lanes, reason))
            }
            Share::Later(until) if view.timer_missing(until) => {
                Some(Decision::Wait { until, reason: Reason::DeferredRemainder })
            }
            Share::Later(_) | Share::Nothing => None,
        }
    }

    /// Whether the lanes share the current node: then they do until it ends, also if a graph is ready meanwhile.
    fn is_split(&self, pass: &Pass) -> bool {
        !pass.is_between_nodes() && self.splits.get(&pass.id).is_some_and(|split| split.node == pass.node.max(1))
    }

    /// How the current node is shared: decided when it begins, and kept until it ends.
    fn split(&self, view: &View<'_>, pass: &Pass, sharing: Sharing) -> Split {
        // The embeddings go with the first projection.
        let node = pass.node.max(1);
        if let Some(split) = self.splits.get(&pass.id).filter(|split| split.node == node && !pass.is_between_nodes()) {
            return *split;
        }
        let chunk = view.config().limits.chunk;
        let (count, remainder) = chunks(Tokens(pass.rows), chunk);
        let times = times(view, pass, self.times, [chunk, remainder]);
        let partition = match sharing {
            Sharing::Balanced => partition(count, &times, DecodeStatus::Idle),
            Sharing::KeepOffDecode => partition(count, &times, DecodeStatus::Busy),
            Sharing::Affinity => Partition { static_chunks: count, defer: Nanos::ZERO },
            Sharing::DynamicOnly => Partition { static_chunks: 0, defer: Nanos::ZERO },
        };
        Split { pass: pass.id, node, partition, begun: view.now(), chunk }
    }

    fn remember(&mut self, split: Split, decision: Decision) -> Option<Decision> {
        self.splits.insert(split.pass, split);
        Some(decision)
    }

    /// Passes that have ended need no split.
    pub(super) fn forget_ended(&mut self, view: &View<'_>) {
        self.splits.retain(|pass, _| view.passes().any(|under_way| under_way.id == *pass));
    }
}

fn times(view: &View<'_>, pass: &Pass, by: NodeTimes, [chunk, remainder]: [Tokens; 2]) -> Times {
    let config = view.config();
    let node = pass.node.max(1);
    let time = |rows: Tokens, lanes| {
        let load = pass.load.part(f64::from(rows.0) / f64::from(pass.rows));
        match by {
            NodeTimes::Annotated => {
                let kind = config.heg.order().kind(node);
                annotation::node_time(&config.heg, config.machine.anchors(lanes), &load, kind)
            }
            NodeTimes::Launched => {
                annotation::predict(&config.heg, config.machine.anchors(lanes), &load, &(node..node + 1))
            }
        }
    };
    let dynamic = view.dynamic_lanes(&pass.load, pass.stage, &(pass.node..pass.node + 1));
    Times {
        chunk_static: time(chunk, LaneSet::from_iter([view.prefill_lane()])),
        chunk_dynamic: time(chunk, dynamic),
        remainder: if remainder == Tokens::ZERO { Nanos::ZERO } else { time(remainder, dynamic) },
    }
}

/// A pass of the encoder, whose weights only cores have: a prefill like any other where cores are all that there is.
fn encoder_pass(view: &View<'_>, candidate: Candidate<'_>, sharing: Sharing) -> Option<Decision> {
    let cores = view.cores();
    if cores.contains(view.prefill_lane()) && cores.contains(view.decode_lane()) {
        return dynamic_prefill(view, candidate, sharing);
    }
    let reason = match candidate.pass().class {
        Class::Reactive => Reason::ReactiveFirst,
        Class::Proactive if candidate.pass().interrupted => Reason::Resumes,
        Class::Proactive => Reason::Background,
    };
    if cores.is_empty() { None } else { whole_kernel(view, candidate, cores, reason) }
}

/// A prompt shorter than a chunk, in which the static lane has no part: there is nothing to share, so it goes on the
/// dynamic lanes as far as the bound of preemption, and no node costs a launch of its own.
fn without_chunks(view: &View<'_>, candidate: Candidate<'_>) -> Option<Decision> {
    let pass = candidate.pass();
    let stretch = view.stretch(pass.load.net, pass.node);
    let lanes = view.dynamic_lanes(&pass.load, pass.stage, &stretch);
    whole_kernel(view, candidate, lanes, Reason::Dynamic)
}

/// Attention of a prefill, on the dynamic lane.
fn sequence_wise(view: &View<'_>, candidate: Candidate<'_>, dynamic: LaneSet) -> Option<Decision> {
    let (pass, config) = (candidate.pass(), view.config());
    let lanes = if_idle(view, dynamic).filter(|_| pass.can_go_on())?;
    let bound = annotation::bound(&config.heg, config.machine.anchors(lanes), &pass.load, NodeKind::Attention);
    if contention::must_wait(view, pass.class, lanes, bound) {
        return None;
    }
    let cut = preemption::cut(view, pass, lanes);
    let rows = view.next_span(pass, lanes, cut).rows;
    let nodes = pass.node..pass.node + 1;
    Some(candidate.launch(Span { nodes, rows }, lanes, Reason::Dynamic))
}

/// A prefill that needs no dynamic lane: its graph is ready, and holds its attention too.
pub(super) fn is_all_static(view: &View<'_>, pass: &Pass) -> bool {
    let exact = view.config().machine.lane(view.prefill_lane()).capabilities.exact;
    is_warm(view, pass) && exact.is_some_and(|exact| exact.covers == Covers::Layers)
}

/// A prefill whose graph is ready.
pub(super) fn is_warm(view: &View<'_>, pass: &Pass) -> bool {
    matches!(&pass.members[..], [member] if view.is_warm(member.request, Tokens(pass.rows)))
}

/// All rows on one lane.
pub(super) fn whole_kernel(
    view: &View<'_>,
    candidate: Candidate<'_>,
    lanes: LaneSet,
    reason: Reason,
) -> Option<Decision> {
    let pass = candidate.pass();
    let lanes = view.holding(lanes, pass.load.net, pass.node);
    let lanes = if_idle(view, lanes).filter(|_| pass.can_go_on())?;
    let config = view.config();
    let cut = match (preemption::within_bound(view, pass.kind(), lanes), reason, pass.class) {
        // Its graph takes all rows and no others, and nobody goes before a person's prompt between two nodes of it.
        (Cut::Within(bound), Reason::Warm, Class::Reactive) => Cut::Nodes(bound),
        (Cut::Within(bound), Reason::Warm, Class::Proactive) => Cut::Chunks(bound, config.limits.chunk),
        (cut, ..) => cut,
    };
    let (graph, anchors) = (config.graph(pass.load.net), config.machine.anchors(lanes));
    let span = view.next_span(pass, lanes, cut);
    let span = computed_by(view, lanes, reason, &pass.load, span);
    let kind = graph.order().kind(span.nodes.start);
    let bound = match span.nodes.len() {
        1 => annotation::bound(graph, anchors, &pass.load, kind),
        _ => annotation::pass_bound(graph, anchors, &pass.load),
    };
    if contention::must_wait(view, pass.class, lanes, bound) {
        return None;
    }
    Some(candidate.launch(span, lanes, reason))
}

/// A span as far as its lanes compute it: one that lacks attention stops before it, unless its graph holds that too.
fn computed_by(view: &View<'_>, lanes: LaneSet, reason: Reason, load: &Load, span: Span) -> Span {
    let covers = |lane: LaneId| view.config().machine.lane(lane).capabilities.exact.map(|exact| exact.covers);
    if reason == Reason::Warm && lanes.leader().and_then(covers) == Some(Covers::Layers) {
        return span;
    }
    let start = span.nodes.start;
    let lacks = |node: &usize| !view.computes(lanes, load, &(*node..*node + 1));
    let end = (start + 1..span.nodes.end).find(lacks).unwrap_or(span.nodes.end);
    Span { nodes: start..end, ..span }
}

/// Prefill on lanes that take any shape: the prefill lane, or the team while decode is idle.
fn dynamic_prefill(view: &View<'_>, candidate: Candidate<'_>, sharing: Sharing) -> Option<Decision> {
    let pass = candidate.pass();
    if !pass.can_go_on() {
        return None;
    }
    if sharing == Sharing::DynamicOnly {
        let lane = LaneSet::from_iter([view.decode_lane()]);
        return whole_kernel(view, candidate, lane, Reason::OverduePrefill);
    }
    let alone = decode_status(view) == DecodeStatus::Idle;
    let joins = match pass.class {
        Class::Reactive => sharing == Sharing::Balanced,
        Class::Proactive => alone,
    };
    if joins && let Some(team) = joined(view) {
        let cut = preemption::cut(view, pass, team);
        return Some(candidate.launch_cut(view, cut, team, Reason::Joined));
    }
    let reason = match (pass.class, pass.interrupted) {
        (Class::Reactive, _) => Reason::KeepsOffDecode,
        (Class::Proactive, true) => Reason::Resumes,
        (Class::Proactive, false) => Reason::Background,
    };
    whole_kernel(view, candidate, LaneSet::from_iter([view.prefill_lane()]), reason)
}

/// Whether anything decodes, or is about to.
pub(super) fn decode_status(view: &View<'_>) -> DecodeStatus {
    let waits = [Class::Reactive, Class::Proactive].into_iter().any(|class| view.queue_len(Line::Decode, class) > 0);
    let runs = view.passes().any(|pass| pass.stage != Stage::Prefill);
    if waits || runs { DecodeStatus::Busy } else { DecodeStatus::Idle }
}

/// The team, if its lanes may join now.
pub(super) fn joined(view: &View<'_>) -> Option<LaneSet> {
    view.team().filter(|_| view.has(Mechanism::Teams)).and_then(|team| if_idle(view, team))
}
