//! Several experts in one graph, so that one launch serves them all. (NPUMoE §4.2)
//!
//! Each expert has an input and an output of its own, and all have as many rows as the graph: the capacity of their
//! tier. Who has fewer rows pads with zeros, which come to zeros. Gathering rows, weighting results and adding them to
//! their rows is the caller's work.

use super::{GatedFeed, port};
use crate::block::Block;
use crate::builder::BlockBuilder;
use crate::check::BlockError;

impl Block {
    /// From [`port::expert_rows`] to [`port::expert_result`], for each expert.
    ///
    /// # Errors
    /// If there is none, or widths do not fit.
    pub fn experts(experts: Vec<GatedFeed>) -> Result<Self, BlockError> {
        let input = |(index, expert): (usize, &GatedFeed)| (port::expert_rows(index), expert.gate.weights.inputs());
        let (mut block, inputs) = BlockBuilder::with_inputs("experts", experts.iter().enumerate().map(input));
        for (index, (input, expert)) in inputs.into_iter().zip(experts).enumerate() {
            let result = block.gated_feed(input, expert);
            block.output(&port::expert_result(index), result);
        }
        block.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{Activation, Linear};
    use crate::reference::run;
    use crate::weights::{LinearWeights, Precision};
    use duet_types::Tokens;

    fn expert(factor: f32) -> GatedFeed {
        let linear = |weight: f32| Linear::from(LinearWeights::from_rows(1, Precision::Int8, [[weight]]).unwrap());
        GatedFeed { gate: linear(1.0), up: linear(factor), activation: Activation::Silu, down: linear(1.0) }
    }

    #[test]
    fn each_expert_sees_its_own_rows_and_padding_stays_zero() {
        let block = Block::experts(vec![expert(1.0), expert(-2.0)]).unwrap();
        let found = run(&block, Tokens(2), &[&[1.0, 2.0], &[1.0, 0.0]]).unwrap();
        let silu = |x: f32| x / (1.0 + (-x).exp());
        for (found, expected) in
            found.concat().iter().zip([silu(1.0), 4.0 / (1.0 + (-2.0_f32).exp()), -2.0 * silu(1.0), 0.0])
        {
            assert!((found - expected).abs() < 1e-5, "{found} is not {expected}");
        }
    }

    #[test]
    fn a_group_of_nobody_is_refused() {
        let error = Block::experts(Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), "block experts has no inputs: it needs one at least");
    }
}
