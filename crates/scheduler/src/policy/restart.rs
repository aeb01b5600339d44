//! Instant preemption without saving: a reactive request throws away what runs, and it begins again later.
//!
//! One device, one request at a time, reactive ones first. What a proactive request had computed is lost whenever a
//! reactive one comes. (Agent.xpu Fig. 6 a)

use super::{Admission, Candidate, Decision, Policy, if_idle, single_device};
use crate::preemption;
use crate::queues::Line;
use crate::reason::Reason;
use crate::request_table::Phase;
use crate::view::{RequestView, View};
use duet_types::Class;

/// The baseline of Fig. 6 (a).
#[derive(Clone, Copy, Debug, Default)]
pub struct Restart;

impl Policy for Restart {
    fn decide(&mut self, view: &View<'_>) -> Option<Decision> {
        let lanes = if_idle(view, single_device(view))?;
        let reactive = view.oldest(Class::Reactive);
        let next = reactive.or_else(|| view.oldest(Class::Proactive))?;
        if reactive.is_some()
            && let Some(victim) = victim(view)
        {
            return Some(Decision::Restart(victim.id()));
        }
        let (candidate, reason) = match next.phase() {
            Phase::Queued | Phase::Spilled => return view.has_memory(next.id()).then(|| Decision::Begin(next.id())),
            Phase::Restoring | Phase::Spilling => return None,
            Phase::Ready if !view.has_memory(next.id()) => return None,
            Phase::Ready => {
                let member = next.member(view.config().limits.prefill_rows);
                let reason = if reactive.is_some() { Reason::ReactiveFirst } else { Reason::Background };
                (Candidate::drafted(view, vec![member])?, reason)
            }
            Phase::InPass(_) => (Candidate::UnderWay(view.passes().next()?), Reason::GoesOn),
        };
        let pass = candidate.pass();
        if !pass.can_go_on() {
            return None;
        }
        let cut = preemption::cut(view, pass, lanes);
        Some(candidate.launch_cut(view, cut, lanes, reason))
    }

    fn admission(&self) -> Admission {
        Admission::ByClass
    }
}

/// A proactive request that has computed something.
fn victim<'a>(view: &View<'a>) -> Option<RequestView<'a>> {
    let in_pass = view.passes().flat_map(|pass| &pass.members).find(|member| member.class == Class::Proactive);
    let ready = [Line::Prefill, Line::Decode].into_iter().find_map(|line| view.queue(line, Class::Proactive).next());
    in_pass.and_then(|member| view.request(member.request)).or(ready)
}
