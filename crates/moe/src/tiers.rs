//! Capacity tiers: how many rows each expert's static slice has room for. (NPUMoE §4.1)
//!
//! Every expert's capacity is one of a few, a multiple of the device's tile, and no more than a chunk brings it. With
//! calibrated tiers it is at least its expected load, `chunk × count / tokens`: the busiest expert's is the paper's
//! `imbalance × base`, since base is `chunk × chosen / experts`. Where needs differ more than tiers may, the tiers are
//! those that pad fewest slots.
//!
//! The paper says both that a tier is the smallest that holds the expected load (§4.1) and that the busiest quarter gets
//! four times the base (§1): the former is used, the latter kept as an ablation. Needs are those of a mean chunk, so some
//! chunks overflow; `overflow.rs` says what happens then.

use crate::{Device, ExpertId, LayerCounts, MoeShape};
use duet_types::Tokens;

/// By what rule capacities are provided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Provision {
    /// The base for all, as if routing were balanced. (Ours-base, §5.8)
    Uniform,
    /// Four times the base for the busiest quarter, the base for the others. (§1)
    TopQuartile,
    /// Capacities follow what was calibrated, in a bounded number of tiers.
    Calibrated {
        /// Tiers of a layer; at least one is made.
        tiers_max: usize,
        /// Room for the expected load times this; 1 is the paper.
        headroom: f64,
    },
}

/// Capacities of a layer's experts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tiers {
    /// Different ones, smallest first.
    capacities: Vec<Tokens>,
    /// In the experts' order: which of them.
    of_expert: Vec<usize>,
}

impl Tiers {
    /// Tiers for a layer with these counts.
    #[must_use]
    pub fn of(counts: &LayerCounts, shape: &MoeShape, device: &Device, provision: Provision) -> Self {
        let experts = counts.loads().len();
        let routed = f64::from(shape.chunk.0) * f64::from(shape.chosen);
        let base = routed / experts as f64;
        let slots = |rows: f64| whole_tiles(rows.min(f64::from(shape.chunk.0)), device.tile);
        match provision {
            Provision::Uniform => Self::holding(&vec![slots(base); experts], 1),
            Provision::TopQuartile => {
                let mut needs = vec![slots(base); experts];
                for expert in counts.popularity().into_iter().take(experts.div_ceil(4)) {
                    needs[expert.index()] = slots(4.0 * base);
                }
                Self::holding(&needs, 2)
            }
            Provision::Calibrated { tiers_max, headroom } => {
                let need = |share: f64| slots(share * routed * headroom);
                let needs: Vec<Tokens> = counts.shares().into_iter().map(need).collect();
                Self::holding(&needs, tiers_max)
            }
        }
    }

    /// At most `count` tiers that hold these needs and pad fewest slots.
    fn holding(needs: &[Tokens], count: usize) -> Self {
        let mut different = needs.to_vec();
        different.sort_unstable();
        different.dedup();
        let having = |need: &Tokens| needs.iter().filter(|other| *other == need).count() as u64;
        let experts: Vec<u64> = different.iter().map(having).collect();
        let capacities: Vec<Tokens> =
            cuts(&different, &experts, count.max(1)).into_iter().map(|last| different[last]).collect();
        let of_expert = needs.iter().map(|need| capacities.partition_point(|capacity| capacity < need)).collect();
        Self { capacities, of_expert }
    }

    /// Capacities there are, smallest first.
    #[must_use]
    pub fn capacities(&self) -> &[Tokens] {
        &self.capacities
    }

    /// Rows that an expert has room for.
    ///
    /// # Panics
    /// If there is no such expert.
    #[must_use]
    pub fn capacity(&self, expert: ExpertId) -> Tokens {
        self.capacities[self.of_expert[expert.index()]]
    }

    /// Slots of all experts together.
    #[must_use]
    pub fn slots(&self) -> Tokens {
        self.of_expert.iter().map(|&tier| self.capacities[tier]).sum()
    }
}

/// At least one tile.
fn whole_tiles(rows: f64, tile: Tokens) -> Tokens {
    let tile = tile.0.max(1);
    // What rounding adds to a share is no row.
    let tiles = ((rows - ROUNDING) / f64::from(tile)).ceil().max(1.0);
    Tokens((tiles as u32).saturating_mul(tile))
}

/// Far more than sums of shares are off by, and far less than a row.
const ROUNDING: f64 = 1e-6;

