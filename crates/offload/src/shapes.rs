//! For how many rows graphs are compiled, and how rows are cut to them.
//!
//! A device that takes any number of rows has one graph for all. Of the others a block has a graph for each of a few
//! numbers: rows are cut into pieces of the largest, and what is left is padded to the smallest that holds it.
//!
//! Invariant: the pieces cover all rows once, in order, and each fits its shape.

use duet_graphs::RowRule;
use duet_runtimes::GraphDevice;
use duet_scheduler::machine::RowsTaken;
use duet_types::Tokens;
use std::ops::Range;

/// For how many rows graphs are compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shapes {
    /// Any number.
    Dynamic,
    /// Exactly these numbers, ascending, at least one number.
    Static(Vec<Tokens>),
}

impl Shapes {
    /// Those for a device with such a rule.
    pub(crate) fn of(rule: RowRule) -> Self {
        match rule {
            RowRule::Any => Self::Dynamic,
            RowRule::StaticMultipleOf(_) => Self::fixed(),
        }
    }

    /// Those for a device that is to have static ones, whatever it takes.
    pub(crate) fn fixed() -> Self {
        Self::Static(STATIC_ROWS.to_vec())
    }
}

/// A decode batch and a prompt's chunk. (CoordGen §3.2: G² and G¹)
const STATIC_ROWS: [Tokens; 2] = [Tokens(32), Tokens(256)];

/// Rows that a lane of this device takes, if it is not told otherwise.
#[must_use]
pub fn rows_taken(device: &dyn GraphDevice) -> RowsTaken {
    match device.rules().rows {
        RowRule::Any => RowsTaken::Any,
        RowRule::StaticMultipleOf(_) => RowsTaken::Chunk,
    }
}

/// Some rows, and the shape that they are run in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) rows: Range<usize>,
    /// Which of the shapes.
    pub(crate) shape: usize,
}

/// Cuts `rows` rows to the shapes, which ascend.
pub(crate) fn cut(rows: usize, shapes: &[Tokens]) -> Vec<Piece> {
    let Some(largest) = shapes.last().map(|shape| shape.as_usize().max(1)) else { return Vec::new() };
    let pieces = (0..rows).step_by(largest).map(|start| {
        let len = largest.min(rows - start);
        let shape = shapes.partition_point(|shape| shape.as_usize() < len);
        Piece { rows: start..start + len, shape }
    });
    pieces.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_all_rows_once_and_fit() {
        let shapes = [32, 64, 256].map(Tokens);
        for rows in 0..1000 {
            let pieces = cut(rows, &shapes);
            assert_eq!(
                pieces.iter().flat_map(|piece| piece.rows.clone()).collect::<Vec<_>>(),
                (0..rows).collect::<Vec<_>>()
            );
            for Piece { rows, shape } in pieces {
                assert!(rows.len() <= shapes[shape].as_usize());
                assert!(shape == 0 || rows.len() > shapes[shape - 1].as_usize(), "a smaller one would have done");
            }
        }
    }
}
