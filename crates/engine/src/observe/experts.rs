//! Figures of experts that a device runs in launches. (NPUMoE §3.2, §5.6: drops and padding)

use super::exact::raise;
use duet_model::forward::ExpertStats;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

/// Handles to them; the registry has others to the same.
#[derive(Clone, Debug, Default)]
pub(super) struct ExpertFamilies {
    places: Family<OfFate, Counter>,
    launches: Counter,
    slots: Counter,
    loads: Family<OfLoadEnd, Counter>,
    resident: Gauge,
}

/// `fate="launched"`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfFate {
    fate: &'static str,
}

/// `outcome="failed"`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfLoadEnd {
    outcome: &'static str,
}

impl ExpertFamilies {
    /// Enters all of them, and begins their series.
    pub(super) fn register(&self, registry: &mut Registry) {
        let help = "Experts of tokens, by who computed them: a launch on the device, the CPU because the device does not \
                    have the expert or (spilled) has no room, or nobody";
        registry.register("expert_places", help, self.places.clone());
        registry.register("expert_launches", "Launches of experts on the device", self.launches.clone());
        registry.register("expert_slots", "Slots of these launches, padded or not", self.slots.clone());
        let help = "Graphs of experts that were to be brought to the device: done as traffic changed, or failed, whose \
                    experts the CPU computes until they are tried again";
        registry.register("expert_graph_loads", help, self.loads.clone());
        let help = "What graphs of experts take on the device";
        registry.register_with_unit("expert_graphs_memory", help, Unit::Bytes, self.resident.clone());
        self.set(&ExpertStats::default());
    }

    /// The figures as they are now.
    pub(super) fn set(&self, stats: &ExpertStats) {
        let places = stats.places;
        for (fate, count) in [
            ("launched", places.launched),
            ("cpu", places.crew),
            ("spilled", places.spilled),
            ("dropped", places.dropped),
        ] {
            raise(&self.places.get_or_create(&OfFate { fate }), count);
        }
        raise(&self.launches, stats.launches);
        raise(&self.slots, stats.slots);
        for (outcome, count) in [("done", stats.loads), ("failed", stats.failed_loads)] {
            raise(&self.loads.get_or_create(&OfLoadEnd { outcome }), count);
        }
        self.resident.set(stats.resident.0 as i64);
    }
}
