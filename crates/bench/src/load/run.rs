//! The plain run: one policy, one load, the figures that they have.

use super::conservation::conservation;
use super::interference::{Interference, identical_outputs, interference};
use super::lanes::{LaneFigures, PredictedEnergy, lanes};
use super::mixed::{self, Background, MixedSettings};
use super::sampled::{Decisions, PreemptMs};
use super::subject::Subject;
use super::summary::{Summary, ratio};
use super::workload::Workload;
use super::{LoadError, Progress};
use duet_types::Class;
use serde::Serialize;

/// What a plain run prints. A figure that was not measured is absent.
#[derive(Clone, Debug, Serialize)]
pub struct LoadReport {
    /// The policy, or the name of the server.
    pub policy: String,
    /// Requests of the mixed slices that ended well.
    pub n: usize,
    /// Of the mixed slices.
    pub reactive: Summary,
    /// Of the mixed slices.
    pub proactive: Summary,
    /// Of the slices in which one class was alone.
    pub alone: Alone,
    /// The foreground's loss.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interference: Option<Interference>,
    /// The same beside the second background, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interference_doubled: Option<Interference>,
    /// How much slower the foreground is beside the second background than beside the first: 1 where more load is no more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub growth: Option<f64>,
    /// From a reactive request's admission to its first kernel, in the mixed slices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preempt_ms: Option<PreemptMs>,
    /// The background's share of what the foreground left; only of a closed loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work_conservation: Option<f64>,
    /// What the scheduler took, in the mixed slices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<Decisions>,
    /// What each lane did in the mixed slices; none of a server.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lanes: Vec<LaneFigures>,
    /// What the lanes took, by the watts that were told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted_energy: Option<PredictedEnergy>,
    /// Whether every reactive request had the same answer alone and mixed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identical_outputs: Option<bool>,
}

/// Each class alone.
#[derive(Clone, Debug, Serialize)]
pub struct Alone {
    /// Reactive requests measured alone.
    pub n: usize,
    /// Their mean latency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reactive_mean_s: Option<f64>,
    /// Their 99th percentile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reactive_p99_s: Option<f64>,
    /// Proactive tokens a second alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proactive_tok_s: Option<f64>,
}

/// Runs one load against one subject.
///
/// # Errors
/// If the subject cannot be started or answers nothing, or the workload lacks a class.
pub fn run(
    subject: &Subject,
    workload: &Workload,
    settings: &MixedSettings,
    progress: Progress<'_>,
) -> Result<LoadReport, LoadError> {
    let played = mixed::run(subject, workload, settings, progress)?;
    let together = played.mixed.first().map(Vec::as_slice).unwrap_or_default();
    let reactive = Summary::of(Class::Reactive, together);
    let proactive = Summary::of(Class::Proactive, together);
    let alone = Summary::of(Class::Reactive, &played.reactive_alone);
    let closed = matches!(settings.backgrounds.first(), Some(Background::InFlight(_)));
    let lost = interference(&played.reactive_alone, together);
    let doubled = played.mixed.get(1).map(|slices| interference(&played.reactive_alone, slices));
    let growth = doubled.as_ref().and_then(|doubled| ratio(doubled.mean_ratio, lost.mean_ratio));
    let lanes = lanes(together);
    let tokens: f64 = together.iter().flat_map(|slice| &slice.records).map(|record| record.in_window as f64).sum();
    let shares = conservation(&played);
    Ok(LoadReport {
        policy: subject.name(),
        n: reactive.n + proactive.n,
        alone: Alone {
            n: alone.n,
            reactive_mean_s: alone.mean_s,
            reactive_p99_s: alone.p99_s,
            proactive_tok_s: shares.alone_tok_s,
        },
        interference: lost.mean_ratio.is_some().then_some(lost),
        preempt_ms: PreemptMs::of(together),
        work_conservation: shares.work_conservation.filter(|_| closed),
        scheduler: Decisions::of(together),
        interference_doubled: doubled.filter(|doubled| doubled.mean_ratio.is_some()),
        growth,
        predicted_energy: PredictedEnergy::of(&lanes, tokens),
        lanes,
        identical_outputs: identical_outputs(&played),
        reactive,
        proactive,
    })
}
