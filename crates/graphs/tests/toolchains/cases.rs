//! Blocks of a small layer, with random weights and inputs that are the same in every run.

use duet_graphs::{
    Activation, Block, BlockBuilder, BlockError, FeedForward, GatedFeed, Group, LayoutRules, Linear, LinearForm,
    LinearWeights, Norm, Precision,
};
use duet_types::Tokens;

/// A block and what it is run on.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) block: Block,
    pub(crate) rows: Tokens,
    /// In the block's order, row by row.
    pub(crate) inputs: Vec<Vec<f32>>,
}

/// Rows of every case.
pub(crate) fn rows() -> Tokens {
    Tokens(32)
}

/// Products as convolutions.
pub(crate) fn convolution() -> LayoutRules {
    LayoutRules { linear: LinearForm::Convolution, ..LayoutRules::FREE }
}

/// Every block, in eight bits.
pub(crate) fn cases() -> Vec<Case> {
    let mut parts = Parts { numbers: Numbers(1), precision: Precision::Int8 };
    vec![
        parts.case("qkv", |parts| Block::qkv_projection(parts.norm(HIDDEN), parts.biased(HIDDEN, QKV))),
        parts.case("feed_forward", |parts| Block::feed_forward(parts.layer(Activation::Silu, None, None))),
        parts.case("gemma", |parts| {
            let norms = [parts.norm(HIDDEN), parts.norm(HIDDEN)].map(Some);
            let [output_norm, feed_norm] = norms;
            Block::feed_forward(parts.layer(Activation::GeluTanh, output_norm, feed_norm))
        }),
        parts.case("head", |parts| Block::head(parts.norm(HIDDEN), parts.linear(HIDDEN, VOCABULARY))),
        parts.case("columns", |_| columns()),
        parts.case("experts", |parts| Block::experts((0..3).map(|_| parts.feed(Activation::Silu)).collect())),
    ]
}

/// Columns of a value, and several values handed out.
fn columns() -> Result<Block, BlockError> {
    let (mut block, [x, y]) = BlockBuilder::new("columns", [("x", HIDDEN), ("y", QUERIES)]);
    let half = block.slice(y, 64..64 + HIDDEN);
    let product = block.multiply(x, half);
    block.output("product", product);
    block.output("half", half);
    block.finish()
}

/// A layer and a product with a bias, in four bits with minima: what files of models hold.
pub(crate) fn minima() -> Vec<Case> {
    let mut parts = Parts { numbers: Numbers(4), precision: Precision::UInt4Minima(Group::Of32) };
    vec![
        parts.case("minima", |parts| Block::feed_forward(parts.layer(Activation::Silu, None, None))),
        parts.case("biased_minima", |parts| Block::qkv_projection(parts.norm(HIDDEN), parts.biased(HIDDEN, QKV))),
    ]
}

/// A layer in each form of groups with zero points or none, and a product with a bias.
pub(crate) fn groups() -> Vec<Case> {
    let forms = [
        ("bytes_of_32", Precision::Int8Groups(Group::Of32)),
        ("groups_of_32", Precision::Int4(Group::Of32)),
        ("groups_of_128", Precision::Int4(Group::Of128)),
        ("zero_points_of_32", Precision::UInt4(Group::Of32)),
        ("zero_points_of_128", Precision::UInt4(Group::Of128)),
    ];
    let case = |(name, precision)| {
        let mut parts = Parts { numbers: Numbers(2), precision };
        parts.case(name, |parts| Block::feed_forward(parts.layer(Activation::Silu, None, None)))
    };
    let mut parts = Parts { numbers: Numbers(3), precision: Precision::UInt4(Group::Of32) };
    let biased =
        parts.case("biased_groups", |parts| Block::qkv_projection(parts.norm(HIDDEN), parts.biased(HIDDEN, QKV)));
    forms.into_iter().map(case).chain([biased]).collect()
}

struct Parts {
    numbers: Numbers,
    precision: Precision,
}

impl Parts {
    fn case<E: std::fmt::Debug>(
        &mut self,
        name: &'static str,
        block: impl FnOnce(&mut Self) -> Result<Block, E>,
    ) -> Case {
        let block = block(self).unwrap();
        let numbers = |port: &duet_graphs::Port| self.numbers.take(port.width * rows().as_usize(), 3.0);
        let inputs = block.inputs().iter().map(numbers).collect();
        Case { name, block, rows: rows(), inputs }
    }

    fn norm(&mut self, width: usize) -> Norm {
        let weight = self.numbers.take(width, 0.5).into_iter().map(|weight| 1.0 + weight).collect();
        Norm { weight, epsilon: 1e-5 }
    }

    fn linear(&mut self, inputs: usize, outputs: usize) -> Linear {
        let spread = 2.0 / (inputs as f32).sqrt();
        let rows: Vec<Vec<f32>> = (0..outputs).map(|_| self.numbers.take(inputs, spread)).collect();
        LinearWeights::from_rows(inputs, self.precision, rows).unwrap().into()
    }

    fn biased(&mut self, inputs: usize, outputs: usize) -> Linear {
        Linear { bias: Some(self.numbers.take(outputs, 1.0)), ..self.linear(inputs, outputs) }
    }

    fn feed(&mut self, activation: Activation) -> GatedFeed {
        let (gate, up) = (self.linear(HIDDEN, FFN), self.linear(HIDDEN, FFN));
        GatedFeed { gate, up, activation, down: self.linear(FFN, HIDDEN) }
    }

    fn layer(&mut self, activation: Activation, output_norm: Option<Norm>, feed_norm: Option<Norm>) -> FeedForward {
        let output = self.linear(QUERIES, HIDDEN);
        FeedForward { output, output_norm, norm: self.norm(HIDDEN), feed: self.feed(activation), feed_norm }
    }
}

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
}

const HIDDEN: usize = 128;
const QUERIES: usize = 256;
const QKV: usize = 192;
const FFN: usize = 384;
const VOCABULARY: usize = 512;
