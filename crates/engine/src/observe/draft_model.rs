//! Figures of a draft model.

use super::exact::raise;
use crate::draft_model::ModelWork;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::AtomicU64;

/// Handles to them; the registry has others to the same.
#[derive(Clone, Debug, Default)]
pub(super) struct DraftModelFamilies {
    rows: Family<OfRows, Counter>,
    passes: Counter,
    time: Counter<f64, AtomicU64>,
    interrupted: Counter,
    given_up: Counter,
}

/// `rows="read"`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRows {
    rows: &'static str,
}

impl DraftModelFamilies {
    /// Enters all of them, and begins their series.
    pub(super) fn register(&self, registry: &mut Registry) {
        let help = "Rows that the draft model computed: of texts that it read, and of tokens that were drafted";
        registry.register("draft_model_rows", help, self.rows.clone());
        registry.register("draft_model_passes", "Passes of the draft model", self.passes.clone());
        let help = "Time of the draft model, between passes of the model that it drafts for";
        registry.register_with_unit("draft_model", help, Unit::Seconds, self.time.clone());
        let help = "Rounds of drafting by the model that ended since a person waited";
        registry.register("draft_model_interruptions", help, self.interrupted.clone());
        let help = "Texts that the draft model gave up for want of memory";
        registry.register("draft_model_given_up", help, self.given_up.clone());
        self.set(&ModelWork::default());
    }

    /// The figures as they are now.
    pub(super) fn set(&self, work: &ModelWork) {
        for (rows, count) in [("read", work.read), ("drafted", work.drafted)] {
            raise(&self.rows.get_or_create(&OfRows { rows }), count);
        }
        raise(&self.passes, work.passes);
        self.time.inc_by((work.time.as_secs_f64() - self.time.get()).max(0.0));
        raise(&self.interrupted, work.interrupted);
        raise(&self.given_up, work.given_up);
    }
}
