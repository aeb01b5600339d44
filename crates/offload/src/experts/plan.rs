//! The plan of a model's experts on a device: capacities and groups of each layer, from what was calibrated. (NPUMoE §4)

use super::settings::ExpertSettings;
use duet_graphs::{LayoutRules, RowRule};
use duet_model::Model;
use duet_moe::{Calibration, Device, Group, Grouping, LayerCounts, MoeShape, Provision, Tiers, Times};
use duet_types::{Bytes, Tokens};

/// What plans follow from.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) shape: MoeShape,
    pub(super) device: Device,
    pub(super) layers: Vec<LayerPlan>,
}

/// A layer's.
#[derive(Clone, Debug)]
pub(super) struct LayerPlan {
    pub(super) counts: LayerCounts,
    pub(super) groups: Vec<Group>,
}

impl Plan {
    /// Plans all layers. Without counts all experts are taken as equally busy, without capacities there are no groups.
    pub(super) fn of(
        model: &Model,
        counts: Option<&Calibration>,
        provision: Option<Provision>,
        (shape, device): (MoeShape, Device),
    ) -> Self {
        let experts = model.blueprint().experts.map_or(0, |plan| plan.count);
        let layer = |layer: usize| {
            let counts = counts.and_then(|counts| counts.layers().get(layer)).cloned();
            let counts = counts.unwrap_or_else(|| LayerCounts::none(experts));
            let tiers = provision.map(|provision| Tiers::of(&counts, &shape, &device, provision));
            let groups = tiers.map(|tiers| Grouping::of(&counts, &tiers, &shape, &device).groups);
            LayerPlan { counts, groups: groups.unwrap_or_default() }
        };
        Self { shape, device, layers: (0..model.config().layers).map(layer).collect() }
    }

    /// Groups of the layer that has most.
    pub(super) fn most_groups(&self) -> usize {
        self.layers.iter().map(|layer| layer.groups.len()).max().unwrap_or(0)
    }
}

/// A device as plans see it.
pub(super) fn device(rules: &LayoutRules, settings: &ExpertSettings, times: Times) -> Device {
    Device {
        tile: tile(rules),
        graph_bytes_max: rules.constants_max.unwrap_or(GRAPH_BYTES_MAX),
        group_max: settings.group_size(),
        resident_bytes_max: settings.memory,
        times,
    }
}

/// Capacities are multiples of the paper's sixteen, or of what the device asks for if that is more.
pub(super) fn tile(rules: &LayoutRules) -> Tokens {
    match rules.rows {
        RowRule::Any => TILE,
        RowRule::StaticMultipleOf(multiple) => Tokens(TILE.0.next_multiple_of(multiple.0.max(1))),
    }
}

/// NPUMoE §3.2.
pub(super) const TILE: Tokens = Tokens(16);
/// A graph beyond 1.2 GB would fall back to the CPU unseen on the paper's device. (NPUMoE §4.2)
const GRAPH_BYTES_MAX: Bytes = Bytes(1 << 30);
