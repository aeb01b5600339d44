//! Fidelity: a recorded run beside the same run in simulation.
//!
//! The run is simulated twice: on the machine as its profile says (raw), and as fast as the probes in the log found it
//! to be at each time (corrected). Nothing is fitted to the outcome: both use the profile's anchors, and the correction
//! knows what the probes measured and nothing of the kernels. The corrected one is judged. What is compared is what the
//! scheduler saw of each request, from its submission on; requests that were not answered are in no figure.

mod figures;
mod prediction;

pub use figures::{ClassFidelity, Compared, Figure, TOLERANCE_PCT};
pub use prediction::{Ends, PredictionError, Shape, StageError};

use crate::counters::Counters;
use crate::figures::percentile;
use crate::recorded::Recorded;
use crate::scenario::Scenario;
use crate::speed::{Speed, SpeedTimeline};
use duet_driver::Rates;
use duet_scheduler::Machine;
use duet_scheduler::machine::Joins;
use duet_types::{Class, Instant, LaneId, LaneSet, Nanos};

/// How near the simulation came.
#[derive(Clone, Debug)]
pub struct Fidelity {
    /// Latencies of each class that has any.
    pub classes: Vec<ClassFidelity>,
    /// How far predictions of kernels were off, by stage.
    pub stages: Vec<StageError>,
    /// Sizes of kernels, those first whose prediction missed the most time.
    pub shapes: Vec<Shape>,
    /// Seconds that lanes were busy, all lanes together.
    pub busy_s: Compared,
    /// Seconds in which requests were under way and no lane ran anything.
    pub stalled_s: Compared,
    /// Prompt tokens that were not computed, since kept KV held them.
    pub reused: Compared,
    /// What the probes found against the profile.
    pub speed: Option<SpeedSummary>,
}

/// What the probes of a run found, against the profile, at the times when kernels were launched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpeedSummary {
    /// How many probes.
    pub n: usize,
    /// Arithmetic: tenth, fiftieth and ninetieth percentile.
    pub arithmetic: [f64; 3],
    /// Reading.
    pub memory: [f64; 3],
    /// Share of their time that all lanes were given together.
    pub given: [f64; 3],
    /// What they are relative to.
    pub reference: Reference,
}

/// What probes are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference {
    /// Probes that were taken while the machine was profiled.
    Profile,
    /// The first probes of the run: its profile holds none.
    FirstProbes,
}

/// Simulates a recorded run and compares.
#[must_use]
pub fn judge(recorded: &Recorded) -> Fidelity {
    let speed = speed_of(recorded);
    let timeline = speed.as_ref().map_or_else(SpeedTimeline::default, |(timeline, _)| timeline.clone());
    let scenario = recorded.scenario();
    let raw = simulate(&scenario);
    let mut drifting = scenario;
    drifting.truth.speed = timeline.clone();
    let corrected = simulate(&drifting);
    let runs = [&recorded.counters, &raw, &corrected];
    let compared = |figure: fn(&Counters) -> f64| {
        let [measured, raw, corrected] = runs.map(figure);
        Compared { measured, raw, corrected }
    };
    let (config, kernels) = (&recorded.header.config, recorded.counters.kernels.done());
    let classes = [Class::Reactive, Class::Proactive];
    Fidelity {
        classes: classes.into_iter().filter_map(|class| ClassFidelity::of(class, runs)).collect(),
        stages: prediction::stages(config, kernels, &timeline),
        shapes: prediction::shapes(config, kernels, &timeline),
        busy_s: compared(|counters| counters.kernels.busy().as_secs_f64()),
        stalled_s: compared(|counters| stalled(counters).as_secs_f64()),
        reused: compared(|counters| f64::from(counters.reuse.tokens().0)),
        speed: speed.map(|(timeline, reference)| summary(recorded, &timeline, reference)),
    }
}

fn simulate(scenario: &Scenario) -> Counters {
    scenario.run(Counters::default()).observer
}

/// How fast the machine was, by the log's probes.
fn speed_of(recorded: &Recorded) -> Option<(SpeedTimeline, Reference)> {
    let probes = &recorded.probes;
    let (profiled, reference) = match recorded.header.profiled.filter(Rates::are_sane) {
        Some(profiled) => (profiled, Reference::Profile),
        None => (first(probes.iter().map(|probed| probed.probe.rates))?, Reference::FirstProbes),
    };
    (!probes.is_empty())
        .then(|| (SpeedTimeline::of_probes(probes, profiled, devices(&recorded.header.config.machine)), reference))
}

/// Lanes that are not cores.
fn devices(machine: &Machine) -> LaneSet {
    let joins = |lane: LaneId| machine.lane(lane).capabilities.joins;
    machine.all().iter().filter(|&lane| joins(lane) != Joins::Crew).collect()
}

/// The fastest of the first probes, as a profile holds the fastest.
fn first(rates: impl Iterator<Item = Rates>) -> Option<Rates> {
    rates.take(FIRST).reduce(|a, b| Rates {
        macs_per_s: a.macs_per_s.max(b.macs_per_s),
        bytes_per_s: a.bytes_per_s.max(b.bytes_per_s),
    })
}

/// Some seconds of probes.
const FIRST: usize = 16;

/// Time in which requests were under way and no kernel ran.
fn stalled(counters: &Counters) -> Nanos {
    let running = counters.kernels.done().iter().map(|run| (run.at, run.at + run.took));
    covered(counters.metrics.open()).saturating_sub(covered(running.collect()))
}

/// Length of a union of spans.
fn covered(mut spans: Vec<(Instant, Instant)>) -> Nanos {
    spans.sort_unstable();
    let (mut total, mut until) = (Nanos::ZERO, Instant::default());
    for (start, end) in spans {
        let start = start.max(until);
        if end > start {
            total += end - start;
            until = end;
        }
    }
    total
}

fn summary(recorded: &Recorded, timeline: &SpeedTimeline, reference: Reference) -> SpeedSummary {
    let all = recorded.header.config.machine.all();
    let kernels = recorded.counters.kernels.done();
    let of = |value: &dyn Fn(&Speed) -> f64| {
        let mut values: Vec<f64> = kernels.iter().map(|run| value(timeline.at(run.at))).collect();
        values.sort_by(f64::total_cmp);
        [0.1, 0.5, 0.9].map(|share| percentile(&values, share).unwrap_or(0.0))
    };
    SpeedSummary {
        n: recorded.probes.len(),
        arithmetic: of(&|speed| speed.arithmetic),
        memory: of(&|speed| speed.memory),
        given: of(&|speed| speed.given(all)),
        reference,
    }
}
