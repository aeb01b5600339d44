//! Figures of the graphs that are made for exactly a prompt's rows.

use crate::exact::ExactCounts;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

/// Handles to them; the registry has others to the same.
#[derive(Clone, Debug, Default)]
pub(super) struct ExactFamilies {
    graphs: Family<OfFate, Counter>,
    kernels: Counter,
    resident: Gauge,
    memory: Gauge,
}

/// `fate="used"`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfFate {
    fate: &'static str,
}

impl ExactFamilies {
    /// Enters all of them, and begins their series.
    pub(super) fn register(&self, registry: &mut Registry) {
        let help = "Graphs for exactly a prompt's rows, by what became of them; one can have several fates";
        registry.register("exact_graphs", help, self.graphs.clone());
        let help = "Kernels that ran on a graph for exactly their rows";
        registry.register("exact_graph_kernels", help, self.kernels.clone());
        registry.register("exact_graphs_resident", "Such graphs that are ready now", self.resident.clone());
        let help = "What these take";
        registry.register_with_unit("exact_graphs_memory", help, Unit::Bytes, self.memory.clone());
        self.set(&ExactCounts::default());
    }

    /// The figures as they are now.
    pub(super) fn set(&self, counts: &ExactCounts) {
        for (fate, count) in fates(counts) {
            raise(&self.graphs.get_or_create(&OfFate { fate }), count);
        }
        raise(&self.kernels, counts.kernels);
        self.resident.set(counts.resident as i64);
        self.memory.set(counts.resident_bytes.0 as i64);
    }
}

fn fates(counts: &ExactCounts) -> [(&'static str, u64); 6] {
    [
        ("asked", counts.asked),
        ("ready", counts.ready),
        ("used", counts.used),
        ("called_off", counts.called_off),
        ("failed", counts.failed),
        ("reclaimed", counts.reclaimed),
    ]
}

/// Counters that are kept elsewhere only go up.
pub(super) fn raise(counter: &Counter, to: u64) {
    counter.inc_by(to.saturating_sub(counter.get()));
}
