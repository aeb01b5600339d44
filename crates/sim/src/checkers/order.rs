//! Among equals the order of arrival is kept.
//!
//! Equals are requests of one class; under policies that look at no class, all of them, if one came strictly earlier.
//! Asserted:
//! - when KV is put in place for a request, no older equal waits for that (in the queue, or on disk);
//! - when a request's first kernel is launched, no older equal whose KV is in place has had none, unless it is in the
//!   same pass. `timeshare` is exempt from this one: its requests have turns.
//!
//! One that was discarded begins anew, at its old place. One whose KV comes from disk may be overtaken while it is read:
//! it is not ready, and the lane would be idle. (Agent.xpu §4.1: queues; §4.4: equals do not preempt each other)

use super::picture::{Picture, Seen, Standing};
use super::{Checker, Rule};
use crate::scenario::Scenario;
use duet_scheduler::policy::PolicyName;
use duet_scheduler::{Command, Kernel};
use duet_types::{Instant, RequestId};

#[derive(Debug)]
pub(super) struct Order {
    policy: PolicyName,
}

impl Order {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self { policy: scenario.policy }
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

    fn restore(&self, picture: &Picture, request: RequestId) -> Result<(), String> {
        let Some(seen) = picture.requests.get(&request) else { return Ok(()) };
        let waits = |_, other: &Seen| matches!(other.standing, Standing::Queued | Standing::Spilled);
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
}

impl Checker for Order {
    fn rule(&self) -> Rule {
        Rule::Order
    }

    fn command(&mut self, picture: &Picture, _: Instant, command: &Command) -> Result<(), String> {
        match command {
            Command::Restore(request) => self.restore(picture, *request),
            Command::Launch { kernel, .. } if self.policy != PolicyName::Timeshare => self.launch(picture, kernel),
            _ => Ok(()),
        }
    }
}
