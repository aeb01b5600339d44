//! Weights as the kernels read them, packed from a file.
//!
//! The kernels compute with the file's own quants and scales, or floats, whatever type a tensor has, and tensors of several
//! types that are one matrix's rows below each other, as queries, keys and values, keep each its own. Gates and values of
//! different types, whose rows alternate, are quantised to eight bits in groups of 32. Everything is checked here, so that
//! the forward pass cannot fail.

use crate::arch::{Blueprint, ExpertPlan, Extra, Rope, RopePairs};
use crate::gguf::{GgufFile, StoredGroup, Tensor, TensorType};
use crate::load::{ExpertWork, Linear, LoadError, RoutedBytes};
use crate::packed_file::PackedFile;
use crate::plain::{NormForm, PlainExperts, PlainFeed, PlainLayer, PlainMatrix};
use duet_kernels::attention::{KeyBias, PageAngles};
use duet_kernels::fused::Feed;
use duet_kernels::packed::{Form, OutOfRange, PANEL, PANELS_TOGETHER, Packable, PackedMatrix, WeightGroup};
use duet_kernels::quantize::{GROUP, Operands};
use duet_types::Bytes;
use std::ops::Range;

/// All packed weights but the input embeddings, which are read from the file row by row.
#[derive(Debug)]
pub(crate) struct Weights {
    pub(crate) layers: Vec<LayerWeights>,
    pub(crate) final_norm: NormWeights,
    pub(crate) head: PackedMatrix,
    pub(crate) head_bias: Option<Vec<f32>>,
    /// Of each rope, if keys have biases.
    pub(crate) page_angles: Option<Vec<PageAngles>>,
}

/// One layer's.
#[derive(Debug)]
pub(crate) struct LayerWeights {
    pub(crate) attention_norm: NormWeights,
    pub(crate) qkv: PackedMatrix,
    pub(crate) qkv_bias: Option<Vec<f32>>,
    /// What of it keys of eight bits are without. Keys that are normed behind their bias have none that can be told apart.
    pub(crate) key_bias: Option<KeyBias>,
    /// Of queries and of keys.
    pub(crate) head_norms: Option<[Vec<f32>; 2]>,
    pub(crate) output: PackedMatrix,
    pub(crate) output_bias: Option<Vec<f32>>,
    pub(crate) output_norm: Option<Vec<f32>>,
    pub(crate) ffn_norm: NormWeights,
    pub(crate) feed: FeedWeights,
}

/// The norm of a row of the residual stream.
#[derive(Clone, Debug)]
pub(crate) struct NormWeights {
    pub(crate) weight: Vec<f32>,
    /// Makes it a layer norm.
    pub(crate) bias: Option<Vec<f32>>,
}

/// What is between a layer's second norm and the residual stream.
#[derive(Debug)]
pub(crate) enum FeedWeights {
    Dense {
        feed: Feed,
        /// Of its result.
        norm: Option<Vec<f32>>,
    },
    Experts {
        router: Vec<f32>,
        experts: Vec<Feed>,
        /// The gate of the shared one, and itself.
        shared: Option<(Vec<f32>, Feed)>,
        plan: ExpertPlan,
    },
}

impl FeedWeights {
    /// Its gated blocks, each with what the names of its matrices end in.
    fn feeds(&self) -> Vec<(String, &Feed)> {
        match self {
            Self::Dense { feed, .. } => vec![(String::new(), feed)],
            Self::Experts { experts, shared, .. } => {
                let experts = experts.iter().enumerate().map(|(expert, feed)| (names::expert(expert), feed));
                experts.chain(shared.iter().map(|(_, feed)| (names::SHARED.to_owned(), feed))).collect()
            }
        }
    }

    /// Whether any of its matrices has floats.
    fn has_floats(&self) -> bool {
        self.feeds().iter().any(|(_, feed)| feed.has_floats())
    }

