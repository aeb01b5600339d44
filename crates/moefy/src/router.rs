//! A router to any number of experts, fitted to the rows that a layer is given.
//!
//! Experts divide what rows are about, and training keeps them about equally busy. So the rows that a router is fitted
//! to are clustered, all clusters being of one size ([`mod@clusters`](crate::clusters)), and an expert is a cluster's centre. A
//! row goes to the experts whose centres are nearest to its direction, as many as want it: how unevenly, follows from the
//! rows alone. Values are centred and scaled, each place of a row by itself, since a few places are far larger than all
//! others; that and the nearest centre are one linear map with a bias, as a trained router is. (NPUMoE §2, for models
//! whose experts are not at hand)

use crate::MoefyError;
use crate::clusters::{centres, normalise};
use crate::matrix::{Hands, Matrix};
use duet_kernels::isa::Isa;

/// Sends rows to experts.
#[derive(Clone, Debug)]
pub struct Router {
    scale: Scale,
    centres: Matrix,
    hands: Hands,
}

/// Where rows go: the experts of each, best first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// Of one row.
    pub count: usize,
    /// Row by row.
    pub experts: Vec<u32>,
}

impl Router {
    /// A router to `experts` experts of rows of `width` values, whose clusters are found of [`ROWS_MAX`] of them at most.
    ///
    /// # Errors
    /// If there are fewer rows than experts, or the environment names an instruction set that cannot be used.
    pub fn of(rows: &[f32], width: usize, experts: usize, threads: usize) -> Result<Self, MoefyError> {
        let all = Matrix::of(width, rows.to_vec());
        let used = (all.rows().min(ROWS_MAX) / experts.max(1)) * experts;
        if used == 0 {
            return Err(MoefyError::Router { rows: all.rows(), experts });
        }
        let hands = Hands { isa: Isa::chosen()?, threads };
        let scale = Scale::of(&all);
        // From all over the rows.
        let places: Vec<usize> = (0..used).map(|at| at * all.rows() / used).collect();
        let centres = centres(&scale.directions(&all.gather(&places)), experts, hands);
        Ok(Self { scale, centres, hands })
    }

    /// Where rows go, `count` experts each.
    ///
    /// # Panics
    /// If there are fewer than `count` experts, or `rows` are not whole rows.
    #[must_use]
    pub fn choose(&self, rows: &[f32], count: usize) -> Chosen {
        assert!((1..=self.centres.rows()).contains(&count));
        let directions = self.scale.directions(&Matrix::of(self.centres.columns(), rows.to_vec()));
        let near = directions.times_rows_of(&self.centres, self.hands);
        let mut experts = Vec::with_capacity(near.rows() * count);
        for row in 0..near.rows() {
            let mut order: Vec<u32> = (0..near.columns() as u32).collect();
            order.sort_by(|&a, &b| near.row(row)[b as usize].total_cmp(&near.row(row)[a as usize]));
            experts.extend_from_slice(&order[..count]);
        }
        Chosen { count, experts }
    }
}

/// Rows that clusters are found of: each expert has some even where they are many.
const ROWS_MAX: usize = 4096;

/// What is subtracted from a row's values and what they are multiplied with, place by place.
#[derive(Clone, Debug)]
struct Scale {
    mean: Vec<f32>,
    factor: Vec<f32>,
}

impl Scale {
    fn of(rows: &Matrix) -> Self {
        let count = rows.rows().max(1) as f64;
        let mut sums = vec![[0.0_f64; 2]; rows.columns()];
        for row in 0..rows.rows() {
            for ([sum, squares], &value) in sums.iter_mut().zip(rows.row(row)) {
                *sum += f64::from(value);
                *squares += f64::from(value).powi(2);
            }
        }
        let mean = sums.iter().map(|[sum, _]| (sum / count) as f32).collect();
        let spread = |[sum, squares]: &[f64; 2]| (squares / count - (sum / count).powi(2)).max(0.0).sqrt();
        let factor = |spread: f64| if spread > 1e-9 { (1.0 / spread) as f32 } else { 0.0 };
        Self { mean, factor: sums.iter().map(|sums| factor(spread(sums))).collect() }
    }

    fn directions(&self, rows: &Matrix) -> Matrix {
        let mut scaled = rows.clone();
        for row in 0..scaled.rows() {
            let values = scaled.row_mut(row).iter_mut().zip(self.mean.iter().zip(&self.factor));
            values.for_each(|(value, (mean, factor))| *value = (*value - mean) * factor);
        }
        normalise(&mut scaled);
        scaled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Four kinds of rows, which one large value tries to hide.
    fn kinds(count: usize) -> Vec<f32> {
        let row = |row: usize| {
            let kind = row % 4;
            (0..8).map(move |place| match place {
                0 => 1000.0 + (row % 3) as f32,
                place if place % 4 == kind => 5.0,
                place => ((row * 7 + place * 3) % 5) as f32 * 0.1,
            })
        };
        (0..count).flat_map(row).collect()
    }

    #[test]
    fn rows_of_a_kind_go_to_one_expert() {
        let router = Router::of(&kinds(80), 8, 4, 2).unwrap();
        let Chosen { experts, .. } = router.choose(&kinds(40), 1);
        assert!((0..40).all(|row| experts[row] == experts[row % 4]), "{experts:?}");
        let mut different = experts[..4].to_vec();
        different.sort_unstable();
        assert_eq!(different, [0, 1, 2, 3]);
    }

    #[test]
    fn fewer_rows_than_experts_are_refused() {
        let error = Router::of(&kinds(3), 8, 4, 1).unwrap_err();
        assert_eq!(error.to_string(), "3 rows are too few for a router to 4 experts");
    }

    proptest! {
        #[test]
        fn a_row_goes_to_different_experts_whatever_else_is_there(
            values in prop::collection::vec(-3.0_f32..3.0, 16 * 24), threads in 1_usize..4,
        ) {
            let router = Router::of(&values, 16, 6, threads).unwrap();
            let chosen = router.choose(&values, 3);
            for (row, experts) in chosen.experts.chunks(3).enumerate() {
                prop_assert!(experts.iter().all(|expert| *expert < 6));
                prop_assert!(experts[0] != experts[1] && experts[1] != experts[2] && experts[0] != experts[2]);
                prop_assert_eq!(&router.choose(&values[row * 16..][..16], 3).experts, experts);
            }
        }
    }
}
