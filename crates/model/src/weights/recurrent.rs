//! The weights of what stands in attention's place in some layers.
//!
//! A Mamba's file has all that a row is projected to in one tensor. A delta net's has queries, keys and values in one tensor and gates in another, or all in one, key head by key head,
//! and the numbers of heads in one tensor, key head by key head, or in two.

use super::parts::{Part, Slice};
use super::{LayerWeights, Packer, names};
use crate::arch::Recurrent;
use crate::gguf::Tensor;
use crate::load::LoadError;
use duet_kernels::fused::{RecurrenceShape, Rule};

/// What a recurrent layer has beside its projections.
#[derive(Debug)]
pub(crate) struct RecurrentWeights {
    /// Of its convolution, `[taps][channels]`.
    pub(crate) taps: Vec<f32>,
    /// Of its matrices.
    pub(crate) matrices: Option<MatrixWeights>,
}

/// See [`duet_kernels::fused::RecurrenceWeights`].
#[derive(Debug)]
pub(crate) struct MatrixWeights {
    pub(crate) shape: RecurrenceShape,
    pub(crate) bias: Option<Vec<f32>>,
    pub(crate) rates: Vec<f32>,
    pub(crate) step_bias: Vec<f32>,
    pub(crate) skip: Option<Vec<f32>>,
    pub(crate) norm: Vec<f32>,
}

impl<'a> Packer<'a> {
    /// Packs a layer that has no attention.
    pub(super) fn recurrent_layer(&self, index: usize) -> Result<LayerWeights, LoadError> {
        let (b, name) = (self.blueprint, |part: &str| format!("blk.{index}.{part}.weight"));
        let (parts, output, weights) = match b.recurrent {
            Some(Recurrent::Matrices(shape)) => {
                let (weights, parts) = match shape.rule {
                    Rule::Delta => (self.delta_net(index, shape)?, self.delta_parts(index, &shape)?),
                    Rule::Sum => (self.mamba(index, shape)?, self.mamba_parts(index, &shape)?),
                };
                (parts, self.matrix(&name("ssm_out"), b.hidden, shape.width())?, weights)
            }
            Some(Recurrent::ShortConvolution { taps }) => {
                let taps = self.taps(&name("shortconv.conv"), taps, b.hidden)?;
                let parts = vec![Part::whole(self.matrix(&name("shortconv.in_proj"), 3 * b.hidden, b.hidden)?)];
                let output = self.matrix(&name("shortconv.out_proj"), b.hidden, b.hidden)?;
                (parts, output, RecurrentWeights { taps, matrices: None })
            }
            None => return Err(LoadError::MissingTensor { name: name("attn_q") }),
        };
        Ok(LayerWeights {
            attention_norm: self.norm(&format!("blk.{index}.attn_norm"))?,
            qkv: self.pack(&names::qkv(index), &parts)?,
            recurrent: Some(weights),
            qkv_bias: None,
            key_bias: None,
            head_norms: None,
            value_norm: None,
            input: None,
            scale: None,
            output: self.pack(&names::output(index), &[Part::whole(output)])?,
            output_bias: None,
            sinks: None,
            output_norm: None,
            ffn_norm: self.norm(&format!("blk.{index}.{}", b.ffn_norm()))?,
            feed: self.layer_feed(index)?,
        })
    }

    /// Taps, which the file has channel by channel.
    fn taps(&self, name: &str, taps: usize, channels: usize) -> Result<Vec<f32>, LoadError> {
        let by_channel = self.floats(name, channels, taps)?;
        let places = (0..taps).flat_map(|tap| (0..channels).map(move |channel| channel * taps + tap));
        Ok(places.map(|place| by_channel[place]).collect())
    }

    /// What heads forget by, which must not grow. Mamba's files have rows of one.
    fn rates(&self, index: usize, shape: &RecurrenceShape) -> Result<Vec<f32>, LoadError> {
        let name = format!("blk.{index}.ssm_a");
        let rates = match shape.rule {
            Rule::Delta => self.vector(&name, shape.heads)?,
            Rule::Sum => self.floats(&name, shape.heads, 1)?,
        };
        if rates.iter().all(|rate| *rate <= 0.0) {
            return Ok(rates);
        }
        let problem = "what heads forget by must not be above zero".to_owned();
        Err(LoadError::Values { tensor: name, problem })
    }