    /// Multiply-accumulates of a row.
    pub(crate) fn macs(&self) -> usize {
        match self {
            Self::Dense { feed, .. } => feed.macs(),
            Self::Experts { router, experts, shared, plan } => {
                let expert = experts.first().map_or(0, Feed::macs);
                let shared = shared.as_ref().map_or(0, |(gate, feed)| gate.len() + feed.macs());
                router.len() + expert * plan.chosen + shared
            }
        }
    }

    /// Bytes that are read for any number of rows.
    fn common_bytes(&self) -> usize {
        match self {
            Self::Dense { feed, .. } => feed.bytes(),
            Self::Experts { router, shared, .. } => {
                size_of_val(router.as_slice())
                    + shared.as_ref().map_or(0, |(gate, feed)| size_of_val(gate.as_slice()) + feed.bytes())
            }
        }
    }

    fn routed_bytes(&self) -> Option<RoutedBytes> {
        let Self::Experts { experts, plan, .. } = self else { return None };
        let bytes = Bytes(experts.iter().map(|feed| feed.bytes() as u64).sum());
        Some(RoutedBytes { bytes, experts: plan.count, chosen: plan.chosen })
    }
}

impl Weights {
    /// All matrices, each under the name that it is packed by.
    pub(crate) fn matrices(&self) -> Vec<(String, &PackedMatrix)> {
        let mut matrices = Vec::new();
        for (index, layer) in self.layers.iter().enumerate() {
            matrices.push((names::qkv(index), &layer.qkv));
            matrices.push((names::output(index), &layer.output));
            for (suffix, feed) in layer.feed.feeds() {
                matrices.push((names::gate_up(index, &suffix), &feed.gate_up));
                matrices.push((names::down(index, &suffix), &feed.down));
            }
        }
        matrices.push((names::HEAD.to_owned(), &self.head));
        matrices
    }

    /// What the products read of rows.
    pub(crate) fn operands(&self) -> Operands {
        let floats = self.head.has_floats() || self.layers.iter().any(LayerWeights::has_floats);
        if floats { Operands::BytesAndFloats } else { Operands::Bytes }
    }
}

impl LayerWeights {
    fn has_floats(&self) -> bool {
        self.qkv.has_floats() || self.output.has_floats() || self.feed.has_floats()
    }

    /// Bytes of all of it.
    pub(crate) fn bytes(&self) -> usize {
        self.qkv.bytes() + self.ffn_work().all_bytes().0 as usize
    }

    /// What the feed-forward node computes and reads.
    pub(crate) fn ffn_work(&self) -> Linear {
        Linear {
            macs: (self.output.macs() + self.feed.macs()) as u64,
            bytes: Bytes((self.output.bytes() + self.feed.common_bytes()) as u64),
            routed: self.feed.routed_bytes(),
        }
    }

    /// What that node is made of, if there are experts in it.
    pub(crate) fn expert_work(&self) -> Option<ExpertWork> {
        let FeedWeights::Experts { router, experts, shared, .. } = &self.feed else { return None };
        Some(ExpertWork {
            route: (self.output.macs() + router.len()) as u64,
            route_bytes: Bytes((self.output.bytes() + size_of_val(router.as_slice())) as u64),
            expert: experts.first().map_or(0, Feed::macs) as u64,
            shared: shared.as_ref().map_or(0, |(_, feed)| feed.macs()) as u64,
        })
    }

    /// Its largest matrix.
    pub(crate) fn largest(&self) -> &[u8] {
        match &self.feed {
            FeedWeights::Dense { feed, .. } => feed.gate_up.quants(),
            FeedWeights::Experts { experts, .. } => {
                let expert = experts.first().map_or(&[][..], |feed| feed.gate_up.quants());
                if expert.len() > self.qkv.quants().len() { expert } else { self.qkv.quants() }
            }
        }
    }
}

/// Reads tensors of one file, for one blueprint.
#[derive(Clone, Copy)]
pub(crate) struct Packer<'a> {
    pub(crate) file: &'a GgufFile,
    pub(crate) blueprint: &'a Blueprint,
    /// Where matrices lie that were packed before.
    pub(crate) packed: Option<&'a PackedFile>,
}

