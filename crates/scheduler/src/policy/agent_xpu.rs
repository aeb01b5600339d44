//! Agent.xpu, to the letter of the paper. (§4.3-4.5)
//!
//! Prefill and decode are two pipelines. Prefill takes one request at a time, all of its prompt layer by layer, mainly
//! on the static lane; decode is batched on the dynamic lane. A reactive prefill goes before a proactive one, at kernel
//! boundaries, and uses both lanes while decode is idle.
//!
//! On a machine whose lanes are all dynamic (two sets of cores) there are no chunks and no remainders, a graph is never
//! missing, and a kernel that both lanes share is one kernel of their team: the same policy, with less to decide.

use super::{Admission, Candidate, Decision, Policy, begin, if_idle};
use crate::annotation;
use crate::arbitration::{self, Claim};
use crate::batching;
use crate::contention;
use crate::elastic::{DecodeStatus, Partition, Times, chunks, partition};
use crate::heg::Node;
use crate::kernel::{Member, PassId};
use crate::machine::Shapes;
use crate::mechanism::Mechanism;
use crate::pass::Pass;
use crate::piggyback;
use crate::preemption;
use crate::queues::Line;
use crate::reason::Reason;
use crate::span::{Cut, Span, next_span};
use crate::split::{Share, Split};
use crate::view::{RequestView, View};
use crate::warm_up;
use duet_types::{Class, LaneSet, Nanos, Stage, Tokens};
use std::collections::BTreeMap;

/// The paper's policy.
#[derive(Debug, Default)]
pub struct AgentXpu {
    prefill: Pipeline,
    variant: Variant,
}

/// To the letter, or with what `duet` adds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Variant {
    /// Proactive decode joins a reactive batch up to `B_cap`. (Algorithm 2)
    #[default]
    Paper,
    /// It joins while predicted cost allows, no stream stops for long, and overdue work has its share.
    Duet,
}

/// The prefill pipeline: which rows of the current node go to which lane.
#[derive(Debug, Default)]
pub(crate) struct Pipeline {
    splits: BTreeMap<PassId, Split>,
}

/// How a token-wise node is shared between the lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// Both lanes end together. (Algorithm 1, scenario 1)
    Balanced,
    /// Chunks on the static lane, the remainder put off. (Algorithm 1, scenario 2)
    KeepOffDecode,
    /// Chunks on the static lane, the remainder on the dynamic one at once.
    Affinity,
    /// Everything on the dynamic lane.
    DynamicOnly,
}

impl AgentXpu {
    /// With what `duet` adds.
    pub(crate) fn for_duet() -> Self {
        Self { prefill: Pipeline::default(), variant: Variant::Duet }
    }
}

impl Policy for AgentXpu {
    fn decide(&mut self, view: &View<'_>) -> Option<Decision> {
        self.prefill.forget_ended(view);
        begin(view).or_else(|| warm_up::next(view)).or_else(|| {
            // Prefill kernels for the static lane hinder nobody; for the dynamic lane the order decides.
            let late = self.variant == Variant::Duet && arbitration::decode_is_late(view);
            let order = if late { [Claim::Decode, Claim::Prefill] } else { arbitration::order(view) };
            self.owed(view).or_else(|| {
                order.into_iter().find_map(|claim| match claim {
                    Claim::Prefill => self.prefill(view),
                    Claim::Decode => self.decode(view),
                })
            })
        })
    }

    fn admission(&self) -> Admission {
        Admission::ByClass
    }
}

impl AgentXpu {
    /// The share of overdue work where its privileges do not help, since reactive prefill has the dynamic lane all the
    /// time. (§4.5 ③ has no bound)
    fn owed(&mut self, view: &View<'_>) -> Option<Decision> {
        let oldest = view.oldest_overdue().filter(|_| self.variant == Variant::Duet)?;
        let lane = LaneSet::from_iter([view.decode_lane()]);
        if !view.owes(Nanos(view.config().limits.preempt.0 / 2)) || !view.idle().contains_all(lane) {
            return None;
        }
        match oldest.stage() {
            Stage::Prefill => whole_kernel(view, candidate(view, Class::Proactive)?, lane, Reason::Owed),
            Stage::Decode | Stage::Verify => self.owed_decode(view, oldest),
        }
    }

