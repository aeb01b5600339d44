//! Latency over load: both streams arrive at random, more and more of them, up to past what the machine can do.
//!
//! Every subject plays every point with the same arrivals; at each point they take turns, every other round in reverse
//! order. No two points or rounds draw the same sequence of prompts: a server that keeps its caches from one slice to the
//! next would otherwise have read them all.

use super::arrivals::{Rates, Stream};
use super::mixed::play_rates;
use super::stage::{Slice, Stage, Timing, play};
use super::subject::Subject;
use super::summary::Summary;
use super::workload::Workload;
use super::{LoadError, Progress};
use duet_types::Class;
use serde::Serialize;
use std::time::Duration;

/// What a curve plays.
#[derive(Clone, Debug)]
pub struct CurveSettings {
    /// The loads, lightest first.
    pub points: Vec<Rates>,
    /// Time of each subject at each point, all rounds together.
    pub window: Duration,
    /// Time of each subject alone.
    pub alone: Duration,
    /// How often the subjects take turns at a point.
    pub rounds: usize,
    /// Same seed, same arrivals and prompts.
    pub seed: u64,
}

/// One subject under one load.
#[derive(Clone, Debug, Serialize)]
pub struct CurvePoint {
    /// The policy or the peer.
    pub policy: String,
    /// Reactive requests a minute.
    pub reactive_per_min: f64,
    /// Proactive requests a minute.
    pub proactive_per_min: f64,
    /// Requests that ended well.
    pub n: usize,
    /// Of this load.
    pub reactive: Summary,
    /// Of this load.
    pub proactive: Summary,
    /// Reactive requests one after another, with nothing else to do.
    pub alone: AloneMean,
    /// Whether requests arrived faster than they were served.
    pub saturated: bool,
}

/// A subject's reactive latency with nothing else to do.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct AloneMean {
    /// Requests.
    pub n: usize,
    /// Their mean latency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reactive_mean_s: Option<f64>,
}

/// The loads of the report, in requests a minute.
pub const POINTS: [(f64, f64); 6] = [(3.0, 6.0), (6.0, 12.0), (12.0, 24.0), (12.0, 60.0), (24.0, 120.0), (24.0, 300.0)];

/// Plays all points; point by point, each subject.
///
/// # Errors
/// If a subject cannot be started or answers nothing, or the workload lacks a class.
pub fn curve(
    subjects: &[Subject],
    workload: &Workload,
    settings: &CurveSettings,
    progress: Progress<'_>,
) -> Result<Vec<CurvePoint>, LoadError> {
    let mut alone = Vec::new();
    for subject in subjects {
        progress(&format!("{}: reactive alone", subject.name()));
        alone.push(alone_mean(subject, workload, settings)?);
    }
    let rounds = settings.rounds.max(1);
    let window = settings.window / u32::try_from(rounds).unwrap_or(u32::MAX);
    let mut points = Vec::new();
    for (point, &rates) in settings.points.iter().enumerate() {
        let mut slices = vec![Vec::new(); subjects.len()];
        for round in 0..rounds {
            let mut order: Vec<usize> = (0..subjects.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for index in order {
                let subject = &subjects[index];
                progress(&format!(
                    "{}: {} + {} a minute, round {} of {rounds}",
                    subject.name(),
                    rates.reactive,
                    rates.proactive,
                    round + 1
                ));
                // As long again as the window: what has not ended by then would not in any time worth waiting for.
                let timing = Timing { warm_up: Duration::ZERO, window, drain: window };
                slices[index].push(play_rates(
                    subject,
                    workload,
                    rates,
                    timing,
                    settings.seed + (1 + point * rounds + round) as u64,
                )?);
            }
        }
        for ((subject, slices), &alone) in subjects.iter().zip(&slices).zip(&alone) {
            points.push(CurvePoint::new(subject, rates, slices, alone));
        }
    }
    Ok(points)
}

impl CurvePoint {
    fn new(subject: &Subject, rates: Rates, slices: &[Slice], alone: AloneMean) -> Self {
        let reactive = Summary::of(Class::Reactive, slices);
        let proactive = Summary::of(Class::Proactive, slices);
        Self {
            policy: subject.name(),
            reactive_per_min: rates.reactive,
            proactive_per_min: rates.proactive,
            n: reactive.n + proactive.n,
            reactive,
            proactive,
            alone,
            saturated: is_saturated(slices),
        }
    }
}

/// Whether, when a quarter of the window more had passed, less than four fifths of what arrived had ended.
fn is_saturated(slices: &[Slice]) -> bool {
    let sent = slices.iter().map(|slice| slice.records.len()).sum::<usize>();
    let in_time = |slice: &Slice| {
        let late = slice.window.as_secs_f64() * 1.25;
        let whole = [Class::Reactive, Class::Proactive].into_iter().flat_map(|class| slice.whole(class));
        whole.filter(|record| record.end() <= late).count()
    };
    let ended: usize = slices.iter().map(in_time).sum();
    ended * 5 < sent * 4
}

fn alone_mean(subject: &Subject, workload: &Workload, settings: &CurveSettings) -> Result<AloneMean, LoadError> {
    let stream = Stream::new(Class::Reactive, workload.prompts(Class::Reactive)?, settings.seed);
    let one_by_one = |stage: &Stage<'_>| stage.keep_in_flight(1, &stream);
    let timing = Timing { warm_up: Duration::ZERO, window: settings.alone, drain: Duration::ZERO };
    let slice = play(subject, timing, &[], &[&one_by_one])?;
    let summary = Summary::of(Class::Reactive, &[slice]);
    Ok(AloneMean { n: summary.n, reactive_mean_s: summary.mean_s })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::summary::tests::{record, slice};

    #[test]
    fn a_load_that_is_not_served_in_time_is_past_saturation() {
        let at = |latency| slice((0..10).map(|i| record(Class::Proactive, i, i as f64, latency)).collect());
        assert!(!is_saturated(&[at(1.0)]));
        assert!(is_saturated(&[at(30.0)]));
        assert!(!is_saturated(&[slice(vec![])]));
    }
}