impl<'a> Packer<'a> {
    /// Packs layer `index`.
    pub(crate) fn layer(&self, index: usize) -> Result<LayerWeights, LoadError> {
        let b = self.blueprint;
        let name = |part: &str| format!("blk.{index}.{part}.weight");
        let when =
            |extra: Extra, part: &str, len: usize| b.has(extra).then(|| self.vector(&name(part), len)).transpose();
        let queries = b.heads * b.head_dim;
        let qkv_bias = b.has(Extra::QkvBias).then(|| self.qkv_bias(index)).transpose()?;
        let head_norms = self.head_norms(index)?;
        let key_bias = qkv_bias.as_ref().filter(|_| head_norms.is_none()).map(|bias| {
            let keys = &bias[queries..queries + b.kv_heads * b.head_dim];
            KeyBias::new(keys, b.head_dim, &b.ropes[b.layers[index].rope].frequencies)
        });
        Ok(LayerWeights {
            attention_norm: self.norm(&format!("blk.{index}.attn_norm"))?,
            qkv: self.qkv(index)?,
            qkv_bias,
            key_bias,
            head_norms,
            output: self
                .pack(&names::output(index), &[Part::whole(self.matrix(&name("attn_output"), b.hidden, queries)?)])?,
            output_bias: b
                .has(Extra::OutputBias)
                .then(|| self.vector(&format!("blk.{index}.attn_output.bias"), b.hidden))
                .transpose()?,
            output_norm: when(Extra::PostNorms, "post_attention_norm", b.hidden)?,
            ffn_norm: self.norm(&format!("blk.{index}.ffn_norm"))?,
            feed: match b.experts {
                Some(plan) => self.experts(index, plan)?,
                None => FeedWeights::Dense {
                    feed: self.feed(index, "", b.ffn)?,
                    norm: when(Extra::PostNorms, "post_ffw_norm", b.hidden)?,
                },
            },
        })
    }

    /// A norm of the residual stream: `{name}.weight`, and `{name}.bias` in models with layer norms.
    pub(crate) fn norm(&self, name: &str) -> Result<NormWeights, LoadError> {
        let hidden = self.blueprint.hidden;
        let bias = self.blueprint.has(Extra::LayerNorms).then(|| self.vector(&format!("{name}.bias"), hidden));
        Ok(NormWeights { weight: self.vector(&format!("{name}.weight"), hidden)?, bias: bias.transpose()? })
    }

    fn head_norms(&self, index: usize) -> Result<Option<[Vec<f32>; 2]>, LoadError> {
        let b = self.blueprint;
        let heads = match (b.has(Extra::HeadNorms), b.has(Extra::WidthNorms)) {
            (true, _) => [1, 1],
            (false, true) => [b.heads, b.kv_heads],
            (false, false) => return Ok(None),
        };
        let norm = |part: &str, heads: usize| {
            let norm = self.vector(&format!("blk.{index}.{part}.weight"), heads * b.head_dim)?;
            Ok::<_, LoadError>(self.halves_of_heads(norm))
        };
        Ok(Some([norm("attn_q_norm", heads[0])?, norm("attn_k_norm", heads[1])?]))
    }

    /// The file's pages behind a packed layer are not needed any more: without this a load would peak at twice the
    /// weights.
    pub(crate) fn forget_layer(&self, index: usize) {
        let prefix = format!("blk.{index}.");
        for tensor in self.file.tensors().iter().filter(|tensor| tensor.name.starts_with(&prefix)) {
            self.file.forget(tensor);
        }
    }

