//! Which layers a device holds that has no room for all of them, and which it should.
//!
//! The layers of a device are contiguous, so that a pass goes over to it once and comes back once; the head goes with the
//! last. The cores hold all of them. A [`plan`] says which layers go to the device: of all that fit its memory those with
//! which a pass is predicted to take the least, where each stretch is computed by whoever is predicted to be sooner done.
//! Among equals it is what takes the most memory, since that may be used beside the cores, and the layers nearest to the
//! head. A kernel on a device ends where its layers end, and one on cores where a device's begin ([`crate::span`]), so that
//! who goes on is decided there. (Agent.xpu §4.2: device variants of nodes)
//!
//! Invariant: a plan fits the memory, and no other contiguous layers that fit are predicted to take less.

use duet_types::{Bytes, Nanos, NodeOrder};
use std::ops::Range;

/// Contiguous layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct HeldLayers {
    /// The first, from 0.
    pub first: u32,
    /// The one behind the last.
    pub end: u32,
}

/// What a layer takes; of the last one with the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerCost {
    /// Of the device's memory.
    pub bytes: Bytes,
    /// On the device.
    pub device: Nanos,
    /// On the cores.
    pub cores: Nanos,
}

/// Which layers a device is to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerPlan {
    /// These.
    pub held: HeldLayers,
    /// Of the device's memory.
    pub bytes: Bytes,
    /// What all layers are predicted to take with them.
    pub predicted: Nanos,
    /// The same on cores alone.
    pub cores_alone: Nanos,
}

impl HeldLayers {
    /// These layers.
    #[must_use]
    pub fn new(layers: &Range<usize>) -> Self {
        Self { first: layers.start as u32, end: layers.end as u32 }
    }

    /// The same as a range.
    #[must_use]
    pub fn range(self) -> Range<usize> {
        self.first as usize..self.end as usize
    }

    /// Whether these are layers of a model of so many.
    #[must_use]
    pub fn is_sane(self) -> bool {
        self.first < self.end
    }

    /// Whether all of some nodes are of these layers. Embeddings are read on the cores, whoever computes what follows.
    #[must_use]
    pub fn hold(self, order: NodeOrder, nodes: &Range<usize>) -> bool {
        let [first, end] = self.borders(order);
        nodes.is_empty() || (first..end).contains(&nodes.start.max(1)) && nodes.end <= end.max(1)
    }

    /// The first of their nodes, and the one behind the last.
    #[must_use]
    pub fn borders(self, order: NodeOrder) -> [usize; 2] {
        [self.first, self.end].map(|layer| order.first_node(layer as usize))
    }
}

/// The layers that a device with so much memory should hold. `handover` is what it takes a pass to go over between two
/// layers. Nothing if no layer fits.
#[must_use]
pub fn plan(layers: &[LayerCost], handover: Nanos, memory: Bytes) -> Option<LayerPlan> {
    let all = layers.len();
    let cores_alone: Nanos = layers.iter().map(|layer| layer.cores).sum();
    // By the first layer: of each end, the time if the device computes all between, and the best of the ranges within.
    let mut within: Vec<Nanos> = vec![cores_alone; all + 1];
    let mut best: Option<LayerPlan> = None;
    for first in (0..all).rev() {
        let (mut bytes, mut device, mut cores) = (Bytes(0), Nanos::ZERO, Nanos::ZERO);
        // No layers, and those of later first ones, are within.
        let mut shorter = cores_alone;
        for end in first + 1..=all {
            let layer = layers[end - 1];
            bytes = Bytes(bytes.0.saturating_add(layer.bytes.0));
            (device, cores) = (device + layer.device, cores + layer.cores);
            let borders = u64::from(first > 0) + u64::from(end < all);
            let whole = cores_alone.saturating_sub(cores) + device + Nanos(borders * handover.0);
            let predicted = whole.min(shorter).min(within[end]);
            (within[end], shorter) = (predicted, predicted);
            let held = HeldLayers::new(&(first..end));
            let found = LayerPlan { held, bytes, predicted, cores_alone };
            if bytes <= memory && best.is_none_or(|best| is_better(&found, &best)) {
                best = Some(found);
            }
        }
    }
    best
}

