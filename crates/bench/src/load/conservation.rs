//! Whether the background gets what the foreground leaves.

use super::mixed::Mixed;
use super::stage::Slice;
use super::summary::{Summary, ratio};
use duet_types::Class;
use serde::Serialize;

/// The background's speed and what it should be.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Conservation {
    /// Rounds of slices.
    pub n: usize,
    /// Proactive tokens a second without a foreground.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alone_tok_s: Option<f64>,
    /// Proactive tokens a second beside it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mixed_tok_s: Option<f64>,
    /// Share of the time in which no reactive request is under way when they run alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_share: Option<f64>,
    /// `mixed / (alone × free share)`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work_conservation: Option<f64>,
}

/// Of the first background, which must be a closed loop: an open one's throughput is its rate.
pub(crate) fn conservation(mixed: &Mixed) -> Conservation {
    let tokens = |slices: &[Slice]| Summary::of(Class::Proactive, slices).tok_s;
    let alone_tok_s = tokens(&mixed.background_alone);
    let mixed_tok_s = mixed.mixed.first().and_then(|slices| tokens(slices));
    let free_share = free_share(&mixed.reactive_alone);
    let due = alone_tok_s.zip(free_share).map(|(alone, free)| alone * free);
    let work_conservation = ratio(mixed_tok_s, due);
    Conservation { n: mixed.background_alone.len(), alone_tok_s, mixed_tok_s, free_share, work_conservation }
}

/// The share of the windows in which no reactive request was under way.
fn free_share(slices: &[Slice]) -> Option<f64> {
    let total: f64 = slices.iter().map(|slice| slice.window.as_secs_f64()).sum();
    let busy: f64 = slices.iter().map(busy_seconds).sum();
    (total > 0.0).then(|| 1.0 - busy / total)
}

/// Time of the window in which at least one reactive request was under way.
fn busy_seconds(slice: &Slice) -> f64 {
    let window = slice.window.as_secs_f64();
    let reactive = slice.records.iter().filter(|record| record.class == Class::Reactive);
    let mut spans: Vec<_> =
        reactive.map(|record| (record.arrival.clamp(0.0, window), record.end().clamp(0.0, window))).collect();
    spans.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut busy = 0.0;
    let mut covered = 0.0_f64;
    for (start, end) in spans {
        busy += (end - start.max(covered)).max(0.0);
        covered = covered.max(end);
    }
    busy
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::record::Record;
    use crate::load::summary::tests::{record, slice};

    #[test]
    fn time_is_busy_once_however_many_requests_share_it() {
        let reactive = |arrival, latency| record(Class::Reactive, 0, arrival, latency);
        let busy = slice(vec![reactive(0.0, 2.0), reactive(1.0, 2.0), reactive(1.5, 0.5), reactive(9.0, 5.0)]);
        assert_eq!(busy_seconds(&busy), 4.0);
        assert_eq!(free_share(&[busy, slice(vec![])]), Some(0.8));
    }

    #[test]
    fn the_background_is_due_what_is_free() {
        let proactive = |tokens| slice(vec![Record { in_window: tokens, ..record(Class::Proactive, 0, 0.0, 1.0) }]);
        let mixed = Mixed {
            reactive_alone: vec![slice(vec![record(Class::Reactive, 0, 0.0, 5.0)])],
            background_alone: vec![proactive(1000)],
            mixed: vec![vec![proactive(450)]],
        };
        let result = conservation(&mixed);
        assert_eq!((result.alone_tok_s, result.mixed_tok_s, result.free_share), (Some(100.0), Some(45.0), Some(0.5)));
        assert_eq!(result.work_conservation, Some(0.9));
        assert_eq!(conservation(&Mixed::default()).work_conservation, None);
    }
}
