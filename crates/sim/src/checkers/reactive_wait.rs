//! A reactive request's wait for its first kernel is bounded.
//!
//! Asserted under `duet` and `agent-xpu` with preemption and prefill-first, when the request is the oldest reactive one
//! and no other has begun, from its submission, or from the end of making room for it in memory and of reading its KV
//! from disk, where that is needed:
//!
//! ```text
//! first kernel <= end of the kernels that were under way then + preempt + the longest kernel of overdue work since then
//!                 + share (longest kernel of anybody) (lanes)
//! ```
//!
//! Where the shortest prompt goes first (`duet` on lanes apart) the first kernel may be of another reactive request. Where
//! nothing was under way the first term is that moment. Overdue work counts because it is owed a kernel even now
//! (only kernels whose reason says so are counted), and what became due while a kernel ran that cannot be interrupted,
//! which a kernel on one of several lanes pays for in part. A request is not judged if a fault touches it: when a kernel
//! fails or hangs, a lane is lost, or it is itself cancelled or discarded while it waits; nor if the dynamic lane's
//! occupancy is capped. (Agent.xpu §4.4)

use super::picture::{OnLanes, Picture, Seen, Standing};
use super::{Books, Checker, Rule};
use crate::scenario::Scenario;
use duet_scheduler::policy::PolicyName;
use duet_scheduler::{Command, Event, Mechanism, MemoryLimits, Reason, Request};
use duet_types::{Class, Instant, KernelId, Nanos, RequestId, Stage, Tokens};
use std::collections::BTreeMap;

#[derive(Debug)]
pub(super) struct ReactiveWait {
    promised: Promise,
    next: Next,
    preempt: Nanos,
    /// Of overdue work, in time of one lane.
    share: f64,
    longest: Nanos,
    limits: MemoryLimits,
    /// Pages that the scheduler has to give, as far as it knows.
    free: usize,
    waiting: BTreeMap<RequestId, Waiting>,
    /// Kernels of overdue work on lanes.
    owed: BTreeMap<KernelId, Instant>,
}

/// Whether the policy promises anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Promise {
    Bounded,
    Nothing,
}

/// Which reactive request is served next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Oldest,
    Shortest,
}

/// A reactive request that has had no kernel.
#[derive(Debug)]
struct Waiting {
    since: Instant,
    /// When the kernels that were under way had ended; they have not yet if absent.
    freed: Option<Instant>,
    owed_max: Nanos,
}

