//! duet on lanes that form a team: predicted cost in the place of fixed roles.
//!
//! On lanes that share their cores' memory and caches, a lane set apart for decode is idle whenever nobody decodes, and
//! a reactive request on half of the machine takes twice as long. So a reactive request has the whole team, and
//! background work all that is left:
//!
//! 1. A reactive pass goes before everything. Its prefill chunk takes the decode rows of the other reactive requests
//!    along, so that nobody's stream stops for somebody's prompt, and background rows that are
//!    [nearly free](crate::piggyback).
//! 2. Background passes join a prefill chunk and all decode rows, if that is predicted to be cheaper than one after the
//!    other, in kernels short enough to be [preempted](crate::preemption) at once.
//! 3. If the decode lane alone, beside what the background has to do, is predicted to decode for a reactive request nearly
//!    as fast as the team, the two run side by side, as in the paper.
//! 4. [Overdue](crate::ageing) work gets its share between reactive passes.
//! 5. While a reactive pass [waits for a disk](crate::disk_wait), background work has the lanes for that long.

use super::super::{Candidate, Decision, begin, if_idle};
use crate::annotation;
use crate::arbitration;
use crate::batching::{in_turns, only_company};
use crate::disk_wait;
use crate::heg::Load;
use crate::kernel::{Member, Span};
use crate::machine::Bound;
use crate::mechanism::Mechanism;
use crate::mirrors;
use crate::order::Order;
use crate::pass::Pass;
use crate::piggyback;
use crate::preemption;
use crate::queues::Line;
use crate::reason::Reason;
use crate::span::Cut;
use crate::view::{RequestView, View};
use duet_types::{Class, LaneSet, Stage, Tokens};

/// The next thing to do on `all` lanes as one.
pub(super) fn decide(view: &View<'_>, all: LaneSet) -> Option<Decision> {
    begin_next(view).or_else(|| side_by_side(view)).or_else(|| {
        let lanes = if_idle(view, all)?;
        owed(view, lanes).or_else(|| reactive(view, lanes)).or_else(|| background(view, lanes))
    })
}

/// The request that begins next.
pub(super) fn begin_next(view: &View<'_>) -> Option<Decision> {
    begin(view, Order::Arrival, 1)
}

/// The reactive pass under way, or the next one.
fn reactive(view: &View<'_>, lanes: LaneSet) -> Option<Decision> {
    if let Some(pass) = view.passes().find(|pass| pass.class == Class::Reactive) {
        // One that a slow lane has goes on when that has ended, and one that waits for a disk when its data is there.
        if !pass.can_go_on() {
            return None;
        }
        let lanes = quickest(view, pass, lanes);
        return Some(Candidate::UnderWay(pass).launch_cut(view, Cut::Whole, lanes, Reason::GoesOn));
    }
    let (mut members, stage) = compose(view, Class::Reactive, lanes, |_| true);
    let riders = piggyback::board(view, &mut members, stage, lanes);
    let reason = if riders > 0 { Reason::Piggyback { riders } } else { Reason::ReactiveFirst };
    let candidate = Candidate::drafted(view, members)?;
    let lanes = quickest(view, candidate.pass(), lanes);
    Some(candidate.launch_cut(view, Cut::Whole, lanes, reason))
}

/// The team among these lanes that runs a pass: all of them where they are cores, and else as many as are predicted to
/// make it sooner.
fn quickest(view: &View<'_>, pass: &Pass, lanes: LaneSet) -> LaneSet {
    // Rows of a node that are on their way stay with the team that has the others, unless it has lost a lane since.
    let stays = !pass.is_between_nodes() && lanes.contains_all(pass.lanes);
    if stays { pass.lanes } else { view.quickest(lanes, &pass.load, pass.stage, pass.node) }
}

/// The background pass under way, or the next one.
fn background(view: &View<'_>, lanes: LaneSet) -> Option<Decision> {
    let (candidate, reason) = next_background(view, lanes)?;
    let lanes = quickest(view, candidate.pass(), lanes);
    let mut cut = preemption::cut(view, candidate.pass(), lanes);
    if let Some(gap) = disk_wait::gap(view) {
        cut = gap.cut(cut);
        let span = view.next_span(candidate.pass(), lanes, cut);
        if let Err(instead) = gap.instead(view, candidate.pass(), &span, lanes) {
            return instead;
        }
    }
    Some(candidate.launch_cut(view, cut, lanes, reason))
}

