//! Latencies of a class: measured, simulated on the machine as profiled, and as fast as it was.

use crate::counters::Counters;
use crate::figures::percentile;
use crate::metrics::{Metrics, mean};
use duet_types::{Class, Nanos};

/// A figure of the recorded run and of its two simulations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    /// Recorded.
    pub measured: f64,
    /// Simulated as profiled.
    pub raw: f64,
    /// Simulated as fast as the probes say.
    pub corrected: f64,
}

/// What a figure is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Mean time to the first token.
    TtftMean,
    /// Mean latency.
    LatencyMean,
    /// Ninetieth percentile of latency.
    LatencyP90,
}

/// The latencies of a class, in seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassFidelity {
    /// The class whose requests these are.
    pub class: Class,
    /// Requests that were answered.
    pub n: usize,
    /// What they had to wait.
    pub figures: Vec<(Figure, Compared)>,
}

/// A simulation that is off by no more than this is believed.
pub const TOLERANCE_PCT: f64 = 15.0;

impl Compared {
    /// How far the simulation as profiled is off, in per cent of what was measured; nothing if nothing was.
    #[must_use]
    pub fn raw_pct(&self) -> Option<f64> {
        self.deviation(self.raw)
    }

    /// How far the corrected simulation is off.
    #[must_use]
    pub fn corrected_pct(&self) -> Option<f64> {
        self.deviation(self.corrected)
    }

    /// Whether the corrected simulation is within tolerance.
    #[must_use]
    pub fn is_within(&self) -> bool {
        self.corrected_pct().is_some_and(|pct| pct.abs() <= TOLERANCE_PCT)
    }

    fn deviation(&self, simulated: f64) -> Option<f64> {
        (self.measured > 0.0).then(|| (simulated / self.measured - 1.0) * 100.0)
    }
}

impl Figure {
    /// What tables call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TtftMean => "mean TTFT",
            Self::LatencyMean => "mean latency",
            Self::LatencyP90 => "P90 latency",
        }
    }

    fn of(self, class: Class, metrics: &Metrics) -> f64 {
        let time = match self {
            Self::TtftMean => mean(&metrics.first_tokens(class)),
            Self::LatencyMean => mean(&metrics.latencies(class)),
            Self::LatencyP90 => percentile(&metrics.latencies(class), 0.9).unwrap_or_default(),
        };
        Nanos::as_secs_f64(time)
    }
}

impl ClassFidelity {
    /// Of the recorded run, the raw and the corrected simulation; nothing if no request of the class was answered.
    pub(super) fn of(class: Class, [measured, raw, corrected]: [&Counters; 3]) -> Option<Self> {
        let n = measured.metrics.latencies(class).len();
        let figures = [Figure::TtftMean, Figure::LatencyMean, Figure::LatencyP90].map(|figure| {
            let of = |counters: &Counters| figure.of(class, &counters.metrics);
            (figure, Compared { measured: of(measured), raw: of(raw), corrected: of(corrected) })
        });
        (n > 0).then(|| Self { class, n, figures: figures.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviations_are_of_what_was_measured() {
        let compared = Compared { measured: 2.0, raw: 1.0, corrected: 2.3 };
        assert_eq!(compared.raw_pct(), Some(-50.0));
        assert!((compared.corrected_pct().unwrap() - 15.0).abs() < 1e-9);
        assert_eq!(Compared { measured: 0.0, ..compared }.corrected_pct(), None);
    }

    #[test]
    fn tolerance_is_on_both_sides_and_nothing_measured_is_nothing_proved() {
        for (corrected, within) in [(0.84, false), (0.86, true), (1.14, true), (1.16, false)] {
            assert_eq!(Compared { measured: 1.0, raw: 1.0, corrected }.is_within(), within, "{corrected}");
        }
        assert!(!Compared { measured: 0.0, raw: 0.0, corrected: 0.0 }.is_within());
    }
}
