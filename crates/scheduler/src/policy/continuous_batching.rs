//! Continuous batching on one device: the baselines `cpu-batching`, `igpu-batching` and `priority-only`.
//!
//! Every iteration is one pass of all decode rows and as many prompt rows as fit `chunk`; requests join as places become
//! free. It runs to its end. `cpu-batching` is llama.cpp's server: all CPU lanes, in the order of arrival, whoever waits.
//! `igpu-batching` is OpenVINO's serving: the dynamic lane. `priority-only` is the first with reactive requests before
//! proactive ones at every iteration, and shows what priority alone is worth. (Agent.xpu Fig. 6 c, §6.1)

use super::{Admission, Candidate, Decision, Policy, if_idle, single_device};
use crate::batching::only_company;
use crate::kernel::Member;
use crate::queues::Line;
use crate::reason::Reason;
use crate::span::Cut;
use crate::view::{RequestView, View};
use duet_types::{Class, LaneSet, Tokens};

/// Iterations of everything that fits.
#[derive(Clone, Copy, Debug)]
pub struct ContinuousBatching {
    order: Order,
    device: Device,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Arrival,
    ClassThenArrival,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Device {
    Team,
    DynamicLane,
}

impl ContinuousBatching {
    /// As llama.cpp's server.
    #[must_use]
    pub fn cpu() -> Self {
        Self { order: Order::Arrival, device: Device::Team }
    }

    /// As OpenVINO's serving.
    #[must_use]
    pub fn igpu() -> Self {
        Self { order: Order::Arrival, device: Device::DynamicLane }
    }

    /// With reactive requests first.
    #[must_use]
    pub fn with_priority() -> Self {
        Self { order: Order::ClassThenArrival, device: Device::Team }
    }
}

impl Policy for ContinuousBatching {
    fn decide(&mut self, view: &View<'_>) -> Option<Decision> {
        if let Some(request) = self.next_to_begin(view) {
            return Some(Decision::Begin(request.id()));
        }
        let (candidate, reason) = match view.passes().next() {
            // Cut where its graphs change, it goes on.
            Some(pass) => (Candidate::UnderWay(pass), Reason::GoesOn),
            None => {
                let candidate = Candidate::drafted(view, self.iteration(view))?;
                let reactive = self.order == Order::ClassThenArrival && candidate.pass().class == Class::Reactive;
                (candidate, if reactive { Reason::ReactiveFirst } else { Reason::FirstCome })
            }
        };
        let pass = candidate.pass();
        let device = match self.device {
            Device::Team => single_device(view),
            Device::DynamicLane => LaneSet::from_iter([view.igpu_lane()]),
        };
        let lanes = if_idle(view, view.holding(device, pass.load.net, pass.node)).filter(|_| pass.can_go_on())?;
        Some(candidate.launch_cut(view, Cut::Whole, lanes, reason))
    }

    fn admission(&self) -> Admission {
        match self.order {
            Order::Arrival => Admission::Waits,
            Order::ClassThenArrival => Admission::ByClass,
        }
    }
}

impl ContinuousBatching {
    fn next_to_begin<'a>(&self, view: &View<'a>) -> Option<RequestView<'a>> {
        let live = view.live(Class::Reactive) + view.live(Class::Proactive);
        if live >= view.config().limits.batch {
            return None;
        }
        // The next one waits for memory, too: nobody overtakes it.
        let heads = [Class::Reactive, Class::Proactive].into_iter().filter_map(|class| view.head(Line::Queued, class));
        let next = match self.order {
            Order::Arrival => heads.min_by_key(|request| (request.arrived(), request.id())),
            Order::ClassThenArrival => heads.min_by_key(RequestView::class),
        };
        next.filter(|request| view.has_memory(request.id()))
    }

    /// Decode rows first, then prompt rows up to the chunk.
    fn iteration(&self, view: &View<'_>) -> Vec<Member> {
        let limits = &view.config().limits;
        let decode = only_company(self.sorted(view, Line::Decode, limits.batch));
        let mut members: Vec<Member> = decode.iter().map(|request| request.member(Tokens(1))).collect();
        if decode.iter().any(RequestView::is_alone) {
            return members;
        }
        let mut left = limits.chunk.saturating_sub(Tokens(members.len() as u32));
        for request in self.sorted(view, Line::Prefill, limits.batch) {
            let room = left > Tokens::ZERO && members.len() < limits.batch;
            if !room || (request.is_alone() && !members.is_empty()) {
                break;
            }
            let member = request.member(left);
            // The encoder's come all at once.
            left = left.saturating_sub(member.len());
            members.push(member);
            if request.is_alone() {
                break;
            }
        }
        members
    }

    fn sorted<'a>(&self, view: &View<'a>, line: Line, count: usize) -> Vec<RequestView<'a>> {
        let [reactive, proactive] =
            [Class::Reactive, Class::Proactive].map(|class| view.queue(line, class).take(count).collect::<Vec<_>>());
        let mut all = [reactive, proactive].concat();
        if self.order == Order::Arrival {
            all.sort_by_key(|request| (request.arrived(), request.id()));
        }
        all.truncate(count);
        all
    }
}
