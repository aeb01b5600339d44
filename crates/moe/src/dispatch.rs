//! A chunk's routes: which are packed for the accelerator, which are the CPU's, which are dropped. (NPUMoE §3.1)
//!
//! Every route is in exactly one place: in a slot of a launch, on the CPU (its expert is cold, or it is spilled) or among
//! the dropped; `packed + cold + spilled + dropped` is the number of routes. With [`Overflow::Spill`] nothing is dropped.
//! A group that no row goes to is not launched.

use crate::overflow::Divided;
use crate::{Group, Overflow, Packing, Route};

/// A chunk of a layer, ready to be computed.
#[derive(Clone, Debug, PartialEq)]
pub struct Dispatch {
    /// By the index of the hot group.
    pub launches: Vec<(usize, Packing)>,
    /// For the CPU: routes to cold experts, and what hot ones had no room for.
    pub on_cpu: Vec<Route>,
    /// Not computed at all.
    pub dropped: Vec<Route>,
    /// How many there are of each.
    pub counts: Dispatched,
}

/// What became of routes, in one chunk or in many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dispatched {
    /// Launches on the accelerator.
    pub launches: u64,
    /// Slots of these, padded or not.
    pub slots: u64,
    /// Routes in a slot.
    pub packed: u64,
    /// Routes to experts that are not on the accelerator.
    pub cold: u64,
    /// Routes that the CPU computes for want of room.
    pub spilled: u64,
    /// Routes that nobody computes.
    pub dropped: u64,
}

impl Dispatch {
    /// Dispatches routes, in the order of their rows, to the groups that are on the accelerator.
    #[must_use]
    pub fn of(routes: &[Route], hot: &[&Group], overflow: Overflow) -> Self {
        let mut of_expert = by_expert(routes, hot);
        let is_cold = |route: &&Route| of_expert.get(route.expert.index()).is_none_or(Option::is_none);
        let mut dispatch = Self {
            launches: Vec::new(),
            on_cpu: routes.iter().filter(is_cold).copied().collect(),
            dropped: Vec::new(),
            counts: Dispatched::default(),
        };
        dispatch.counts.cold = dispatch.on_cpu.len() as u64;
        for (index, group) in hot.iter().enumerate() {
            dispatch.launch(index, group, &mut of_expert, overflow);
        }
        dispatch
    }

    fn launch(&mut self, index: usize, group: &Group, of_expert: &mut [Option<Vec<Route>>], overflow: Overflow) {
        let mut slices = Vec::with_capacity(group.experts.len());
        for expert in &group.experts {
            let mine = of_expert[expert.index()].take().unwrap_or_default();
            let Divided { kept, over } = overflow.divide(mine, group.capacity);
            slices.push(kept);
            match overflow {
                Overflow::Spill => {
                    self.counts.spilled += over.len() as u64;
                    self.on_cpu.extend(over);
                }
                Overflow::Prune => {
                    self.counts.dropped += over.len() as u64;
                    self.dropped.extend(over);
                }
            }
        }
        let packing = Packing::of(group, slices);
        if packing.filled() > 0 {
            self.counts.launches += 1;
            self.counts.slots += packing.slots() as u64;
            self.counts.packed += packing.filled() as u64;
            self.launches.push((index, packing));
        }
    }
}

/// The routes of each expert that is on the accelerator, in their order; nothing in the place of one that is not.
fn by_expert(routes: &[Route], hot: &[&Group]) -> Vec<Option<Vec<Route>>> {
    let experts = || hot.iter().flat_map(|group| &group.experts);
    let count = experts().map(|expert| expert.index() + 1).max().unwrap_or(0);
    let mut of_expert = vec![None; count];
    experts().for_each(|expert| of_expert[expert.index()] = Some(Vec::new()));
    for route in routes {
        if let Some(Some(mine)) = of_expert.get_mut(route.expert.index()) {
            mine.push(*route);
        }
    }
    of_expert
}

impl Dispatched {
    /// All routes.
    #[must_use]
    pub fn routes(&self) -> u64 {
        self.packed + self.cold + self.spilled + self.dropped
    }

    /// Part of all slots that hold nothing; zero if there are none.
    #[must_use]
    pub fn padding(&self) -> f64 {
        part(self.slots - self.packed, self.slots)
    }

    /// Part of all routes that nobody computes; zero if there are none.
    #[must_use]
    pub fn drop_rate(&self) -> f64 {
        part(self.dropped, self.routes())
    }

    /// Part of all routes that the CPU computes for want of room; zero if there are none.
    #[must_use]
    pub fn spill_rate(&self) -> f64 {
        part(self.spilled, self.routes())
    }
}