    /// The iteration under way, or the next one if it takes the oldest overdue request along; else one of overdue
    /// requests, since it would not if the batch is full, or if it must be alone.
    fn owed_decode(&self, view: &View<'_>, oldest: RequestView<'_>) -> Option<Decision> {
        let under_way = view.passes().any(|pass| pass.stage == Stage::Decode);
        let rides = |candidate: &Candidate<'_>| candidate.pass().members.iter().any(|m| m.request == oldest.id());
        if under_way || self.new_batch(view).is_some_and(|(candidate, _)| rides(&candidate)) {
            return self.decode(view);
        }
        let overdue = view.queue(Line::Decode, Class::Proactive).filter(|request| view.is_overdue(request));
        let batch = batching::only_company(overdue.take(view.config().limits.batch).collect());
        let members = batch.iter().map(|request| request.member(Tokens(1))).collect();
        let lane = LaneSet::from_iter([view.decode_lane()]);
        let cut = preemption::within_bound(view, Stage::Decode);
        Some(Candidate::drafted(view, members)?.launch_cut(view, cut, lane, Reason::Owed))
    }

    /// The next prefill kernel: of the reactive request, or of the proactive one if there is none; and of an overdue one
    /// beside the reactive one. (§4.3 ①, §4.4 ②, §4.5 ③)
    fn prefill(&mut self, view: &View<'_>) -> Option<Decision> {
        let (reactive, proactive) = (candidate(view, Class::Reactive), candidate(view, Class::Proactive));
        let overdue = proactive.as_ref().is_some_and(|candidate| is_overdue(view, candidate.pass()));
        let runs_on = |candidate: &Candidate<'_>| matches!(candidate, Candidate::UnderWay(_));
        match (reactive, proactive) {
            (Some(_), Some(proactive)) if !view.has(Mechanism::Preemption) && runs_on(&proactive) => {
                self.prefill.next(view, proactive, Sharing::Affinity)
            }
            (Some(reactive), Some(proactive)) if overdue => {
                let next = self.prefill.next(view, reactive, Sharing::Affinity);
                next.or_else(|| self.prefill.next(view, proactive, Sharing::DynamicOnly))
            }
            (Some(reactive), _) => self.prefill.next(view, reactive, reactive_sharing(view)),
            (None, Some(proactive)) => self.prefill.next(view, proactive, Sharing::Affinity),
            (None, None) => None,
        }
    }

    /// The next decode kernel: of the iteration under way, or of a new batch. (§4.3 ②, §4.4 ③, §4.5 ②)
    fn decode(&self, view: &View<'_>) -> Option<Decision> {
        let under_way = view.passes().find(|pass| pass.stage == Stage::Decode);
        let (candidate, reason) = match under_way {
            Some(pass) if pass.is_idle() => {
                (Candidate::UnderWay(pass), if pass.interrupted { Reason::Resumes } else { Reason::GoesOn })
            }
            Some(_) => return None,
            None => self.new_batch(view)?,
        };
        let pass = candidate.pass();
        let lanes = decode_lanes(view)?;
        let bound = annotation::pass_bound(&view.config().heg, view.config().machine.anchors(lanes), &pass.load);
        // An iteration that a reactive request waits to join goes on as if it were its own.
        let joins = view.queue(Line::Decode, Class::Reactive).next().is_some();
        let class = if joins { Class::Reactive } else { pass.class };
        if contention::must_wait(view, class, bound) {
            return None;
        }
        // Short enough that a prefill kernel, of whatever class, gets the lane soon.
        let cut = if lanes.len() == 1 || view.has(Mechanism::Preemption) {
            preemption::within_bound(view, Stage::Decode)
        } else {
            Cut::Whole
        };
        Some(candidate.launch_cut(view, cut, lanes, reason))
    }

