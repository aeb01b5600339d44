//! Shared memory: one bandwidth for all units, as a fluid.
//!
//! A kernel alone is bounded by what its own unit can read (its annotation says so). Beside others, all of them together
//! get no more than `shared`. It is divided max-min fairly: who asks for little gets all of it, the others equal parts
//! of the rest. So a compute-bound matrix product, which asks for little, is hardly slower beside others, and a
//! memory-bound one pays for both. (Agent.xpu §3.1, Fig. 4)

/// How fast each of some kernels is beside the others, as a share of its speed alone, in the order of `demands`: bytes a
/// second that each would move if it were alone.
pub(crate) fn speeds(shared: f64, demands: &[f64]) -> Vec<f64> {
    if demands.len() < 2 || demands.iter().sum::<f64>() <= shared {
        return vec![1.0; demands.len()];
    }
    let mut order: Vec<usize> = (0..demands.len()).collect();
    order.sort_by(|&a, &b| demands[a].total_cmp(&demands[b]));
    let (mut speeds, mut left) = (vec![1.0; demands.len()], shared);
    for (rank, &index) in order.iter().enumerate() {
        let fair = left / (demands.len() - rank) as f64;
        let given = demands[index].min(fair);
        if demands[index] > given {
            speeds[index] = given / demands[index];
        }
        left -= given;
    }
    speeds
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_product_keeps_its_speed_and_decode_pays() {
        assert_eq!(speeds(57.0, &[63.0]), [1.0], "alone");
        assert_eq!(speeds(60.0, &[5.0, 63.0]), [1.0, 55.0 / 63.0]);
        assert_eq!(speeds(60.0, &[60.0, 60.0]), [0.5, 0.5]);
        assert_eq!(speeds(200.0, &[60.0, 60.0]), [1.0, 1.0]);
    }

    proptest! {
        /// Nothing is created, nothing is left while somebody wants it, and more demand never means more speed.
        #[test]
        fn bandwidth_is_conserved(shared in 1.0..100.0_f64, demands in prop::collection::vec(0.01..100.0_f64, 2..6)) {
            let speeds = speeds(shared, &demands);
            let moved: f64 = speeds.iter().zip(&demands).map(|(speed, demand)| speed * demand).sum();
            let wanted: f64 = demands.iter().sum();
            prop_assert!((moved - shared.min(wanted)).abs() < 1e-6 * shared, "{moved} of {shared}");
            for (a, x) in demands.iter().enumerate() {
                for (b, y) in demands.iter().enumerate() {
                    prop_assert!(x > y || speeds[a] >= speeds[b] - 1e-12);
                }
            }
        }
    }
}
