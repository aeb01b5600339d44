//! Latencies: when what happened to each request, and how much of its time it was worked on.
//!
//! The time of a request is its prefill, from submission to the first token, and its decode, from there to its end. In
//! each it is *active* while a kernel with its rows is on a lane, and *pending* otherwise. (Agent.xpu §6.3)

use duet_driver::Observer;
use duet_scheduler::{Command, End, Event, Outcome};
use duet_types::{Class, FinishReason, Instant, KernelId, Nanos, RequestId, Tokens};
use std::collections::{BTreeMap, BTreeSet};

/// Follows every request.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    requests: BTreeMap<RequestId, Times>,
    running: BTreeMap<KernelId, Vec<RequestId>>,
    /// Kernels that nobody waits for.
    background: BTreeSet<KernelId>,
    /// Reactive requests without a first token.
    reading: usize,
    /// The one that preempts, and waits for its first kernel.
    preempting: Option<RequestId>,
}

/// What is known of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Times {
    /// Who waits for it.
    pub class: Class,
    /// When it came.
    pub arrived: Instant,
    /// Tokens of its prompt.
    pub prompt: Tokens,
    /// Tokens of its answer so far.
    pub generated: Tokens,
    /// When its first kernel was launched.
    pub began: Option<Instant>,
    /// When its first token came.
    pub first_token: Option<Instant>,
    /// When its last token came.
    pub last_token: Option<Instant>,
    /// Longest gap between two tokens.
    pub stall: Nanos,
    /// When and how it ended.
    pub ended: Option<(Instant, End)>,
    /// While a kernel with its rows was on a lane, before and after the first token.
    pub active: [Nanos; 2],
    /// Whether it came while background work ran, and no other reactive prompt was to be read until its first kernel: what
    /// it waits for that is preemption.
    pub preempts: bool,
    kernels: usize,
    active_since: Instant,
}

impl Times {
    /// From submission to the end, if it was answered.
    #[must_use]
    pub fn latency(&self) -> Option<Nanos> {
        match self.ended {
            Some((at, End::Finished(FinishReason::Stop | FinishReason::Length))) => Some(at - self.arrived),
            _ => None,
        }
    }

    /// From submission to the first token.
    #[must_use]
    pub fn ttft(&self) -> Option<Nanos> {
        Some(self.first_token? - self.arrived)
    }

    /// From submission to the first kernel.
    #[must_use]
    pub fn wait(&self) -> Option<Nanos> {
        Some(self.began? - self.arrived)
    }

    /// Active before the first token, the rest of that time, active after it, and the rest of that.
    #[must_use]
    pub fn breakdown(&self) -> Option<[Nanos; 4]> {
        let (latency, ttft) = (self.latency()?, self.ttft()?);
        let [prefill, decode] = self.active;
        let rest = latency.saturating_sub(ttft);
        Some([prefill, ttft.saturating_sub(prefill), decode, rest.saturating_sub(decode)])
    }

    fn launched(&mut self, now: Instant) {
        self.began.get_or_insert(now);
        if self.kernels == 0 {
            self.active_since = now;
        }
        self.kernels += 1;
    }

    fn kernel_ended(&mut self, now: Instant) {
        self.kernels = self.kernels.saturating_sub(1);
        if self.kernels == 0 {
            self.active[usize::from(self.first_token.is_some())] += now - self.active_since;
        }
    }
}

impl Latencies {
    /// All requests, in the order of their ids.
    pub fn requests(&self) -> impl Iterator<Item = &Times> {
        self.requests.values()
    }

    /// One request.
    #[must_use]
    pub fn get(&self, request: RequestId) -> Option<&Times> {
        self.requests.get(&request)
    }

    fn submitted(&mut self, now: Instant, request: &duet_scheduler::Request) {
        let reactive = request.class == Class::Reactive;
        let times = Times {
            class: request.class,
            arrived: now,
            prompt: request.prompt,
            generated: Tokens::ZERO,
            began: None,
            first_token: None,
            last_token: None,
            stall: Nanos::ZERO,
            ended: None,
            active: [Nanos::ZERO; 2],
            preempts: reactive && self.reading == 0 && !self.background.is_empty(),
            kernels: 0,
            active_since: now,
        };
        self.reading += usize::from(reactive);
        if reactive {
            // Two that wait are served in the policy's order.
            let before = self.preempting.replace(request.id).and_then(|id| self.requests.get_mut(&id));
            if let Some(before) = before.filter(|times| times.began.is_none()) {
                before.preempts = false;
            }
        }
        self.requests.insert(request.id, times);
    }

    fn kernel_ended(&mut self, now: Instant, kernel: KernelId) {
        self.background.remove(&kernel);
        for request in self.running.remove(&kernel).unwrap_or_default() {
            if let Some(times) = self.requests.get_mut(&request) {
                times.kernel_ended(now);
            }
        }
    }

    fn tokens(&mut self, now: Instant, request: RequestId, new: Tokens) {
        let Some(times) = self.requests.get_mut(&request) else { return };
        times.generated += new;
        if let Some(before) = times.last_token.replace(now) {
            times.stall = times.stall.max(now - before);
        }
        if times.first_token.is_none() {
            times.first_token = Some(now);
            self.reading -= usize::from(times.class == Class::Reactive);
        }
    }
}

impl Observer for Latencies {
    fn event(&mut self, now: Instant, event: &Event) {
        match event {
            Event::Submitted(request) => self.submitted(now, request),
            Event::KernelDone { kernel, outcome } => {
                self.kernel_ended(now, *kernel);
                if let Outcome::Tokens(tokens) = outcome {
                    tokens.iter().for_each(|new| self.tokens(now, new.request, new.tokens));
                }
            }
            Event::KernelFailed { kernel } => self.kernel_ended(now, *kernel),
            _ => {}
        }
    }

    fn command(&mut self, now: Instant, command: &Command) {
        match command {
            Command::Launch { kernel, .. } => {
                if kernel.class() == Class::Proactive {
                    self.background.insert(kernel.id);
                }
                let members = kernel.members.iter().map(|member| member.request);
                self.running.insert(kernel.id, members.collect());
                for member in &kernel.members {
                    self.requests.entry(member.request).and_modify(|times| times.launched(now));
                }
            }
            Command::Release { request, end } => {
                let Some(times) = self.requests.get_mut(request) else { return };
                times.ended = Some((now, *end));
                let read = times.first_token.is_some() || times.class == Class::Proactive;
                self.reading -= usize::from(!read);
            }
            _ => {}
        }
    }
}
