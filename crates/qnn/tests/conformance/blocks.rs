//! Every kind of block in the shape of SmolLM2-135M, with random weights and inputs that are the same in every run.

use duet_graphs::{
    Activation, Block, FeedForward, GatedFeed, Linear, LinearWeights, Norm, Precision, Ranges, Rows, calibrate,
    reference,
};
use duet_runtimes::GraphSource;
use duet_types::Tokens;

/// A block, what it is run on, and what it comes to.
pub(crate) struct Case {
    pub(crate) block: Block,
    pub(crate) rows: Tokens,
    /// In the block's order, row by row.
    pub(crate) inputs: Vec<Vec<f32>>,
    pub(crate) ranges: Ranges,
    /// By the reference interpreter.
    pub(crate) expected: Vec<Vec<f32>>,
}

impl Case {
    /// `block` on `inputs`, which it is calibrated with as well.
    pub(crate) fn new(block: Block, rows: Tokens, inputs: Vec<Vec<f32>>) -> Self {
        let lent: Vec<&[f32]> = inputs.iter().map(Vec::as_slice).collect();
        let ranges = calibrate(&block, rows, &lent).unwrap();
        Self::calibrated(block, rows, inputs, ranges)
    }

    /// `block` on `inputs`, calibrated before.
    pub(crate) fn calibrated(block: Block, rows: Tokens, inputs: Vec<Vec<f32>>, ranges: Ranges) -> Self {
        let lent: Vec<&[f32]> = inputs.iter().map(Vec::as_slice).collect();
        let expected = reference::run(&block, rows, &lent).unwrap();
        Self { block, rows, inputs, ranges, expected }
    }

    /// As a device is given it.
    pub(crate) fn source(&self) -> GraphSource<'_> {
        GraphSource { block: &self.block, rows: Rows::Static(self.rows), ranges: Some(&self.ranges) }
    }

    fn random(block: Block, rows: Tokens, numbers: &mut Numbers) -> Self {
        let inputs = block.inputs().iter().map(|port| numbers.take(port.width * rows.as_usize(), 3.0)).collect();
        Self::new(block, rows, inputs)
    }
}

/// Norm and projection of queries, keys and values, with a bias.
pub(crate) fn qkv(rows: Tokens) -> Case {
    let mut numbers = Numbers(1);
    let projection = Linear { bias: Some(numbers.take(QKV, 1.0)), ..numbers.linear(HIDDEN, QKV) };
    let block = Block::qkv_projection(numbers.norm(HIDDEN), projection).unwrap();
    Case::random(block, rows, &mut numbers)
}

/// Output projection, norm, gated block.
pub(crate) fn feed_forward(rows: Tokens) -> Case {
    let mut numbers = Numbers(2);
    let parts = FeedForward {
        output: numbers.linear(HIDDEN, HIDDEN),
        output_norm: None,
        norm: numbers.norm(HIDDEN),
        feed: numbers.feed(FFN),
        feed_norm: None,
    };
    Case::random(Block::feed_forward(parts).unwrap(), rows, &mut numbers)
}

/// Four experts of a quarter of the width.
pub(crate) fn experts(rows: Tokens) -> Case {
    let mut numbers = Numbers(3);
    let experts = (0..4).map(|_| numbers.feed(FFN / 4)).collect();
    Case::random(Block::experts(experts).unwrap(), rows, &mut numbers)
}

/// Norm and logits of `rows` tokens.
pub(crate) fn head(rows: Tokens, vocabulary: usize) -> Case {
    let mut numbers = Numbers(4);
    let block = Block::head(numbers.norm(HIDDEN), numbers.linear(HIDDEN, vocabulary)).unwrap();
    Case::random(block, rows, &mut numbers)
}

const HIDDEN: usize = 576;
/// Nine heads of queries, three of keys, three of values, 64 each.
const QKV: usize = 960;
const FFN: usize = 1536;
/// Tokens of SmolLM2.
pub(crate) const VOCABULARY: usize = 49_152;

/// Numbers that look random: xorshift, in `-spread..spread`.
struct Numbers(u64);

impl Numbers {
    fn take(&mut self, count: usize, spread: f32) -> Vec<f32> {
        let mut next = || {
            self.0 = (self.0 ^ (self.0 << 13)).wrapping_add(0x9E37_79B9_7F4A_7C15);
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            spread * ((self.0 >> 40) as f32 / (1 << 23) as f32 - 1.0)
        };
        (0..count).map(|_| next()).collect()
    }

    fn norm(&mut self, width: usize) -> Norm {
        let weight = self.take(width, 0.5).into_iter().map(|weight| 1.0 + weight).collect();
        Norm { weight, epsilon: 1e-5 }
    }

    fn linear(&mut self, inputs: usize, outputs: usize) -> Linear {
        let spread = 2.0 / (inputs as f32).sqrt();
        let rows: Vec<Vec<f32>> = (0..outputs).map(|_| self.take(inputs, spread)).collect();
        LinearWeights::from_rows(inputs, Precision::Int8, rows).unwrap().into()
    }

    fn feed(&mut self, width: usize) -> GatedFeed {
        let (gate, up) = (self.linear(HIDDEN, width), self.linear(HIDDEN, width));
        GatedFeed { gate, up, activation: Activation::Silu, down: self.linear(width, HIDDEN) }
    }
}
