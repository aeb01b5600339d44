//! Figures of experts that are on disk, with a part of them in memory.

use super::exact::raise;
use duet_model::ExpertMemoryStats;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::AtomicU64;

/// Handles to them; the registry has others to the same.
#[derive(Clone, Debug, Default)]
pub(super) struct ExpertMemoryFamilies {
    asked: Family<OfFound, Counter>,
    predicted: Family<OfPrediction, Counter>,
    read: Counter,
    waited: Counter<f64, AtomicU64>,
    given_back: Counter,
}

/// `found="in_memory"`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfFound {
    found: &'static str,
}

/// `prediction="right"`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfPrediction {
    prediction: &'static str,
}

impl ExpertMemoryFamilies {
    /// Enters all of them, and begins their series.
    pub(super) fn register(&self, registry: &mut Registry) {
        let help = "Experts on disk that layers asked for, by where they were found: in memory, on their way because they \
                    were foreseen, or on disk";
        registry.register("disk_experts_asked", help, self.asked.clone());
        let help = "Experts that the next layer was thought to ask for, by whether it did";
        registry.register("disk_experts_predicted", help, self.predicted.clone());
        registry.register_with_unit("disk_experts_read", "What was read of experts", Unit::Bytes, self.read.clone());
        let help = "How long passes have waited for experts";
        registry.register_with_unit("disk_experts_waited", help, Unit::Seconds, self.waited.clone());
        let help = "How often a pass gave its lanes back while it waited for experts";
        registry.register("disk_experts_given_back", help, self.given_back.clone());
        self.set(&ExpertMemoryStats::default());
    }

    /// The figures as they are now.
    pub(super) fn set(&self, stats: &ExpertMemoryStats) {
        let cache = stats.cache;
        for (found, count) in [
            ("in_memory", cache.hits - cache.foreseen_used),
            ("foreseen", cache.foreseen_used),
            ("on_disk", cache.misses),
        ] {
            raise(&self.asked.get_or_create(&OfFound { found }), count);
        }
        let [all, right] = stats.predicted;
        for (prediction, count) in [("right", right), ("wrong", all - right)] {
            raise(&self.predicted.get_or_create(&OfPrediction { prediction }), count);
        }
        raise(&self.read, stats.read.0);
        raise(&self.given_back, stats.given_back);
        self.waited.inc_by((stats.waited.as_secs_f64() - self.waited.get()).max(0.0));
    }
}