    fn new_batch<'a>(&self, view: &View<'a>) -> Option<(Candidate<'a>, Reason)> {
        let batch = match self.variant {
            Variant::Paper => batching::next_batch(view),
            Variant::Duet => batching::unmixed_batch(view),
        };
        let mut members: Vec<Member> = batch.iter().map(|request| request.member(Tokens(1))).collect();
        let reactive = members.first()?.class == Class::Reactive;
        let reason = match (reactive, self.variant) {
            (false, _) => Reason::FillsGap,
            (true, Variant::Paper) => {
                let riders = members.iter().filter(|member| member.class == Class::Proactive).count() as u32;
                if riders > 0 { Reason::FillsBatch { riders } } else { Reason::ReactiveFirst }
            }
            (true, Variant::Duet) => {
                let lane = LaneSet::from_iter([view.decode_lane()]);
                let alone = batch[0].is_alone();
                let riders = if alone { 0 } else { piggyback::board(view, &mut members, Stage::Decode, lane) };
                if riders > 0 { Reason::Piggyback { riders } } else { Reason::ReactiveFirst }
            }
        };
        Some((Candidate::drafted(view, members)?, reason))
    }
}

/// The prefill of a class that is under way, or that is next.
fn candidate<'a>(view: &View<'a>, class: Class) -> Option<Candidate<'a>> {
    if let Some(pass) = view.pass(class, Stage::Prefill) {
        return Some(Candidate::UnderWay(pass));
    }
    let next = view.queue(Line::Prefill, class).next()?;
    Candidate::drafted(view, vec![next.member(view.config().limits.prefill_rows)])
}

fn is_overdue(view: &View<'_>, pass: &Pass) -> bool {
    pass.members.iter().filter_map(|member| view.request(member.request)).any(|request| view.is_overdue(&request))
}

fn reactive_sharing(view: &View<'_>) -> Sharing {
    match (view.has(Mechanism::Elastic), decode_status(view)) {
        (true, DecodeStatus::Idle) => Sharing::Balanced,
        (_, DecodeStatus::Busy) if view.has(Mechanism::RemainderDeferral) => Sharing::KeepOffDecode,
        _ => Sharing::Affinity,
    }
}

fn decode_status(view: &View<'_>) -> DecodeStatus {
    let waits = [Class::Reactive, Class::Proactive].into_iter().any(|class| view.queue_len(Line::Decode, class) > 0);
    let runs = view.passes().any(|pass| pass.stage == Stage::Decode);
    if waits || runs { DecodeStatus::Busy } else { DecodeStatus::Idle }
}

/// The dynamic lane; with all others, if prefill has nothing to do.
fn decode_lanes(view: &View<'_>) -> Option<LaneSet> {
    let prefills = [Class::Reactive, Class::Proactive].into_iter().any(|class| candidate(view, class).is_some());
    if !prefills && let Some(team) = joined(view) {
        return Some(team);
    }
    if_idle(view, LaneSet::from_iter([view.decode_lane()]))
}

/// The team, if its lanes may join now.
fn joined(view: &View<'_>) -> Option<LaneSet> {
    view.team().filter(|_| view.has(Mechanism::Teams)).and_then(|team| if_idle(view, team))
}

