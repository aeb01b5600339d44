//! Experts in launches without a device: the same plans and the same dispatching, and the crew computes every place that
//! a launch would.
//!
//! So what capacities drop is studied apart from how a device rounds. Invariants: a place that is not dropped has the
//! crew's own bits, so that with enough room a model answers as it does alone; all routes are counted once.
//! (NPUMoE §3.2, §4.1)

use super::FEW_ROWS;
use super::dispatching::Routes;
use super::plan::{Plan, TILE};
use super::settings::Saliency;
use crate::placed::OffloadError;
use duet_model::Model;
use duet_model::forward::{BegunLaunch, ExpertStats, ExpertWise, Fate, FateCounts, NotRun, RoutedRows};
use duet_moe::{Calibration, Device, Dispatched, Group, MoeShape, Overflow, Provision};
use duet_types::{Bytes, Tokens};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the plans of [`VirtualExperts`] follow from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VirtualSettings {
    /// By what rule capacities are provided.
    pub provision: Provision,
    /// What becomes of rows that an expert has no room for.
    pub overflow: Overflow,
    /// Which rows are pruned first, where rows are pruned.
    pub saliency: Saliency,
    /// Rows that capacities are for.
    pub chunk: Tokens,
    /// Experts of a group at most.
    pub group_max: usize,
}

/// Experts whose launches the crew computes.
#[derive(Debug)]
pub struct VirtualExperts {
    /// Of each layer.
    groups: Vec<Vec<Group>>,
    experts: usize,
    place_macs: u64,
    settings: VirtualSettings,
    counts: Mutex<Counts>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    dispatched: Dispatched,
    places: FateCounts,
}

impl VirtualExperts {
    /// Plans a model's experts. Without counts all experts are taken as equally busy.
    ///
    /// # Errors
    /// [`OffloadError::Dense`], [`OffloadError::DenseLayers`].
    pub fn new(model: &Model, counts: Option<&Calibration>, settings: VirtualSettings) -> Result<Self, OffloadError> {
        let experts = model.blueprint().experts.ok_or(OffloadError::Dense)?;
        if model.blueprint().dense_layers > 0 {
            return Err(OffloadError::DenseLayers);
        }
        let work = model.work().experts.ok_or(OffloadError::Dense)?;
        let chunk = settings.chunk.max(Tokens(1));
        let shape = MoeShape { chunk, chosen: experts.chosen as u32, expert_bytes: Bytes(1) };
        let device = Device { group_max: settings.group_max.max(1), ..UNBOUNDED };
        let plan = Plan::of(model, counts, Some(settings.provision), (shape, device));
        let groups = plan.layers.into_iter().map(|layer| layer.groups).collect();
        Ok(Self { groups, experts: experts.count, place_macs: work.expert, settings, counts: Mutex::default() })
    }

