//! Order among equals: who of one class is served first.
//!
//! The paper serves in the order of arrival. Where a request's length is known, serving the shortest first has the
//! smallest mean latency, and a prompt's length is known when it arrives. So that long prompts do not wait for ever, an
//! [overdue](crate::ageing) request goes before all others, the oldest first: nobody is overtaken for longer than the age.
//! Only the oldest [`WINDOW`] of a queue are compared, so that a decision's cost does not grow with the queue.

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
    if order == Order::Arrival || view.is_overdue(&oldest) {
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
            |request: &RequestView<'_>| if view.is_overdue(request) { Tokens::ZERO } else { request.rows_left() };
        firsts.sort_by_key(rank);
    }
    firsts.truncate(count);
    firsts
}

/// Requests of a queue that are compared.
const WINDOW: usize = 32;
