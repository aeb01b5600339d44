//! The shape that a block is emitted in, and what a device asks of it.
//!
//! Ahead-of-time compilers differ in what they take: only static rows, rows and widths in whole tiles, graphs up to a
//! size, products as 1×1 convolutions. [`LayoutRules`] says it of a device; emitters hold to it and refuse a block that
//! does not, so that no compiler has to.

use crate::block::{Block, Op};
use crate::weights::Quants;
use duet_types::{Bytes, Tokens};

/// How many rows a graph takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rows {
    /// Exactly this number.
    Static(Tokens),
    /// Any number.
    Dynamic,
}

/// Which rows a device's graphs may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowRule {
    /// Any number, also one that is only known when the graph runs.
    Any,
    /// A number that the graph is compiled for, a multiple of this.
    StaticMultipleOf(Tokens),
}

/// What a product is called in a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinearForm {
    /// A matrix product.
    MatMul,
    /// A convolution with a kernel of one point: what some accelerators' compilers are best at.
    Convolution,
}

/// Which weights a device computes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightRule {
    /// All of [`crate::Precision`].
    Any,
    /// Those with one scale per output: a product adds up integers and is scaled once.
    PerOutput,
}

/// What activations are in a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivationRule {
    /// Floats, which a device may round as it likes when it runs.
    Floats,
    /// Integers on grids that are part of the graph, so that the block has to be calibrated ([`crate::calibrate`]).
    Calibrated,
}

/// What a device asks of its graphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayoutRules {
    /// Rows.
    pub rows: RowRule,
    /// Every value's width is a multiple of this; at least 1.
    pub width_multiple: usize,
    /// The most that the constants of one graph may take.
    pub constants_max: Option<Bytes>,
    /// Which weights products have.
    pub weights: WeightRule,
    /// What activations are.
    pub activations: ActivationRule,
    /// How products are written.
    pub linear: LinearForm,
}

/// Why a device does not take a block in a shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// Static shapes only.
    #[error("the device takes graphs of a fixed number of rows only: choose one")]
    DynamicRows,
    /// No rows.
    #[error("a graph of no rows computes nothing: take one at least")]
    NoRows,
    /// Rows that do not fill tiles.
    #[error("{rows} rows: the device takes multiples of {multiple}")]
    Rows {
        /// Asked for.
        rows: Tokens,
        /// The device's.
        multiple: Tokens,
    },
    /// A value that does not fill tiles.
    #[error("value {value} of block {block} is {width} wide: the device takes multiples of {multiple}")]
    Width {
        /// The block.
        block: String,
        /// The value's number.
        value: usize,
        /// Its width.
        width: usize,
        /// The device's.
        multiple: usize,
    },
    /// Weights in groups.
    #[error(
        "block {block} has weights in groups: the device takes one scale per output, so quantise them to eight bits"
    )]
    Groups {
        /// The block.
        block: String,
    },
    /// Too much for one graph.
    #[error("block {block} has {bytes} of constants: the device takes graphs up to {limit}, so split it")]
    Size {
        /// The block.
        block: String,
        /// Its constants.
        bytes: Bytes,
        /// The device's limit.
        limit: Bytes,
    },
}

impl LayoutRules {
    /// Of a device that takes everything.
    pub const FREE: Self = Self {
        rows: RowRule::Any,
        width_multiple: 1,
        constants_max: None,
        weights: WeightRule::Any,
        activations: ActivationRule::Floats,
        linear: LinearForm::MatMul,
    };

    /// Of a device with fixed shapes in tiles of 16 by 16.
    pub const STATIC_TILES: Self =
        Self { rows: RowRule::StaticMultipleOf(Tokens(16)), width_multiple: 16, ..Self::FREE };

    /// Of Qualcomm's HTP. Its compiler refuses rows that are not known, and weights in groups; it takes any number of rows
    /// and any width, and fills its tiles itself. Products come to the same in either form, and as fast on its emulator.
    /// No limit of a graph's size is known: 27 MiB of constants are taken.
    pub const HTP: Self = Self {
        rows: RowRule::StaticMultipleOf(Tokens(1)),
        weights: WeightRule::PerOutput,
        activations: ActivationRule::Calibrated,
        ..Self::FREE
    };

