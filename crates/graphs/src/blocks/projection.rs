//! The output projection of attention, added to the residual stream: what is left of the feed-forward's beginning where
//! experts follow, which are routed to on the CPU. (NPUMoE §3.2)

use super::port;
use crate::block::{Block, Linear};
use crate::builder::BlockBuilder;
use crate::check::BlockError;

impl Block {
    /// From [`port::ATTENDED`] and [`port::RESIDUAL`] to [`port::NEXT`]: `residual + linear(attended)`.
    ///
    /// # Errors
    /// If widths do not fit.
    pub fn output_projection(output: Linear, hidden: usize) -> Result<Self, BlockError> {
        let inputs = [(port::ATTENDED, output.weights.inputs()), (port::RESIDUAL, hidden)];
        let (mut block, [attended, residual]) = BlockBuilder::new("output", inputs);
        let projected = block.linear(attended, output);
        let next = block.add(residual, projected);
        block.output(port::NEXT, next);
        block.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::run;
    use crate::weights::{Int8, LinearWeights};
    use duet_types::Tokens;

    #[test]
    fn what_attention_found_is_added_to_the_residual_stream() {
        let weights = LinearWeights::int8(1, Int8 { values: vec![3, 4], scales: vec![1.0, 0.5] }).unwrap();
        let block = Block::output_projection(Linear { weights, bias: Some(vec![1.0, 0.0]) }, 2).unwrap();
        let found = run(&block, Tokens(2), &[&[1.0, 2.0], &[1.0, -4.0, 0.0, 0.0]]).unwrap();
        assert_eq!(found.concat(), [5.0, -2.0, 7.0, 4.0]);
    }
}
