//! What must hold of a block before anything else sees it.

use crate::block::{Block, Linear, Norm, Op, Port, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// Why something is not a block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// Toolchains give some characters a meaning of their own.
    #[error("`{name}` is no name for a block or a port: use letters, digits, `_`, `-` and `.`, at least one")]
    Name {
        /// The name.
        name: String,
    },
    /// Two ports have the same name.
    #[error("two ports of block {block} are called {name}: give each its own name")]
    DuplicateName {
        /// The block.
        block: String,
        /// The name.
        name: String,
    },
    /// A block that reads or returns nothing.
    #[error("block {block} has no {ports}: it needs one at least")]
    NoPorts {
        /// The block.
        block: String,
        /// `inputs` or `outputs`.
        ports: &'static str,
    },
    /// A matrix without columns.
    #[error("input {name} has no columns: its width is to be at least 1")]
    Empty {
        /// The input.
        name: String,
    },
    /// A value is used that is not there, or not yet.
    #[error("{reader} of block {block} reads value {value}: only {defined} are defined before it")]
    Undefined {
        /// The block.
        block: String,
        /// Which operation or output.
        reader: String,
        /// The value's number.
        value: usize,
        /// Values defined before.
        defined: usize,
    },
    /// A value that nothing reads.
    #[error("value {value} of block {block} is never used: remove it, or make it an output")]
    Unused {
        /// The block.
        block: String,
        /// The value's number.
        value: usize,
    },
    /// A value that is handed in or out under another name already.
    #[error("value {value} of block {block} is handed out as {name}, but is {other} already: hand it out once")]
    TwoPorts {
        /// The block.
        block: String,
        /// The value's number.
        value: usize,
        /// The output.
        name: String,
        /// Its other name.
        other: String,
    },
    /// Widths do not fit.
    #[error("operation {step} ({op}) wants {what} of width {wanted}, it has {found}")]
    Width {
        /// The operation's number.
        step: usize,
        /// Its name.
        op: &'static str,
        /// Which of its parts.
        what: &'static str,
        /// The width that would fit.
        wanted: usize,
        /// The width that it has.
        found: usize,
    },
    /// Columns that are not there, or none.
    #[error("operation {step} (slice) takes columns {start}..{end} of {width}")]
    Columns {
        /// The operation's number.
        step: usize,
        /// The first column.
        start: usize,
        /// The first column that is not taken any more.
        end: usize,
        /// How many there are.
        width: usize,
    },
    /// A constant that no device computes with.
    #[error("operation {step} ({op}): {what}")]
    Constant {
        /// The operation's number.
        step: usize,
        /// Its name.
        op: &'static str,
        /// Which constant, and what it has to be.
        what: &'static str,
    },
}

/// Inputs with their widths, operations, and outputs by name.
pub(crate) struct Unchecked {
    pub(crate) name: String,
    pub(crate) inputs: Vec<(String, usize)>,
    pub(crate) ops: Vec<Op>,
    pub(crate) outputs: Vec<(String, ValueId)>,
}

impl Unchecked {
    pub(crate) fn check(self) -> Result<Block, BlockError> {
        self.check_names()?;
        let widths = self.check_ops()?;
        self.check_outputs(widths.len())?;
        self.check_used(widths.len())?;
        let port = |name, value: ValueId| Port { name, width: widths[value.0], value };
        let inputs = self.inputs.into_iter().enumerate().map(|(index, (name, _))| port(name, ValueId(index))).collect();
        let outputs = self.outputs.into_iter().map(|(name, value)| port(name, value)).collect();
        Ok(Block { name: self.name, inputs, ops: self.ops, outputs, widths })
    }