    /// Whether a device with these rules takes the block with these `rows`.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(&self, block: &Block, rows: Rows) -> Result<(), ShapeError> {
        self.check_rows(rows)?;
        let multiple = self.width_multiple;
        let is_ragged = |width: usize| multiple == 0 || !width.is_multiple_of(multiple);
        if let Some(value) = block.values().find(|value| is_ragged(block.width(*value))) {
            let (block, width) = (block.name().to_owned(), block.width(value));
            return Err(ShapeError::Width { block, value: value.0, width, multiple });
        }
        if self.weights == WeightRule::PerOutput && block.ops().iter().any(has_groups) {
            return Err(ShapeError::Groups { block: block.name().to_owned() });
        }
        match (block.constant_bytes(), self.constants_max) {
            (bytes, Some(limit)) if bytes > limit => {
                Err(ShapeError::Size { block: block.name().to_owned(), bytes, limit })
            }
            _ => Ok(()),
        }
    }

    fn check_rows(&self, rows: Rows) -> Result<(), ShapeError> {
        match (self.rows, rows) {
            (_, Rows::Static(Tokens::ZERO)) => Err(ShapeError::NoRows),
            (RowRule::Any, _) => Ok(()),
            (RowRule::StaticMultipleOf(_), Rows::Dynamic) => Err(ShapeError::DynamicRows),
            (RowRule::StaticMultipleOf(multiple), Rows::Static(rows)) => {
                if multiple != Tokens::ZERO && rows.0.is_multiple_of(multiple.0) {
                    return Ok(());
                }
                Err(ShapeError::Rows { rows, multiple })
            }
        }
    }
}

fn has_groups(op: &Op) -> bool {
    matches!(op, Op::Linear { linear, .. } if matches!(linear.weights.quants(), Quants::Grouped(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Norm;
    use crate::builder::BlockBuilder;
    use crate::weights::{Group, LinearWeights, Precision};

    fn block(width: usize) -> Block {
        let (mut builder, [x]) = BlockBuilder::new("b", [("x", width)]);
        let normed = builder.rms_norm(x, Norm { weight: vec![1.0; width], epsilon: 1e-5 });
        builder.output("y", normed);
        builder.finish().unwrap()
    }

    #[test]
    fn rules_are_checked_one_by_one() {
        let (tiles, rows) = (LayoutRules::STATIC_TILES, Rows::Static(Tokens(32)));
        assert_eq!(tiles.check(&block(48), rows), Ok(()));
        assert_eq!(tiles.check(&block(48), Rows::Dynamic), Err(ShapeError::DynamicRows));
        assert_eq!(tiles.check(&block(48), Rows::Static(Tokens(0))), Err(ShapeError::NoRows));
        let ragged = ShapeError::Rows { rows: Tokens(20), multiple: Tokens(16) };
        assert_eq!(tiles.check(&block(48), Rows::Static(Tokens(20))), Err(ragged));
        let width = ShapeError::Width { block: "b".to_owned(), value: 0, width: 40, multiple: 16 };
        assert_eq!(tiles.check(&block(40), rows), Err(width));
        let small = LayoutRules { constants_max: Some(Bytes(195)), ..tiles };
        let size = ShapeError::Size { block: "b".to_owned(), bytes: Bytes(196), limit: Bytes(195) };
        assert_eq!(small.check(&block(48), rows), Err(size));
        assert_eq!(LayoutRules::FREE.check(&block(7), Rows::Dynamic), Ok(()));
    }

    #[test]
    fn a_device_may_refuse_groups() {
        let linear = |precision| {
            let (mut builder, [x]) = BlockBuilder::new("b", [("x", 32)]);
            let weights = LinearWeights::from_rows(32, precision, [[1.0; 32]; 16]).unwrap();
            let product = builder.linear(x, weights);
            builder.output("y", product);
            LayoutRules::HTP.check(&builder.finish().unwrap(), Rows::Static(Tokens(16)))
        };
        assert_eq!(linear(Precision::Int8), Ok(()));
        assert_eq!(linear(Precision::Int4(Group::Of32)), Err(ShapeError::Groups { block: "b".to_owned() }));
    }
}
