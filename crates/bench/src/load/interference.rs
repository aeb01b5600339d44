//! How much slower the foreground is because there is a background.

use super::mixed::Mixed;
use super::stage::Slice;
use super::summary::{Sample, Summary, ratio};
use duet_types::Class;
use serde::Serialize;
use std::collections::BTreeMap;

/// Reactive latency beside a background, over that of the same trace alone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Interference {
    /// Requests of the smaller side.
    pub n: usize,
    /// Of the means.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_ratio: Option<f64>,
    /// Of the 99th percentiles; only where both sides have enough samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ratio: Option<f64>,
    /// Of the longest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_ratio: Option<f64>,
    /// The same request's latency beside the background over its latency alone: the middle of all requests. Says how
    /// the typical request fared, where the mean says how the sum did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paired_median: Option<f64>,
}

/// Compares two lists of slices that are round by round the same trace.
pub(crate) fn interference(alone: &[Slice], mixed: &[Slice]) -> Interference {
    let (a, b) = (Summary::of(Class::Reactive, alone), Summary::of(Class::Reactive, mixed));
    let pairs = pairs(alone, mixed).map(|(alone, mixed)| mixed.0 / alone.0.max(1e-9));
    Interference {
        n: a.n.min(b.n),
        mean_ratio: ratio(b.mean_s, a.mean_s),
        p99_ratio: ratio(b.p99_s, a.p99_s),
        max_ratio: ratio(b.max_s, a.max_s),
        paired_median: Sample::new(pairs.collect()).quantile(0.5),
    }
}

/// Whether every reactive request had the same answer, to the letter, alone and beside each background. `None` if no
/// request ended in both.
pub(crate) fn identical_outputs(mixed: &Mixed) -> Option<bool> {
    let compared: Vec<bool> = mixed
        .mixed
        .iter()
        .flat_map(|slices| pairs(&mixed.reactive_alone, slices).map(|(alone, mixed)| alone.1 == mixed.1))
        .collect();
    (!compared.is_empty()).then(|| compared.into_iter().all(|same| same))
}

/// Latency and hash of every request that ended on both sides.
fn pairs<'a>(alone: &'a [Slice], mixed: &'a [Slice]) -> impl Iterator<Item = ((f64, u64), (f64, u64))> + 'a {
    alone.iter().zip(mixed).flat_map(|(alone, mixed)| {
        let alone: BTreeMap<_, _> = alone
            .whole(Class::Reactive)
            .into_iter()
            .map(|record| (record.index, (record.latency, record.text_hash)))
            .collect();
        let mixed = mixed.whole(Class::Reactive).into_iter();
        let pair = move |record: &super::record::Record| {
            alone.get(&record.index).map(|&alone| (alone, (record.latency, record.text_hash)))
        };
        mixed.filter_map(pair).collect::<Vec<_>>()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::record::Record;
    use crate::load::summary::tests::{record, slice};

    fn slices(latency: f64, hash: u64) -> Vec<Slice> {
        let reactive = |index| Record { text_hash: hash, ..record(Class::Reactive, index, index as f64, latency) };
        vec![slice((0..3).map(reactive).collect()), slice((3..5).map(reactive).collect())]
    }

    #[test]
    fn ratios_are_of_the_same_trace() {
        let result = interference(&slices(2.0, 1), &slices(3.0, 1));
        assert_eq!((result.n, result.mean_ratio, result.max_ratio), (5, Some(1.5), Some(1.5)));
        assert_eq!((result.p99_ratio, result.paired_median), (None, Some(1.5)));
        assert_eq!(interference(&[], &[]).mean_ratio, None);
    }

    #[test]
    fn outputs_are_compared_request_by_request() {
        let mixed = |hash| Mixed {
            reactive_alone: slices(1.0, 1),
            mixed: vec![slices(1.0, 1), slices(2.0, hash)],
            ..Mixed::default()
        };
        assert_eq!(identical_outputs(&mixed(1)), Some(true));
        assert_eq!(identical_outputs(&mixed(2)), Some(false));
        assert_eq!(identical_outputs(&Mixed::default()), None);
    }
}
