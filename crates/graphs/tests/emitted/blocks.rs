//! Random blocks: any operations in any order, on values that fit.

use duet_graphs::{Activation, Block, BlockBuilder, Group, Linear, LinearWeights, Norm, Precision, ValueId};
use duet_types::Tokens;
use proptest::prelude::*;

/// A block and what it is run on.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) block: Block,
    pub(crate) rows: Tokens,
    pub(crate) inputs: Vec<Vec<f32>>,
}

/// What is to be written next; numbers choose among what there is.
#[derive(Clone, Debug)]
enum Choice {
    Norm(usize),
    Linear(usize, usize, Precision),
    Add(usize, usize),
    Multiply(usize, usize),
    Activate(usize, Activation),
    Slice(usize, usize, usize),
}

/// Blocks whose weights have zero points at most.
pub(crate) fn block() -> impl Strategy<Value = Written> {
    block_of(WITH_POINTS.to_vec())
}

/// Blocks of all weights.
pub(crate) fn block_with_minima() -> impl Strategy<Value = Written> {
    block_of([WITH_POINTS, &[Precision::UInt4Minima(Group::Of32), Precision::UInt4Minima(Group::Of128)]].concat())
}

const WITH_POINTS: &[Precision] = &[
    Precision::Int8,
    Precision::Int8Groups(Group::Of32),
    Precision::Int4(Group::Of32),
    Precision::Int4(Group::Of128),
    Precision::UInt4(Group::Of32),
    Precision::UInt4(Group::Of128),
];

fn block_of(precisions: Vec<Precision>) -> impl Strategy<Value = Written> {
    let widths = prop::collection::vec(prop::sample::select(vec![1_usize, 5, 32, 128]), 1..4);
    let choices = prop::collection::vec(choice(precisions), 0..7);
    let seeds = prop::collection::vec(-1.0_f32..1.0, 257);
    (widths, choices, 1_u32..4, seeds).prop_map(|(widths, choices, rows, seeds)| {
        let mut writer = Writer::new(&widths, seeds);
        choices.into_iter().for_each(|choice| writer.write(choice));
        let rows = Tokens(rows);
        let inputs = widths.iter().map(|width| writer.numbers(width * rows.as_usize(), 2.0)).collect();
        Written { block: writer.finish(), rows, inputs }
    })
}

fn choice(precisions: Vec<Precision>) -> impl Strategy<Value = Choice> {
    let precision = prop::sample::select(precisions);
    let activation = prop::sample::select(vec![Activation::Silu, Activation::GeluTanh]);
    let any = || any::<usize>();
    prop_oneof![
        any().prop_map(Choice::Norm),
        (any(), 1_usize..40, precision).prop_map(|(x, outputs, precision)| Choice::Linear(x, outputs, precision)),
        (any(), any()).prop_map(|(left, right)| Choice::Add(left, right)),
        (any(), any()).prop_map(|(left, right)| Choice::Multiply(left, right)),
        (any(), activation).prop_map(|(x, activation)| Choice::Activate(x, activation)),
        (any(), any(), any()).prop_map(|(x, start, len)| Choice::Slice(x, start, len)),
    ]
}

struct Writer {
    builder: BlockBuilder,
    inputs: usize,
    /// Values, their widths, and whether anything reads them.
    values: Vec<(ValueId, usize, bool)>,
    seeds: Vec<f32>,
    drawn: usize,
}

impl Writer {
    fn new(widths: &[usize], seeds: Vec<f32>) -> Self {
        let inputs = widths.iter().enumerate().map(|(index, width)| (format!("in.{index}"), *width));
        let (builder, ids) = BlockBuilder::with_inputs("random", inputs);
        let values = ids.into_iter().zip(widths).map(|(id, width)| (id, *width, false)).collect();
        Self { builder, inputs: widths.len(), values, seeds, drawn: 0 }
    }