impl std::ops::AddAssign for Dispatched {
    fn add_assign(&mut self, other: Self) {
        self.launches += other.launches;
        self.slots += other.slots;
        self.packed += other.packed;
        self.cold += other.cold;
        self.spilled += other.spilled;
        self.dropped += other.dropped;
    }
}

/// What became of routes since an earlier count of the same.
impl std::ops::Sub for Dispatched {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            launches: self.launches - before.launches,
            slots: self.slots - before.slots,
            packed: self.packed - before.packed,
            cold: self.cold - before.cold,
            spilled: self.spilled - before.spilled,
            dropped: self.dropped - before.dropped,
        }
    }
}

fn part(of: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { of as f64 / all as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ExpertId;
    use crate::samples::routes;
    use duet_types::Tokens;
    use proptest::prelude::*;

    /// Groups of four out of eight experts; the last two are cold.
    fn hot(capacity: u32) -> [Group; 2] {
        let group = |experts: [u32; 3]| Group { capacity: Tokens(capacity), experts: experts.map(ExpertId).to_vec() };
        [group([5, 0, 3]), group([1, 2, 4])]
    }

    fn key(route: &Route) -> (u32, ExpertId) {
        (route.row, route.expert)
    }

    fn overflows() -> impl Strategy<Value = Overflow> {
        prop::sample::select(vec![Overflow::Spill, Overflow::Prune])
    }

    proptest! {
        #[test]
        fn every_route_is_computed_spilled_or_counted_as_dropped(
            routes in routes(0..60, 8, 3), capacity in 0_u32..40, overflow in overflows(),
        ) {
            let groups = hot(capacity);
            let dispatch = Dispatch::of(&routes, &groups.iter().collect::<Vec<_>>(), overflow);
            let packed = dispatch.launches.iter().flat_map(|(_, packing)| packing.routes().map(|(_, route)| key(route)));
            let mut found: Vec<_> = packed.chain(dispatch.on_cpu.iter().map(key)).chain(dispatch.dropped.iter().map(key)).collect();
            found.sort_unstable();
            let mut all: Vec<_> = routes.iter().map(key).collect();
            all.sort_unstable();
            prop_assert_eq!(found, all);
            let counts = dispatch.counts;
            prop_assert_eq!(counts.routes(), routes.len() as u64);
            prop_assert_eq!(counts.cold, routes.iter().filter(|route| route.expert.0 >= 6).count() as u64);
            prop_assert_eq!(counts.cold + counts.spilled, dispatch.on_cpu.len() as u64);
            prop_assert_eq!(counts.dropped, dispatch.dropped.len() as u64);
            prop_assert!(overflow == Overflow::Prune || counts.dropped == 0);
            prop_assert!((0.0..=1.0).contains(&counts.padding()) && (0.0..=1.0).contains(&counts.drop_rate()));
        }

        #[test]
        fn more_capacity_never_drops_more(routes in routes(0..60, 8, 3), capacity in 0_u32..30, more in 0_u32..30, overflow in overflows()) {
            let at = |capacity| {
                let groups = hot(capacity);
                Dispatch::of(&routes, &groups.iter().collect::<Vec<_>>(), overflow).counts
            };
            let (less, more) = (at(capacity), at(capacity + more));
            prop_assert!(more.dropped <= less.dropped && more.spilled <= less.spilled);
            prop_assert!(more.packed >= less.packed);
        }

        /// Each expert doubles its rows: whoever computes them, the sums are those of the routes, if nothing was dropped.
        #[test]
        fn a_chunk_is_computed_as_without_groups(routes in routes(1..40, 8, 3), capacity in 1_u32..40) {
            let rows = routes.iter().map(|route| route.row + 1).max().unwrap_or(0);
            let values: Vec<f32> = (0..rows).map(|row| row as f32 + 0.5).collect();
            let groups = hot(capacity);
            let dispatch = Dispatch::of(&routes, &groups.iter().collect::<Vec<_>>(), Overflow::Spill);
            let mut sums = vec![0.0; values.len()];
            for (_, packing) in &dispatch.launches {
                let mut slots = vec![0.0; packing.slots()];
                packing.gather(&values, 1, &mut slots);
                slots.iter_mut().for_each(|value| *value *= 2.0);
                packing.scatter(&slots, 1, &mut sums);
            }
            let add = |sums: &mut [f32], route: &Route| {
                sums[route.row as usize] += route.weight * 2.0 * values[route.row as usize];
            };
            dispatch.on_cpu.iter().for_each(|route| add(&mut sums, route));
            let mut expected = vec![0.0; values.len()];
            routes.iter().for_each(|route| add(&mut expected, route));
            for (sum, expected) in sums.iter().zip(expected) {
                prop_assert!((sum - expected).abs() <= 1e-4 * expected.abs().max(1.0));
            }
        }
    }
}
