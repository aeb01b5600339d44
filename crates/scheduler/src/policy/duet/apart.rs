//! duet on an NPU and an iGPU: the paper's pipelines, with the dynamic lane kept for whoever a person waits for.
//!
//! The paper's roles stay: prefill mainly on the static lane, decode on the dynamic one, chunks, remainders and graphs
//! ([`Pipeline`]). What differs, because a person's stream is what the dynamic lane is wanted for most:
//!
//! 1. A reactive prefill has both lanes unless a *reactive* stream decodes: background decode gives way to it. The paper
//!    keeps off any decode.
//! 2. Background prefill stays off the dynamic lane while a reactive stream decodes: it begins when its graph is ready,
//!    which is compiled meanwhile, and then runs wholly on the static lane. The paper puts prefill of any class first.
//! 3. Background decode rides in a reactive batch while that is [nearly free](crate::piggyback) by prediction, however
//!    many that is; the paper counts to `B_cap`. Rows of a background prompt ride in decode passes by the same rule: a
//!    prompt for which no graph will come in time, or a second one while the static lane is taken. Until it is overdue, it
//!    is read in no other way while a reactive stream decodes.
//! 4. The shortest prompt of a class is read [first](crate::order), for as long as the others may be overtaken: a reactive
//!    one for `overtaking`, a proactive one until it is overdue.
//! 5. Background prefill has both lanes, too, if others wait behind it and nothing decodes.
//! 6. A graph is compiled for a prompt only where it will be ready before the prompt has been read without it. The paper
//!    compiles one for whoever waits.
//! 7. Two reactive prompts are read at once if one is a text for the encoder, which needs a core, and the other has a device that needs none.
//! 8. A reactive stream that has waited for half of its stall budget goes before reactive prefill, and
//!    [overdue](crate::ageing) work has its share, on whatever lane its next kernel goes to.

use super::super::pipeline::{NodeTimes, Pipeline, Sharing, is_all_static};
use super::super::{Candidate, Decision, begin, if_idle, overdue_decode};
use crate::annotation;
use crate::arbitration;
use crate::batching;
use crate::contention;
use crate::graphs::GraphState;
use crate::heg::Load;
use crate::kernel::Member;
use crate::machine::Joins;
use crate::mechanism::Mechanism;
use crate::order::{self, Order};
use crate::pass::Pass;
use crate::piggyback;
use crate::preemption;
use crate::queues::Line;
use crate::reason::Reason;
use crate::view::{RequestView, View};
use crate::warm_up::{self, Worth};
use duet_types::{Class, LaneSet, Nanos, Net, Stage, Tokens};

/// The policy on lanes that form no team.
#[derive(Debug)]
pub(super) struct Apart {
    prefill: Pipeline,
}

impl Default for Apart {
    fn default() -> Self {
        Self { prefill: Pipeline::by(NodeTimes::Launched) }
    }
}

impl Apart {
    /// The next thing to do.
    pub(super) fn decide(&mut self, view: &View<'_>) -> Option<Decision> {
        self.prefill.forget_ended(view);
        let late = arbitration::decode_is_late(view, Class::Reactive);
        begin(view, ORDER, READERS)
            .or_else(|| warm_up::next(view, ORDER, Worth::InTime))
            .or_else(|| self.owed(view))
            .or_else(|| if late { decode(view, Class::Reactive) } else { None })
            .or_else(|| self.reactive_prefill(view))
            .or_else(|| self.background_prefill(view))
            .or_else(|| decode(view, Class::Reactive))
            .or_else(|| if wants_dynamic_lane(view) { None } else { decode(view, Class::Proactive) })
    }

    fn reactive_prefill(&mut self, view: &View<'_>) -> Option<Decision> {
        let candidate = prefill(view, Class::Reactive)?;
        let beside = beside(view, &candidate);
        let next = self.prefill.next(view, candidate, reactive_sharing(view));
        next.or_else(|| self.prefill.next(view, beside?, reactive_sharing(view)))
    }

    /// The next kernel of a background prefill, when no reactive one is there.
    fn background_prefill(&mut self, view: &View<'_>) -> Option<Decision> {
        if view.has(Mechanism::Preemption) && prefill(view, Class::Reactive).is_some() {
            return None;
        }
        let candidate = background(view)?;
        let reader = candidate.pass().members.first().and_then(|member| view.request(member.request));
        let waits = reader.is_some_and(|request| graph_is_coming(view, &request));
        let next = self.prefill.next(view, candidate, background_sharing(view))?;
        let (Decision::Launch { lanes, .. } | Decision::Start { lanes, .. }) = &next else { return Some(next) };
        let dynamic = view.config().machine.dynamic();
        let keeps_off = dynamic.contains_all(*lanes) && decodes(view, Class::Reactive) && waits;
        (!keeps_off).then_some(next)
    }

