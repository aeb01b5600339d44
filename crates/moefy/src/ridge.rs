//! Ridge regression: the linear map that takes inputs nearest to targets, kept small.
//!
//! Sums of products are kept in double precision, since many rows go into them; the normal equations are solved by
//! Cholesky's method, on all threads.

use crate::matrix::{Hands, Matrix};

/// Sums over all rows that a regression needs.
#[derive(Clone, Debug)]
pub(crate) struct Regression {
    inputs: usize,
    targets: usize,
    /// `inputs × inputs`, the lower half.
    gram: Vec<f64>,
    /// `targets × inputs`.
    moments: Vec<f64>,
}

impl Regression {
    pub(crate) fn new(inputs: usize, targets: usize) -> Self {
        Self { inputs, targets, gram: vec![0.0; inputs * inputs], moments: vec![0.0; targets * inputs] }
    }

    /// Takes rows of inputs and of the targets they should come to.
    pub(crate) fn add(&mut self, inputs: &Matrix, targets: &Matrix, hands: Hands) {
        assert!(inputs.columns() == self.inputs && targets.columns() == self.targets);
        assert!(inputs.rows() == targets.rows());
        for first in (0..inputs.rows()).step_by(ROWS) {
            let rows: Vec<usize> = (first..(first + ROWS).min(inputs.rows())).collect();
            let (x, y) = (inputs.gather(&rows).transposed(), targets.gather(&rows).transposed());
            for first in (0..self.inputs).step_by(STRIP) {
                let last = (first + STRIP).min(self.inputs);
                let strip = x.rows_of(first..last).times_rows_of(&x.rows_of(0..last), hands);
                for row in first..last {
                    add(&mut self.gram[row * self.inputs..][..last], strip.row(row - first));
                }
            }
            add(&mut self.moments, y.times_rows_of(&x, hands).values());
        }
    }

    /// The map as `targets × inputs`. `damping` is what is added to the squares of the inputs, as a share of their mean:
    /// how strongly small weights are preferred.
    pub(crate) fn solve(mut self, damping: f64, hands: Hands) -> Matrix {
        let n = self.inputs;
        let mean = (0..n).map(|i| self.gram[i * n + i]).sum::<f64>() / n as f64;
        // Inputs that are zero on all rows have no weight.
        let added = (damping * mean).max(f64::MIN_POSITIVE.sqrt());
        (0..n).for_each(|i| self.gram[i * n + i] += added);
        factor(&mut self.gram, n);
        let share = self.targets.div_ceil(hands.threads.max(1)) * n;
        std::thread::scope(|scope| {
            for part in self.moments.chunks_mut(share) {
                let gram = &self.gram;
                scope.spawn(move || part.chunks_exact_mut(n).for_each(|row| substitute(gram, row)));
            }
        });
        Matrix::of(n, self.moments.iter().map(|value| *value as f32).collect())
    }
}

/// Rows whose products are summed in single precision.
const ROWS: usize = 1024;

/// Rows of the lower half that are computed together.
const STRIP: usize = 256;

fn add(sums: &mut [f64], products: &[f32]) {
    sums.iter_mut().zip(products).for_each(|(sum, value)| *sum += f64::from(*value));
}

/// Cholesky: the lower half becomes `L` with `L Lᵀ` the matrix.
fn factor(matrix: &mut [f64], n: usize) {
    for i in 0..n {
        let (above, row) = matrix.split_at_mut(i * n);
        let row = &mut row[..n];
        for j in 0..i {
            let other = &above[j * n..][..n];
            row[j] = (row[j] - dot(&row[..j], &other[..j])) / other[j];
        }
        // Rounding may leave less than nothing where inputs repeat each other.
        row[i] = (row[i] - dot(&row[..i], &row[..i])).max(row[i] * 1e-12).sqrt();
    }
}

/// `x` becomes the solution of `L Lᵀ x' = x`.
fn substitute(factor: &[f64], x: &mut [f64]) {
    let n = x.len();
    for i in 0..n {
        x[i] = (x[i] - dot(&factor[i * n..][..i], &x[..i])) / factor[i * n + i];
    }
    for i in (0..n).rev() {
        x[i] /= factor[i * n + i];
        let value = x[i];
        x[..i].iter_mut().zip(&factor[i * n..]).for_each(|(x, l)| *x -= value * l);
    }
}

/// In eight chains, so that one addition does not wait for the other.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (a8, a_rest) = a.as_chunks::<8>();
    let (b8, b_rest) = b.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for (a, b) in a8.iter().zip(b8) {
        for lane in 0..8 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum::<f64>() + a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use duet_kernels::isa::Isa;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn a_linear_map_is_found_again(
            inputs in 1_usize..30,
            targets in 1_usize..5,
            seed in 0_u64..1000,
        ) {
            let mut state = seed;
            let mut next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
            };
            let hands = Hands { isa: Isa::best(), threads: 2 };
            let rows = 4 * inputs + 8;
            let x = Matrix::of(inputs, (0..rows * inputs).map(|_| next()).collect());
            let map = Matrix::of(inputs, (0..targets * inputs).map(|_| next()).collect());
            let mut regression = Regression::new(inputs, targets);
            regression.add(&x, &x.times_rows_of(&map, hands), hands);
            let found = regression.solve(1e-9, hands);
            for (a, b) in found.values().iter().zip(map.values()) {
                prop_assert!((a - b).abs() < 1e-3, "{} {}", a, b);
            }
        }
    }

    #[test]
    fn inputs_that_repeat_each_other_or_are_nothing_share_the_weight() {
        let hands = Hands { isa: Isa::Portable, threads: 1 };
        let x = Matrix::of(3, vec![1.0, 1.0, 0.0, 2.0, 2.0, 0.0, -1.0, -1.0, 0.0]);
        let y = Matrix::of(1, vec![2.0, 4.0, -2.0]);
        let mut regression = Regression::new(3, 1);
        regression.add(&x, &y, hands);
        let map = regression.solve(1e-6, hands);
        assert!((map.values()[0] - 1.0).abs() < 1e-3 && (map.values()[1] - 1.0).abs() < 1e-3, "{map:?}");
        assert_eq!(map.values()[2], 0.0);
    }
}
