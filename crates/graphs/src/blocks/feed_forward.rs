//! Feed-forward: output projection of attention, norm, gated block, with both sums of the residual stream.

use super::port;
use crate::block::{Activation, Block, Linear, Norm, ValueId};
use crate::builder::BlockBuilder;
use crate::check::BlockError;

/// The parts of a layer's feed-forward block.
#[derive(Clone, Debug, PartialEq)]
pub struct FeedForward {
    /// From attention's heads to the residual stream.
    pub output: Linear,
    /// Of the output projection before it is added (gemma).
    pub output_norm: Option<Norm>,
    /// Before the gated block.
    pub norm: Norm,
    /// The gated block.
    pub feed: GatedFeed,
    /// Of the gated block's result before it is added (gemma).
    pub feed_norm: Option<Norm>,
}

/// A gated feed-forward block: `down(activation(gate(x)) × up(x))`. An expert is one, too.
#[derive(Clone, Debug, PartialEq)]
pub struct GatedFeed {
    /// Before the nonlinearity.
    pub gate: Linear,
    /// What is gated.
    pub up: Linear,
    /// The gates' nonlinearity.
    pub activation: Activation,
    /// Back to the width that came in.
    pub down: Linear,
}

impl Block {
    /// From [`port::ATTENDED`] and [`port::RESIDUAL`] to [`port::NEXT`].
    ///
    /// # Errors
    /// If widths do not fit.
    pub fn feed_forward(parts: FeedForward) -> Result<Self, BlockError> {
        let FeedForward { output, output_norm, norm, feed, feed_norm } = parts;
        let inputs = [(port::ATTENDED, output.weights.inputs()), (port::RESIDUAL, norm.weight.len())];
        let (mut block, [attended, residual]) = BlockBuilder::new("feed_forward", inputs);
        let projected = block.linear(attended, output);
        let projected = block.normed_if(projected, output_norm);
        let residual = block.add(residual, projected);
        let normed = block.rms_norm(residual, norm);
        let fed = block.gated_feed(normed, feed);
        let fed = block.normed_if(fed, feed_norm);
        let next = block.add(residual, fed);
        block.output(port::NEXT, next);
        block.finish()
    }
}

impl BlockBuilder {
    /// The gated block of a value.
    pub fn gated_feed(&mut self, input: ValueId, feed: GatedFeed) -> ValueId {
        let gate = self.linear(input, feed.gate);
        let up = self.linear(input, feed.up);
        let gate = self.activate(gate, feed.activation);
        let gated = self.multiply(gate, up);
        self.linear(gated, feed.down)
    }

    fn normed_if(&mut self, value: ValueId, norm: Option<Norm>) -> ValueId {
        match norm {
            Some(norm) => self.rms_norm(value, norm),
            None => value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::run;
    use crate::weights::{Int8, LinearWeights};
    use duet_types::Tokens;

    fn linear(inputs: usize, values: &[i8]) -> Linear {
        let scales = vec![1.0; values.len() / inputs];
        LinearWeights::int8(inputs, Int8 { values: values.to_vec(), scales }).unwrap().into()
    }

    fn ones(width: usize, weight: f32) -> Norm {
        Norm { weight: vec![weight; width], epsilon: 1e-12 }
    }

    #[test]
    fn a_layer_comes_to_what_was_computed_by_hand() {
        let feed = GatedFeed {
            gate: linear(2, &[1, 0, 0, 1, 0, 0]),
            up: linear(2, &[2, 0, 0, 1, 1, 1]),
            activation: Activation::Silu,
            down: linear(3, &[1, 0, 5, 0, 1, 5]),
        };
        let parts = FeedForward {
            output: linear(1, &[3, 4]),
            output_norm: None,
            norm: ones(2, 1.0),
            feed: feed.clone(),
            feed_norm: None,
        };
        let silu = |x: f32| x / (1.0 + (-x).exp());
        // 1 × (3, 4) + (1, -4) = (4, 0), whose norm is (√2, 0).
        let x = 2.0_f32.sqrt();
        let found = run(&Block::feed_forward(parts.clone()).unwrap(), Tokens(1), &[&[1.0], &[1.0, -4.0]]).unwrap();
        let expected = [4.0 + silu(x) * 2.0 * x, 0.0];
        assert!(found[0].iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-5), "{found:?}");

        // With norms of what is added: (3, 4) becomes (3, 4) / √12.5, and the block's result has no second column.
        let gemma = FeedForward { output_norm: Some(ones(2, 1.0)), feed_norm: Some(ones(2, 3.0)), ..parts };
        let unit = 12.5_f32.sqrt();
        let found =
            run(&Block::feed_forward(gemma).unwrap(), Tokens(1), &[&[1.0], &[1.0 - 3.0 / unit, -4.0 / unit]]).unwrap();
        let expected = [1.0 + 3.0 * x, 0.0];
        assert!(found[0].iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-5), "{found:?}");
    }

    #[test]
    fn parts_that_do_not_fit_are_refused() {
        let feed = GatedFeed {
            gate: linear(2, &[1, 0, 0, 1]),
            up: linear(2, &[2, 0, 0, 1, 1, 1]),
            activation: Activation::GeluTanh,
            down: linear(3, &[1, 0, 5, 0, 1, 5]),
        };
        let parts =
            FeedForward { output: linear(1, &[3, 4]), output_norm: None, norm: ones(2, 1.0), feed, feed_norm: None };
        let error = Block::feed_forward(parts).unwrap_err();
        assert_eq!(error.to_string(), "operation 6 (multiply) wants its right operand of width 2, it has 3");
    }
}
