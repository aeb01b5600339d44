//! Time-sharing: all requests in turns, a kernel each, as if each had the device to itself but slower.
//!
//! One device, no batching, no priority; every request has its own activation buffer. (Agent.xpu Fig. 6 b)

use super::{ActivationBuffers, Candidate, Decision, Policy, if_idle, single_device};
use crate::queues::Line;
use crate::reason::Reason;
use crate::request_table::Phase;
use crate::view::{RequestView, View};
use duet_types::{Class, RequestId};

/// The baseline of Fig. 6 (b).
#[derive(Clone, Copy, Debug, Default)]
pub struct Timeshare {
    /// Whose turn it was.
    last: Option<RequestId>,
}

impl Policy for Timeshare {
    fn decide(&mut self, view: &View<'_>) -> Option<Decision> {
        let live = view.live(Class::Reactive) + view.live(Class::Proactive);
        let heads = [Class::Reactive, Class::Proactive].into_iter().filter_map(|class| view.head(Line::Queued, class));
        let next = heads.min_by_key(RequestView::arrived).filter(|head| view.has_memory(head.id()));
        if live < view.config().limits.batch
            && let Some(head) = next
        {
            return Some(Decision::Begin(head.id()));
        }
        let waits = |id| view.passes().any(|pass| pass.id == id && pass.coming().is_some());
        let runs = |request: &RequestView<'_>| match request.phase() {
            Phase::Ready => view.has_memory(request.id()),
            Phase::InPass(pass) => view.has_memory(request.id()) && !waits(pass),
            _ => false,
        };
        let lines = [Line::Prefill, Line::Decode, Line::Away];
        let classes = [Class::Reactive, Class::Proactive];
        let live = lines.into_iter().flat_map(|line| classes.map(|class| (line, class)));
        let mut in_turn: Vec<_> = live.flat_map(|(line, class)| view.queue(line, class)).filter(runs).collect();
        in_turn.sort_by_key(RequestView::id);
        let after = in_turn.iter().find(|request| self.last.is_none_or(|last| request.id() > last));
        let next = after.or(in_turn.first())?;
        let candidate = match next.phase() {
            Phase::InPass(pass) => Candidate::UnderWay(view.passes().find(|under_way| under_way.id == pass)?),
            _ => Candidate::drafted(view, vec![next.member(view.config().limits.chunk)])?,
        };
        let (net, node) = (candidate.pass().load.net, candidate.pass().node);
        let lanes = if_idle(view, view.holding(single_device(view), net, node))?;
        if !candidate.pass().can_go_on() {
            return None;
        }
        self.last = Some(next.id());
        let cut = crate::preemption::within_bound(view, candidate.pass().kind(), lanes);
        Some(candidate.launch_cut(view, cut, lanes, Reason::Turn))
    }

    fn activation_buffers(&self) -> ActivationBuffers {
        ActivationBuffers::OnePerRequest
    }
}