    /// The share of overdue work, where reactive work would have the lanes all the time: a kernel of its prefill on
    /// whatever lane that goes to, or of its decode.
    fn owed(&mut self, view: &View<'_>) -> Option<Decision> {
        let oldest = view.oldest_overdue()?;
        if !view.owes(Nanos(view.config().limits.preempt.0 / 2)) {
            return None;
        }
        match oldest.stage() {
            Stage::Prefill => {
                let candidate = prefill(view, Class::Proactive)?;
                self.prefill.next(view, candidate, Sharing::Affinity).map(Decision::into_owed)
            }
            Stage::Decode | Stage::Verify => {
                let lanes = if_idle(view, decode_lanes(view, Class::Proactive))?;
                owed_decode(view, &oldest, lanes)
            }
        }
    }
}

const ORDER: Order = Order::ShortestFirst;
/// Background prompts that are read at once: one on the static lane, and one that rides.
const READERS: usize = 2;

/// The prefill of a class that is under way, or that is next.
fn prefill<'a>(view: &View<'a>, class: Class) -> Option<Candidate<'a>> {
    if let Some(pass) = view.pass(class, Stage::Prefill) {
        return Some(Candidate::UnderWay(pass));
    }
    let next = order::firsts(view, Line::Prefill, class, ORDER, 1).into_iter().next()?;
    Candidate::drafted(view, vec![next.member(view.config().limits.prefill_rows)])
}

/// The reactive prefill of the other model that goes on while one has no lane. Texts for the encoder need a core, and a device that
/// reads prompts without any would wait with them, or they with it.
fn beside<'a>(view: &View<'a>, first: &Candidate<'_>) -> Option<Candidate<'a>> {
    let net = first.pass().load.net;
    let reads = |pass: &&Pass| (pass.class, pass.buffer) == (Class::Reactive, Stage::Prefill) && pass.load.net != net;
    if let Some(pass) = view.passes().find(reads) {
        return Some(Candidate::UnderWay(pass));
    }
    let machine = &view.config().machine;
    let device = machine.prefill_lane();
    let needs_no_core = !machine.is_static(device) && machine.lane(device).capabilities.joins != Joins::Crew;
    if !needs_no_core || view.prefill_lane() != device {
        return None;
    }
    let ready = order::firsts(view, Line::Prefill, Class::Reactive, ORDER, order::WINDOW);
    let next = ready.iter().find(|request| request.net() != net)?;
    Candidate::drafted(view, vec![next.member(view.config().limits.prefill_rows)])
}

/// The background prefill that is under way, or that is next: while a reactive stream decodes, only one whose graph is
/// ready; the others ride meanwhile, until they are overdue.
fn background<'a>(view: &View<'a>) -> Option<Candidate<'a>> {
    if let Some(pass) = view.pass(Class::Proactive, Stage::Prefill) {
        return Some(Candidate::UnderWay(pass));
    }
    let ready = order::firsts(view, Line::Prefill, Class::Proactive, ORDER, READERS);
    let rows_max = view.config().limits.prefill_rows;
    let may_begin = |request: &&RequestView<'_>| {
        let is_warm = view.is_warm(request.id(), request.member(rows_max).len());
        let must = view.is_overdue(request) && !graph_is_coming(view, request);
        is_warm || must || !view.has(Mechanism::Piggyback) || !decodes(view, Class::Reactive)
    };
    Candidate::drafted(view, vec![ready.iter().find(may_begin)?.member(rows_max)])
}

/// On the static lane, which needs less energy; on both, if others wait behind it and nothing decodes.
fn background_sharing(view: &View<'_>) -> Sharing {
    let waiting = view.queue_len(Line::Queued, Class::Proactive) + view.queue_len(Line::Prefill, Class::Proactive);
    // The one that would begin stands in the queue itself.
    let others = waiting > usize::from(view.pass(Class::Proactive, Stage::Prefill).is_none());
    let decodes = [Class::Reactive, Class::Proactive].into_iter().any(|class| decodes(view, class));
    if others && !decodes && view.has(Mechanism::Elastic) { Sharing::Balanced } else { Sharing::Affinity }
}

/// The background prompt that rides in decode passes: one that has begun to, or else the longest of those that wait for
/// the static lane. The only one waits.
fn rider<'a>(view: &View<'a>) -> Option<RequestView<'a>> {
    let ready = order::firsts(view, Line::Prefill, Class::Proactive, ORDER, READERS);
    let cannot_be_static = |request: &&RequestView<'_>| {
        !matches!(view.graph(request.id()), Some(GraphState::Preparing | GraphState::Ready { .. }))
    };
    let riding = ready.iter().find(cannot_be_static);
    riding.or(ready.last().filter(|_| ready.len() == READERS)).filter(|request| !request.is_alone()).copied()
}

/// Both lanes, unless a reactive stream needs the dynamic one.
fn reactive_sharing(view: &View<'_>) -> Sharing {
    match (decodes(view, Class::Reactive), view.has(Mechanism::Elastic)) {
        (false, true) => Sharing::Balanced,
        (true, _) if view.has(Mechanism::RemainderDeferral) => Sharing::KeepOffDecode,
        _ => Sharing::Affinity,
    }
}