    fn write(&mut self, choice: Choice) {
        let (value, width) = match choice {
            Choice::Norm(x) => {
                let (x, width) = self.pick(x);
                let weight = self.constants(width, 2.0);
                (self.builder.rms_norm(x, Norm { weight, epsilon: 1e-3 }), width)
            }
            Choice::Linear(x, outputs, precision) => {
                let (x, inputs) = self.pick(x);
                let linear = self.linear(inputs, outputs, precision);
                (self.builder.linear(x, linear), outputs)
            }
            Choice::Add(left, right) => {
                let (left, right, width) = self.pick_pair(left, right);
                (self.builder.add(left, right), width)
            }
            Choice::Multiply(left, right) => {
                let (left, right, width) = self.pick_pair(left, right);
                (self.builder.multiply(left, right), width)
            }
            Choice::Activate(x, activation) => {
                let (x, width) = self.pick(x);
                (self.builder.activate(x, activation), width)
            }
            Choice::Slice(x, start, len) => {
                let (x, width) = self.pick(x);
                let start = start % width;
                let len = 1 + len % (width - start);
                (self.builder.slice(x, start..start + len), len)
            }
        };
        self.values.push((value, width, false));
    }

    /// Groups only where they fit, a bias for every other number of outputs.
    fn linear(&mut self, inputs: usize, outputs: usize, precision: Precision) -> Linear {
        let fits = match precision {
            Precision::Int8 => true,
            Precision::Int8Groups(group)
            | Precision::Int4(group)
            | Precision::UInt4(group)
            | Precision::UInt4Minima(group) => inputs.is_multiple_of(group.size()),
        };
        let precision = if fits { precision } else { Precision::Int8 };
        let rows: Vec<Vec<f32>> = (0..outputs).map(|_| self.numbers(inputs, 1.0)).collect();
        let weights = LinearWeights::from_rows(inputs, precision, rows).unwrap();
        Linear { weights, bias: outputs.is_multiple_of(2).then(|| self.constants(outputs, 1.0)) }
    }

    fn pick(&mut self, choice: usize) -> (ValueId, usize) {
        let index = choice % self.values.len();
        let (value, width, is_read) = &mut self.values[index];
        *is_read = true;
        (*value, *width)
    }

    fn pick_pair(&mut self, left: usize, right: usize) -> (ValueId, ValueId, usize) {
        let (left, width) = self.pick(left);
        let fitting: Vec<usize> = (0..self.values.len()).filter(|index| self.values[*index].1 == width).collect();
        let (right, _) = self.pick(fitting[right % fitting.len()]);
        (left, right, width)
    }

    fn numbers(&mut self, count: usize, spread: f32) -> Vec<f32> {
        let mut next = || {
            self.drawn += 1;
            // Steps through the seeds, with another sign and size each time around.
            spread * self.seeds[self.drawn % self.seeds.len()] * ((self.drawn * 7919 % 1009) as f32 / 504.5 - 1.0)
        };
        (0..count).map(|_| next()).collect()
    }

    /// Numbers that an emitter can round to 16 bits without loss: multiples of a 32,768th of `spread`, with both ends of
    /// 65,536 such numbers among them. What is rounded away would else be all that is left where values cancel out.
    fn constants(&mut self, count: usize, spread: f32) -> Vec<f32> {
        let mut steps: Vec<f32> = self.numbers(count, 32767.0).into_iter().map(f32::round).collect();
        if let [least, most, ..] = steps.as_mut_slice() {
            (*least, *most) = (-32767.0, 32768.0);
        }
        steps.into_iter().map(|step| spread * step / 32768.0).collect()
    }

    /// What nothing reads is handed out; an input that nothing reads is read.
    fn finish(mut self) -> Block {
        let inputs = self.inputs;
        for index in 0..inputs {
            if !self.values[index].2 {
                self.write(Choice::Activate(index, Activation::Silu));
            }
        }
        for (index, (value, _, is_read)) in self.values.iter().enumerate() {
            if !is_read {
                self.builder.output(&format!("out.{index}"), *value);
            }
        }
        self.builder.finish().unwrap()
    }
}
