//! Slack-aware piggybacking: background rows that ride in a reactive pass because they are nearly free.
//!
//! A pass that waits for memory has arithmetic to spare, and a prefill chunk has weights in hand that a decode row could
//! use: then proactive decode rows ride along. The paper bounds them by a count (`B_cap`); here predicted time does: they
//! may make the pass longer by no more than a share of it (`stretch`). The shortest contexts come first, since they cost
//! least. So on a machine where another row is dear nobody rides, and where it is free many do. (Agent.xpu §4.5 ①)
//!
//! A pass ends when a token was chosen for each member, and a choice that is held to a form waits for its mask. One thread makes
//! the masks of all members while the pass runs. So a pass takes as long as its kernels or its masks do, whichever is longer.
//!
//! A decode pass has more to spare than other decode rows use: it reads all weights for a few of them. Rows of a
//! background prompt ride there too, in the decode buffer, within the same bound: prefill for the price of nothing.

use crate::heg::Load;
use crate::kernel::{Member, class_of};
use crate::mechanism::Mechanism;
use crate::queues::Line;
use crate::span::largest;
use crate::view::{RequestView, View};
use duet_types::{Class, LaneSet, Nanos, Net, Stage, Tokens};

/// Adds proactive decode rows to a reactive pass on `lanes`. Returns how many.
pub(crate) fn board(view: &View<'_>, members: &mut Vec<Member>, stage: Stage, lanes: LaneSet) -> u32 {
    if !view.has(Mechanism::Piggyback) || members.is_empty() {
        return 0;
    }
    let limits = &view.config().limits;
    let mut load = view.load(members);
    let must_be_alone = |member: &Member| view.request(member.request).is_some_and(|request| request.is_alone());
    if load.net == Net::Encoder || members.iter().any(must_be_alone) {
        return 0;
    }
    let bearable = bearable(view, &load, stage, lanes);
    let mut masks = members.iter().filter_map(|m| view.request(m.request)).fold(Nanos::ZERO, |all, m| all + m.masks());
    let mut waiting: Vec<_> =
        view.queue(Line::Decode, Class::Proactive).filter(|request| !request.is_alone()).collect();
    // Overdue ones have the privilege to join, the oldest first; among the rest the shortest are the cheapest.
    waiting.sort_by_key(|request| if view.is_overdue(request) { (0, Tokens::ZERO) } else { (1, request.known()) });
    let rows_max = match stage {
        Stage::Prefill => f64::from(limits.prefill_rows.0),
        Stage::Decode | Stage::Verify => limits.batch as f64,
    };
    let mut riders = 0;
    for request in waiting {
        let member = request.member(Tokens(1));
        let more = view.load_with(load, &member);
        let has_place = members.len() < limits.batch && more.rows <= rows_max;
        let is_cheap = view.predict_pass(&more, stage, lanes) <= bearable;
        let privileged = privileged(view, &request, riders);
        if !has_place || (!is_cheap && !privileged) {
            break;
        }
        if masks + request.masks() > bearable && !privileged {
            // The next one may need none.
            continue;
        }
        load = more;
        masks += request.masks();
        members.push(member);
        riders += 1;
    }
    riders
}

/// Adds rows of a prompt to a decode pass: as many as the decode buffer holds and as are bearable for those for whose
/// sake it runs, the members of its class.
pub(crate) fn read_along(view: &View<'_>, members: &mut Vec<Member>, reader: &RequestView<'_>, lanes: LaneSet) {
    if !view.has(Mechanism::Piggyback) {
        return;
    }
    let (load, class) = (view.load(members), class_of(members));
    let bearable = bearable(view, &Load::of(members.iter().filter(|m| m.class == class)), Stage::Decode, lanes);
    let fits = |rows: u32| {
        let more = view.load_with(load, &reader.member(Tokens(rows)));
        view.predict_pass(&more, Stage::Decode, lanes) <= bearable
    };
    let room = view.config().limits.batch.saturating_sub(members.len());
    let rows = largest(0, room.min(reader.rows_left().as_usize()), |rows| fits(rows as u32));
    if rows > 0 {
        members.push(reader.member(Tokens(rows as u32)));
    }
}

/// How long a pass may take with riders.
fn bearable(view: &View<'_>, load: &Load, stage: Stage, lanes: LaneSet) -> Nanos {
    let alone = view.predict_pass(load, stage, lanes);
    Nanos((alone.0 as f64 * (1.0 + view.config().limits.stretch)) as u64)
}

/// One overdue request joins whatever it costs: the second privilege of ageing.
fn privileged(view: &View<'_>, request: &RequestView<'_>, riders: u32) -> bool {
    riders == 0 && view.is_overdue(request)
}
