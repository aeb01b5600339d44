//! From records to figures.

use super::record::{Fate, Record};
use super::stage::Slice;
use duet_types::Class;
use serde::Serialize;

/// The requests of one class. Figures of nothing are absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Requests that ended well; the others are counted below and in no other figure.
    pub n: usize,
    /// Requests that failed.
    #[serde(skip_serializing_if = "is_zero")]
    pub errors: usize,
    /// What the first of them said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_error: Option<String>,
    /// Requests that had not ended when the time to wait for them was over.
    #[serde(skip_serializing_if = "is_zero")]
    pub unfinished: usize,
    /// End-to-end latency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_s: Option<f64>,
    /// The mean if those that had not ended took no longer than they were waited for: the true one is higher. Absent
    /// where all had ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_at_least_s: Option<f64>,
    /// Of latency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p90_s: Option<f64>,
    /// Of latency; only with [`N_FOR_P99`] requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_s: Option<f64>,
    /// Of latency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_s: Option<f64>,
    /// Time to the first text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttft_mean_s: Option<f64>,
    /// Latency per token of prompt and answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub norm_ms: Option<f64>,
    /// The longest time between two tokens of one answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall_max_s: Option<f64>,
    /// Generated tokens that came within the windows, a second of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tok_s: Option<f64>,
}

impl Summary {
    /// What is known of the mean.
    pub(crate) fn mean_known_s(&self) -> Option<f64> {
        self.mean_at_least_s.or(self.mean_s)
    }
}

/// With fewer samples a 99th percentile is the maximum by another name.
pub const N_FOR_P99: usize = 200;

impl Summary {
    /// The requests of `class` in `slices`.
    pub(crate) fn of(class: Class, slices: &[Slice]) -> Self {
        let records = || slices.iter().flat_map(|slice| &slice.records).filter(|record| record.class == class);
        let whole: Vec<&Record> = records().filter(|record| record.counts_as(class)).collect();
        let errors: Vec<_> = records()
            .filter_map(|record| match &record.fate {
                Fate::Failed(error) => Some(error),
                Fate::Ended | Fate::Cut | Fate::Unfinished => None,
            })
            .collect();
        let figures = Sample::new(whole.iter().map(|record| record.latency).collect());
        let unfinished = slices.iter().map(|slice| slice.unfinished(class)).sum();
        let waited_for = |record: &&Record| record.counts_as(class) || record.fate == Fate::Unfinished;
        let waited = Sample::new(records().filter(waited_for).map(|record| record.latency).collect());
        let norm = |record: &&Record| record.latency * 1e3 / f64::from((record.prompt.0 + record.output.0).max(1));
        let window: f64 = slices.iter().map(|slice| slice.window.as_secs_f64()).sum();
        let tokens: u64 = records().map(|record| record.in_window).sum();
        Self {
            n: whole.len(),
            errors: errors.len(),
            first_error: errors.first().map(|error| (*error).clone()),
            unfinished,
            mean_at_least_s: waited.mean().filter(|_| unfinished > 0),
            mean_s: figures.mean(),
            p90_s: figures.quantile(0.9),
            p99_s: figures.p99(),
            max_s: figures.max(),
            ttft_mean_s: Sample::new(whole.iter().map(|record| record.ttft.unwrap_or(record.latency)).collect()).mean(),
            norm_ms: Sample::new(whole.iter().map(norm).collect()).mean(),
            stall_max_s: Sample::new(whole.iter().filter_map(|record| record.gap_max).collect()).max(),
            tok_s: (tokens > 0 && window > 0.0).then(|| tokens as f64 / window),
        }
    }
}

/// Values, sorted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sample(Vec<f64>);

impl Sample {
    pub(crate) fn new(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self(values)
    }

    pub(crate) fn values(&self) -> &[f64] {
        &self.0
    }

    pub(crate) fn n(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn mean(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.iter().sum::<f64>() / self.0.len() as f64)
    }

