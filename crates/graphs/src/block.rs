//! A fused block as data: named inputs, a list of operations, named outputs.
//!
//! Every value is a matrix of single-precision numbers, `[rows, width]`. How many rows there are is said when the block
//! is emitted ([`crate::Rows`]); no operation mixes rows. A value is an input or the result of one operation, written
//! once and never changed (SSA).
//!
//! What holds of every [`Block`], checked by [`crate::BlockBuilder::finish`]: widths fit, values are defined before they
//! are used and used after they are defined, each has at most one port, names differ, constants are finite. So emitters and the reference
//! interpreter cannot meet a block that they do not understand.

use crate::weights::LinearWeights;
use duet_types::Bytes;
use std::ops::Range;

/// A value of a block: an input, or the result of an operation. It means something only in the block it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueId(pub(crate) usize);

/// A value that is handed in or out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// What toolchains and devices call it.
    pub name: String,
    /// Columns.
    pub width: usize,
    /// Which value it is.
    pub value: ValueId,
}

/// Root-mean-square norm of a row: `x / √(mean(x²) + epsilon) × weight`.
#[derive(Clone, Debug, PartialEq)]
pub struct Norm {
    /// One factor per column.
    pub weight: Vec<f32>,
    /// Keeps the divisor above zero; positive.
    pub epsilon: f32,
}

/// A matrix product with constant weights: `x × weightsᵀ + bias`.
#[derive(Clone, Debug, PartialEq)]
pub struct Linear {
    /// `[outputs, inputs]`.
    pub weights: LinearWeights,
    /// One summand per output.
    pub bias: Option<Vec<f32>>,
}

impl From<LinearWeights> for Linear {
    fn from(weights: LinearWeights) -> Self {
        Self { weights, bias: None }
    }
}

/// A nonlinearity, element by element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x / (1 + e^-x)`.
    Silu,
    /// Gaussian error linear unit, by its tanh approximation.
    GeluTanh,
}

/// One operation. Its operands are values of the same block.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Norm of each row.
    RmsNorm {
        /// What is normed.
        input: ValueId,
        /// By which weights.
        norm: Norm,
    },
    /// Matrix product.
    Linear {
        /// What is multiplied.
        input: ValueId,
        /// With what.
        linear: Linear,
    },
    /// Sum, element by element.
    Add {
        /// One summand.
        left: ValueId,
        /// The other.
        right: ValueId,
    },
    /// Product, element by element.
    Multiply {
        /// One factor.
        left: ValueId,
        /// The other.
        right: ValueId,
    },
    /// Nonlinearity.
    Activate {
        /// Its argument.
        input: ValueId,
        /// Which one.
        activation: Activation,
    },
    /// Some columns, side by side.
    Slice {
        /// Where they are taken from.
        input: ValueId,
        /// Which ones.
        columns: Range<usize>,
    },
}

/// A checked block. Cheap to emit for many shapes, expensive to clone: it owns its weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    pub(crate) name: String,
    pub(crate) inputs: Vec<Port>,
    pub(crate) ops: Vec<Op>,
    pub(crate) outputs: Vec<Port>,
    /// Of every value: inputs first, then the results of the operations.
    pub(crate) widths: Vec<usize>,
}

impl Block {
    /// What the block is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What is handed in, in order.
    #[must_use]
    pub fn inputs(&self) -> &[Port] {
        &self.inputs
    }

    /// The operations, in an order in which they can run.
    #[must_use]
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// What is handed out, in order.
    #[must_use]
    pub fn outputs(&self) -> &[Port] {
        &self.outputs
    }

    /// All values, inputs first.
    pub fn values(&self) -> impl ExactSizeIterator<Item = ValueId> + use<> {
        (0..self.widths.len()).map(ValueId)
    }

    /// Columns of a value.
    ///
    /// # Panics
    /// If the value is another block's.
    #[must_use]
    pub fn width(&self, value: ValueId) -> usize {
        self.widths[value.0]
    }

    /// Memory of all constants, as a graph holds them.
    #[must_use]
    pub fn constant_bytes(&self) -> Bytes {
        self.ops.iter().map(Op::constant_bytes).sum()
    }

    /// Multiplications with weights that each row takes: the work by which a launch is judged.
    #[must_use]
    pub fn products_per_row(&self) -> u64 {
        self.ops.iter().map(Op::products_per_row).sum()
    }
}

impl Op {
    /// What it is called in messages.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::RmsNorm { .. } => "rms_norm",
            Self::Linear { .. } => "linear",
            Self::Add { .. } => "add",
            Self::Multiply { .. } => "multiply",
            Self::Activate { activation: Activation::Silu, .. } => "silu",
            Self::Activate { activation: Activation::GeluTanh, .. } => "gelu",
            Self::Slice { .. } => "slice",
        }
    }

    /// The values that it reads.
    pub fn operands(&self) -> impl Iterator<Item = ValueId> + use<> {
        let (first, second) = match *self {
            Self::RmsNorm { input, .. }
            | Self::Linear { input, .. }
            | Self::Activate { input, .. }
            | Self::Slice { input, .. } => (input, None),
            Self::Add { left, right } | Self::Multiply { left, right } => (left, Some(right)),
        };
        std::iter::once(first).chain(second)
    }

    fn constant_bytes(&self) -> Bytes {
        match self {
            Self::RmsNorm { norm, .. } => floats(norm.weight.len() + 1),
            Self::Linear { linear, .. } => {
                let bias = linear.bias.as_ref().map_or(Bytes::ZERO, |bias| floats(bias.len()));
                linear.weights.bytes() + bias
            }
            Self::Add { .. } | Self::Multiply { .. } | Self::Activate { .. } | Self::Slice { .. } => Bytes::ZERO,
        }
    }

    fn products_per_row(&self) -> u64 {
        match self {
            Self::Linear { linear, .. } => linear.weights.inputs() as u64 * linear.weights.outputs() as u64,
            _ => 0,
        }
    }
}

fn floats(count: usize) -> Bytes {
    Bytes(count as u64 * 4)
}
