//! What requests had to wait for, counted from events and commands alone.

use crate::figures::percentile;
use crate::latencies::{Latencies, Times};
use duet_driver::Observer;
use duet_scheduler::{Command, Event};
use duet_types::{Class, Instant, Nanos, RequestId};

/// Counts while it happens.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    requests: Latencies,
    spills: usize,
    discards: usize,
    /// When the last token of all came.
    last: Instant,
}

/// What is told of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// From submission to the end, of reactive requests that were answered.
    pub reactive_mean: Nanos,
    /// Nine of ten are answered in this time.
    pub reactive_p90: Nanos,
    /// From submission to the first token.
    pub ttft_mean: Nanos,
    /// From submission to the end, of proactive requests.
    pub proactive_mean: Nanos,
    /// Tokens of all classes a second.
    pub tokens_per_s: f64,
    /// Longest wait of a reactive request for its first kernel.
    pub preemption_max: Nanos,
    /// Longest gap between two tokens of a reactive stream.
    pub stall_max: Nanos,
    /// KV written to disk.
    pub spills: usize,
    /// Live requests that had to begin again.
    pub discards: usize,
}

impl Metrics {
    /// What came of it.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let reactive = self.latencies(Class::Reactive);
        let tokens: u64 = self.requests.requests().map(|times| u64::from(times.generated.0)).sum();
        let of_reactive = || self.of(Class::Reactive);
        let first_tokens: Vec<Nanos> = of_reactive().filter_map(Times::ttft).collect();
        Summary {
            reactive_mean: mean(&reactive),
            reactive_p90: percentile(&reactive, 0.9).unwrap_or_default(),
            ttft_mean: mean(&first_tokens),
            proactive_mean: mean(&self.latencies(Class::Proactive)),
            tokens_per_s: tokens as f64 / (self.last.0.max(1) as f64 / 1e9),
            preemption_max: of_reactive().filter_map(Times::wait).max().unwrap_or_default(),
            stall_max: of_reactive().map(|times| times.stall).max().unwrap_or_default(),
            spills: self.spills,
            discards: self.discards,
        }
    }

    /// From submission to the end of every request that was answered, in order.
    #[must_use]
    pub fn latencies(&self, class: Class) -> Vec<Nanos> {
        sorted(self.of(class).filter_map(Times::latency))
    }

    /// From submission to the first token of every request that was answered, in order.
    #[must_use]
    pub fn first_tokens(&self, class: Class) -> Vec<Nanos> {
        sorted(self.of(class).filter(|times| times.latency().is_some()).filter_map(Times::ttft))
    }

    /// When each request came and when it was over, or the last token of all if it was not.
    pub(crate) fn open(&self) -> Vec<(Instant, Instant)> {
        let end = |times: &Times| times.ended.map_or(self.last, |(at, _)| at);
        self.requests.requests().map(|times| (times.arrived, end(times))).collect()
    }

    /// From the submission of a request to its end, however it ended.
    #[must_use]
    pub fn latency(&self, request: RequestId) -> Option<Nanos> {
        let times = self.requests.get(request)?;
        Some(times.ended?.0 - times.arrived)
    }

    /// From the submission of a request to its first token.
    #[must_use]
    pub fn ttft(&self, request: RequestId) -> Option<Nanos> {
        self.requests.get(request)?.ttft()
    }

    /// From the submission of a request to its first kernel.
    #[must_use]
    pub fn wait(&self, request: RequestId) -> Option<Nanos> {
        self.requests.get(request)?.wait()
    }

    fn of(&self, class: Class) -> impl Iterator<Item = &Times> {
        self.requests.requests().filter(move |times| times.class == class)
    }
}

impl Observer for Metrics {
    fn event(&mut self, now: Instant, event: &Event) {
        self.requests.event(now, event);
        if let Event::KernelDone { outcome: duet_scheduler::Outcome::Tokens(_), .. } = event {
            self.last = now;
        }
    }

    fn command(&mut self, now: Instant, command: &Command) {
        self.requests.command(now, command);
        match command {
            Command::Spill(_) => self.spills += 1,
            Command::Discard(_) => self.discards += 1,
            _ => {}
        }
    }
}

fn sorted(times: impl Iterator<Item = Nanos>) -> Vec<Nanos> {
    let mut sorted: Vec<Nanos> = times.collect();
    sorted.sort_unstable();
    sorted
}

pub(crate) fn mean(all: &[Nanos]) -> Nanos {
    Nanos(all.iter().map(|nanos| nanos.0).sum::<u64>() / all.len().max(1) as u64)
}
