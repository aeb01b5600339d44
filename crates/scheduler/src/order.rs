//! Order among equals: who of one class is served first.
//!
//! The paper serves in the order of arrival. Where a request's length is known, serving the shortest first has the
//! smallest mean latency, and a prompt's length is known when it arrives. So that long prompts do not wait for ever, each
//! is overtaken for a bounded time only: a proactive one until it is [overdue](crate::ageing), a reactive one for
//! [`overtaking`](crate::Limits::overtaking) after its arrival. From then on it holds its place: it goes before all that
//! came after it, and behind those that came before it and hold theirs.
//!
//! So from `overtaking` after its arrival on, a reactive prompt that has memory waits for no more than: the pass under
//! way, the prompts of its class that came before it, decode as far as the stall budget asks for it, and the share of
//! overdue work. That holds with any number of shorter prompts behind it, and it is all that a reactive prompt waits for
//! where the order is that of arrival (`together` and `agent-xpu`, whose `overtaking` is none).
//!
//! Only the oldest [`WINDOW`] of a queue are compared, so that a decision's cost does not grow with the queue; those that
//! hold their places are the oldest of it.

use crate::queues::Line;
use crate::view::{RequestView, View};
use duet_types::{Class, Tokens};

/// Who goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Who came first.
    Arrival,
    /// Who has the fewest rows to be computed until its next token.
    ShortestFirst,
}

/// The request of a queue that is served next, with memory or without: nobody overtakes it.
pub(crate) fn head<'a>(view: &View<'a>, line: Line, class: Class, order: Order) -> Option<RequestView<'a>> {
    let oldest = view.head(line, class)?;
    if order == Order::Arrival || holds_its_place(view, &oldest) {
        return Some(oldest);
    }
    // All may wait for memory; then the oldest does for all of them.
    view.queue(line, class).take(WINDOW).min_by_key(RequestView::rows_left).or(Some(oldest))
}

/// The requests of a queue that are served next, in their order, at most so many.
pub(crate) fn firsts<'a>(
    view: &View<'a>,
    line: Line,
    class: Class,
    order: Order,
    count: usize,
) -> Vec<RequestView<'a>> {
    let window = if order == Order::Arrival { count } else { WINDOW.max(count) };
    let mut firsts: Vec<_> = view.queue(line, class).take(window).collect();
    if order == Order::ShortestFirst {
        let rank =
            |request: &RequestView<'_>| if holds_its_place(view, request) { Tokens::ZERO } else { request.rows_left() };
        firsts.sort_by_key(rank);
    }
    firsts.truncate(count);
    firsts
}

/// Whether nobody who came after it may overtake it any more.
fn holds_its_place(view: &View<'_>, request: &RequestView<'_>) -> bool {
    match request.class() {
        Class::Reactive => view.now() - request.arrived() >= view.config().limits.overtaking,
        Class::Proactive => view.is_overdue(request),
    }
}

/// Requests of a queue that are compared.
pub(crate) const WINDOW: usize = 32;
