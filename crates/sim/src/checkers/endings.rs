//! Every request ends, once, and as it should.
//!
//! Asserted of every release:
//! - `Stop`: its last token came, and said so;
//! - `Cancelled`: its client gave it up;
//! - `Length`: its tokens need more pages than there are;
//! - `Failed`: a kernel failed in a pass that it had for itself, or its prompt needs more pages than there are. What
//!   happens to others in the same pass, a lane that is lost, a spill or a graph that fails are no reasons.
//!
//! Asserted when an event has settled: a request that has its last token is released, and one that was cancelled too,
//! unless it is in a pass that others want or that is on a lane, or on its way to memory or disk: then it is released
//! when that ends. Asserted at the end: all clients came, and all requests were released; no pass or kernel is left.

use super::picture::{Picture, Seen, Standing};
use super::{Books, Checker, Rule};
use crate::scenario::Scenario;
use duet_scheduler::{Command, End, MemoryLimits};
use duet_types::{FinishReason, Instant, RequestId, Tokens};

#[derive(Debug)]
pub(super) struct Endings {
    limits: MemoryLimits,
    clients: usize,
}

impl Endings {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self { limits: scenario.config.memory, clients: scenario.clients.len() }
    }

    fn released(&self, request: RequestId, seen: &Seen, end: End) -> Result<(), String> {
        let exceeds = |positions: Tokens| self.limits.pages_of(positions) > self.limits.pages;
        let justified = match end {
            End::Finished(FinishReason::Stop) => seen.finished == Some(FinishReason::Stop),
            End::Finished(FinishReason::Cancelled) => seen.cancelled,
            End::Finished(FinishReason::Length) => seen.finished == Some(FinishReason::Length) || exceeds(seen.known),
            End::Failed => seen.failed_alone || exceeds(seen.known + Tokens(1)),
        };
        if justified { Ok(()) } else { Err(format!("{request} ended as {end:?}, and there was no reason: {seen:?}")) }
    }
}

impl Checker for Endings {
    fn rule(&self) -> Rule {
        Rule::Endings
    }

    fn command(&mut self, picture: &Picture, _: Instant, command: &Command) -> Result<(), String> {
        let Command::Release { request, end } = command else { return Ok(()) };
        match picture.requests.get(request) {
            Some(seen) if seen.is_live() => self.released(*request, seen, *end),
            _ => Err(format!("{request} is released, and is not there")),
        }
    }

    fn settled(&mut self, picture: &Picture, _: Instant, _: &Books) -> Result<(), String> {
        let stays = |(request, seen): (RequestId, &Seen)| {
            let over = seen.finished.is_some() || (seen.cancelled && !waits(picture, seen));
            over.then(|| format!("{request} is over and was not released: {seen:?}"))
        };
        picture.live().find_map(stays).map_or(Ok(()), Err)
    }

    fn ended(&mut self, picture: &Picture) -> Result<(), String> {
        if let Some((request, seen)) = picture.live().next() {
            return Err(format!("{request} never ended: {seen:?}"));
        }
        let left = (picture.requests.len(), picture.passes.len(), picture.kernels.len());
        if left == (self.clients, 0, 0) { Ok(()) } else { Err(format!("requests, passes and kernels: {left:?}")) }
    }
}

/// Whether a cancelled request waits for something that cannot be taken back.
fn waits(picture: &Picture, seen: &Seen) -> bool {
    match seen.standing {
        Standing::Restoring | Standing::Spilling => true,
        Standing::InPass(pass) => picture.passes.get(&pass).is_some_and(|pass| {
            let wanted = |request: &RequestId| picture.requests.get(request).is_some_and(|seen| !seen.cancelled);
            pass.running > 0 || pass.members.iter().any(|member| wanted(&member.request))
        }),
        Standing::Queued | Standing::Ready | Standing::Spilled | Standing::Ended(_) => false,
    }
}
