//! Reactive-first adaptive decode batching. (Agent.xpu §4.5 ②, Algorithm 2)
//!
//! Every reactive request that decodes is in the next batch, or in the one after it where they are more than it holds.
//! Proactive ones fill it up to `B_cap` while a reactive one is in it, and to the largest batch otherwise. When there are
//! too many, those with the longest context stay out, since a batch is as slow as its longest member; the algorithm as
//! printed fills the batch with the longest first, and its text says that the longest are evicted: this follows the text.
//! Overdue requests are in whatever the cap says.

use crate::mechanism::Mechanism;
use crate::queues::Line;
use crate::view::{RequestView, View};
use duet_types::Class;

/// The next decode batch.
pub(crate) fn next_batch<'a>(view: &View<'a>) -> Vec<RequestView<'a>> {
    let limits = &view.config().limits;
    let members = reactive(view);
    let room = match (members.is_empty(), view.has(Mechanism::Piggyback), view.has(Mechanism::BatchCap)) {
        (true, _, _) => limits.batch,
        (false, false, _) => 0,
        (false, true, true) => limits.batch_cap.saturating_sub(members.len()),
        (false, true, false) => limits.batch - members.len(),
    };
    fill(view, members, room)
}

/// As many requests of one class as a batch holds.
pub(crate) fn of_class<'a>(view: &View<'a>, class: Class) -> Vec<RequestView<'a>> {
    match class {
        Class::Reactive => only_company(reactive(view)),
        Class::Proactive => fill(view, Vec::new(), view.config().limits.batch),
    }
}

/// The first of some requests, if it must be alone; else all that need not be. The others wait until they are the first.
pub(crate) fn only_company(mut members: Vec<RequestView<'_>>) -> Vec<RequestView<'_>> {
    if members.first().is_some_and(RequestView::is_alone) {
        members.truncate(1);
    } else {
        members.retain(|member| !member.is_alone());
    }
    members
}

fn reactive<'a>(view: &View<'a>) -> Vec<RequestView<'a>> {
    in_turns(view, view.queue(Line::Decode, Class::Reactive))
}

/// As many of some requests as a batch holds. Where they are more, those whose last token is the longest ago, so that every
/// stream goes on.
pub(crate) fn in_turns<'a>(view: &View<'a>, requests: impl Iterator<Item = RequestView<'a>>) -> Vec<RequestView<'a>> {
    let all: Vec<_> = requests.collect();
    let batch = view.config().limits.batch;
    if all.len() <= batch {
        return all;
    }
    let mut by_age: Vec<usize> = (0..all.len()).collect();
    by_age.sort_by_key(|&index| all[index].since());
    by_age.truncate(batch);
    // In the order of before: the first of a batch decides who is alone in it.
    by_age.sort_unstable();
    by_age.into_iter().map(|index| all[index]).collect()
}

/// Adds proactive requests: the overdue ones first, then up to `room` in all, shortest first.
fn fill<'a>(view: &View<'a>, mut members: Vec<RequestView<'a>>, room: usize) -> Vec<RequestView<'a>> {
    let largest = view.config().limits.batch;
    let reactive = members.len();
    let (overdue, mut others): (Vec<_>, Vec<_>) =
        view.queue(Line::Decode, Class::Proactive).partition(|request| view.is_overdue(request));
    members.extend(overdue.into_iter().take(largest - reactive));
    others.sort_by_key(RequestView::known);
    let left = (reactive + room).min(largest).saturating_sub(members.len());
    members.extend(others.into_iter().take(left));
    only_company(members)
}
