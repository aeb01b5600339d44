//! What the engine itself sampled while a slice was played: how soon the foreground began, what deciding cost.

use super::stage::Slice;
use super::summary::Sample;
use duet_types::Nanos;
use serde::Serialize;

/// From a reactive request's admission to the launch of its first kernel, in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PreemptMs {
    /// Requests.
    pub n: usize,
    /// Half of them waited less.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50: Option<f64>,
    /// Only with enough of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99: Option<f64>,
    /// The longest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
}

/// What the scheduler took.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decisions {
    /// Events that it was handed.
    pub n: usize,
    /// Half of them took less, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision_us_p50: Option<f64>,
    /// Only with enough of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision_us_p99: Option<f64>,
    /// Of wall time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
}

impl PreemptMs {
    /// `None` where nothing was sampled.
    pub(crate) fn of(slices: &[Slice]) -> Option<Self> {
        Self::of_sample(&waits_ms(slices))
    }

    /// The same of some waits, in milliseconds.
    pub(crate) fn of_sample(sample: &Sample) -> Option<Self> {
        let figures = Self { n: sample.n(), p50: sample.quantile(0.5), p99: sample.p99(), max: sample.max() };
        (figures.n > 0).then_some(figures)
    }
}

impl Decisions {
    /// `None` where nothing was sampled.
    pub(crate) fn of(slices: &[Slice]) -> Option<Self> {
        let samples = || slices.iter().filter_map(|slice| slice.samples.as_ref());
        let decisions: Vec<Nanos> = samples().flat_map(|samples| samples.decisions.iter().copied()).collect();
        let wall: Nanos = samples().map(|samples| samples.wall).sum();
        let total: Nanos = decisions.iter().copied().sum();
        let sample = Sample::new(decisions.into_iter().map(|time| time.0 as f64 / 1e3).collect());
        let figures = Self {
            n: sample.n(),
            decision_us_p50: sample.quantile(0.5),
            decision_us_p99: sample.p99(),
            share: (wall > Nanos::ZERO).then(|| total.as_secs_f64() / wall.as_secs_f64()),
        };
        (figures.n > 0).then_some(figures)
    }
}

/// Every sampled wait for a first kernel.
pub(crate) fn waits_ms(slices: &[Slice]) -> Sample {
    let samples = slices.iter().filter_map(|slice| slice.samples.as_ref());
    Sample::new(samples.flat_map(|samples| &samples.reactive_start).map(|wait| wait.as_millis_f64()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use duet_engine::EngineSamples;

    #[test]
    fn nothing_sampled_is_nothing_said() {
        let unsampled = Slice { samples: Some(EngineSamples::default()), ..Slice::default() };
        assert_eq!(PreemptMs::of(&[Slice::default(), unsampled.clone()]), None);
        assert_eq!(Decisions::of(&[unsampled]), None);
    }

    #[test]
    fn samples_of_all_slices_are_joined() {
        let samples = EngineSamples {
            reactive_start: vec![Nanos(2_000_000)],
            decisions: vec![Nanos(3_000), Nanos(5_000)],
            wall: Nanos(1_000_000),
            ..EngineSamples::default()
        };
        let slices = vec![Slice { samples: Some(samples), ..Slice::default() }; 100];
        let waits = PreemptMs::of(&slices).unwrap();
        assert_eq!((waits.n, waits.p50, waits.p99, waits.max), (100, Some(2.0), None, Some(2.0)));
        let decisions = Decisions::of(&slices).unwrap();
        assert_eq!((decisions.n, decisions.decision_us_p50, decisions.decision_us_p99), (200, Some(5.0), Some(5.0)));
        assert_eq!(decisions.share, Some(0.008));
    }
}