    fn check_names(&self) -> Result<(), BlockError> {
        for (ports, is_empty) in [("inputs", self.inputs.is_empty()), ("outputs", self.outputs.is_empty())] {
            if is_empty {
                return Err(BlockError::NoPorts { block: self.name.clone(), ports });
            }
        }
        let ports = || self.inputs.iter().map(|(name, _)| name).chain(self.outputs.iter().map(|(name, _)| name));
        if let Some(name) = std::iter::once(&self.name).chain(ports()).find(|name| !is_name(name)) {
            return Err(BlockError::Name { name: name.clone() });
        }
        let mut seen = BTreeSet::new();
        match ports().find(|name| !seen.insert(*name)) {
            Some(name) => Err(BlockError::DuplicateName { block: self.name.clone(), name: name.clone() }),
            None => Ok(()),
        }
    }

    /// The widths of all values.
    fn check_ops(&self) -> Result<Vec<usize>, BlockError> {
        if let Some((name, _)) = self.inputs.iter().find(|(_, width)| *width == 0) {
            return Err(BlockError::Empty { name: name.clone() });
        }
        let mut widths: Vec<usize> = self.inputs.iter().map(|(_, width)| *width).collect();
        for (step, op) in self.ops.iter().enumerate() {
            for operand in op.operands() {
                self.check_defined(&format!("operation {step} ({})", op.name()), operand, widths.len())?;
            }
            widths.push(Step { step, op, widths: &widths }.width()?);
        }
        Ok(widths)
    }

    fn check_defined(&self, reader: &str, value: ValueId, defined: usize) -> Result<(), BlockError> {
        if value.0 < defined {
            return Ok(());
        }
        Err(BlockError::Undefined { block: self.name.clone(), reader: reader.to_owned(), value: value.0, defined })
    }

    fn check_outputs(&self, values: usize) -> Result<(), BlockError> {
        let inputs = self.inputs.iter().enumerate().map(|(index, (name, _))| (ValueId(index), name));
        let mut ports: BTreeMap<ValueId, &String> = inputs.collect();
        for (name, value) in &self.outputs {
            self.check_defined(&format!("output {name}"), *value, values)?;
            if let Some(other) = ports.insert(*value, name) {
                let (block, name, other) = (self.name.clone(), name.clone(), other.clone());
                return Err(BlockError::TwoPorts { block, value: value.0, name, other });
            }
        }
        Ok(())
    }

    fn check_used(&self, values: usize) -> Result<(), BlockError> {
        let read = self.ops.iter().flat_map(Op::operands);
        let used: BTreeSet<ValueId> = read.chain(self.outputs.iter().map(|(_, value)| *value)).collect();
        match (0..values).find(|value| !used.contains(&ValueId(*value))) {
            Some(value) => Err(BlockError::Unused { block: self.name.clone(), value }),
            None => Ok(()),
        }
    }
}

/// An operation, and the widths of the values before it.
struct Step<'a> {
    step: usize,
    op: &'a Op,
    widths: &'a [usize],
}

impl Step<'_> {
    /// The width of the result.
    fn width(&self) -> Result<usize, BlockError> {
        let width = |value: &ValueId| self.widths[value.0];
        match self.op {
            Op::RmsNorm { input, norm } => self.norm(width(input), norm),
            Op::Linear { input, linear } => self.linear(width(input), linear),
            Op::Add { left, right } | Op::Multiply { left, right } => {
                self.same("its right operand", width(left), width(right))
            }
            Op::Activate { input, .. } => Ok(width(input)),
            Op::Slice { input, columns } if columns.start < columns.end && columns.end <= width(input) => {
                Ok(columns.len())
            }
            Op::Slice { input, columns } => {
                let (start, end) = (columns.start, columns.end);
                Err(BlockError::Columns { step: self.step, start, end, width: width(input) })
            }
        }
    }

    fn norm(&self, width: usize, norm: &Norm) -> Result<usize, BlockError> {
        self.finite(&norm.weight, "its weights are to be finite")?;
        if !(norm.epsilon > 0.0 && norm.epsilon.is_finite()) {
            return Err(self.constant("its epsilon is to be finite and above zero"));
        }
        self.same("weights", width, norm.weight.len())
    }

    fn linear(&self, width: usize, linear: &Linear) -> Result<usize, BlockError> {
        let weights = &linear.weights;
        self.same("an operand", weights.inputs(), width)?;
        if let Some(bias) = &linear.bias {
            self.finite(bias, "its bias is to be finite")?;
            self.same("a bias", weights.outputs(), bias.len())?;
        }
        Ok(weights.outputs())
    }

    fn same(&self, what: &'static str, wanted: usize, found: usize) -> Result<usize, BlockError> {
        if wanted == found {
            return Ok(found);
        }
        Err(BlockError::Width { step: self.step, op: self.op.name(), what, wanted, found })
    }

    fn finite(&self, values: &[f32], what: &'static str) -> Result<(), BlockError> {
        if values.iter().all(|value| value.is_finite()) { Ok(()) } else { Err(self.constant(what)) }
    }

    fn constant(&self, what: &'static str) -> BlockError {
        BlockError::Constant { step: self.step, op: self.op.name(), what }
    }
}

fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    !name.is_empty() && name.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Activation;
    use crate::builder::BlockBuilder;
    use crate::weights::{LinearWeights, Precision};

    fn error(write: impl FnOnce(&mut BlockBuilder, ValueId, ValueId)) -> String {
        let (mut builder, [x, y]) = BlockBuilder::new("b", [("x", 2), ("y", 3)]);
        write(&mut builder, x, y);
        builder.finish().unwrap_err().to_string()
    }

    #[test]
    fn names_are_plain_and_differ() {
        let twice = error(|b, x, y| {
            b.output("z", x);
            b.output("z", y);
        });
        assert_eq!(twice, "two ports of block b are called z: give each its own name");
        let odd = error(|b, x, _| b.output("a,b", x));
        assert!(odd.starts_with("`a,b` is no name"), "{odd}");
        assert_eq!(error(|_, _, _| {}), "block b has no outputs: it needs one at least");
    }

    #[test]
    fn values_are_defined_before_they_are_used_and_used_then() {
        let early = error(|b, x, _| {
            let sum = b.add(x, ValueId(3));
            b.output("z", sum);
        });
        assert_eq!(early, "operation 0 (add) of block b reads value 3: only 2 are defined before it");
        let absent = error(|b, _, _| b.output("z", ValueId(2)));
        assert_eq!(absent, "output z of block b reads value 2: only 2 are defined before it");
        let idle = error(|b, x, _| {
            let result = b.activate(x, Activation::Silu);
            b.output("z", result);
        });
        assert_eq!(idle, "value 1 of block b is never used: remove it, or make it an output");
    }

    #[test]
    fn a_value_has_one_port() {
        let input = error(|b, x, _| b.output("z", x));
        assert_eq!(input, "value 0 of block b is handed out as z, but is x already: hand it out once");
        let twice = error(|b, x, y| {
            let [result, other] = [x, y].map(|value| b.activate(value, Activation::Silu));
            b.output("z", result);
            b.output("w", other);
            b.output("v", result);
        });
        assert_eq!(twice, "value 2 of block b is handed out as v, but is z already: hand it out once");
    }

    #[test]
    fn widths_fit() {
        let add = error(|b, x, y| {
            let sum = b.add(x, y);
            b.output("z", sum);
        });
        assert_eq!(add, "operation 0 (add) wants its right operand of width 2, it has 3");
        let weights = LinearWeights::from_rows(3, Precision::Int8, [[1.0; 3]]).unwrap();
        let product = error(|b, x, _| {
            let result = b.linear(x, weights);
            b.output("z", result);
        });
        assert_eq!(product, "operation 0 (linear) wants an operand of width 3, it has 2");
        let slice = error(|b, x, _| {
            let result = b.slice(x, 1..3);
            b.output("z", result);
        });
        assert_eq!(slice, "operation 0 (slice) takes columns 1..3 of 2");
        let norm = |epsilon| Norm { weight: vec![1.0; 2], epsilon };
        let epsilon = error(|b, x, _| {
            let result = b.rms_norm(x, norm(0.0));
            b.output("z", result);
        });
        assert_eq!(epsilon, "operation 0 (rms_norm): its epsilon is to be finite and above zero");
    }
}
