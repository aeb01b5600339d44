//! Nothing is emitted for a request that ended or was cancelled.
//!
//! Asserted of every event and command:
//! - no command but `Forget` and `Spill` (of what it left) names a request that was released, and none one that was
//!   never submitted;
//! - no pass begins with a request that was cancelled, and none for which nobody waits any more goes on;
//! - no token comes for a request that was released.
//!
//! A pass that a cancelled request shares with others goes on, and its token is dropped: nothing is emitted for it then,
//! since it is released with the end of that pass (see [`endings`](super::endings)).

use super::picture::{Picture, Seen};
use super::{Checker, Rule};
use duet_scheduler::{Command, Event, Kernel, Outcome};
use duet_types::{Instant, RequestId};

#[derive(Debug)]
pub(super) struct Silence;

impl Checker for Silence {
    fn rule(&self) -> Rule {
        Rule::Silence
    }

    fn event(&mut self, picture: &Picture, _: Instant, event: &Event) -> Result<(), String> {
        let Event::KernelDone { outcome: Outcome::Tokens(tokens), .. } = event else { return Ok(()) };
        tokens.iter().try_for_each(|token| live(picture, token.request, "a token").map(|_| ()))
    }

    fn command(&mut self, picture: &Picture, _: Instant, command: &Command) -> Result<(), String> {
        match command {
            Command::Launch { kernel, .. } => launch(picture, kernel),
            Command::Restore(request) => live(picture, *request, "a restoration").map(|_| ()),
            Command::Discard(request) => live(picture, *request, "a discard").map(|_| ()),
            Command::Prepare(graph) => live(picture, graph.request, "a graph").map(|_| ()),
            Command::Release { request, .. } => live(picture, *request, "a release").map(|_| ()),
            Command::Spill(_)
            | Command::Probe(_)
            | Command::Forget(_)
            | Command::DropCopy { .. }
            | Command::Reclaim(_)
            | Command::LoadGraph(_)
            | Command::SetTimer { .. } => Ok(()),
        }
    }
}

fn launch(picture: &Picture, kernel: &Kernel) -> Result<(), String> {
    let begins = !picture.passes.contains_key(&kernel.pass);
    let mut wanted = false;
    for member in &kernel.members {
        let seen = live(picture, member.request, "a kernel")?;
        wanted |= !seen.cancelled;
        if begins && seen.cancelled {
            return Err(format!("a pass begins with {}, which was cancelled", member.request));
        }
    }
    if wanted { Ok(()) } else { Err(format!("kernel {} is for requests that were all cancelled", kernel.id)) }
}

fn live<'a>(picture: &'a Picture, request: RequestId, what: &str) -> Result<&'a Seen, String> {
    let seen = picture.requests.get(&request).ok_or_else(|| format!("{what} for {request}, which never came"))?;
    if seen.is_live() { Ok(seen) } else { Err(format!("{what} for {request}, which has ended")) }
}