    /// The value that a share `p` of the others is below.
    pub(crate) fn quantile(&self, p: f64) -> Option<f64> {
        let index = ((p * self.0.len() as f64) as usize).min(self.0.len().saturating_sub(1));
        self.0.get(index).copied()
    }

    /// Absent with fewer than [`N_FOR_P99`] values.
    pub(crate) fn p99(&self) -> Option<f64> {
        (self.0.len() >= N_FOR_P99).then(|| self.quantile(0.99)).flatten()
    }

    pub(crate) fn max(&self) -> Option<f64> {
        self.0.last().copied()
    }
}

/// `a / b`, where both were measured and there is something to divide by.
pub(crate) fn ratio(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.zip(b).filter(|&(_, b)| b > 0.0).map(|(a, b)| a / b)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use duet_types::Tokens;
    use std::time::Duration;

    pub(crate) fn record(class: Class, index: usize, arrival: f64, latency: f64) -> Record {
        Record {
            class,
            index,
            arrival,
            latency,
            ttft: Some(latency / 2.0),
            gap_max: Some(latency / 4.0),
            prompt: Tokens(90),
            cached: None,
            output: Tokens(10),
            in_window: 10,
            text_hash: 0,
            fate: Fate::Ended,
        }
    }

    pub(crate) fn slice(records: Vec<Record>) -> Slice {
        Slice { window: Duration::from_secs(10), records, ..Slice::default() }
    }

    #[test]
    fn percentiles_are_those_of_the_tool() {
        let sample = Sample::new((1..=10).rev().map(f64::from).collect());
        assert_eq!(sample.mean(), Some(5.5));
        assert_eq!((sample.quantile(0.5), sample.quantile(0.9), sample.max()), (Some(6.0), Some(10.0), Some(10.0)));
        assert_eq!(Sample::default().quantile(0.9), None);
        assert_eq!(Sample::default().mean(), None);
    }

    #[test]
    fn a_99th_percentile_takes_200_samples() {
        let sample = |n: u32| Sample::new((0..n).map(f64::from).collect());
        assert_eq!(sample(199).p99(), None);
        assert_eq!(sample(200).p99(), Some(198.0));
        let few = Summary::of(Class::Reactive, &[slice(vec![record(Class::Reactive, 0, 0.0, 1.0)])]);
        let json = serde_json::to_value(&few).unwrap();
        assert!(json.get("p99_s").is_none() && json.get("errors").is_none(), "{json}");
    }

    #[test]
    fn only_whole_requests_of_the_window_have_latencies_but_all_tokens_in_it_count() {
        let cut = Record { fate: Fate::Cut, ..record(Class::Proactive, 1, 2.0, 70.0) };
        let unfinished = Record { fate: Fate::Unfinished, in_window: 0, ..record(Class::Proactive, 4, 2.0, 6.0) };
        let failed = Record { fate: Fate::Failed("x".into()), in_window: 0, ..record(Class::Proactive, 2, 3.0, 9.0) };
        let early = record(Class::Proactive, 3, -1.0, 30.0);
        let other = record(Class::Reactive, 0, 0.0, 99.0);
        let slices = [
            slice(vec![record(Class::Proactive, 0, 1.0, 2.0), cut, unfinished, failed, early, other]),
            slice(vec![record(Class::Proactive, 0, 1.0, 4.0)]),
        ];
        let summary = Summary::of(Class::Proactive, &slices);
        assert_eq!((summary.n, summary.errors, summary.unfinished), (2, 1, 1));
        assert_eq!(summary.mean_at_least_s, Some(4.0));
        assert_eq!((summary.mean_s, summary.ttft_mean_s, summary.norm_ms), (Some(3.0), Some(1.5), Some(30.0)));
        assert_eq!(summary.stall_max_s, Some(1.0));
        assert_eq!(summary.tok_s, Some(40.0 / 20.0));
        assert_eq!(summary.first_error.as_deref(), Some("x"));
    }

    #[test]
    fn nothing_measured_is_nothing_said() {
        let json = serde_json::to_value(Summary::of(Class::Reactive, &[])).unwrap();
        assert_eq!(json, serde_json::json!({"n": 0}));
    }
}