    fn mamba(&self, index: usize, shape: RecurrenceShape) -> Result<RecurrentWeights, LoadError> {
        let name = |part: &str| format!("blk.{index}.{part}");
        let channels = shape.channels();
        let order = mamba_order(&shape);
        let taps = self.taps(&name("ssm_conv1d.weight"), shape.taps, channels)?;
        let taps = (0..taps.len()).map(|at| taps[at / channels * channels + order[at % channels]]).collect();
        let bias = self.vector(&name("ssm_conv1d.bias"), channels)?;
        let matrices = MatrixWeights {
            shape,
            bias: Some(order.iter().map(|&channel| bias[channel]).collect()),
            rates: self.rates(index, &shape)?,
            step_bias: self.vector(&name("ssm_dt.bias"), shape.heads)?,
            skip: Some(self.floats(&name("ssm_d"), shape.heads, 1)?),
            norm: self.vector(&name("ssm_norm.weight"), shape.width())?,
        };
        Ok(RecurrentWeights { taps, matrices: Some(matrices) })
    }

    /// What a row is projected to: one tensor, of gates, what is convolved, and steps' numbers.
    fn mamba_parts(&self, index: usize, shape: &RecurrenceShape) -> Result<Vec<Part<'a>>, LoadError> {
        let name = format!("blk.{index}.ssm_in.weight");
        let tensor = self.matrix(&name, shape.projected(), self.blueprint.hidden)?;
        let (width, behind) = (shape.width(), shape.width() + shape.channels());
        let convolved = mamba_order(shape).into_iter().map(|channel| width + channel);
        let rows = convolved.chain(0..width).chain(behind..shape.projected());
        Ok(vec![Slice::whole(tensor).rows(rows.map(Some))])
    }

    fn delta_net(&self, index: usize, shape: RecurrenceShape) -> Result<RecurrentWeights, LoadError> {
        let name = |part: &str| format!("blk.{index}.{part}");
        let matrices = MatrixWeights {
            shape,
            bias: None,
            rates: self.rates(index, &shape)?,
            step_bias: self.vector(&name("ssm_dt.bias"), shape.heads)?,
            skip: None,
            norm: self.vector(&name("ssm_norm.weight"), shape.values)?,
        };
        let taps = self.taps(&name("ssm_conv1d.weight"), shape.taps, shape.channels())?;
        Ok(RecurrentWeights { taps, matrices: Some(matrices) })
    }

    /// What a row is projected to, part by part.
    fn delta_parts(&self, index: usize, shape: &RecurrenceShape) -> Result<Vec<Part<'a>>, LoadError> {
        let hidden = self.blueprint.hidden;
        let name = |part: &str| format!("blk.{index}.{part}.weight");
        let mut parts = if self.file.tensor(&name("ssm_in")).is_some() {
            let tensor = self.matrix(&name("ssm_in"), shape.channels() + shape.width(), hidden)?;
            vec![of_key_heads(tensor, shape)]
        } else {
            let convolved = self.matrix(&name("attn_qkv"), shape.channels(), hidden)?;
            let gates = self.matrix(&name("attn_gate"), shape.width(), hidden)?;
            vec![Part::whole(convolved), Part::whole(gates)]
        };
        if self.file.tensor(&name("ssm_ba")).is_some() {
            let tensor = self.matrix(&name("ssm_ba"), 2 * shape.heads, hidden)?;
            parts.push(numbers_of_key_heads(tensor, shape));
        } else {
            for part in ["ssm_beta", "ssm_alpha"] {
                parts.push(Part::whole(self.matrix(&name(part), shape.heads, hidden)?));
            }
        }
        Ok(parts)
    }
}

/// Where queries, keys and values are among the channels of a Mamba's file, whose order is the other way round.
fn mamba_order(shape: &RecurrenceShape) -> Vec<usize> {
    let (keys, values) = (shape.key_heads * shape.keys, shape.width());
    (values + keys..values + 2 * keys).chain(values..values + keys).chain(0..values).collect()
}

/// All queries, all keys, all values, all gates, of a tensor that has them together for each key head.
fn of_key_heads<'a>(tensor: Tensor<'a>, shape: &RecurrenceShape) -> Part<'a> {
    let values = shape.width() / shape.key_heads;
    let sizes = [shape.keys, shape.keys, values, values];
    let group: usize = sizes.iter().sum();
    let mut first = 0;
    let mut rows = Vec::with_capacity(group * shape.key_heads);
    for size in sizes {
        let of = |head: usize| (head * group + first..head * group + first + size).map(Some);
        rows.extend((0..shape.key_heads).flat_map(of));
        first += size;
    }
    Slice::whole(tensor).rows(rows.into_iter())
}

/// The numbers that strengths are made of, then those of steps, of a tensor that has both for each key head.
fn numbers_of_key_heads<'a>(tensor: Tensor<'a>, shape: &RecurrenceShape) -> Part<'a> {
    let each = shape.heads / shape.key_heads;
    let of = |which: usize| (0..shape.heads).map(move |head| Some(head / each * 2 * each + which * each + head % each));
    Slice::whole(tensor).rows((0..2).flat_map(of))
}
