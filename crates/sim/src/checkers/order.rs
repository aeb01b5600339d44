//! Among equals the order of arrival is kept.
//!
//! Equals are requests of one class; under policies that look at no class, all of them, if one came strictly earlier.
//! Asserted:
//! - when KV is put in place for a request, no older equal waits for that (in the queue, or on disk);
//! - when a request's first kernel is launched, no older equal whose KV is in place has had none, unless it is in the
//!   same pass. `timeshare` is exempt from this one: its requests have turns.
//!
//! `duet` on an NPU and an iGPU reads the shortest prompt first. There it is asserted that an overdue request is not
//! overtaken in the queue; the second rule does not hold, since a background prompt may wait for its graph. In its place:
//! - when a pass that reads a reactive prompt begins, no older reactive request that could be read has waited for
//!   `overtaking`; where a device reads prompts without a core, which texts for the encoder need, none of the same model.
//!
//! One that was discarded begins anew, at its old place. One whose KV comes from disk may be overtaken while it is read:
//! it is not ready, and the lane would be idle. (Agent.xpu §4.1: queues; §4.4: equals do not preempt each other)

use super::picture::{Picture, Seen, Standing};
use super::{Checker, Rule};
use crate::scenario::Scenario;
use duet_scheduler::machine::Joins;
use duet_scheduler::policy::PolicyName;
use duet_scheduler::{Command, Kernel, Mechanism};
use duet_types::{Class, Instant, Nanos, Net, RequestId, Stage};

#[derive(Debug)]
pub(super) struct Order {
    policy: PolicyName,
    kept: Kept,
    /// Which model each client's text goes through.
    nets: Vec<Net>,
    /// Whether the two models' prompts have lanes of their own.
    are_beside: bool,
}

/// Which order is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    Arrival,
    /// The shortest prompt first, but for those that hold their places.
    ShortestFirst(Ages),
}

/// From which age on requests hold their places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ages {
    reactive: Nanos,
    proactive: Nanos,
}

impl Order {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let (policy, config) = (scenario.policy, &scenario.config);
        let (machine, mechanisms) = (&config.machine, config.mechanisms);
        let apart = machine.lanes.len() > 1 && !(machine.is_team(machine.all()) && mechanisms.has(Mechanism::Teams));
        let age = if mechanisms.has(Mechanism::Ageing) { config.limits.age } else { Nanos(u64::MAX) };
        let ages = Ages { reactive: config.limits.overtaking, proactive: age };
        let kept = if policy == PolicyName::Duet && apart { Kept::ShortestFirst(ages) } else { Kept::Arrival };
        let device = machine.prefill_lane();
        let needs_no_core = machine.lane(device).capabilities.joins != Joins::Crew && !machine.is_static(device);
        let nets = scenario.clients.iter().map(|client| client.net).collect();
        Self { policy, kept, nets, are_beside: policy == PolicyName::Duet && needs_no_core }
    }

    /// Whether nobody who comes later may overtake it in the queue, where reactive requests keep the order of arrival.
    fn holds_its_place(&self, seen: &Seen, now: Instant) -> bool {
        match self.kept {
            Kept::Arrival => true,
            Kept::ShortestFirst(ages) => seen.class == Class::Reactive || (now - seen.arrived) >= ages.proactive,
        }
    }

    /// An older equal that was overtaken by `seen`.
    fn overtaken(&self, picture: &Picture, seen: &Seen, waits: impl Fn(RequestId, &Seen) -> bool) -> Option<RequestId> {
        let blind = matches!(
            self.policy,
            PolicyName::CpuBatching | PolicyName::IgpuBatching | PolicyName::Serial | PolicyName::Timeshare
        );
        let is_older = |other: &Seen| match other.class == seen.class {
            true => other.arrival < seen.arrival,
            false => blind && other.arrived < seen.arrived,
        };
        let mut live = picture.live().filter(|(_, other)| !other.cancelled && is_older(other));
        live.find(|(id, other)| waits(*id, other)).map(|(id, _)| id)
    }

    fn restore(&self, picture: &Picture, now: Instant, request: RequestId) -> Result<(), String> {
        let Some(seen) = picture.requests.get(&request) else { return Ok(()) };
        let waits = |_, other: &Seen| {
            matches!(other.standing, Standing::Queued | Standing::Spilled) && self.holds_its_place(other, now)
        };
        match self.overtaken(picture, seen, waits) {
            Some(older) => Err(format!("{request} is put in place, and {older}, which came before it, waits")),
            None => Ok(()),
        }
    }

    fn launch(&self, picture: &Picture, kernel: &Kernel) -> Result<(), String> {
        let is_member = |id| kernel.members.iter().any(|member| member.request == id);
        for member in &kernel.members {
            let Some(seen) = picture.requests.get(&member.request).filter(|seen| !seen.begun) else { continue };
            let waits = |id, other: &Seen| other.standing == Standing::Ready && !other.begun && !is_member(id);
            if let Some(older) = self.overtaken(picture, seen, waits) {
                return Err(format!("{} begins, and {older}, which came before it, is ready", member.request));
            }
        }
        Ok(())
    }

    /// A pass that reads a reactive prompt begins, and others may be shorter.
    fn read(&self, picture: &Picture, now: Instant, kernel: &Kernel, ages: Ages) -> Result<(), String> {
        if picture.passes.contains_key(&kernel.pass) || kernel.stage() != Stage::Prefill {
            return Ok(());
        }
        let is_member = |id| kernel.members.iter().any(|member| member.request == id);
        let waits = |id: RequestId, other: &Seen| {
            let could_be_read = picture.can_run(other) && other.stage() == Stage::Prefill;
            let is_beside = self.are_beside && self.nets[id.0 as usize] != kernel.net();
            could_be_read && !is_member(id) && !is_beside && now - other.arrived >= ages.reactive
        };
        let readers = kernel.members.iter().filter(|member| member.stage == Stage::Prefill);
        for seen in readers.filter_map(|member| picture.requests.get(&member.request)) {
            let older = if seen.class == Class::Reactive { self.overtaken(picture, seen, waits) } else { None };
            if let Some(older) = older {
                return Err(format!(
                    "a prompt is read before that of {older}, which came before it and has waited long"
                ));
            }
        }
        Ok(())
    }
}

impl Checker for Order {
    fn rule(&self) -> Rule {
        Rule::Order
    }

    fn command(&mut self, picture: &Picture, now: Instant, command: &Command) -> Result<(), String> {
        match (command, self.kept) {
            (Command::Restore(request), _) => self.restore(picture, now, *request),
            (Command::Launch { .. }, Kept::Arrival) if self.policy == PolicyName::Timeshare => Ok(()),
            (Command::Launch { kernel, .. }, Kept::Arrival) => self.launch(picture, kernel),
            (Command::Launch { kernel, .. }, Kept::ShortestFirst(ages)) => self.read(picture, now, kernel, ages),
            _ => Ok(()),
        }
    }
}
