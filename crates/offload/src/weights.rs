//! A matrix of a model's file as weights that a device takes.
//!
//! A device that takes groups has the file's own: its integers, scales and minima, to the bit, which are what the CPU's
//! kernels compute with. What the file does not hold in groups is rounded to eight bits in groups of 32, as for the CPU.
//! A device that takes one scale per output has everything rounded again to eight bits of these, which costs about one
//! per cent of each product.

use duet_graphs::{Bits, Group, Grouped, LinearWeights, Origin, Precision, WeightRule, WeightsError};
use duet_model::PlainMatrix;
use duet_model::gguf::{self, GroupForm};

/// The matrix as the device takes it.
pub(crate) fn linear_weights(matrix: &PlainMatrix<'_>, rule: WeightRule) -> Result<LinearWeights, WeightsError> {
    let inputs = matrix.inputs();
    let rounded = |precision| LinearWeights::from_rows(inputs, precision, matrix.floats());
    match (rule, matrix.group_form()) {
        (WeightRule::PerOutput, _) => rounded(Precision::Int8),
        (WeightRule::Any, Some(form)) => LinearWeights::grouped(inputs, grouped(matrix, form)),
        (WeightRule::Any, None) if inputs.is_multiple_of(Group::Of32.size()) => {
            rounded(Precision::Int8Groups(Group::Of32))
        }
        (WeightRule::Any, None) => rounded(Precision::Int8),
    }
}

/// The file's groups, with their own integers.
fn grouped(matrix: &PlainMatrix<'_>, form: GroupForm) -> Grouped {
    let (bits, zero) = match form {
        GroupForm::Nibble { zero } => (Bits::Four, zero),
        GroupForm::Byte { zero } => (Bits::Eight, zero),
    };
    let (mut values, mut scales, mut minima) = (Vec::new(), Vec::new(), Vec::new());
    for gguf::Group { scale, min, quants } in matrix.groups().flatten() {
        values.extend(bits.pack(quants.into_iter().map(|quant| quant.wrapping_sub(zero.unwrap_or(0)))));
        scales.push(scale);
        minima.push(min);
    }
    // A zero that all groups share is taken from the integers, which have signs then.
    let origin = if zero.is_some() { Origin::Zero } else { Origin::Minima(minima) };
    Grouped { group: Group::Of32, bits, values, scales, origin }
}
