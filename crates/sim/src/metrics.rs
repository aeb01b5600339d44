//! What requests had to wait for, counted from events and commands alone.

use duet_driver::Observer;
use duet_scheduler::{Command, End, Event, Outcome};
use duet_types::{Class, FinishReason, Instant, Nanos, RequestId};
use std::collections::BTreeMap;

/// Counts while it happens.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    requests: BTreeMap<RequestId, Times>,
    spills: usize,
    discards: usize,
    last: Instant,
}

/// When what happened to a request.
#[derive(Clone, Debug)]
struct Times {
    class: Class,
    arrived: Instant,
    launched: Option<Instant>,
    tokens: Vec<Instant>,
    ended: Option<(Instant, End)>,
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
        let tokens: usize = self.requests.values().map(|times| times.tokens.len()).sum();
        let of_class = |class| self.requests.values().filter(move |times| times.class == class);
        let first_tokens: Vec<Nanos> =
            of_class(Class::Reactive).filter_map(|times| Some(*times.tokens.first()? - times.arrived)).collect();
        let launches = of_class(Class::Reactive).filter_map(|times| Some(times.launched? - times.arrived));
        let gaps = of_class(Class::Reactive).flat_map(|times| times.tokens.windows(2).map(|pair| pair[1] - pair[0]));
        Summary {
            reactive_mean: mean(&reactive),
            reactive_p90: percentile(&reactive, 0.9),
            ttft_mean: mean(&first_tokens),
            proactive_mean: mean(&self.latencies(Class::Proactive)),
            tokens_per_s: tokens as f64 / (self.last.0.max(1) as f64 / 1e9),
            preemption_max: launches.max().unwrap_or_default(),
            stall_max: gaps.max().unwrap_or_default(),
            spills: self.spills,
            discards: self.discards,
        }
    }

    /// From submission to the end of every request that was answered, in order.
    #[must_use]
    pub fn latencies(&self, class: Class) -> Vec<Nanos> {
        let all = self.requests.values().filter(|times| times.class == class);
        let mut latencies: Vec<Nanos> = all
            .filter_map(|times| match times.ended {
                Some((at, End::Finished(FinishReason::Stop | FinishReason::Length))) => Some(at - times.arrived),
                _ => None,
            })
            .collect();
        latencies.sort();
        latencies
    }

    /// From submission to the first token of every request that was answered, in order.
    #[must_use]
    pub fn first_tokens(&self, class: Class) -> Vec<Nanos> {
        let answered = self.requests.values().filter(|times| times.class == class && times.is_answered());
        let mut first: Vec<Nanos> = answered.filter_map(|times| Some(*times.tokens.first()? - times.arrived)).collect();
        first.sort();
        first
    }

    /// When each request came and when it was over, or the last token of all if it was not.
    pub(crate) fn open(&self) -> Vec<(Instant, Instant)> {
        let end = |times: &Times| times.ended.map_or(self.last, |(at, _)| at);
        self.requests.values().map(|times| (times.arrived, end(times))).collect()
    }

    /// From the submission of a request to its end, however it ended.
    #[must_use]
    pub fn latency(&self, request: RequestId) -> Option<Nanos> {
        let times = self.requests.get(&request)?;
        Some(times.ended?.0 - times.arrived)
    }

    /// From the submission of a request to its first token.
    #[must_use]
    pub fn ttft(&self, request: RequestId) -> Option<Nanos> {
        let times = self.requests.get(&request)?;
        Some(*times.tokens.first()? - times.arrived)
    }

    /// From the submission of a request to its first kernel.
    #[must_use]
    pub fn wait(&self, request: RequestId) -> Option<Nanos> {
        let times = self.requests.get(&request)?;
        Some(times.launched? - times.arrived)
    }
}

impl Times {
    fn is_answered(&self) -> bool {
        matches!(self.ended, Some((_, End::Finished(FinishReason::Stop | FinishReason::Length))))
    }
}

impl Observer for Metrics {
    fn event(&mut self, now: Instant, event: &Event) {
        match event {
            Event::Submitted(request) => {
                let times =
                    Times { class: request.class, arrived: now, launched: None, tokens: Vec::new(), ended: None };
                self.requests.insert(request.id, times);
            }
            Event::KernelDone { outcome: Outcome::Tokens(tokens), .. } => {
                self.last = now;
                for token in tokens {
                    self.requests.entry(token.request).and_modify(|times| times.tokens.push(now));
                }
            }
            _ => {}
        }
    }

    fn command(&mut self, now: Instant, command: &Command) {
        match command {
            Command::Launch { kernel, .. } => {
                for member in &kernel.members {
                    self.requests
                        .entry(member.request)
                        .and_modify(|times| times.launched = times.launched.or(Some(now)));
                }
            }
            Command::Release { request, end } => {
                self.requests.entry(*request).and_modify(|times| times.ended = Some((now, *end)));
            }
            Command::Spill(_) => self.spills += 1,
            Command::Discard(_) => self.discards += 1,
            _ => {}
        }
    }
}

pub(crate) fn mean(all: &[Nanos]) -> Nanos {
    Nanos(all.iter().map(|nanos| nanos.0).sum::<u64>() / all.len().max(1) as u64)
}

pub(crate) fn percentile(sorted: &[Nanos], share: f64) -> Nanos {
    let index = (sorted.len() as f64 * share) as usize;
    sorted.get(index.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}
