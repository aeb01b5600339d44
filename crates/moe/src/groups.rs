//! Grouped expert graphs: which experts share one launch. (NPUMoE §4.2, §4.3)
//!
//! A group's experts have one capacity, so that its shape is static and nobody is padded to another's tier. Its weights
//! fit in one graph of the device: a larger one would run on the CPU unseen. Within a tier experts are grouped by demand,
//! busiest first, so that a group is wanted as a whole or not at all. Every expert is in exactly one group, or in none if
//! even it alone is too large for a graph.
//!
//! The paper puts the limit near 1.2 GB and runs groups of eight experts of 150 MB, which is above it by decimal units and
//! below by binary ones: the limit is the device's to say.

use crate::{Device, ExpertId, LayerCounts, MoeShape, Tiers};
use duet_types::{Bytes, Tokens};

/// Experts of one graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Rows that each has room for.
    pub capacity: Tokens,
    /// Busiest first.
    pub experts: Vec<ExpertId>,
}

/// A layer's experts in groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grouping {
    /// Those of the largest capacity first, and within a tier the busiest.
    pub groups: Vec<Group>,
    /// Too large for any graph: these stay on the CPU.
    pub alone: Vec<ExpertId>,
}

impl Group {
    /// Rows of a launch, padded or not.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.experts.len() * self.capacity.as_usize()
    }

    /// Weights of the graph.
    #[must_use]
    pub fn bytes(&self, expert: Bytes) -> Bytes {
        Bytes(expert.0.saturating_mul(self.experts.len() as u64))
    }
}

impl Grouping {
    /// Groups a layer's experts.
    #[must_use]
    pub fn of(counts: &LayerCounts, tiers: &Tiers, shape: &MoeShape, device: &Device) -> Self {
        let by_demand = counts.popularity();
        let fitting = device.graph_bytes_max.0 / shape.expert_bytes.0.max(1);
        let size = usize::try_from(fitting).unwrap_or(usize::MAX).min(device.group_max);
        if size == 0 {
            return Self { groups: Vec::new(), alone: by_demand };
        }
        let mut groups = Vec::new();
        for &capacity in tiers.capacities().iter().rev() {
            let of_tier = by_demand.iter().copied().filter(|&expert| tiers.capacity(expert) == capacity);
            let of_tier: Vec<ExpertId> = of_tier.collect();
            groups.extend(of_tier.chunks(size).map(|experts| Group { capacity, experts: experts.to_vec() }));
        }
        Self { groups, alone: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{counts, device, shape};
    use crate::{Load, Provision};
    use proptest::prelude::*;

    const CALIBRATED: Provision = Provision::Calibrated { tiers_max: 3, headroom: 1.0 };

    #[test]
    fn an_expert_larger_than_a_graph_stays_alone() {
        let counts = LayerCounts::of([3, 9, 5].map(Load).to_vec());
        let tiers = Tiers::of(&counts, &shape(), &device(), CALIBRATED);
        let small = Device { graph_bytes_max: Bytes(9), ..device() };
        let grouping = Grouping::of(&counts, &tiers, &shape(), &small);
        assert_eq!(grouping, Grouping { groups: vec![], alone: vec![ExpertId(1), ExpertId(2), ExpertId(0)] });
    }

    proptest! {
        #[test]
        fn each_expert_is_in_one_group_of_its_own_tier_that_fits_in_a_graph(
            counts in counts(1..60), graph in 10_u64..200, group_max in 1_usize..20, tiers_max in 1_usize..5,
        ) {
            let device = Device { graph_bytes_max: Bytes(graph), group_max, ..device() };
            let provision = Provision::Calibrated { tiers_max, headroom: 1.0 };
            let tiers = Tiers::of(&counts, &shape(), &device, provision);
            let Grouping { groups, alone } = Grouping::of(&counts, &tiers, &shape(), &device);
            prop_assert!(alone.is_empty());
            let mut all: Vec<ExpertId> = groups.iter().flat_map(|group| group.experts.clone()).collect();
            all.sort_unstable();
            prop_assert!(all.into_iter().eq((0..counts.loads().len() as u32).map(ExpertId)));
            for group in &groups {
                prop_assert!(!group.experts.is_empty() && group.experts.len() <= group_max);
                prop_assert!(group.bytes(shape().expert_bytes) <= device.graph_bytes_max);
                prop_assert!(group.experts.iter().all(|&expert| tiers.capacity(expert) == group.capacity));
            }
        }

        #[test]
        fn who_is_busier_is_in_an_earlier_group_of_the_tier(counts in counts(2..60)) {
            let tiers = Tiers::of(&counts, &shape(), &device(), CALIBRATED);
            let grouping = Grouping::of(&counts, &tiers, &shape(), &device());
            for pair in grouping.groups.windows(2).filter(|pair| pair[0].capacity == pair[1].capacity) {
                let loads = |group: &Group| group.experts.iter().map(|e| counts.loads()[e.index()]).collect::<Vec<_>>();
                prop_assert!(loads(&pair[0]).iter().min() >= loads(&pair[1]).iter().max());
            }
        }
    }
}