/// Whether a request of this class decodes, or is about to; one that waits for memory is not.
fn decodes(view: &View<'_>, class: Class) -> bool {
    view.queue(Line::Decode, class).next().is_some() || view.pass(class, Stage::Decode).is_some()
}

/// Whether a reactive prefill will want the dynamic lane for its next node: background decode that began now would make
/// it wait.
fn wants_dynamic_lane(view: &View<'_>) -> bool {
    prefill(view, Class::Reactive).is_some_and(|candidate| !is_all_static(view, candidate.pass()))
}

/// Whether a graph for a prompt is being compiled, and is worth waiting for: it takes less time than the prompt does, or
/// than a stream may stop.
fn graph_is_coming(view: &View<'_>, request: &RequestView<'_>) -> bool {
    let fixed = view.prefill_lane();
    let Some(exact) = view.config().machine.lane(fixed).capabilities.exact else { return false };
    let load = Load::of([&request.member(view.config().limits.prefill_rows)]);
    let reading = view.predict_pass(&load, Stage::Prefill, LaneSet::from_iter([fixed]));
    let compile = exact.ready_after(request.rows_left());
    view.graph(request.id()) == Some(GraphState::Preparing) && compile <= reading.max(view.config().limits.decode_stall)
}

/// The next decode kernel, if a request of this class decodes: of the iteration under way, whoever it is for, or of a new
/// batch. One that stopped in the middle would hold its members, who could not ride in the next one.
fn decode(view: &View<'_>, class: Class) -> Option<Decision> {
    if !decodes(view, class) {
        return None;
    }
    let lane = if_idle(view, decode_lanes(view, class))?;
    let (candidate, reason) = match view.passes().find(|pass| pass.buffer == Stage::Decode) {
        Some(pass) if pass.can_go_on() => {
            (Candidate::UnderWay(pass), if pass.interrupted { Reason::Resumes } else { Reason::GoesOn })
        }
        Some(_) => return None,
        None => batch(view, class, lane)?,
    };
    let config = view.config();
    let bound = annotation::pass_bound(
        config.graph(candidate.pass().load.net),
        config.machine.anchors(lane),
        &candidate.pass().load,
    );
    // A stream that waits for the background's iteration to end waits for it as for its own.
    if contention::must_wait(view, class.min(candidate.pass().class), lane, bound) {
        return None;
    }
    let cut = preemption::within_bound(view, candidate.pass().kind(), lane);
    Some(candidate.launch_cut(view, cut, lane, reason))
}

/// Where a class decodes: the team of dynamic lanes that is predicted to be quickest with its rows.
fn decode_lanes(view: &View<'_>, class: Class) -> LaneSet {
    let (load, node) = match view.passes().find(|pass| pass.buffer == Stage::Decode) {
        Some(pass) => (pass.load, pass.node),
        None => {
            let batch = batching::of_class(view, class);
            (view.load(&batch.iter().map(|request| request.member(Tokens(1))).collect::<Vec<_>>()), 0)
        }
    };
    view.dynamic_lanes(&load, Stage::Decode, &view.stretch(Net::Decoder, node))
}

/// The iteration under way, or the next one if it takes the oldest overdue request along; else one of overdue requests.
fn owed_decode(view: &View<'_>, oldest: &RequestView<'_>, lane: LaneSet) -> Option<Decision> {
    let under_way = view.passes().any(|pass| pass.buffer == Stage::Decode);
    let class = if decodes(view, Class::Reactive) { Class::Reactive } else { Class::Proactive };
    let rides = |candidate: &Candidate<'_>| candidate.pass().members.iter().any(|m| m.request == oldest.id());
    if under_way || batch(view, class, lane).is_some_and(|(candidate, _)| rides(&candidate)) {
        return decode(view, class);
    }
    // It would not ride if the batch is full, or if it must be alone.
    overdue_decode(view, lane)
}

fn batch<'a>(view: &View<'a>, class: Class, lane: LaneSet) -> Option<(Candidate<'a>, Reason)> {
    let batch = batching::of_class(view, class);
    let mut members: Vec<Member> = batch.iter().map(|request| request.member(Tokens(1))).collect();
    if batch.first()?.is_alone() {
        return Some((Candidate::drafted(view, members)?, Reason::ReactiveFirst));
    }
    let decoding = members.len();
    if class == Class::Reactive {
        piggyback::board(view, &mut members, Stage::Decode, lane);
    }
    if let Some(reader) = rider(view) {
        piggyback::read_along(view, &mut members, &reader, lane);
    }
    let reason = match (class, (members.len() - decoding) as u32) {
        (Class::Proactive, 0) => Reason::FillsGap,
        (Class::Proactive, riders) => Reason::SharesWeights { riders },
        (Class::Reactive, 0) => Reason::ReactiveFirst,
        (Class::Reactive, riders) => Reason::Piggyback { riders },
    };
    Some((Candidate::drafted(view, members)?, reason))
}
