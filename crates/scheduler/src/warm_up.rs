//! On-the-fly warm-up of static graphs. (Agent.xpu §4.3 ⑤)
//!
//! The length of a prompt is known when it is queued, so a static graph for exactly this prompt, attention included,
//! can be compiled while the request waits, or while it is preempted. If it is ready before its prefill starts (or goes
//! on), the prefill runs wholly on the static lane and leaves the dynamic one to decode. Reactive requests come first.
//! A graph is reclaimed when its prefill is done, and when it was not used for too long.
//!
//! The paper compiles a graph for whoever waits. Where compiling takes longer than the prompts before it and the prompt
//! itself, it only takes the machine's time, so duet leaves it ([`Worth::InTime`]).

use crate::annotation::node_time;
use crate::decision::Decision;
use crate::drift::Kind;
use crate::graphs::GraphState;
use crate::heg::Load;
use crate::machine::{Covers, ExactGraphs};
use crate::mechanism::Mechanism;
use crate::order::{self, Order};
use crate::preemption::within_bound;
use crate::queues::Line;
use crate::reason::Reason;
use crate::request_table::Phase;
use crate::span::Cut;
use crate::view::{RequestView, View};
use duet_types::{Class, LaneSet, Nanos, Net, NodeKind, RequestId, Stage};

/// For whom graphs are compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worth {
    /// For whoever waits. (The paper's)
    Always,
    /// For those whose graphs are predicted to be ready before they have been read without. (Ours)
    InTime,
}

/// What is to be prepared or reclaimed now.
///
/// The requests that will be read next come first, in the policy's order.
pub(crate) fn next(view: &View<'_>, order: Order, worth: Worth) -> Option<Decision> {
    // A dynamic lane is always warm, and some lanes never are.
    let exact = view.config().machine.lane(view.prefill_lane()).capabilities.exact?;
    expire(view).or_else(|| prepare(view, order, worth, &exact))
}

fn prepare(view: &View<'_>, order: Order, worth: Worth, exact: &ExactGraphs) -> Option<Decision> {
    if !view.has(Mechanism::WarmUp) || view.graphs().count() >= view.config().limits.graphs {
        return None;
    }
    let waiting = [Class::Reactive, Class::Proactive].into_iter().flat_map(|class| {
        // One whose pass was interrupted is preempted: its graph can take over at the next layer.
        let interrupted = view.pass(class, Stage::Prefill).filter(|pass| pass.was_interrupted());
        let preempted = interrupted.into_iter().flat_map(|pass| &pass.members).filter_map(|m| view.request(m.request));
        let queues = [Line::Prefill, Line::Queued]
            .into_iter()
            .flat_map(move |line| order::firsts(view, line, class, order, view.config().limits.graphs));
        preempted.chain(queues).filter(|request| request.stage() == Stage::Prefill && request.net() == Net::Decoder)
    });
    let mut read_by = under_way(view);
    let next = waiting.take(view.config().limits.graphs).find(|request| {
        read_by += reading(view, request);
        let in_time = match worth {
            Worth::Always => true,
            Worth::InTime => exact.ready_after(request.rows_left()) <= read_by,
        };
        in_time && view.graph(request.id()).is_none() && may_be_static(view, request, exact)
    })?;
    Some(Decision::Prepare(next.id()))
}

/// How long the prompts still take that are being read.
fn under_way(view: &View<'_>) -> Nanos {
    let lanes = LaneSet::from_iter([view.prefill_lane()]);
    let reads = view.passes().filter(|pass| pass.stage == Stage::Prefill && !pass.was_interrupted());
    reads
        .map(|pass| {
            view.predict(&pass.load, Stage::Prefill, &(pass.node..view.config().graph(pass.load.net).nodes()), lanes)
        })
        .sum()
}

/// How long a prompt takes to be read.
fn reading(view: &View<'_>, request: &RequestView<'_>) -> Nanos {
    let load = Load::of([&request.member(view.config().limits.prefill_rows)]);
    view.predict_pass(&load, Stage::Prefill, LaneSet::from_iter([view.prefill_lane()]))
}

/// Whether it is worth a graph that takes all rows of a node at once. Nothing preempts a reactive prompt; a proactive one has to
/// keep the bound on preemption: its attention cannot be cut, and token-wise nodes that are cut run on the graphs of chunks, so
/// that one of their own would stand by.
fn may_be_static(view: &View<'_>, request: &RequestView<'_>, exact: &ExactGraphs) -> bool {
    if request.class() == Class::Reactive {
        return true;
    }
    let config = view.config();
    let load = Load::of([&request.member(config.limits.prefill_rows)]);
    let lane = view.prefill_lane();
    let time = |kind| node_time(&config.heg, &config.machine.lane(lane).anchors, &load, kind);
    match exact.covers {
        Covers::Layers => time(NodeKind::Attention) <= config.limits.preempt,
        Covers::TokenWise => {
            let kind = Kind { net: Net::Decoder, stage: Stage::Prefill, rows: load.rows };
            let Cut::Within(bound) = within_bound(view, kind, LaneSet::from_iter([lane])) else {
                return true;
            };
            let token_wise = config.heg.order().kinds().filter(|(kind, _)| *kind != NodeKind::Attention);
            token_wise.into_iter().all(|(kind, _)| time(kind) <= bound)
        }
    }
}

fn expire(view: &View<'_>) -> Option<Decision> {
    if !view.has(Mechanism::GraphReclaim) {
        return None;
    }
    let expiry = view.config().limits.graph_expiry;
    let mut soonest = None;
    for (request, state) in view.graphs() {
        let GraphState::Ready { since } = state else { continue };
        // One that is used now is looked at again when its pass ends.
        if is_in_pass(view, request) {
            continue;
        }
        if view.now() - since >= expiry || is_stale(view, request) {
            return Some(Decision::Reclaim(request));
        }
        soonest = soonest.into_iter().chain([since + expiry]).min();
    }
    let until = soonest?;
    view.timer_missing(until).then_some(Decision::Wait { until, reason: Reason::Expiry })
}

/// Whether some of its prompt was read without the graph, which takes all of it.
fn is_stale(view: &View<'_>, request: RequestId) -> bool {
    let request = view.request(request).filter(|request| request.phase() == Phase::Ready);
    request.is_some_and(|request| !view.is_warm(request.id(), request.rows_left()))
}

fn is_in_pass(view: &View<'_>, request: RequestId) -> bool {
    let request = view.request(request);
    request.is_some_and(|request| matches!(request.phase(), Phase::InPass(_)))
}
