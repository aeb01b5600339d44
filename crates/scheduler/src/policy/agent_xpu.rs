//! Agent.xpu, as the paper describes it. (§4.3-4.5)
//!
//! Prefill and decode are two pipelines. Prefill takes one request at a time, all of its prompt layer by layer, mainly
//! on the static lane; decode is batched on the dynamic lane. A reactive prefill goes before a proactive one, at kernel
//! boundaries, and uses both lanes while decode is idle.
//!
//! On a machine whose lanes are all dynamic (two sets of cores) there are no chunks and no remainders, a graph is never
//! missing, and a kernel that both lanes share is one kernel of their team: the same policy, with less to decide.
//!
//! Where it is not the paper's letter:
//!
//! - While an overdue prompt is read beside a reactive one, the reactive remainder still goes to the dynamic lane, when
//!   that is idle; the paper reads it on the static lane only.
//! - The times by which a node is divided count neither launches nor how the machine is lately.
//! - On one lane (there is no other, or it was lost) the paper's privileges mean nothing, since there is no lane beside
//!   the reactive work. There overdue work has the [share](crate::ageing) that it has under `duet`.
//!
//! Reactive prompts are read in the order of arrival, so none is overtaken. There is no bound on the gap between two
//! tokens: prefill goes first, and where prompts keep the dynamic lane busy for good, decode waits for as long.

use super::pipeline::{Pipeline, Sharing, decode_status, joined};
use super::{Admission, Candidate, Decision, Policy, begin, if_idle, overdue_decode};
use crate::annotation;
use crate::arbitration::{self, Claim};
use crate::batching;
use crate::contention;
use crate::elastic::DecodeStatus;
use crate::kernel::Member;
use crate::mechanism::Mechanism;
use crate::order::Order;
use crate::pass::Pass;
use crate::preemption;
use crate::queues::Line;
use crate::reason::Reason;
use crate::span::Cut;
use crate::view::View;
use crate::warm_up::{self, Worth};
use duet_types::{Class, LaneSet, Nanos, Net, Stage, Tokens};

/// The paper's policy.
#[derive(Debug, Default)]
pub struct AgentXpu {
    prefill: Pipeline,
}

impl Policy for AgentXpu {
    fn decide(&mut self, view: &View<'_>) -> Option<Decision> {
        self.prefill.forget_ended(view);
        begin(view, Order::Arrival, 1)
            .or_else(|| warm_up::next(view, Order::Arrival, Worth::Always))
            .or_else(|| self.owed(view))
            .or_else(|| {
                // Prefill kernels for the static lane hinder nobody; for the dynamic lane the order decides.
                arbitration::order(view).into_iter().find_map(|claim| match claim {
                    Claim::Prefill => self.prefill(view),
                    Claim::Decode => decode(view),
                })
            })
    }

    fn admission(&self) -> Admission {
        Admission::ByClass
    }
}

impl AgentXpu {
    /// The share of overdue work where one lane is all there is: a kernel of its prefill or its decode, between those of
    /// reactive work.
    fn owed(&mut self, view: &View<'_>) -> Option<Decision> {
        let lane = if_idle(view, view.only_lane()?)?;
        let oldest = view.oldest_overdue()?;
        if !view.owes(Nanos(view.config().limits.preempt.0 / 2)) {
            return None;
        }
        if oldest.stage() == Stage::Prefill {
            let candidate = candidate(view, Class::Proactive)?;
            return self.prefill.next(view, candidate, Sharing::Affinity).map(Decision::into_owed);
        }
        // An iteration under way is in its way, and the next one takes it along unless it is full.
        let under_way = view.passes().any(|pass| pass.stage != Stage::Prefill);
        let rides = batching::next_batch(view).iter().any(|request| request.id() == oldest.id());
        if under_way || rides { decode(view).map(Decision::into_owed) } else { overdue_decode(view, lane) }
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
}

/// The next decode kernel: of the iteration under way, or of a new batch. (§4.3 ②, §4.4 ③, §4.5 ②)
fn decode(view: &View<'_>) -> Option<Decision> {
    let under_way = view.passes().find(|pass| pass.stage != Stage::Prefill);
    let (candidate, reason) = match under_way {
        Some(pass) if pass.can_go_on() => {
            (Candidate::UnderWay(pass), if pass.interrupted { Reason::Resumes } else { Reason::GoesOn })
        }
        Some(_) => return None,
        None => new_batch(view)?,
    };
    let pass = candidate.pass();
    let lanes = decode_lanes(view, pass.node)?;
    let bound =
        annotation::pass_bound(view.config().graph(pass.load.net), view.config().machine.anchors(lanes), &pass.load);
    // An iteration that a reactive request waits to join goes on as if it were its own.
    let joins = view.queue(Line::Decode, Class::Reactive).next().is_some();
    let class = if joins { Class::Reactive } else { pass.class };
    if contention::must_wait(view, class, lanes, bound) {
        return None;
    }
    // Short enough that a prefill kernel, of whatever class, gets the lane soon.
    let cut = if lanes.len() == 1 || view.has(Mechanism::Preemption) {
        preemption::within_bound(view, pass.kind(), lanes)
    } else {
        Cut::Whole
    };
    Some(candidate.launch_cut(view, cut, lanes, reason))
}

fn new_batch<'a>(view: &View<'a>) -> Option<(Candidate<'a>, Reason)> {
    let members: Vec<Member> = batching::next_batch(view).iter().map(|request| request.member(Tokens(1))).collect();
    let riders = members.iter().filter(|member| member.class == Class::Proactive).count() as u32;
    let reason = match members.first()?.class {
        Class::Proactive => Reason::FillsGap,
        Class::Reactive if riders > 0 => Reason::FillsBatch { riders },
        Class::Reactive => Reason::ReactiveFirst,
    };
    Some((Candidate::drafted(view, members)?, reason))
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

/// The dynamic lane; with all others, if prefill has nothing to do.
fn decode_lanes(view: &View<'_>, node: usize) -> Option<LaneSet> {
    let candidates = [Class::Reactive, Class::Proactive].into_iter().filter_map(|class| candidate(view, class));
    let prefills: Vec<Net> = candidates.map(|candidate| candidate.pass().load.net).collect();
    if prefills.is_empty()
        && let Some(team) = joined(view).filter(|&team| view.holding(team, Net::Decoder, node) == team)
    {
        return Some(team);
    }
    // A device that prompts are read on has no decode beside it; texts for the encoder are read on the cores.
    let reads = prefills.contains(&Net::Decoder);
    let igpu = Some(view.igpu_lane()).filter(|&lane| !reads || lane != view.prefill_lane());
    let lane = LaneSet::from_iter([igpu.unwrap_or_else(|| view.decode_lane())]);
    if_idle(view, view.holding(lane, Net::Decoder, node))
}
