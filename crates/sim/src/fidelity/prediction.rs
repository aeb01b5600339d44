//! Predicted and measured times of kernels, by stage and by size: where the annotations are wrong.
//!
//! Three predictions are looked at: the annotation on the machine as profiled, the annotation at the speed that the
//! probes found (what the corrected simulation charges, but for what kernels side by side do to each other), and the
//! scheduler's own, which has learned from the kernels before. (Agent.xpu appendix A)

use crate::figures::percentile;
use crate::kernel_log::KernelRun;
use crate::speed::{Speed, SpeedTimeline};
use duet_scheduler::{SchedulerConfig, annotation};
use duet_types::Stage;
use std::collections::BTreeMap;

/// How far predictions are off.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PredictionError {
    /// Mean of |predicted / measured - 1|, per cent.
    pub mean_abs_pct: f64,
    /// The ninetieth percentile of it.
    pub p90_abs_pct: f64,
    /// Measured over predicted time, of all kernels together: above 1, kernels took longer.
    pub time_ratio: f64,
}

/// The kernels of a stage.
#[derive(Clone, Debug, PartialEq)]
pub struct StageError {
    /// The stage that all these kernels belong to.
    pub stage: Stage,
    /// How many kernels these are.
    pub n: usize,
    /// By the annotation, as profiled.
    pub profiled: PredictionError,
    /// By the annotation, at the probed speed.
    pub corrected: PredictionError,
    /// By the scheduler, as it launched them.
    pub scheduler: PredictionError,
}

/// Kernels of about one size.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// Of which stage.
    pub stage: Stage,
    /// On how many lanes.
    pub lanes: usize,
    /// From this many rows to less than twice as many.
    pub rows: u32,
    /// Whether they brought a pass to its end, with the head and the choice of tokens.
    pub ends: Ends,
    /// How many kernels these are.
    pub n: usize,
    /// Seconds that they took.
    pub measured_s: f64,
    /// Seconds that the annotation says at the probed speed.
    pub corrected_s: f64,
}

/// What is at the end of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ends {
    /// Only its nodes.
    Nodes,
    /// The head and tokens.
    Tokens,
}

/// Errors by stage.
pub(super) fn stages(config: &SchedulerConfig, runs: &[KernelRun], timeline: &SpeedTimeline) -> Vec<StageError> {
    let mut by_stage: BTreeMap<usize, Vec<&KernelRun>> = BTreeMap::new();
    for run in runs {
        by_stage.entry(run.stage as usize).or_default().push(run);
    }
    let stage = |runs: &Vec<&KernelRun>| StageError {
        stage: runs[0].stage,
        n: runs.len(),
        profiled: error(runs, |run| predicted(config, run, &Speed::PROFILED)),
        corrected: error(runs, |run| predicted(config, run, timeline.at(run.at))),
        scheduler: error(runs, |run| run.predicted.as_secs_f64()),
    };
    by_stage.values().map(stage).collect()
}

/// Sizes of kernels, those first whose prediction missed the most time.
pub(super) fn shapes(config: &SchedulerConfig, runs: &[KernelRun], timeline: &SpeedTimeline) -> Vec<Shape> {
    let mut shapes: BTreeMap<(usize, usize, u32, Ends), Shape> = BTreeMap::new();
    for run in runs {
        let rows = 1 << (run.load.rows.max(1.0) as u32).ilog2();
        let head = run.nodes.end == config.graph(run.load.net).nodes() && run.load.tokens > 0.0;
        let ends = if head { Ends::Tokens } else { Ends::Nodes };
        let (stage, lanes) = (run.stage, run.lanes.len());
        let new = Shape { stage, lanes, rows, ends, n: 0, measured_s: 0.0, corrected_s: 0.0 };
        let shape = shapes.entry((stage as usize, lanes, rows, ends)).or_insert(new);
        shape.n += 1;
        shape.measured_s += run.took.as_secs_f64();
        shape.corrected_s += predicted(config, run, timeline.at(run.at));
    }
    let mut shapes: Vec<Shape> = shapes.into_values().collect();
    shapes.sort_by(|a, b| b.missed_s().abs().total_cmp(&a.missed_s().abs()));
    shapes
}

impl Shape {
    /// Seconds that the prediction missed: above zero, kernels took longer.
    #[must_use]
    pub fn missed_s(&self) -> f64 {
        self.measured_s - self.corrected_s
    }
}

/// Seconds that the annotation says at some speed.
fn predicted(config: &SchedulerConfig, run: &KernelRun, speed: &Speed) -> f64 {
    let anchors = speed.of(run.lanes, config.machine.anchors(run.lanes));
    annotation::predict(config.graph(run.load.net), &anchors, &run.load, &run.nodes).as_secs_f64()
}

fn error(runs: &[&KernelRun], predicted: impl Fn(&KernelRun) -> f64) -> PredictionError {
    let (mut errors, mut sum_measured, mut sum_predicted) = (Vec::new(), 0.0, 0.0);
    for run in runs {
        let (measured, predicted) = (run.took.as_secs_f64().max(1e-9), predicted(run));
        errors.push((predicted / measured - 1.0).abs() * 100.0);
        sum_measured += measured;
        sum_predicted += predicted;
    }
    errors.sort_by(f64::total_cmp);
    PredictionError {
        mean_abs_pct: errors.iter().sum::<f64>() / errors.len().max(1) as f64,
        p90_abs_pct: percentile(&errors, 0.9).unwrap_or(0.0),
        time_ratio: sum_measured / f64::max(sum_predicted, 1e-9),
    }
}
