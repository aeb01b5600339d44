//! Writes a block down, operation by operation. Nothing is checked before [`BlockBuilder::finish`].

use crate::block::{Activation, Block, Linear, Norm, Op, ValueId};
use crate::check::{BlockError, Unchecked};
use std::ops::Range;

/// A block that is being written.
#[derive(Clone, Debug)]
pub struct BlockBuilder {
    name: String,
    inputs: Vec<(String, usize)>,
    ops: Vec<Op>,
    outputs: Vec<(String, ValueId)>,
}

impl BlockBuilder {
    /// A block of that name with those inputs, by name and width, and their values in the same order.
    #[must_use]
    pub fn new<const N: usize>(name: &str, inputs: [(&str, usize); N]) -> (Self, [ValueId; N]) {
        let values = std::array::from_fn(ValueId);
        let (builder, _) = Self::with_inputs(name, inputs.map(|(name, width)| (name.to_owned(), width)));
        (builder, values)
    }

    /// As [`Self::new`], for a number of inputs that is known when the program runs.
    #[must_use]
    pub fn with_inputs(name: &str, inputs: impl IntoIterator<Item = (String, usize)>) -> (Self, Vec<ValueId>) {
        let inputs: Vec<_> = inputs.into_iter().collect();
        let values = (0..inputs.len()).map(ValueId).collect();
        (Self { name: name.to_owned(), inputs, ops: Vec::new(), outputs: Vec::new() }, values)
    }

    /// Any operation.
    pub fn push(&mut self, op: Op) -> ValueId {
        self.ops.push(op);
        ValueId(self.inputs.len() + self.ops.len() - 1)
    }

    /// [`Op::RmsNorm`].
    pub fn rms_norm(&mut self, input: ValueId, norm: Norm) -> ValueId {
        self.push(Op::RmsNorm { input, norm })
    }

    /// [`Op::Linear`].
    pub fn linear(&mut self, input: ValueId, linear: impl Into<Linear>) -> ValueId {
        self.push(Op::Linear { input, linear: linear.into() })
    }

    /// [`Op::Add`].
    pub fn add(&mut self, left: ValueId, right: ValueId) -> ValueId {
        self.push(Op::Add { left, right })
    }

    /// [`Op::Multiply`].
    pub fn multiply(&mut self, left: ValueId, right: ValueId) -> ValueId {
        self.push(Op::Multiply { left, right })
    }

    /// [`Op::Activate`].
    pub fn activate(&mut self, input: ValueId, activation: Activation) -> ValueId {
        self.push(Op::Activate { input, activation })
    }

    /// [`Op::Slice`].
    pub fn slice(&mut self, input: ValueId, columns: Range<usize>) -> ValueId {
        self.push(Op::Slice { input, columns })
    }

    /// Hands a value out under a name.
    pub fn output(&mut self, name: &str, value: ValueId) {
        self.outputs.push((name.to_owned(), value));
    }

    /// The block.
    ///
    /// # Errors
    /// If it is none: see [`BlockError`].
    pub fn finish(self) -> Result<Block, BlockError> {
        let Self { name, inputs, ops, outputs } = self;
        Unchecked { name, inputs, ops, outputs }.check()
    }
}