fn next_background<'a>(view: &View<'a>, lanes: LaneSet) -> Option<(Candidate<'a>, Reason)> {
    if let Some(pass) = view.passes().find(|pass| pass.class == Class::Proactive) {
        let reason = if pass.interrupted { Reason::Resumes } else { Reason::GoesOn };
        return pass.can_go_on().then_some((Candidate::UnderWay(pass), reason));
    }
    let (members, stage) = compose(view, Class::Proactive, lanes, |_| true);
    let decodes = members.iter().filter(|member| member.stage == Stage::Decode).count() as u32;
    let reason = match stage {
        Stage::Prefill if decodes > 0 => Reason::SharesWeights { riders: decodes },
        _ => Reason::Background,
    };
    Some((Candidate::drafted(view, members)?, reason))
}

/// The next rows of a class: a chunk of the oldest prompt and the decode rows, together if that is cheaper.
fn compose(
    view: &View<'_>,
    class: Class,
    lanes: LaneSet,
    wanted: impl Fn(&RequestView<'_>) -> bool,
) -> (Vec<Member>, Stage) {
    let decode = only_company(in_turns(view, view.queue(Line::Decode, class).filter(&wanted)));
    let is_late = decode.iter().any(|request| arbitration::is_late(view, request));
    let decode: Vec<Member> = decode.iter().map(|request| request.member(Tokens(1))).collect();
    let Some(reading) = view.queue(Line::Prefill, class).find(|request| wanted(request)) else {
        return (decode, Stage::Decode);
    };
    let chunk = reading.member(chunk_rows(view, &reading, &decode, lanes));
    let alone = reading.is_alone() || decode.first().is_some_and(|first| must_be_alone(view, first));
    if alone || decode.is_empty() || !is_cheaper_together(view, &chunk, &decode, lanes) {
        return if is_late { (decode, Stage::Decode) } else { (vec![chunk], Stage::Prefill) };
    }
    (std::iter::once(chunk).chain(decode).collect(), Stage::Prefill)
}

fn must_be_alone(view: &View<'_>, member: &Member) -> bool {
    view.request(member.request).is_some_and(|request| request.is_alone())
}

/// Rows of the next chunk: as many as a buffer holds, and fewer if streams would stop for too long.
fn chunk_rows(view: &View<'_>, reading: &RequestView<'_>, decode: &[Member], lanes: LaneSet) -> Tokens {
    let limits = &view.config().limits;
    // The riders' rows are in the same buffer.
    let buffer = limits.prefill_rows.saturating_sub(Tokens(decode.len() as u32)).max(Tokens(1));
    let most = limits.chunk.min(buffer).min(reading.rows_left());
    if decode.is_empty() {
        return most;
    }
    let time = |rows: Tokens| {
        let load = decode.iter().fold(Load::of([&reading.member(rows)]), |load, member| load.with(member));
        view.predict_pass(&load, Stage::Prefill, lanes)
    };
    let mut rows = most;
    while time(rows) > limits.decode_stall && rows > CHUNK_MIN {
        rows = Tokens(rows.0 / 2).max(CHUNK_MIN);
    }
    rows
}

/// Below this a chunk reads the weights for little work.
const CHUNK_MIN: Tokens = Tokens(16);

fn is_cheaper_together(view: &View<'_>, chunk: &Member, decode: &[Member], lanes: LaneSet) -> bool {
    let (prefill, tokens) = (view.load(std::slice::from_ref(chunk)), view.load(decode));
    let together = decode.iter().fold(prefill, |load, member| view.load_with(load, member));
    let apart = view.predict_pass(&prefill, Stage::Prefill, lanes) + view.predict_pass(&tokens, Stage::Decode, lanes);
    view.predict_pass(&together, Stage::Prefill, lanes) <= apart
}

/// A kernel of overdue work, if it is owed one and reactive work would go before it. The oldest overdue request decides
/// what runs: work of younger ones that is not overdue is not paid for.
fn owed(view: &View<'_>, lanes: LaneSet) -> Option<Decision> {
    let oldest = view.oldest_overdue()?;
    if !reactive_waits(view) {
        return None;
    }
    let candidate = match view.passes().find(|pass| pass.class == Class::Proactive) {
        Some(pass) if pass.can_go_on() => Candidate::UnderWay(pass),
        Some(_) => return None,
        None => {
            let decodes = oldest.stage() == Stage::Decode;
            let (members, _) = compose(view, Class::Proactive, lanes, |request| {
                view.is_overdue(request) && !(decodes && request.stage() == Stage::Prefill)
            });
            Candidate::drafted(view, members)?
        }
    };
    let pass = candidate.pass();
    let lanes = quickest(view, pass, lanes);
    let cut = preemption::within_bound(view, pass.kind(), lanes);
    let span = view.next_span(pass, lanes, cut);
    let time = view.on_lanes(pass, &Span { rows: 0..pass.rows, ..span.clone() }, lanes);
    view.owes(time).then(|| candidate.launch(span, lanes, Reason::Owed))
}

fn reactive_waits(view: &View<'_>) -> bool {
    let ready =
        [Line::Prefill, Line::Decode].into_iter().any(|line| view.queue(line, Class::Reactive).next().is_some());
    ready || view.passes().any(|pass| pass.class == Class::Reactive)
}

/// Reactive decode on its lane and background work on the other, while that is predicted to cost the reactive side next to
/// nothing.
fn side_by_side(view: &View<'_>) -> Option<Decision> {
    let team = view.team()?;
    if view.queue(Line::Prefill, Class::Reactive).next().is_some() {
        return None;
    }
    let [prefill_lane, decode_lane] = [view.prefill_lane(), view.decode_lane()].map(|lane| LaneSet::from_iter([lane]));
    if view.passes().any(|pass| pass.class == Class::Reactive && pass.stage == Stage::Prefill) {
        return None;
    }
    let whole = 0..view.config().heg.nodes();
    if ![prefill_lane, decode_lane].iter().all(|&lane| view.computes(lane, &Load::default(), &whole)) {
        return None;
    }
    let under_way = view.pass(Class::Reactive, Stage::Decode);
    let members: Vec<Member> = match under_way {
        Some(pass) => pass.members.clone(),
        None => compose(view, Class::Reactive, team, |_| true).0,
    };
    let load = mirrors::spread(view.load(&members));
    let [prefill_lane, decode_lane] = roles(view, &load, [prefill_lane, decode_lane]);
    if members.is_empty() || !is_bearable(view, &load, [decode_lane, prefill_lane], team) {
        return None;
    }
    let decode = match under_way {
        Some(pass) if pass.can_go_on() => Some(Candidate::UnderWay(pass)),
        Some(_) => None,
        None => Candidate::drafted(view, members),
    };
    if let (Some(decode), Some(lanes)) = (decode, if_idle(view, decode_lane)) {
        return Some(decode.launch_cut(view, Cut::Whole, lanes, Reason::SideBySide));
    }
    let (candidate, _) = next_background(view, if_idle(view, prefill_lane)?)?;
    let pass = candidate.pass();
    let lanes = if_idle(view, view.holding(prefill_lane, pass.load.net, pass.node))?;
    let cut = preemption::cut(view, candidate.pass(), lanes);
    Some(candidate.launch_cut(view, cut, lanes, Reason::SideBySide))
}

/// The lanes of prefill and of decode: decode has the other one where that is quicker, which a GPU beside a few cores may be.
fn roles(view: &View<'_>, load: &Load, [prefill, decode]: [LaneSet; 2]) -> [LaneSet; 2] {
    let time = |lanes| view.predict_pass(load, Stage::Decode, lanes);
    if time(prefill) < time(decode) { [decode, prefill] } else { [prefill, decode] }
}

/// Whether decode on its lane, beside the background's work on another, is as quick as on whichever lanes it would have
/// alone, or nearly. Two that read memory share it, so a background that decodes rarely runs beside a stream: it waits, or
/// rides along. ([Contention deferral](crate::contention))
fn is_bearable(view: &View<'_>, load: &Load, [lane, other]: [LaneSet; 2], team: LaneSet) -> bool {
    let machine = &view.config().machine;
    let together = view.predict_pass(load, Stage::Decode, view.quickest(team, load, Stage::Decode, 0));
    let apart = view.predict_pass(load, Stage::Decode, lane);
    let of = annotation::pass_bound(view.config().graph(load.net), machine.anchors(lane), load);
    let factor = machine.contention_of(lane, other).factor(of, bound_beside(view, other));
    apart.0 as f64 * factor <= together.0 as f64 * (1.0 + view.config().limits.stretch)
}

/// What bounds the background's pass under way, or else the next one, on these lanes.
fn bound_beside(view: &View<'_>, lanes: LaneSet) -> Bound {
    let bound = |pass: &Pass| {
        annotation::pass_bound(view.config().graph(pass.load.net), view.config().machine.anchors(lanes), &pass.load)
    };
    match view.passes().find(|pass| pass.class == Class::Proactive) {
        _ if !view.has(Mechanism::ContentionDeferral) => Bound::Compute,
        Some(pass) => bound(pass),
        None => next_background(view, lanes).map_or(Bound::Compute, |(candidate, _)| bound(candidate.pass())),
    }
}
