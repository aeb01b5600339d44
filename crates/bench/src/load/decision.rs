//! What a decision costs: the scheduler alone, with a queue of any length, in a world that does nothing.
//!
//! A batch decodes, and some proactive requests wait; whenever one of them begins, another comes, so that the queue
//! keeps its length. Time is virtual, kernels take what the scheduler predicts, and no answer ends. What is timed is
//! real: from handing the scheduler the end of a kernel until it has nothing more to say.

use super::summary::Sample;
use duet_driver::{World, step};
use duet_engine::PolicyName;
use duet_scheduler::heg::{SequenceWise, TokenWise};
use duet_scheduler::machine::{Anchors, Capabilities, FewRows, Lane, Machine, PerRow};
use duet_scheduler::{
    Command, Completes, Event, Generated, HeadRows, Heg, Kernel, Limits, Mechanisms, MemoryLimits, Outcome, PassId,
    Request, Scheduler, SchedulerConfig, Yields,
};
use duet_types::{Class, FlowId, Instant, Nanos, Net, RequestId, Tokens};
use serde::Serialize;
use std::collections::BTreeMap;

/// What a decision took with a queue of one length.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DecisionCost {
    /// Requests that waited.
    pub queued: usize,
    /// Kernels whose end was timed.
    pub n: usize,
    /// Half of the decisions took less, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision_us_p50: Option<f64>,
    /// Only with enough kernels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision_us_p99: Option<f64>,
}

/// Times the ends of `kernels` kernels with `queued` requests waiting.
#[must_use]
pub fn decision_cost(policy: PolicyName, queued: usize, kernels: usize) -> DecisionCost {
    let mut scheduler = Scheduler::new(config(), policy.policy());
    let mut world = Idle::default();
    // Those that decode come first, and are past their prompts before the queue is there.
    world.submit(DECODING);
    while world.tokens < u64::from(DECODING) {
        let Some((now, event)) = world.next() else { break };
        step(&mut scheduler, &mut world, now, event);
    }
    world.submit(u32::try_from(queued).unwrap_or(u32::MAX));
    world.replaces = Replaces::WhatBegins;
    let mut times = Vec::with_capacity(kernels);
    while times.len() < kernels {
        let Some((now, event)) = world.next() else { break };
        let timed = matches!(event, Event::KernelDone { .. });
        let started = std::time::Instant::now();
        step(&mut scheduler, &mut world, now, event);
        if timed {
            times.push(started.elapsed().as_secs_f64() * 1e6);
        }
    }
    let sample = Sample::new(times);
    DecisionCost { queued, n: sample.n(), decision_us_p50: sample.quantile(0.5), decision_us_p99: sample.p99() }
}

/// Events in the order of their time; those of one time in the order in which they were caused.
#[derive(Debug, Default)]
struct Idle {
    agenda: BTreeMap<(Instant, u64), Event>,
    sequence: u64,
    now: Instant,
    requests: u64,
    tokens: u64,
    /// Kernels under way of each pass.
    under_way: BTreeMap<PassId, usize>,
    replaces: Replaces,
}

/// Whether a request that begins is replaced in the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Replaces {
    #[default]
    Nothing,
    WhatBegins,
}

impl Idle {
    fn submit(&mut self, count: u32) {
        for _ in 0..count {
            let id = RequestId(self.requests);
            self.requests += 1;
            let flow = FlowId(id.0);
            let request = Request {
                id,
                flow,
                class: Class::Proactive,
                prompt: PROMPT,
                prefix: None,
                head: HeadRows::Last,
                net: Net::Decoder,
            };
            self.happens(self.now, Event::Submitted(request));
        }
    }

    fn happens(&mut self, at: Instant, event: Event) {
        self.agenda.insert((at, self.sequence), event);
        self.sequence += 1;
    }

    fn launch(&mut self, now: Instant, kernel: &Kernel) {
        *self.under_way.entry(kernel.pass).or_default() += 1;
        let members = kernel.members.iter().filter(|member| member.yields == Yields::Token);
        let tokens = members.map(|member| Generated::one(member.request, None)).collect();
        let outcome = match kernel.completes {
            Completes::Span => Outcome::Progressed,
            Completes::Pass => Outcome::Tokens(tokens),
        };
        let event = Event::KernelDone { kernel: kernel.id, outcome };
        self.happens(now + Nanos(kernel.predicted.0.max(1)), event);
    }
}

impl World for Idle {
    fn next(&mut self) -> Option<(Instant, Event)> {
        let ((now, _), event) = self.agenda.pop_first()?;
        self.now = now;
        if let Event::KernelDone { outcome: Outcome::Tokens(tokens), .. } = &event {
            self.tokens += tokens.len() as u64;
        }
        Some((now, event))
    }

    fn apply(&mut self, now: Instant, command: Command) {
        match command {
            Command::Launch { kernel, .. } => self.launch(now, &kernel),
            Command::Restore(request) => {
                self.happens(now, Event::Restored { request, cached: Tokens(0), source: None });
                if self.replaces == Replaces::WhatBegins {
                    self.submit(1);
                }
            }
            Command::SetTimer { at, .. } => self.happens(at.max(now), Event::Timer),
            Command::Prepare(graph) => self.happens(now, Event::GraphFailed { graph: graph.id }),
            Command::LoadGraph(load) => self.happens(now, Event::GraphLoadFailed { block: load.block }),
            Command::Spill(request) => self.happens(now, Event::SpillFailed { request }),
            Command::Probe(lane) => self.happens(now, Event::LaneLost { lane }),
            Command::Reclaim(_)
            | Command::Forget(_)
            | Command::Discard(_)
            | Command::DropCopy { .. }
            | Command::Release { .. } => {}
        }
    }
}

/// A model of 135 million parameters in four bits on two lanes of one core: what the scheduler reckons with, not what is
/// measured.
fn config() -> SchedulerConfig {
    let token_wise =
        |macs: f64| TokenWise { macs_per_row: macs, weight_bytes: macs * 0.625, row_bytes: 4608.0, routed: None };
    let heg = Heg {
        layers: 30,
        qkv: token_wise(576.0 * 960.0),
        ffn: token_wise(576.0 * 576.0 + 3.0 * 576.0 * 1536.0),
        attention: SequenceWise { macs_per_pair: 1152.0, bytes_per_position: 768.0, row_bytes: 4608.0, windowed: None },
        head: token_wise(576.0 * 49152.0),
        experts: None,
        for_head: None,
    };
    let anchors = |cores: f64| Anchors {
        macs_per_s: cores * 3e11,
        attention_macs_per_s: cores * 3e10,
        bytes_per_s: cores * 1.5e10,
        launch: Nanos(2_000),
        exposed: 0.3,
        per_row: PerRow::NONE,
        few_rows: FewRows::NONE,
    };
    let lane = |name: &str| Lane::new(name, Capabilities::CORES, anchors(1.0));
    let machine = Machine::of(vec![lane("cpu0"), lane("cpu1")]).with_team(anchors(2.0));
    let (limits, memory, mechanisms) = (Limits::default(), MemoryLimits::UNBOUNDED, Mechanisms::default());
    SchedulerConfig { machine, heg, encoder: None, limits, memory, mechanisms, graphs: None }
}

/// Requests that decode.
const DECODING: u32 = 8;
const PROMPT: Tokens = Tokens(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_are_timed_under_every_policy() {
        for policy in PolicyName::ALL {
            let cost = decision_cost(policy, 100, 300);
            assert_eq!((cost.queued, cost.n), (100, 300), "{policy}");
            assert!(cost.decision_us_p50 <= cost.decision_us_p99, "{cost:?}");
        }
    }
}