impl Pipeline {
    /// The next kernel of a prefill pass, if a lane is idle for it.
    pub(crate) fn next(&mut self, view: &View<'_>, candidate: Candidate<'_>, sharing: Sharing) -> Option<Decision> {
        if candidate.pass().broken.is_some() {
            // It will be undone when the rest of it has ended.
            return None;
        }
        let machine = &view.config().machine;
        let (fixed, dynamic) = (view.prefill_lane(), view.decode_lane());
        if machine.lane(fixed).shapes == Shapes::Dynamic {
            return dynamic_prefill(view, candidate, sharing);
        }
        let pass = candidate.pass();
        let (fixed, dynamic) = (LaneSet::from_iter([fixed]), LaneSet::from_iter([dynamic]));
        if sharing == Sharing::DynamicOnly {
            return whole_kernel(view, candidate, dynamic, Reason::OverduePrefill);
        }
        if pass.is_between_nodes() && is_warm(view, pass) {
            return whole_kernel(view, candidate, fixed, Reason::Warm);
        }
        if view.config().heg.node(pass.node) == Node::Attention {
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

    /// How the current node is shared: decided when it begins, and kept until it ends.
    fn split(&self, view: &View<'_>, pass: &Pass, sharing: Sharing) -> Split {
        // The embeddings go with the first projection.
        let node = pass.node.max(1);
        if let Some(split) = self.splits.get(&pass.id).filter(|split| split.node == node && !pass.is_between_nodes()) {
            return *split;
        }
        let chunk = view.config().limits.chunk;
        let (count, remainder) = chunks(Tokens(pass.rows), chunk);
        let times = times(view, pass, chunk, remainder);
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

    fn forget_ended(&mut self, view: &View<'_>) {
        self.splits.retain(|pass, _| view.passes().any(|under_way| under_way.id == *pass));
    }
}

fn times(view: &View<'_>, pass: &Pass, chunk: Tokens, remainder: Tokens) -> Times {
    let config = view.config();
    let kind = config.heg.node(pass.node.max(1));
    let time = |rows: Tokens, lane| {
        let load = pass.load.part(f64::from(rows.0) / f64::from(pass.rows));
        annotation::node_time(&config.heg, &config.machine.lane(lane).anchors, &load, kind)
    };
    let dynamic = view.decode_lane();
    Times {
        chunk_static: time(chunk, view.prefill_lane()),
        chunk_dynamic: time(chunk, dynamic),
        remainder: if remainder == Tokens::ZERO { Nanos::ZERO } else { time(remainder, dynamic) },
    }
}

/// Attention of a prefill, on the dynamic lane.
fn sequence_wise(view: &View<'_>, candidate: Candidate<'_>, dynamic: LaneSet) -> Option<Decision> {
    let (pass, config) = (candidate.pass(), view.config());
    let lanes = if_idle(view, dynamic).filter(|_| pass.is_idle())?;
    let bound = annotation::bound(&config.heg, config.machine.anchors(lanes), &pass.load, Node::Attention);
    if contention::must_wait(view, pass.class, bound) {
        return None;
    }
    let cut = preemption::cut(view, pass);
    let rows = next_span(&config.heg, config.machine.anchors(lanes), pass, cut).rows;
    let nodes = pass.node..pass.node + 1;
    Some(candidate.launch(Span { nodes, rows }, lanes, Reason::Dynamic))
}

/// A prefill whose graph is ready.
fn is_warm(view: &View<'_>, pass: &Pass) -> bool {
    matches!(&pass.members[..], [member] if view.is_warm(member.request, Tokens(pass.rows)))
}

/// All rows on one lane.
fn whole_kernel(view: &View<'_>, candidate: Candidate<'_>, lanes: LaneSet, reason: Reason) -> Option<Decision> {
    let pass = candidate.pass();
    let lanes = if_idle(view, lanes).filter(|_| pass.is_idle())?;
    let config = view.config();
    let cut = match (preemption::within_bound(view, Stage::Prefill), reason) {
        (Cut::Within(bound), Reason::Warm) => Cut::BetweenNodes(bound),
        (cut, _) => cut,
    };
    let span = next_span(&config.heg, config.machine.anchors(lanes), pass, cut);
    let kind = config.heg.node(span.nodes.start);
    let bound = match span.nodes.len() {
        1 => annotation::bound(&config.heg, config.machine.anchors(lanes), &pass.load, kind),
        _ => annotation::pass_bound(&config.heg, config.machine.anchors(lanes), &pass.load),
    };
    if contention::must_wait(view, pass.class, bound) {
        return None;
    }
    Some(candidate.launch(span, lanes, reason))
}

/// Prefill on lanes that take any shape: the prefill lane, or the team while decode is idle.
fn dynamic_prefill(view: &View<'_>, candidate: Candidate<'_>, sharing: Sharing) -> Option<Decision> {
    let pass = candidate.pass();
    if !pass.is_idle() {
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
        let cut = preemption::cut(view, pass);
        return Some(candidate.launch_cut(view, cut, team, Reason::Joined));
    }
    let reason = match (pass.class, pass.interrupted) {
        (Class::Reactive, _) => Reason::KeepsOffDecode,
        (Class::Proactive, true) => Reason::Resumes,
        (Class::Proactive, false) => Reason::Background,
    };
    whole_kernel(view, candidate, LaneSet::from_iter([view.prefill_lane()]), reason)
}