/// Cuts ascending needs into at most `count` runs that are served by their last one, so that the slots of all `experts`
/// are fewest: the places of the last ones. `O(count × needs²)`.
fn cuts(needs: &[Tokens], experts: &[u64], count: usize) -> Vec<usize> {
    let slots = |from: usize, last: usize| experts[from..=last].iter().sum::<u64>() * u64::from(needs[last].0);
    // Of the needs up to each: the fewest slots, and where the runs end.
    let mut best: Vec<(u64, Vec<usize>)> = (0..needs.len()).map(|last| (slots(0, last), vec![last])).collect();
    for _ in 1..count.min(needs.len()) {
        let with_one_more = |last: usize| {
            let split = |end: usize| {
                let (before, ends) = &best[end];
                (before + slots(end + 1, last), ends.iter().copied().chain([last]).collect())
            };
            (0..last)
                .map(split)
                .chain([best[last].clone()])
                .min_by_key(|(slots, ends): &(u64, Vec<usize>)| (*slots, ends.len()))
        };
        best = (0..needs.len()).filter_map(with_one_more).collect();
    }
    best.pop().map_or_else(Vec::new, |(_, ends)| ends)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Load;
    use crate::samples::{counts, device, shape};
    use proptest::prelude::*;

    const CALIBRATED: Provision = Provision::Calibrated { tiers_max: 3, headroom: 1.0 };

    fn layer(loads: &[u64]) -> LayerCounts {
        LayerCounts::of(loads.iter().copied().map(Load).collect())
    }

    /// Phi-3.5-MoE's sizes: 16 experts, two chosen, a chunk of 256 has a base of 32.
    #[test]
    fn balanced_experts_get_the_base_and_a_busy_one_the_imbalance_times_it() {
        let even = Tiers::of(&layer(&[7; 16]), &shape(), &device(), CALIBRATED);
        assert_eq!(even.capacities(), [Tokens(32)]);
        let mut loads = [30; 16];
        loads[3] = 90;
        let skewed = layer(&loads);
        let tiers = Tiers::of(&skewed, &shape(), &device(), CALIBRATED);
        let busiest = skewed.imbalance() * 32.0;
        assert!((80.0..96.0).contains(&busiest), "{busiest}");
        assert_eq!((tiers.capacity(ExpertId(3)), tiers.capacity(ExpertId(0))), (Tokens(96), Tokens(32)));
    }

    #[test]
    fn the_ablations_are_the_papers() {
        let skewed = layer(&[9, 1, 1, 1, 8, 1, 1, 1, 7, 1, 1, 1, 6, 1, 1, 1]);
        assert_eq!(Tiers::of(&skewed, &shape(), &device(), Provision::Uniform).slots(), Tokens(16 * 32));
        let quartile = Tiers::of(&skewed, &shape(), &device(), Provision::TopQuartile);
        assert_eq!(quartile.capacities(), [Tokens(32), Tokens(128)]);
        assert_eq!(quartile.capacity(ExpertId(12)), Tokens(128));
        assert_eq!(quartile.slots(), Tokens(4 * 128 + 12 * 32));
    }

    #[test]
    fn no_expert_has_room_for_more_than_a_chunk() {
        let tiers = Tiers::of(
            &layer(&[100, 100, 1]),
            &shape(),
            &device(),
            Provision::Calibrated { tiers_max: 3, headroom: 9.0 },
        );
        assert_eq!(tiers.capacities().last(), Some(&Tokens(256)));
    }

    /// Slots of every way to cut `needs` into at most `count` runs.
    fn best_by_force(needs: &[Tokens], experts: &[u64], count: usize) -> u64 {
        let ways = 0_u32..1 << (needs.len() - 1);
        let slots = |way: u32| {
            let mut open = 0;
            let mut slots = 0;
            for (last, need) in needs.iter().enumerate() {
                open += experts[last];
                if last + 1 == needs.len() || way >> last & 1 == 1 {
                    slots += open * u64::from(need.0);
                    open = 0;
                }
            }
            slots
        };
        ways.filter(|way| way.count_ones() < count as u32).map(slots).min().unwrap()
    }

    proptest! {
        #[test]
        fn capacities_are_few_whole_tiles_and_hold_the_expected_load(counts in counts(1..40), tiers_max in 1_usize..6) {
            let provision = Provision::Calibrated { tiers_max, headroom: 1.0 };
            let tiers = Tiers::of(&counts, &shape(), &device(), provision);
            prop_assert!(tiers.capacities().len() <= tiers_max);
            for (expert, share) in counts.shares().into_iter().enumerate() {
                let capacity = tiers.capacity(ExpertId(expert as u32));
                prop_assert!(capacity.0.is_multiple_of(16) && (16..=256).contains(&capacity.0));
                prop_assert!(f64::from(capacity.0) + 1e-5 >= (512.0 * share).min(256.0));
            }
            // A tier has somebody for whom the next smaller one is too small.
            for capacity in tiers.capacities() {
                let needs = counts.shares().into_iter().map(|share| whole_tiles((512.0 * share).min(256.0), Tokens(16)));
                prop_assert!(needs.into_iter().any(|need| need == *capacity));
            }
        }

        #[test]
        fn no_other_tiers_pad_less(
            needs in prop::collection::btree_map(1_u32..60, 1_u64..9, 1..9),
            count in 1_usize..5,
        ) {
            let (needs, experts): (Vec<Tokens>, Vec<u64>) =
                needs.into_iter().map(|(need, experts)| (Tokens(need), experts)).unzip();
            let ends = cuts(&needs, &experts, count);
            let (mut from, mut slots) = (0, 0);
            for &last in &ends {
                slots += experts[from..=last].iter().sum::<u64>() * u64::from(needs[last].0);
                from = last + 1;
            }
            prop_assert_eq!(from, needs.len());
            prop_assert!(ends.len() <= count);
            prop_assert_eq!(slots, best_by_force(&needs, &experts, count));
        }
    }
}