    /// The weights of layer `index` in the file, whose vectors are in `packed` already.
    pub(crate) fn plain_layer(&self, index: usize, packed: &LayerWeights) -> Result<PlainLayer<'a>, LoadError> {
        let b = self.blueprint;
        let FeedWeights::Dense { norm: feed_norm, .. } = &packed.feed else {
            return Err(LoadError::Experts { layer: index });
        };
        let matrix = |part: &str, outputs: usize, inputs: usize| {
            self.matrix(&format!("blk.{index}.{part}.weight"), outputs, inputs)
                .map(|tensor| plain(&[Part::whole(tensor)]))
        };
        Ok(PlainLayer {
            attention_norm: packed.attention_norm.weight.clone(),
            qkv: plain(&self.qkv_parts(index)?),
            qkv_bias: packed.qkv_bias.clone(),
            output: matrix("attn_output", b.hidden, b.heads * b.head_dim)?,
            output_norm: packed.output_norm.clone(),
            ffn_norm: packed.ffn_norm.weight.clone(),
            gate: matrix("ffn_gate", b.ffn, b.hidden)?,
            up: matrix("ffn_up", b.ffn, b.hidden)?,
            down: matrix("ffn_down", b.hidden, b.ffn)?,
            feed_norm: feed_norm.clone(),
        })
    }

    /// The weights of layer `index` in the file, if it has experts.
    pub(crate) fn plain_experts(
        &self,
        index: usize,
        packed: &LayerWeights,
    ) -> Result<Option<PlainExperts<'a>>, LoadError> {
        let b = self.blueprint;
        let FeedWeights::Experts { plan, .. } = &packed.feed else { return Ok(None) };
        let output = self.matrix(&format!("blk.{index}.attn_output.weight"), b.hidden, b.heads * b.head_dim)?;
        let stack = self.expert_stack(index, *plan)?;
        let shared = plan.shared.map(|ffn| Ok::<_, LoadError>(self.feed_tensors(index, names::SHARED, ffn)?.plain(0)));
        Ok(Some(PlainExperts {
            attention_norm: packed.attention_norm.weight.clone(),
            qkv: plain(&self.qkv_parts(index)?),
            qkv_bias: packed.qkv_bias.clone(),
            output: plain(&[Part::whole(output)]),
            output_bias: packed.output_bias.clone(),
            experts: (0..plan.count).map(|expert| stack.plain(expert)).collect(),
            shared: shared.transpose()?,
            norm_form: if packed.ffn_norm.bias.is_some() { NormForm::Layer } else { NormForm::Rms },
        }))
    }

    /// The weights of the head in the file.
    pub(crate) fn plain_head(&self) -> Result<PlainMatrix<'a>, LoadError> {
        Ok(plain(&[Part::whole(self.head_tensor()?)]))
    }

    /// Packs the head: `output.weight`, or the embeddings where they are tied.
    pub(crate) fn head(&self) -> Result<PackedMatrix, LoadError> {
        self.pack(names::HEAD, &[Part::whole(self.head_tensor()?)])
    }

    fn head_tensor(&self) -> Result<Tensor<'a>, LoadError> {
        let name = if self.file.tensor("output.weight").is_some() { "output.weight" } else { "token_embd.weight" };
        self.matrix(name, self.blueprint.vocabulary, self.blueprint.hidden)
    }

    /// A vector of floats.
    pub(crate) fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, LoadError> {
        let tensor = self.tensor(name)?;
        if tensor.info.rows() != 1 || tensor.info.row_len() != len {
            return Err(shape(tensor, vec![len]));
        }
        let mut values = vec![0.0; len];
        tensor.dequantize_row(0, &mut values);
        finite(name, values)
    }

    fn tensor(&self, name: &str) -> Result<Tensor<'a>, LoadError> {
        self.file.tensor(name).ok_or_else(|| LoadError::MissingTensor { name: name.to_owned() })
    }

    fn matrix(&self, name: &str, outputs: usize, inputs: usize) -> Result<Tensor<'a>, LoadError> {
        let tensor = self.tensor(name)?;
        if tensor.info.rows() == outputs && tensor.info.row_len() == inputs {
            Ok(tensor)
        } else {
            Err(shape(tensor, vec![inputs, outputs]))
        }
    }

    fn qkv(&self, index: usize) -> Result<PackedMatrix, LoadError> {
        self.pack(&names::qkv(index), &self.qkv_parts(index)?)
    }

    fn qkv_parts(&self, index: usize) -> Result<[Part<'a>; 3], LoadError> {
        let b = self.blueprint;
        let part =
            |name: &str, heads: usize| self.matrix(&format!("blk.{index}.{name}.weight"), heads * b.head_dim, b.hidden);
        let turned = |tensor: Tensor<'a>| Part { tensor, rows: self.rope_order(tensor.info.rows()) };
        Ok([
            turned(part("attn_q", b.heads)?),
            turned(part("attn_k", b.kv_heads)?),
            Part::whole(part("attn_v", b.kv_heads)?),
        ])
    }

    /// How far ropes turn pages, for keys with biases.
    pub(crate) fn page_angles(&self) -> Option<Vec<PageAngles>> {
        let b = self.blueprint;
        let angles = |rope: &Rope| PageAngles::new(&rope.frequencies, rope.magnitude, b.context);
        b.has(Extra::QkvBias).then(|| b.ropes.iter().map(angles).collect())
    }

    fn qkv_bias(&self, index: usize) -> Result<Vec<f32>, LoadError> {
        let b = self.blueprint;
        let part = |name: &str, heads: usize| self.vector(&format!("blk.{index}.{name}.bias"), heads * b.head_dim);
        let turned = |bias: Vec<f32>| -> Vec<f32> {
            self.rope_order(bias.len()).into_iter().map(|row| bias[row.unwrap_or(0)]).collect()
        };
        let mut bias = turned(part("attn_q", b.heads)?);
        bias.extend(turned(part("attn_k", b.kv_heads)?));
        bias.extend(part("attn_v", b.kv_heads)?);
        Ok(bias)
    }

    /// The gated block of `ffn` neurons whose tensors' names end in `suffix`.
    fn feed(&self, index: usize, suffix: &str, ffn: usize) -> Result<Feed, LoadError> {
        let FeedTensors { gate, up, down, .. } = self.feed_tensors(index, suffix, ffn)?;
        Ok(Feed {
            gate_up: self.pack(&names::gate_up(index, suffix), &gated(gate, up, 0..ffn))?,
            down: self.pack(&names::down(index, suffix), &[Part::whole(down)])?,
        })
    }

    fn feed_tensors(&self, index: usize, suffix: &str, ffn: usize) -> Result<FeedTensors<'a>, LoadError> {
        let hidden = self.blueprint.hidden;
        let matrix = |part: &str, outputs: usize, inputs: usize| {
            self.matrix(&format!("blk.{index}.{part}{suffix}.weight"), outputs, inputs)
        };
        let (gate, up) = (matrix("ffn_gate", ffn, hidden)?, matrix("ffn_up", ffn, hidden)?);
        Ok(FeedTensors { gate, up, down: matrix("ffn_down", hidden, ffn)?, hidden, ffn })
    }

    /// The gated blocks of layer `index`'s experts, in one tensor of each kind.
    fn expert_stack(&self, index: usize, plan: ExpertPlan) -> Result<FeedTensors<'a>, LoadError> {
        let (ExpertPlan { count, ffn, .. }, hidden) = (plan, self.blueprint.hidden);
        let name = |part: &str| format!("blk.{index}.{part}.weight");
        Ok(FeedTensors {
            gate: self.stack(&name("ffn_gate_exps"), [hidden, ffn, count])?,
            up: self.stack(&name("ffn_up_exps"), [hidden, ffn, count])?,
            down: self.stack(&name("ffn_down_exps"), [ffn, hidden, count])?,
            hidden,
            ffn,
        })
    }

    /// The experts of layer `index` and their router.
    fn experts(&self, index: usize, plan: ExpertPlan) -> Result<FeedWeights, LoadError> {
        let ExpertPlan { count, ffn, .. } = plan;
        let hidden = self.blueprint.hidden;
        let name = |part: &str| format!("blk.{index}.{part}.weight");
        let FeedTensors { gate, up, down, .. } = self.expert_stack(index, plan)?;
        let gate_up = |expert: usize| gated(gate, up, expert * ffn..(expert + 1) * ffn);
        let downward = |expert: usize| vec![Part::some(down, expert * hidden..(expert + 1) * hidden)];
        let gate_ups = self.pack_many(count, |expert| names::gate_up(index, &names::expert(expert)), gate_up)?;
        let downs = self.pack_many(count, |expert| names::down(index, &names::expert(expert)), downward)?;
        let feeds = gate_ups.into_iter().zip(downs);
        let shared = |width| {
            Ok::<_, LoadError>((
                self.vector(&name("ffn_gate_inp_shexp"), hidden)?,
                self.feed(index, names::SHARED, width)?,
            ))
        };
        Ok(FeedWeights::Experts {
            router: self.floats(&name("ffn_gate_inp"), count, hidden)?,
            experts: feeds.map(|(gate_up, down)| Feed { gate_up, down }).collect(),
            shared: plan.shared.map(shared).transpose()?,
            plan,
        })
    }

    /// A tensor of several matrices of one shape.
    fn stack(&self, name: &str, expected: [usize; 3]) -> Result<Tensor<'a>, LoadError> {
        let tensor = self.tensor(name)?;
        if tensor.info.shape.iter().copied().eq(expected.map(|len| len as u64)) {
            Ok(tensor)
        } else {
            Err(shape(tensor, expected.to_vec()))
        }
    }

    /// A matrix of floats, row by row.
    fn floats(&self, name: &str, outputs: usize, inputs: usize) -> Result<Vec<f32>, LoadError> {
        let tensor = self.matrix(name, outputs, inputs)?;
        let mut values = vec![0.0; outputs * inputs];
        for (row, values) in values.chunks_exact_mut(inputs).enumerate() {
            tensor.dequantize_row(row, values);
        }
        finite(name, values)
    }

    /// The order of a projection's rows in which rope turns halves: files that pair neighbours have the two halves of
    /// each head interleaved.
    fn rope_order(&self, rows: usize) -> Vec<Option<usize>> {
        let dim = self.blueprint.head_dim;
        let within = |i: usize| match self.blueprint.rope_pairs {
            RopePairs::Halves => i,
            RopePairs::Neighbours if i < dim / 2 => 2 * i,
            RopePairs::Neighbours => 2 * (i - dim / 2) + 1,
        };
        (0..rows).map(|row| Some(row / dim * dim + within(row % dim))).collect()
    }

    /// A vector over the dimensions of heads, in the same order.
    fn halves_of_heads(&self, vector: Vec<f32>) -> Vec<f32> {
        self.rope_order(vector.len()).into_iter().map(|at| vector[at.unwrap_or(0)]).collect()
    }

    /// Packs the parts' rows, one below the other, each in the form of its own type if they can be sections of a matrix, else
    /// in eight bits; or takes the matrix of this name that was packed before.
    fn pack(&self, name: &str, parts: &[Part<'a>]) -> Result<PackedMatrix, LoadError> {
        let apart = sections(parts);
        let together = || vec![(parts.iter().map(|part| part.rows.len()).sum(), Form::Q8_0)];
        let (keeps_form, forms) = (apart.is_some(), apart.unwrap_or_else(together));
        let inputs = parts.first().map_or(0, |part| part.tensor.info.row_len());
        if let Some(packed) = self.packed.and_then(|packed| packed.matrix(name, inputs, &forms)) {
            return Ok(packed);
        }
        let rows = rows_of(parts);
        let mut reader = RowReader::new(inputs);
        let packed = PackedMatrix::in_sections(inputs, &forms, |output, index| {
            let (tensor, row) = rows[output];
            let form = if keeps_form { stored_form(tensor.info.kind) } else { Form::Q8_0 };
            reader.group(tensor, row, index, form)
        });
        packed.map_err(|error| out_of_range(&error, &rows))
    }

    /// Packs `count` matrices of the same shape, or takes those that were packed before under the names: `parts` says which
    /// rows each is made of. If they are of several types, they are quantised to eight bits.
    fn pack_many(
        &self,
        count: usize,
        name: impl Fn(usize) -> String,
        parts: impl Fn(usize) -> Vec<Part<'a>>,
    ) -> Result<Vec<PackedMatrix>, LoadError> {
        let parts: Vec<Part<'a>> = (0..count).flat_map(parts).collect();
        let Some(first) = parts.first() else { return Ok(Vec::new()) };
        let kind = first.tensor.info.kind;
        let same = parts.iter().all(|part| part.tensor.info.kind == kind);
        let form = if same { stored_form(kind) } else { Form::Q8_0 };
        let inputs = first.tensor.info.row_len();
        let rows = rows_of(&parts);
        let (outputs, mut reader) = (rows.len() / count, RowReader::new(inputs));
        let forms = [(outputs, form)];
        let before = |packed: &PackedFile| (0..count).map(|i| packed.matrix(&name(i), inputs, &forms)).collect();
        if let Some(packed) = self.packed.and_then(before) {
            return Ok(packed);
        }
        let packed = PackedMatrix::many(count, outputs, inputs, form, |matrix, output, index| {
            let (tensor, row) = rows[matrix * outputs + output];
            reader.group(tensor, row, index, form)
        });
        packed.map_err(|error| out_of_range(&error, &rows))
    }
}

