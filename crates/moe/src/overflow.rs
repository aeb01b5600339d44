//! Rows beyond an expert's capacity: computed on the CPU, or pruned. (NPUMoE §3.2, §4.1)
//!
//! Each route of an expert is kept, spilled or pruned, and no more are kept than there is room for. More room never
//! spills or prunes a route that less room kept.
//!
//! The paper prunes, because its runtime cannot split a tensor between devices (§4.1), the rows of least saliency first.
//! Ours computes the rows on the CPU unless told otherwise, so that capacities cost time and never accuracy. The paper's
//! saliency is the L2 norm of the attention output (§3.2); a route carries whatever the caller ranks by, and the router's
//! own weight is the other candidate: it is what the result is multiplied by. Weights of a row that lost an expert are not
//! scaled up for those that are left.

use crate::Route;
use duet_types::Tokens;

/// What becomes of routes that an expert has no room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// The CPU computes the last ones: exact.
    #[default]
    Spill,
    /// The least salient ones are left out.
    Prune,
}

/// An expert's routes, divided.
#[derive(Clone, Debug, PartialEq)]
pub struct Divided {
    /// At most as many as there is room for, in their order.
    pub kept: Vec<Route>,
    /// The others.
    pub over: Vec<Route>,
}

impl Overflow {
    /// Divides an expert's routes by its capacity.
    #[must_use]
    pub fn divide(self, mut routes: Vec<Route>, capacity: Tokens) -> Divided {
        let room = capacity.as_usize();
        if routes.len() <= room {
            return Divided { kept: routes, over: Vec::new() };
        }
        match self {
            Self::Spill => Divided { over: routes.split_off(room), kept: routes },
            Self::Prune => {
                // Of equal ones the later row goes first.
                routes.sort_by(|a, b| saliency(b).total_cmp(&saliency(a)).then(a.row.cmp(&b.row)));
                let over = routes.split_off(room);
                routes.sort_by_key(|route| route.row);
                Divided { kept: routes, over }
            }
        }
    }
}

/// What is not a number is missed least.
fn saliency(route: &Route) -> f32 {
    if route.saliency.is_nan() { f32::NEG_INFINITY } else { route.saliency }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ExpertId;
    use proptest::prelude::*;

    fn routes(saliencies: &[f32]) -> Vec<Route> {
        let route =
            |(row, &saliency): (usize, &f32)| Route { row: row as u32, expert: ExpertId(0), weight: 1.0, saliency };
        saliencies.iter().enumerate().map(route).collect()
    }

    fn rows(routes: &[Route]) -> Vec<u32> {
        routes.iter().map(|route| route.row).collect()
    }

    #[test]
    fn the_last_spill_and_the_least_salient_are_pruned() {
        let all = routes(&[0.5, 0.1, f32::NAN, 0.3, 0.1]);
        let spilled = Overflow::Spill.divide(all.clone(), Tokens(3));
        assert_eq!((rows(&spilled.kept), rows(&spilled.over)), (vec![0, 1, 2], vec![3, 4]));
        let pruned = Overflow::Prune.divide(all, Tokens(3));
        assert_eq!((rows(&pruned.kept), rows(&pruned.over)), (vec![0, 1, 3], vec![4, 2]));
    }

    proptest! {
        #[test]
        fn more_room_keeps_whatever_less_room_kept(
            saliencies in prop::collection::vec(prop_oneof![0.0_f32..1.0, Just(0.5), Just(f32::NAN)], 0..40),
            room in 0_u32..40, more in 0_u32..40,
            overflow in prop::sample::select(vec![Overflow::Spill, Overflow::Prune]),
        ) {
            let less = overflow.divide(routes(&saliencies), Tokens(room));
            let more = overflow.divide(routes(&saliencies), Tokens(room + more));
            prop_assert!(less.kept.len() == saliencies.len().min(room as usize));
            prop_assert!(less.over.len() >= more.over.len());
            let kept = rows(&more.kept);
            prop_assert!(rows(&less.kept).iter().all(|row| kept.contains(row)));
            let mut all = [rows(&less.kept), rows(&less.over)].concat();
            all.sort_unstable();
            prop_assert!(all.into_iter().eq(0..saliencies.len() as u32));
        }

        #[test]
        fn nobody_is_pruned_who_would_be_missed_more(saliencies in prop::collection::vec(0.0_f32..1.0, 0..40), room in 0_u32..40) {
            let Divided { kept, over } = Overflow::Prune.divide(routes(&saliencies), Tokens(room));
            let least = kept.iter().map(|route| route.saliency).fold(f32::INFINITY, f32::min);
            prop_assert!(over.iter().all(|route| route.saliency <= least));
        }
    }
}