impl ReactiveWait {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let config = &scenario.config;
        let policy = matches!(scenario.policy, PolicyName::Duet | PolicyName::AgentXpu);
        let has = |mechanism| config.mechanisms.has(mechanism);
        let mechanisms = has(Mechanism::Preemption) && has(Mechanism::PrefillFirst);
        let promised =
            if policy && mechanisms && !config.machine.is_capped() { Promise::Bounded } else { Promise::Nothing };
        let joins = config.machine.is_team(config.machine.all()) && has(Mechanism::Teams);
        let apart = scenario.policy == PolicyName::Duet && config.machine.lanes.len() > 1 && !joins;
        Self {
            promised,
            next: if apart { Next::Shortest } else { Next::Oldest },
            preempt: config.limits.preempt,
            share: config.limits.overdue_share * config.machine.lanes.len() as f64,
            longest: Nanos::ZERO,
            limits: config.memory,
            free: config.memory.pages,
            waiting: BTreeMap::new(),
            owed: BTreeMap::new(),
        }
    }

    fn is_late(&self, now: Instant) -> Option<String> {
        let due = Nanos((self.share * self.longest.0 as f64) as u64);
        let late = |(request, waiting): (&RequestId, &Waiting)| {
            let freed = waiting.freed?;
            let bound = freed + self.preempt + waiting.owed_max + due;
            let since = waiting.since;
            (now > bound).then(|| format!("{request} waits since {since:?} for a lane that was free at {freed:?}"))
        };
        self.waiting.iter().find_map(late)
    }

    fn restored(&mut self, picture: &Picture, now: Instant, request: RequestId) {
        let Some(seen) = picture.requests.get(&request) else { return };
        let mut reactive = picture.live().filter(|(_, other)| other.class == Class::Reactive);
        let is_first = reactive.all(|(_, other)| other.arrival >= seen.arrival && !other.begun);
        // Another one may have begun while its KV was read.
        self.waiting.remove(&request);
        if seen.class == Class::Reactive && !seen.cancelled && is_first {
            self.waiting.insert(request, Waiting::since(picture, now));
        }
    }

    /// While room is made for a request in memory (KV is written, read for another one, or in an iteration of decode, which
    /// comes to its end before its members are pushed out), or its own KV is read, it waits for that.
    fn restart(&mut self, picture: &Picture, now: Instant) {
        let reads = picture.live().any(|(_, seen)| seen.standing == Standing::Restoring);
        let decodes = picture.passes.values().any(|pass| pass.stage == Stage::Decode);
        let makes_room = reads || decodes || !picture.writing.is_empty();
        for (request, waiting) in &mut self.waiting {
            let pages = |seen: &Seen| self.limits.pages_of(seen.known + Tokens(1));
            match picture.requests.get(request).map(|seen| (seen.standing, pages(seen))) {
                Some((Standing::Restoring, _)) => *waiting = Waiting::since(picture, now),
                Some((Standing::Queued, wanted)) if makes_room && wanted > self.free => {
                    *waiting = Waiting::since(picture, now)
                }
                _ => {}
            }
        }
    }

    /// A reactive request came: it waits from now on, if no other one is there.
    fn submitted(&mut self, picture: &Picture, now: Instant, request: &Request) {
        let mut live = picture.live();
        if request.class == Class::Reactive && !live.any(|(_, other)| other.class == Class::Reactive) {
            self.waiting.insert(request.id, Waiting::since(picture, now));
        }
    }

    /// A kernel ended: lanes may be free for those who wait.
    fn kernel_ended(&mut self, picture: &Picture, now: Instant, kernel: KernelId) {
        let owed = self.owed.remove(&kernel).map(|launched| now - launched);
        for waiting in self.waiting.values_mut() {
            let before = |other: &OnLanes| other.launched < waiting.since;
            let mut left = picture.kernels.iter().filter(|(id, other)| **id != kernel && before(other));
            if waiting.freed.is_none() && left.next().is_none() {
                waiting.freed = Some(now);
            }
            waiting.owed_max = waiting.owed_max.max(owed.unwrap_or_default());
        }
    }
}

impl Waiting {
    fn since(picture: &Picture, now: Instant) -> Self {
        Self { since: now, freed: picture.kernels.is_empty().then_some(now), owed_max: Nanos::ZERO }
    }
}

impl Checker for ReactiveWait {
    fn rule(&self) -> Rule {
        Rule::ReactiveWait
    }

    fn event(&mut self, picture: &Picture, now: Instant, event: &Event) -> Result<(), String> {
        if self.promised == Promise::Nothing {
            return Ok(());
        }
        let under_way = picture.kernels.values().map(|kernel| now - kernel.launched);
        self.longest = under_way.chain([self.longest]).max().unwrap_or_default();
        self.restart(picture, now);
        match event {
            Event::KernelFailed { .. } | Event::LaneLost { .. } | Event::LaneSlow { .. } => self.waiting.clear(),
            Event::Cancelled(request) => {
                self.waiting.remove(request);
            }
            Event::KernelDone { kernel, .. } => self.kernel_ended(picture, now, *kernel),
            Event::Submitted(request) => self.submitted(picture, now, request),
            Event::Restored { request, .. } => self.restored(picture, now, *request),
            _ => {}
        }
        self.is_late(now).map_or(Ok(()), Err)
    }

    fn settled(&mut self, _: &Picture, _: Instant, books: &Books) -> Result<(), String> {
        self.free = books.ledger.capacity.saturating_sub(books.ledger.used);
        Ok(())
    }

    fn command(&mut self, _: &Picture, now: Instant, command: &Command) -> Result<(), String> {
        match command {
            Command::Launch { kernel, reason, .. } => {
                let serves = |request: &RequestId| match self.next {
                    Next::Oldest => kernel.members.iter().any(|member| member.request == *request),
                    Next::Shortest => kernel.class() == Class::Reactive,
                };
                self.waiting.retain(|request, _| !serves(request));
                if matches!(reason, Reason::Owed | Reason::OverduePrefill) {
                    self.owed.insert(kernel.id, now);
                }
            }
            Command::Discard(request) | Command::Release { request, .. } => {
                self.waiting.remove(request);
            }
            _ => {}
        }
        Ok(())
    }
}