/// What matrices are called that are made of several tensors, or of a part of one.
mod names {
    pub(super) const HEAD: &str = "output";

    /// What the names of a shared expert's end in.
    pub(super) const SHARED: &str = "_shexp";

    pub(super) fn qkv(layer: usize) -> String {
        format!("blk.{layer}.attn_qkv")
    }

    pub(super) fn output(layer: usize) -> String {
        format!("blk.{layer}.attn_output")
    }

    pub(super) fn gate_up(layer: usize, suffix: &str) -> String {
        format!("blk.{layer}.ffn_gate_up{suffix}")
    }

    pub(super) fn down(layer: usize, suffix: &str) -> String {
        format!("blk.{layer}.ffn_down{suffix}")
    }

    /// What the names of an expert's end in.
    pub(super) fn expert(expert: usize) -> String {
        format!("_exps.{expert}")
    }
}

/// The rows that parts are made of.
fn rows_of<'a>(parts: &[Part<'a>]) -> Vec<(Tensor<'a>, Option<usize>)> {
    parts.iter().flat_map(|part| part.rows.iter().map(|&row| (part.tensor, row))).collect()
}

fn out_of_range(error: &OutOfRange, rows: &[(Tensor<'_>, Option<usize>)]) -> LoadError {
    LoadError::Values { tensor: rows[error.output].0.info.name.clone(), problem: error.to_string() }
}

/// The sections of a matrix whose rows are those of `parts`, one below the other: how many rows of which form. Nothing if one
/// would begin where none can.
fn sections(parts: &[Part<'_>]) -> Option<Vec<(usize, Form)>> {
    let mut sections: Vec<(usize, Form)> = Vec::new();
    for part in parts {
        let form = stored_form(part.tensor.info.kind);
        match sections.last_mut() {
            Some((rows, last)) if *last == form => *rows += part.rows.len(),
            Some((rows, _)) if *rows % (PANELS_TOGETHER * PANEL) != 0 => return None,
            _ => sections.push((part.rows.len(), form)),
        }
    }
    Some(sections)
}

/// Some neurons' rows, panels of gates and panels of values in turns.
fn gated<'a>(gate: Tensor<'a>, up: Tensor<'a>, neurons: Range<usize>) -> Vec<Part<'a>> {
    let panels = neurons.clone().step_by(PANEL);
    let rows = |first: usize| -> Vec<Option<usize>> {
        (first..first + PANEL).map(|row| neurons.contains(&row).then_some(row)).collect()
    };
    panels
        .flat_map(|first| [Part { tensor: gate, rows: rows(first) }, Part { tensor: up, rows: rows(first) }])
        .collect()
}

fn finite(name: &str, values: Vec<f32>) -> Result<Vec<f32>, LoadError> {
    if values.iter().all(|value| value.is_finite()) {
        Ok(values)
    } else {
        Err(LoadError::Values { tensor: name.to_owned(), problem: "it holds infinities or NaN".to_owned() })
    }
}

/// The packed form with the quants and scales, or the floats, of a type.
pub(crate) fn stored_form(kind: TensorType) -> Form {
    match kind {
        TensorType::F32 => Form::F32,
        TensorType::F16 => Form::F16,
        TensorType::BF16 => Form::BF16,
        TensorType::Q4_0 => Form::Q4_0,
        TensorType::Q4_1 => Form::Q4_1,
        TensorType::Q5_0 => Form::Q5_0,
        TensorType::Q5_1 => Form::Q5_1,
        TensorType::Q8_0 => Form::Q8_0,
        TensorType::Q2K => Form::Q2K,
        TensorType::Q3K => Form::Q3K,
        TensorType::Q4K => Form::Q4K,
        TensorType::Q5K => Form::Q5K,
        TensorType::Q6K => Form::Q6K,
        TensorType::IQ4NL => Form::IQ4NL,
        TensorType::IQ4XS => Form::IQ4XS,
        TensorType::MXFP4 => Form::MXFP4,
    }
}

/// Some rows of a tensor, in some order; `None` is a row of zeros.
#[derive(Clone)]
struct Part<'a> {
    tensor: Tensor<'a>,
    rows: Vec<Option<usize>>,
}

impl<'a> Part<'a> {
    fn whole(tensor: Tensor<'a>) -> Self {
        Self::some(tensor, 0..tensor.info.rows())
    }

    fn some(tensor: Tensor<'a>, rows: Range<usize>) -> Self {
        Self { tensor, rows: rows.map(Some).collect() }
    }
}

/// The gated block of one expert, or those of many below each other.
struct FeedTensors<'a> {
    gate: Tensor<'a>,
    up: Tensor<'a>,
    down: Tensor<'a>,
    hidden: usize,
    ffn: usize,
}

impl<'a> FeedTensors<'a> {
    /// The `index`th block.
    fn plain(&self, index: usize) -> PlainFeed<'a> {
        let of = |tensor, rows: usize| plain(&[Part::some(tensor, index * rows..(index + 1) * rows)]);
        PlainFeed { gate: of(self.gate, self.ffn), up: of(self.up, self.ffn), down: of(self.down, self.hidden) }
    }
}

