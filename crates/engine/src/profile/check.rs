//! Predicted against measured: how good the annotations of a profile are.

use super::bench::{Bench, Shape, median, on};
use super::{Measured, Profile, ProfileError, heg};
use crate::executors::Site;
use duet_device::CpuLanes;
use duet_scheduler::heg::Load;
use duet_scheduler::{Yields, annotation};
use duet_types::{LaneId, LaneSet, Tokens};
use serde::Serialize;
use std::sync::Arc;
use std::time::Instant;

/// How far predictions are off, over kernels of many shapes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PredictionError {
    /// Kernels measured.
    pub n: usize,
    /// Mean of |predicted / measured - 1|, per cent.
    pub mean_abs_pct: f64,
    /// The ninetieth percentile of it.
    pub p90_abs_pct: f64,
    /// Median of predicted / measured: above 1, the machine is faster than when it was profiled.
    pub median_ratio: f64,
}

/// Measures kernels of decode batches and prefill chunks over several contexts, on every lane and team that runs whole passes of
/// any number of rows, and compares them with what the profile predicts.
///
/// # Errors
/// [`ProfileError`].
pub(super) fn check(of: &Measured<'_>, lanes: &CpuLanes, profile: &Profile) -> Result<PredictionError, ProfileError> {
    let Measured { model, kv, executors, .. } = *of;
    let context = model.config().context.as_usize();
    let shapes: Vec<Vec<Shape>> = SHAPES
        .iter()
        .filter(|(_, shape)| shape.context + shape.rows <= context)
        .map(|&(batch, shape)| vec![shape; batch])
        .collect();
    let largest = shapes.iter().map(|batch| batch.iter().map(|shape| shape.context + shape.rows + 64).sum::<usize>());
    let bench = Bench::new(Arc::clone(model), Arc::clone(executors), kv, largest.max().unwrap_or(0));
    let heg = executors.as_computed(heg(model, kv));
    let all = lanes.all();
    let mut teams: Vec<LaneSet> = all.iter().map(|lane| LaneSet::from_iter([lane])).collect();
    teams.extend(profile.machine.teams.iter().map(|team| team.lanes));
    let runs_all = |lane: LaneId| {
        let capabilities = &profile.machine.lane(lane).capabilities;
        capabilities.is_dynamic() && capabilities.layers.is_none()
    };
    teams.retain(|team| team.iter().all(runs_all));
    let bench = bench.of_teams(&profile.machine);
    let mut ratios = Vec::new();
    for team in teams {
        for batch in &shapes {
            let (timed, shapes) = (bench.clone(), batch.clone());
            let measured = on(lanes, team, move |site| time_pass(&timed, site, &shapes))??;
            let load = batch.iter().fold(Load::default(), |load, shape| {
                let (start, end) = (shape.context as u32, (shape.context + shape.rows) as u32);
                load.with_rows(Tokens(start)..Tokens(end), Yields::Token)
            });
            let anchors = profile.machine.anchors(team);
            let predicted = annotation::span_time(&heg, anchors, &load, &(0..heg.nodes()));
            ratios.push(predicted.as_secs_f64() / measured);
        }
    }
    let mut errors: Vec<f64> = ratios.iter().map(|ratio| (ratio - 1.0).abs() * 100.0).collect();
    errors.sort_by(f64::total_cmp);
    let n = errors.len();
    Ok(PredictionError {
        n,
        mean_abs_pct: errors.iter().sum::<f64>() / n.max(1) as f64,
        p90_abs_pct: errors.get((n * 9 / 10).min(n.saturating_sub(1))).copied().unwrap_or(0.0),
        median_ratio: median(ratios),
    })
}

/// Sequences, and the rows of each. None of them is one that the profile was fitted to.
const SHAPES: [(usize, Shape); 14] = [
    (1, Shape { context: 100, rows: 1 }),
    (1, Shape { context: 700, rows: 1 }),
    (1, Shape { context: 3000, rows: 1 }),
    (2, Shape { context: 500, rows: 1 }),
    (3, Shape { context: 300, rows: 1 }),
    (6, Shape { context: 400, rows: 1 }),
    (8, Shape { context: 1500, rows: 1 }),
    (12, Shape { context: 200, rows: 1 }),
    (24, Shape { context: 600, rows: 1 }),
    (1, Shape { context: 0, rows: 32 }),
    (1, Shape { context: 0, rows: 100 }),
    (1, Shape { context: 500, rows: 200 }),
    (1, Shape { context: 0, rows: 256 }),
    (1, Shape { context: 3000, rows: 256 }),
];

/// Seconds of a whole pass, head included: the median of several.
fn time_pass(bench: &Bench, site: Site<'_>, shapes: &[Shape]) -> Result<f64, ProfileError> {
    let mut pass = bench.pass(shapes)?;
    let mut last = 0;
    let rows: Vec<usize> = shapes
        .iter()
        .map(|shape| {
            last += shape.rows;
            last - 1
        })
        .collect();
    pass.set_head_rows(rows[0]..pass.rows());
    let mut logits = Vec::new();
    let times: Result<Vec<f64>, ProfileError> = (0..SAMPLES)
        .map(|_| {
            let start = Instant::now();
            bench.time(&mut pass, bench.model.nodes().into_iter(), site)?;
            bench.head(&mut pass, &rows, &mut logits, site)?;
            Ok(start.elapsed().as_secs_f64())
        })
        .collect();
    Ok(median(times?))
}

const SAMPLES: usize = 5;
