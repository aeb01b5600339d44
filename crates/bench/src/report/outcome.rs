//! What a setting came to: the figures of all its seeds, and estimates of them with their spread.
//!
//! An estimate is of the mean over the seeds; its spread are the lowest and the highest seed. Two settings are compared by
//! their means, and for the spread seed by seed, since the seeds' traffic is the same for all.

use duet_sim::Figures;
use std::sync::Arc;

/// The figures of a setting, seed by seed.
#[derive(Clone, Debug)]
pub(crate) struct Outcome(Vec<Arc<Figures>>);

/// A figure of a run; absent if the run has none.
pub(crate) type Read = fn(&Figures) -> Option<f64>;

/// A figure with its spread over the seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    /// Of the means over the seeds.
    pub(crate) value: f64,
    /// The lowest of a seed.
    pub(crate) low: f64,
    /// The highest of a seed.
    pub(crate) high: f64,
}

impl Outcome {
    /// Of some seeds.
    pub(crate) fn new(seeds: Vec<Arc<Figures>>) -> Self {
        Self(seeds)
    }

    /// The figures, seed by seed.
    pub(crate) fn seeds(&self) -> impl Iterator<Item = &Figures> {
        self.0.iter().map(Arc::as_ref)
    }

    /// How many seeds.
    pub(crate) fn seed_count(&self) -> usize {
        self.0.len()
    }

    /// Requests of all seeds that were answered.
    pub(crate) fn n(&self) -> usize {
        self.seeds().map(|figures| figures.reactive.n + figures.proactive.n).sum()
    }

    /// A figure; absent if no seed has it.
    pub(crate) fn read(&self, read: Read) -> Option<Estimate> {
        let values: Vec<f64> = self.seeds().filter_map(read).collect();
        Some(Estimate { value: mean(&values)?, ..Estimate::spread(&values) })
    }

    /// This figure beside that of another setting, of the seeds in which both have it.
    pub(crate) fn beside(&self, other: &Self, read: Read, compare: fn(f64, f64) -> f64) -> Option<Estimate> {
        let pairs = self.seeds().zip(other.seeds()).filter_map(|(ours, theirs)| Some((read(ours)?, read(theirs)?)));
        let (ours, theirs): (Vec<f64>, Vec<f64>) = pairs.unzip();
        let each: Vec<f64> = ours.iter().zip(&theirs).map(|(&ours, &theirs)| compare(ours, theirs)).collect();
        let value = compare(mean(&ours)?, mean(&theirs)?);
        value.is_finite().then_some(Estimate { value, ..Estimate::spread(&each) })
    }
}

impl Estimate {
    /// Of something that has no spread.
    pub(crate) fn exact(value: f64) -> Self {
        Self { value, low: value, high: value }
    }

    /// The same, of the highest seed instead of the mean: for what must never be passed.
    pub(crate) fn of_highest(self) -> Self {
        Self { value: self.high, ..self }
    }

    fn spread(values: &[f64]) -> Self {
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Self { value: low, low, high }
    }
}

/// How many times the second the first is.
pub(crate) fn ratio(ours: f64, theirs: f64) -> f64 {
    ours / theirs
}

/// By how much the first differs from the second, in per cent of the second.
pub(crate) fn change(ours: f64, theirs: f64) -> f64 {
    (ours / theirs - 1.0) * 100.0
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use duet_sim::ClassFigures;

    fn outcome(means: &[Option<f64>]) -> Outcome {
        let figures =
            |mean_s| Figures { reactive: ClassFigures { mean_s, n: 2, ..Default::default() }, ..Default::default() };
        Outcome::new(means.iter().map(|&mean_s| Arc::new(figures(mean_s))).collect())
    }

    #[test]
    fn an_estimate_is_of_means_and_its_spread_of_seeds() {
        let (ours, theirs) = (outcome(&[Some(1.0), Some(3.0), None]), outcome(&[Some(4.0), Some(4.0), Some(100.0)]));
        let read: Read = |figures| figures.reactive.mean_s;
        assert_eq!(ours.read(read), Some(Estimate { value: 2.0, low: 1.0, high: 3.0 }));
        assert_eq!(ours.beside(&theirs, read, ratio), Some(Estimate { value: 0.5, low: 0.25, high: 0.75 }));
        assert_eq!(ours.beside(&theirs, read, change), Some(Estimate { value: -50.0, low: -75.0, high: -25.0 }));
        assert_eq!(ours.read(read).map(Estimate::of_highest), Some(Estimate { value: 3.0, low: 1.0, high: 3.0 }));
        assert_eq!((ours.n(), ours.seed_count()), (6, 3));
    }

    #[test]
    fn nothing_has_no_estimate() {
        let (none, zero) = (outcome(&[None]), outcome(&[Some(0.0)]));
        let read: Read = |figures| figures.reactive.mean_s;
        assert_eq!(none.read(read), None);
        assert_eq!(none.beside(&zero, read, ratio), None);
        assert_eq!(zero.beside(&zero, read, ratio), None);
    }
}