    /// What became of routes so far; rows of the expert that all go to are none, nor are those of few rows.
    #[must_use]
    pub fn dispatched(&self) -> Dispatched {
        self.counts().dispatched
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ExpertWise for VirtualExperts {
    /// All places come with the first.
    fn launches(&self) -> usize {
        1
    }

    fn stats(&self) -> ExpertStats {
        let Counts { dispatched, places } = *self.counts();
        let Dispatched { launches, slots, .. } = dispatched;
        ExpertStats { places, launches, slots, ..ExpertStats::default() }
    }

    fn place_macs(&self, _: usize) -> u64 {
        self.place_macs
    }

    fn dispatch(&self, layer: usize, rows: &RoutedRows<'_>) -> Vec<Fate> {
        let VirtualSettings { overflow, saliency, .. } = self.settings;
        let mut fates = vec![Fate::Crew; rows.experts.len()];
        let mut counted = Dispatched::default();
        if let Some(groups) = self.groups.get(layer).filter(|_| rows.experts.len() / rows.places > FEW_ROWS) {
            let routes = Routes::of(rows, self.experts, (overflow == Overflow::Prune).then_some(saliency));
            let groups: Vec<(usize, &Group)> = groups.iter().enumerate().collect();
            counted = routes.divide(&groups, overflow, rows, &mut fates);
        }
        for fate in fates.iter_mut().filter(|fate| **fate != Fate::Dropped) {
            *fate = Fate::Crew;
        }
        let mut counts = self.counts();
        counts.dispatched += counted;
        counts.places += FateCounts::of(&fates);
        fates
    }

    fn begin(&self, _: usize, _: usize, _: &RoutedRows<'_>, _: &[Fate]) -> Result<Box<dyn BegunLaunch + '_>, NotRun> {
        Err(NotRun::Unsupported("there is no device: the crew computes".to_owned()))
    }
}

/// A device without bounds, whose times nothing follows from.
const UNBOUNDED: Device = Device {
    tile: TILE,
    graph_bytes_max: Bytes(u64::MAX),
    group_max: usize::MAX,
    resident_bytes_max: Bytes(u64::MAX),
    times: super::times::NOTHING,
};

#[cfg(test)]
mod tests {
    use super::*;
    use duet_kernels::crew::Solo;
    use duet_model::LoadOptions;
    use duet_model::forward::{Activations, Node, NodeOrder, Pass, Segment};
    use duet_model::kv::KvFormat;
    use duet_types::TokenId;
    use proptest::prelude::*;
    use std::path::Path;

    const ROWS: u32 = 60;

    fn load(name: &str) -> Model {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/fixtures");
        Model::load(&folder.join(format!("golden_{name}.gguf")), &LoadOptions::default(), &mut |_| {}).unwrap()
    }

    fn pass(model: &Model, rows: u32) -> Pass {
        let table = model.kv_pool(KvFormat::F16, Tokens(rows)).table();
        let tokens = (0..rows).map(|row| TokenId(3 + row * 7 % 50)).collect();
        Pass::new(model, Activations::new(model, rows as usize), vec![Segment::new(table, tokens)]).unwrap()
    }

    fn logits(model: &Model, pass: &mut Pass) -> Vec<f32> {
        let mut logits = Vec::new();
        let last = pass.rows() - 1;
        model.logits(pass, &[last], &mut logits, &Solo);
        logits
    }

    fn exact(model: &Model, rows: u32) -> Vec<f32> {
        let mut pass = pass(model, rows);
        model.run_span(&mut pass, 0..model.node_count(), &Solo);
        logits(model, &mut pass)
    }

    fn launched(model: &Model, experts: &VirtualExperts, rows: u32) -> (Vec<f32>, FateCounts) {
        let mut pass = pass(model, rows);
        for node in NodeOrder::with_launches(model.config().layers, experts.launches()).nodes() {
            match node {
                Node::Route { layer } => {
                    model.route_on(experts, &mut pass, layer, &Solo).unwrap();
                }
                Node::Experts { layer, launch } => {
                    model.launch_on(experts, &mut pass, (layer, launch), &Solo).unwrap();
                }
                _ => model.run_node(&mut pass, node, 0..rows as usize, &Solo),
            }
        }
        (logits(model, &mut pass), pass.fates(0..rows as usize))
    }

    fn settings(chunk: u32, overflow: Overflow) -> VirtualSettings {
        let provision = Provision::Uniform;
        VirtualSettings { provision, overflow, saliency: Saliency::AttentionNorm, chunk: Tokens(chunk), group_max: 2 }
    }

    /// Room for all rows at each expert.
    fn roomy(model: &Model, overflow: Overflow) -> VirtualSettings {
        let experts = model.blueprint().experts.unwrap();
        settings(ROWS * (experts.count / experts.chosen) as u32, overflow)
    }

    #[test]
    fn with_enough_room_it_is_the_exact_model_to_the_bit() {
        for name in ["mixtral", "qwen2moe", "qwen3moe", "olmoe", "phimoe", "gemma4_experts"] {
            let model = load(name);
            let experts = VirtualExperts::new(&model, None, roomy(&model, Overflow::Prune)).unwrap();
            let (found, fates) = launched(&model, &experts, ROWS);
            assert_eq!(found, exact(&model, ROWS), "{name}");
            assert_eq!((fates.dropped, experts.dispatched().dropped), (0, 0), "{name}");
            assert!(experts.dispatched().packed > 0 && experts.dispatched().launches > 0, "{name}");
        }
    }

    #[test]
    fn without_room_spilled_rows_are_the_exact_models_and_dropped_ones_are_not() {
        let model = load("mixtral");
        let expected = exact(&model, ROWS);
        let spilling = VirtualExperts::new(&model, None, settings(16, Overflow::Spill)).unwrap();
        assert_eq!(launched(&model, &spilling, ROWS).0, expected);
        assert!(spilling.dispatched().spilled > 0 && spilling.dispatched().dropped == 0);
        let pruning = VirtualExperts::new(&model, None, settings(16, Overflow::Prune)).unwrap();
        let (found, fates) = launched(&model, &pruning, ROWS);
        assert!(found != expected && fates.dropped > 0);
        assert_eq!((fates.dropped, pruning.stats().places), (pruning.dispatched().dropped, fates));
        let by_weight = VirtualSettings { saliency: Saliency::RouterWeight, ..settings(16, Overflow::Prune) };
        let by_weight = VirtualExperts::new(&model, None, by_weight).unwrap();
        assert!(launched(&model, &by_weight, ROWS).0 != found, "the same rows by another saliency");
    }

    #[test]
    fn decoded_rows_and_dense_models_are_not_dispatched() {
        let model = load("qwen2moe");
        let experts = VirtualExperts::new(&model, None, settings(1, Overflow::Prune)).unwrap();
        assert_eq!(launched(&model, &experts, 4).0, exact(&model, 4));
        assert_eq!(experts.dispatched(), Dispatched::default());
        let refused = VirtualExperts::new(&load("llama"), None, settings(16, Overflow::Prune));
        assert!(matches!(refused, Err(OffloadError::Dense)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]
        #[test]
        fn every_place_is_computed_or_dropped_and_counted_once(
            rows in 17_u32..60, chunk in 1_u32..200, group_max in 1_usize..5,
            overflow in prop::sample::select(vec![Overflow::Spill, Overflow::Prune]),
            saliency in prop::sample::select(vec![Saliency::AttentionNorm, Saliency::RouterWeight]),
        ) {
            let model = load("qwen2moe");
            let settings = VirtualSettings { saliency, group_max, ..settings(chunk, overflow) };
            let experts = VirtualExperts::new(&model, None, settings).unwrap();
            let (_, fates) = launched(&model, &experts, rows);
            let plan = model.blueprint().experts.unwrap();
            let routes = model.config().layers as u64 * u64::from(rows) * plan.chosen as u64;
            let shared = if plan.shared.is_some() { model.config().layers as u64 * u64::from(rows) } else { 0 };
            let counts = experts.dispatched();
            prop_assert_eq!(counts.routes(), routes);
            prop_assert_eq!((fates.all(), fates.dropped), (routes + shared, counts.dropped));
            prop_assert!(counts.slots >= counts.packed && (overflow == Overflow::Prune || counts.dropped == 0));
        }
    }
}