/// The parts' rows that are in the file, one below the other.
fn plain<'a>(parts: &[Part<'a>]) -> PlainMatrix<'a> {
    let inputs = parts.first().map_or(0, |part| part.tensor.info.row_len());
    let rows = parts.iter().flat_map(|part| part.rows.iter().flatten().map(|&row| (part.tensor, row)));
    PlainMatrix::new(inputs, rows.collect())
}

/// Reads rows as groups. Groups of a row are asked for in order, so one row is decoded at a time.
struct RowReader {
    groups: Vec<StoredGroup>,
    weights: Vec<f32>,
}

impl RowReader {
    fn new(inputs: usize) -> Self {
        Self { groups: vec![StoredGroup::default(); inputs.div_ceil(GROUP)], weights: vec![0.0; inputs] }
    }

    /// A group as the file has it, if it is to be packed in the form of its type, else quantised to eight bits.
    fn group(&mut self, tensor: Tensor<'_>, row: Option<usize>, index: usize, form: Form) -> Packable {
        let Some(row) = row else { return Packable::zeros(form) };
        if form.is_float() || form != stored_form(tensor.info.kind) {
            if index == 0 {
                tensor.dequantize_row(row, &mut self.weights);
            }
            let end = ((index + 1) * GROUP).min(self.weights.len());
            let weights = &self.weights[index * GROUP..end];
            if !form.is_float() {
                return WeightGroup::quantize(weights).into();
            }
            let mut floats = [0.0; GROUP];
            floats[..weights.len()].copy_from_slice(weights);
            return floats.into();
        }
        if index == 0 {
            tensor.stored_row(row, &mut self.groups);
        }
        let StoredGroup { scale, min, small, quants } = self.groups[index];
        WeightGroup { scale, min, small, quants }.into()
    }
}

fn shape(tensor: Tensor<'_>, expected: Vec<usize>) -> LoadError {
    LoadError::Shape { tensor: tensor.info.name.clone(), expected, found: tensor.info.shape.clone() }
}
