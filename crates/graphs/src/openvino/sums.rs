//! Sums of the groups of a product's inputs, which what zero points leave over of minima is multiplied with.
//!
//! A device that rounds a product's inputs should sum what they were rounded to: the sums then go with the product to the
//! bit, and cost no error of their own. So they are a product, too, of the same form as those with weights, with ones
//! for weights. A row is cut into pieces of a few groups, so that the ones are few. Products of the same inputs share
//! their sums.

use super::linear::{product, scaled_rows};
use super::network::{Dim, Kind, Network, Tensor};
use crate::shape::LinearForm;
use crate::weights::{Group, Int8};
use std::collections::BTreeMap;

/// The sums of a network so far.
#[derive(Debug, Default)]
pub(super) struct GroupSums {
    /// By the layer that the inputs come from, and the weights of a group.
    sums: BTreeMap<(usize, usize), Tensor>,
}

impl GroupSums {
    /// The sums of each group of columns: `[rows, inputs]` to `[rows, groups]`.
    pub(super) fn of(&mut self, network: &mut Network, x: &Tensor, group: Group, groups: usize) -> Tensor {
        let size = group.size();
        self.sums.entry((x.layer, size)).or_insert_with(|| sums(network, x, size, groups)).clone()
    }
}

fn sums(network: &mut Network, x: &Tensor, size: usize, groups: usize) -> Tensor {
    let piece = piece(groups);
    let ones =
        (0..piece * piece * size).map(|at| i8::from(at / (piece * size) == at % (piece * size) / size)).collect();
    let ones = scaled_rows(network, &Int8 { values: ones, scales: vec![1.0; piece] }, &[piece, piece * size]);
    if piece == groups {
        return product(network, LinearForm::MatMul, x, &ones);
    }
    let pieces = match x.dims[0] {
        Dim::Of(rows) => Dim::Of(rows * groups / piece),
        Dim::Any => Dim::Any,
    };
    let cut = reshaped(network, x, pieces, piece * size);
    let sums = product(network, LinearForm::MatMul, &cut, &ones);
    reshaped(network, &sums, x.dims[0], groups)
}

/// Groups of a piece. More than one, if there are: OpenVINO computes products of one output in floats.
fn piece(groups: usize) -> usize {
    let fits = |piece: &usize| groups.is_multiple_of(*piece);
    (2..=PIECE_MAX).rev().find(fits).unwrap_or(groups)
}

/// The same numbers in rows of another width.
fn reshaped(network: &mut Network, x: &Tensor, rows: Dim, columns: usize) -> Tensor {
    let shape = network.integers(&[-1, columns as i64]);
    let dims = vec![rows, Dim::Of(columns)];
    network.layer(Kind::first("Reshape"), &[("special_zero", "false")], &[x, &shape], dims)
}

/// Enough to fill a register with outputs; their ones take 8 KiB.
const PIECE_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_a_row_and_are_small_where_they_can() {
        for groups in 1..500 {
            let piece = piece(groups);
            assert!(groups.is_multiple_of(piece));
            assert!(groups == 1 || piece > 1);
            assert!(piece <= PIECE_MAX || (2..=PIECE_MAX).all(|smaller| !groups.is_multiple_of(smaller)));
        }
    }
}
