//! From a run to figures.

use crate::kv::Kept;
use crate::latencies::{Latencies, Times};
use crate::meter::Meter;
use crate::soc::Power;
use duet_scheduler::Machine;
use duet_types::{Class, LaneId, Nanos};

/// What is told of a run. Figures of nothing are absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Requests that persons wait for.
    pub reactive: ClassFigures,
    /// Requests that nobody waits for.
    pub proactive: ClassFigures,
    /// One for each lane.
    pub lanes: Vec<LaneFigures>,
    /// Joules of all lanes and of the compiler, if their power is known.
    pub joules: Option<f64>,
    /// Tokens of prompts and answers.
    pub tokens: u64,
    /// First kernels of reactive requests that found background work running, in order.
    pub preempt: Vec<Nanos>,
    /// From the first arrival's clock to the last kernel's end.
    pub lasted: Nanos,
    /// From the end of the arrivals to the last kernel's end.
    pub drain: Nanos,
    /// For how long the graph compiler worked: one thread of the CPU.
    pub compiled: Nanos,
    /// What became of KV.
    pub kept: Kept,
    /// Tokens of prompts.
    pub prompts: u64,
}

/// Requests of one class that were answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassFigures {
    /// How many were answered.
    pub n: usize,
    /// Those that failed or were cancelled.
    pub unanswered: usize,
    /// Of end-to-end latency, in seconds.
    pub mean_s: Option<f64>,
    /// Nine of ten take no longer.
    pub p90_s: Option<f64>,
    /// Ninety-nine of a hundred take no longer.
    pub p99_s: Option<f64>,
    /// Latency per token of prompt and answer.
    pub norm_ms: Option<f64>,
    /// From submission to the first token.
    pub ttft_mean_s: Option<f64>,
    /// From submission to the first kernel.
    pub began_mean_s: Option<f64>,
    /// Means of active prefill, pending prefill, active decode and pending decode, in seconds.
    pub breakdown_s: Option<[f64; 4]>,
    /// Tokens of prompts and answers.
    pub tokens: u64,
}

/// What a lane did.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneFigures {
    /// Its name.
    pub name: String,
    /// Share of the time in which it ran anything.
    pub busy: f64,
    /// The same for the time in which requests came.
    pub busy_in_window: f64,
    /// Time in which it ran anything, in seconds.
    pub busy_s: f64,
    /// Busy time as the system's monitor shows it, decode counting less, in seconds.
    pub monitored_s: f64,
}

impl Figures {
    /// Of a run in which requests came for `window`; `compiled` is the time that the graph compiler worked, and `kept` what
    /// became of KV.
    #[must_use]
    pub fn new(
        latencies: &Latencies,
        meter: &Meter,
        machine: &Machine,
        power: Option<&Power>,
        window: Nanos,
        compiled: Nanos,
        kept: Kept,
    ) -> Self {
        let lasted = Nanos(meter.last().0);
        let mut preempt: Vec<Nanos> =
            latencies.requests().filter(|times| times.preempts).filter_map(Times::wait).collect();
        preempt.sort_unstable();
        let [reactive, proactive] = [Class::Reactive, Class::Proactive].map(|class| ClassFigures::of(latencies, class));
        Self {
            lanes: lanes(meter, machine, power, lasted, window),
            joules: power.map(|power| meter.lanes_joules(power) + power.compile * compiled.as_secs_f64()),
            tokens: reactive.tokens + proactive.tokens,
            reactive,
            proactive,
            preempt,
            lasted,
            drain: lasted.saturating_sub(window),
            compiled,
            kept,
            prompts: latencies.requests().map(|times| u64::from(times.prompt.0)).sum(),
        }
    }

    /// Joules for each token of prompts and answers.
    #[must_use]
    pub fn joules_per_token(&self) -> Option<f64> {
        self.joules.filter(|_| self.tokens > 0).map(|joules| joules / self.tokens as f64)
    }

    /// What a lane did.
    #[must_use]
    pub fn lane(&self, name: &str) -> Option<&LaneFigures> {
        self.lanes.iter().find(|lane| lane.name == name)
    }
}

fn lanes(meter: &Meter, machine: &Machine, power: Option<&Power>, lasted: Nanos, window: Nanos) -> Vec<LaneFigures> {
    let figures = machine.lanes.iter().enumerate().map(|(index, lane)| {
        let lane_id = LaneId(index as u8);
        let busy = meter.lane(lane_id);
        let decode_busy = power.map_or(1.0, |power| power.lanes[index].decode_busy);
        LaneFigures {
            name: lane.name.clone(),
            busy: busy.all().as_secs_f64() / lasted.as_secs_f64().max(1e-9),
            busy_in_window: meter.within(lane_id).as_secs_f64() / window.as_secs_f64().max(1e-9),
            busy_s: busy.all().as_secs_f64(),
            monitored_s: busy.prefill.as_secs_f64() + decode_busy * busy.decode.as_secs_f64(),
        }
    });
    figures.collect()
}

impl ClassFigures {
    fn of(latencies: &Latencies, class: Class) -> Self {
        let all = || latencies.requests().filter(|times| times.class == class);
        let answered: Vec<(&Times, Nanos)> = all().filter_map(|times| Some((times, times.latency()?))).collect();
        let mut sorted: Vec<f64> = answered.iter().map(|(_, latency)| latency.as_secs_f64()).collect();
        sorted.sort_by(f64::total_cmp);
        let tokens = |times: &Times| f64::from((times.prompt + times.generated).0);
        let of = |figure: &dyn Fn(&(&Times, Nanos)) -> Option<f64>| mean(answered.iter().filter_map(figure));
        let part = |index: usize| of(&|(times, _)| Some(times.breakdown()?[index].as_secs_f64()));
        Self {
            n: answered.len(),
            unanswered: all().count() - answered.len(),
            mean_s: mean(sorted.iter().copied()),
            p90_s: percentile(&sorted, 0.9),
            p99_s: percentile(&sorted, 0.99),
            norm_ms: of(&|(times, latency)| Some(latency.as_millis_f64() / tokens(times))),
            ttft_mean_s: of(&|(times, _)| Some(times.ttft()?.as_secs_f64())),
            began_mean_s: of(&|(times, _)| Some(times.wait()?.as_secs_f64())),
            breakdown_s: part(0)
                .map(|first| [first, part(1).unwrap_or(0.0), part(2).unwrap_or(0.0), part(3).unwrap_or(0.0)]),
            tokens: all().map(|times| u64::from((times.prompt + times.generated).0)).sum(),
        }
    }
}

/// The mean of some figures, if there are any.
pub(crate) fn mean(figures: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = figures.fold((0.0, 0_usize), |(sum, count), figure| (sum + figure, count + 1));
    (count > 0).then(|| sum / count as f64)
}

/// The smallest of some sorted figures that so large a share of them does not exceed (nearest rank).
pub fn percentile<T: Copy>(sorted: &[T], share: f64) -> Option<T> {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}