fn is_better(one: &LayerPlan, other: &LayerPlan) -> bool {
    let rank = |plan: &LayerPlan| (std::cmp::Reverse(plan.predicted), plan.bytes, plan.held.end);
    rank(one) > rank(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cost(bytes: u64, device: u64, cores: u64) -> LayerCost {
        LayerCost { bytes: Bytes(bytes), device: Nanos(device), cores: Nanos(cores) }
    }

    /// All that fit, by trying: the time of each range with the best of the ranges within it.
    fn tried(layers: &[LayerCost], handover: Nanos, memory: Bytes) -> Option<Nanos> {
        let ranges = |first: usize, end: usize| {
            (first..=end).flat_map(move |from| (from..=end).map(move |to| from..to)).collect::<Vec<_>>()
        };
        let time = |used: &Range<usize>| {
            let borders = u64::from(used.start > 0) + u64::from(used.end < layers.len());
            let on = |at: usize| if used.contains(&at) { layers[at].device } else { layers[at].cores };
            let handed = if used.is_empty() { 0 } else { borders * handover.0 };
            (0..layers.len()).map(on).sum::<Nanos>() + Nanos(handed)
        };
        let fits =
            |held: &Range<usize>| layers[held.clone()].iter().map(|layer| layer.bytes.0).sum::<u64>() <= memory.0;
        let held = ranges(0, layers.len()).into_iter().filter(|held| !held.is_empty() && fits(held));
        held.filter_map(|held| ranges(held.start, held.end).iter().map(time).min()).min()
    }

    #[test]
    fn a_quick_device_gets_all_that_fits_and_a_slow_one_too() {
        let layers = |device| vec![cost(10, device, 100); 6];
        let held = |device, memory| plan(&layers(device), Nanos(5), Bytes(memory)).map(|plan| plan.held.range());
        assert_eq!(held(10, 60), Some(0..6));
        assert_eq!(held(10, 39), Some(3..6));
        assert_eq!(held(1000, 39), Some(3..6), "beside the cores it may be used");
        assert_eq!(held(10, 9), None);
        let plan = plan(&layers(10), Nanos(5), Bytes(39)).unwrap();
        assert_eq!((plan.bytes, plan.predicted, plan.cores_alone), (Bytes(30), Nanos(335), Nanos(600)));
    }

    #[test]
    fn layers_that_gain_most_go_there() {
        let layers = [cost(10, 90, 100), cost(10, 10, 100), cost(10, 10, 100), cost(30, 90, 100)];
        let held = |handover| plan(&layers, Nanos(handover), Bytes(30)).unwrap().held.range();
        assert_eq!(held(1), 0..3);
        // Both borders within the model cost more than the first layer gains.
        assert_eq!(held(15), 0..3);
        assert_eq!(plan(&layers, Nanos(1), Bytes(20)).unwrap().held.range(), 1..3);
    }

    #[test]
    fn nodes_are_held_with_their_layers() {
        let order = NodeOrder::fused(4);
        let held = HeldLayers::new(&(1..3));
        assert_eq!(held.borders(order), [4, 10]);
        assert!(held.hold(order, &(4..10)) && held.hold(order, &(5..6)) && held.hold(order, &(3..3)));
        assert!(!held.hold(order, &(3..5)) && !held.hold(order, &(9..11)) && !held.hold(order, &(0..1)));
        let first = HeldLayers::new(&(0..2));
        assert!(first.hold(order, &(0..7)) && first.hold(order, &(0..1)) && !first.hold(order, &(0..8)));
        assert!(HeldLayers::new(&(2..4)).hold(order, &(7..13)));
    }

    proptest! {
        #[test]
        fn a_plan_fits_and_nothing_that_fits_takes_less(
            layers in prop::collection::vec((1_u64..20, 0_u64..50, 0_u64..50), 1..9), handover in 0_u64..30, memory in 0_u64..120,
        ) {
            let layers: Vec<LayerCost> = layers.into_iter().map(|(bytes, device, cores)| cost(bytes, device, cores)).collect();
            let (handover, memory) = (Nanos(handover), Bytes(memory));
            let found = plan(&layers, handover, memory);
            prop_assert_eq!(found.map(|found| found.predicted), tried(&layers, handover, memory));
            if let Some(found) = found {
                let held = &layers[found.held.range()];
                prop_assert!(!held.is_empty() && found.bytes <= memory);
                prop_assert_eq!(found.bytes.0, held.iter().map(|layer| layer.bytes.0).sum::<u64>());
                prop_assert!(found.predicted <= found.cores_alone);
            }
        }
    }
}
