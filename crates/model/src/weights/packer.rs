//! Packs a model's weights, layer by layer, and checks them.

use super::parts::{FeedTensors, Part, Slice, gated, rows_of, sections};
use super::row_reader::{RowReader, stored_form};
use super::{ExpertWeights, ExpertsIn, FeedWeights, LayerWeights, NormWeights, names};
use crate::arch::{Blueprint, ExpertPlan, Extra, Mixer, Rope, RopePairs, WideHeads};
use crate::disk_experts::ExpertPlace;
use crate::gguf::{GgufFile, Tensor};
use crate::load::LoadError;
use crate::packed_file::PackedFile;
use duet_kernels::attention::{KeyBias, PageAngles};
use duet_kernels::fused::{ExpertBias, Feed};
use duet_kernels::packed::{Form, OutOfRange, PANEL, PackedMatrix};

/// Reads tensors of one file, for one blueprint.
#[derive(Clone, Copy)]
pub(crate) struct Packer<'a> {
    pub(crate) file: &'a GgufFile,
    pub(crate) blueprint: &'a Blueprint,
    /// Where matrices lie that were packed before.
    pub(crate) packed: Option<&'a PackedFile>,
    /// Where experts are to be.
    pub(crate) experts_in: ExpertsIn,
}

impl<'a> Packer<'a> {
    /// Packs layer `index`.
    pub(crate) fn layer(&self, index: usize) -> Result<LayerWeights, LoadError> {
        match self.blueprint.layers[index].mixer {
            Mixer::Attention => self.attention_layer(index),
            Mixer::Recurrent => self.recurrent_layer(index),
        }
    }

    /// The same without the experts that rows are routed to, which are to be packed one by one.
    pub(super) fn layer_without_experts(&self, index: usize) -> Result<LayerWeights, LoadError> {
        Self { experts_in: ExpertsIn::PackedFile, packed: None, ..*self }.layer(index)
    }

    /// What follows a layer's second norm.
    pub(super) fn layer_feed(&self, index: usize) -> Result<FeedWeights, LoadError> {
        let b = self.blueprint;
        if let Some(plan) = b.experts_of(index) {
            return self.experts(index, plan);
        }
        let norm = b.has(Extra::PostNorms).then(|| self.vector(&format!("blk.{index}.post_ffw_norm.weight"), b.hidden));
        Ok(FeedWeights::Dense { feed: self.feed(index, ("", ""), b.ffn_of(index))?, norm: norm.transpose()? })
    }

    fn attention_layer(&self, index: usize) -> Result<LayerWeights, LoadError> {
        let b = self.blueprint;
        let name = |part: &str| format!("blk.{index}.{part}.weight");
        let when =
            |extra: Extra, part: &str, len: usize| b.has(extra).then(|| self.vector(&name(part), len)).transpose();
        let WideHeads { kv_heads, head_dim } = b.heads_of(index);
        let queries = b.heads * head_dim;
        let qkv_bias = b.has(Extra::QkvBias).then(|| self.qkv_bias(index)).transpose()?;
        let head_norms = self.head_norms(index)?;
        let key_bias = qkv_bias.as_ref().filter(|_| head_norms.is_none()).map(|bias| {
            let keys = &bias[queries..queries + kv_heads * head_dim];
            KeyBias::new(keys, head_dim, &b.ropes[b.layers[index].rope].frequencies)
        });
        Ok(LayerWeights {
            attention_norm: self.norm(&format!("blk.{index}.attn_norm"))?,
            qkv: self.qkv(index)?,
            recurrent: None,
            qkv_bias,
            key_bias,
            head_norms,
            value_norm: b.has(Extra::ValueNorms).then(|| vec![1.0; head_dim]),
            output: self
                .pack(&names::output(index), &[Part::whole(self.matrix(&name("attn_output"), b.hidden, queries)?)])?,
            output_bias: b
                .has(Extra::OutputBias)
                .then(|| self.vector(&format!("blk.{index}.attn_output.bias"), b.hidden))
                .transpose()?,
            sinks: when(Extra::Sinks, "attn_sinks", b.heads)?,
            output_norm: when(Extra::PostNorms, "post_attention_norm", b.hidden)?,
            ffn_norm: self.norm(&format!("blk.{index}.{}", b.ffn_norm()))?,
            feed: self.layer_feed(index)?,
            input: self.layer_input(index)?,
            scale: self.layer_scale(index)?,
        })
    }

    /// A norm of the residual stream: `{name}.weight`, and `{name}.bias` in models with layer norms.
    pub(crate) fn norm(&self, name: &str) -> Result<NormWeights, LoadError> {
        let hidden = self.blueprint.hidden;
        let bias = self.blueprint.has(Extra::LayerNorms).then(|| self.vector(&format!("{name}.bias"), hidden));
        Ok(NormWeights { weight: self.vector(&format!("{name}.weight"), hidden)?, bias: bias.transpose()? })
    }

    /// The norm before the head, where logits are scaled.
    pub(crate) fn head_norm(&self) -> Result<Option<NormWeights>, LoadError> {
        let scale = self.blueprint.logit_scale;
        if scale == 1.0 {
            return Ok(None);
        }
        let mut norm = self.norm(self.blueprint.final_norm())?;
        norm.weight.iter_mut().chain(norm.bias.iter_mut().flatten()).for_each(|x| *x *= scale);
        Ok(Some(norm))
    }

    fn head_norms(&self, index: usize) -> Result<Option<[Vec<f32>; 2]>, LoadError> {
        let b = self.blueprint;
        let WideHeads { kv_heads, head_dim } = b.heads_of(index);
        let heads = match (b.has(Extra::HeadNorms), b.has(Extra::WidthNorms)) {
            (true, _) => [1, 1],
            (false, true) => [b.heads, kv_heads],
            (false, false) => return Ok(None),
        };
        let norm = |part: &str, heads: usize| {
            let norm = self.vector(&format!("blk.{index}.{part}.weight"), heads * head_dim)?;
            Ok::<_, LoadError>(self.halves_of_heads(index, norm))
        };
        let has_keys = b.layers[index].cache_of.is_none();
        let of_keys = if has_keys { norm("attn_k_norm", heads[1])? } else { Vec::new() };
        Ok(Some([norm("attn_q_norm", heads[0])?, of_keys]))
    }

    /// The file's pages behind a packed layer are not needed any more: without this a load would peak at twice the
    /// weights.
    pub(crate) fn forget_layer(&self, index: usize) {
        let prefix = format!("blk.{index}.");
        for tensor in self.file.tensors().iter().filter(|tensor| tensor.name.starts_with(&prefix)) {
            self.file.forget(tensor);
        }
    }

    /// Packs the head: `output.weight`, or the embeddings where they are tied, of which rows are read again when tokens come.
    pub(crate) fn head(&self) -> Result<PackedMatrix, LoadError> {
        let tensor = self.head_tensor()?;
        let head = self.pack(names::HEAD, &[Part::whole(tensor)])?;
        self.file.forget(tensor.info);
        Ok(head)
    }

    pub(super) fn head_tensor(&self) -> Result<Tensor<'a>, LoadError> {
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

    pub(super) fn matrix(&self, name: &str, outputs: usize, inputs: usize) -> Result<Tensor<'a>, LoadError> {
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

    pub(super) fn qkv_parts(&self, index: usize) -> Result<Vec<Part<'a>>, LoadError> {
        let b = self.blueprint;
        let WideHeads { kv_heads, head_dim } = b.heads_of(index);
        let [query_rows, key_rows] = [b.heads, kv_heads].map(|heads| heads * head_dim);
        // Rows are listed once it is known that there are so many.
        if b.layers[index].cache_of.is_some() {
            let queries = self.matrix(&format!("blk.{index}.attn_q.weight"), query_rows, b.hidden)?;
            return Ok(vec![Slice::whole(queries).rows(self.rope_order(index, query_rows).into_iter().map(Some))]);
        }
        let [queries, keys, values] = self.qkv_slices(index)?;
        // Where each head has a gate, it lies behind its query.
        let gated = |row: usize, gate: usize| row + (row / head_dim + gate) * head_dim;
        let has_gates = b.has(Extra::OutputGate);
        let query = |row: usize| Some(if has_gates { gated(row, 0) } else { row });
        let mut parts = vec![
            queries.rows(self.rope_order(index, query_rows).into_iter().map(query)),
            keys.rows(self.rope_order(index, key_rows).into_iter().map(Some)),
            values.rows((0..key_rows).map(Some)),
        ];
        if has_gates {
            parts.push(queries.rows((0..query_rows).map(|row| Some(gated(row, 1)))));
        }
        Ok(parts)
    }

    /// Queries (and gates beside them), keys and values: tensors, or parts of one.
    fn qkv_slices(&self, index: usize) -> Result<[Slice<'a>; 3], LoadError> {
        let b = self.blueprint;
        let WideHeads { kv_heads, head_dim } = b.heads_of(index);
        let [queries, keys] = [b.heads, kv_heads].map(|heads| heads * head_dim);
        let queries = if b.has(Extra::OutputGate) { 2 * queries } else { queries };
        let name = |part: &str| format!("blk.{index}.{part}.weight");
        if self.file.tensor(&name("attn_qkv")).is_some() {
            let tensor = self.matrix(&name("attn_qkv"), queries + 2 * keys, b.hidden)?;
            return Ok([0, queries, queries + keys].map(|first| Slice::from(tensor, first)));
        }
        let part =
            |part: &str, rows: usize| Ok::<_, LoadError>(Slice::whole(self.matrix(&name(part), rows, b.hidden)?));
        let is_of_keys = b.has(Extra::ValuesOfKeys) && self.file.tensor(&name("attn_v")).is_none();
        let values = if is_of_keys { "attn_k" } else { "attn_v" };
        Ok([part("attn_q", queries)?, part("attn_k", keys)?, part(values, keys)?])
    }

    /// How far ropes turn pages, for keys with biases.
    pub(crate) fn page_angles(&self) -> Option<Vec<PageAngles>> {
        let b = self.blueprint;
        let angles = |rope: &Rope| PageAngles::new(&rope.frequencies, rope.magnitude, b.context);
        b.has(Extra::QkvBias).then(|| b.ropes.iter().map(angles).collect())
    }

    fn qkv_bias(&self, index: usize) -> Result<Vec<f32>, LoadError> {
        let b = self.blueprint;
        let WideHeads { kv_heads, head_dim } = b.heads_of(index);
        let [queries, keys] = [b.heads, kv_heads].map(|heads| heads * head_dim);
        let name = |part: &str| format!("blk.{index}.{part}.bias");
        let whole = if self.file.tensor(&name("attn_qkv")).is_some() {
            self.vector(&name("attn_qkv"), queries + 2 * keys)?
        } else {
            let parts = [("attn_q", queries), ("attn_k", keys), ("attn_v", keys)];
            let parts = parts.into_iter().map(|(part, len)| self.vector(&name(part), len));
            parts.collect::<Result<Vec<_>, _>>()?.concat()
        };
        let (turned, values) = whole.split_at(queries + keys);
        Ok([&self.halves_of_heads(index, turned.to_vec())[..], values].concat())
    }

    /// The gated block of `ffn` neurons, packed under names that end in `suffix`, as those of its tensors do in `of`.
    fn feed(&self, index: usize, (suffix, of): (&str, &str), ffn: usize) -> Result<Feed, LoadError> {
        let FeedTensors { gate, up, down, .. } = self.feed_tensors(index, of, ffn)?;
        Ok(Feed {
            gate_up: self.pack(&names::gate_up(index, suffix), &gated(gate, up, 0..ffn))?,
            down: self.pack(&names::down(index, suffix), &[Part::whole(down.tensor)])?,
        })
    }

    pub(super) fn feed_tensors(&self, index: usize, suffix: &str, ffn: usize) -> Result<FeedTensors<'a>, LoadError> {
        let hidden = self.blueprint.hidden;
        let name = |part: &str| format!("blk.{index}.{part}{suffix}.weight");
        let matrix = |part: &str, outputs: usize, inputs: usize| self.matrix(&name(part), outputs, inputs);
        let is_one = self.file.tensor(&name("ffn_gate")).is_none()
            && self.file.tensor(&name("ffn_up")).is_some_and(|up| up.info.rows() == 2 * ffn);
        let [gate, up] = if is_one {
            let tensor = matrix("ffn_up", 2 * ffn, hidden)?;
            [0, ffn].map(|first| Slice::from(tensor, first))
        } else {
            [matrix("ffn_gate", ffn, hidden)?, matrix("ffn_up", ffn, hidden)?].map(Slice::whole)
        };
        Ok(FeedTensors { gate, up, down: Slice::whole(matrix("ffn_down", hidden, ffn)?), hidden, ffn })
    }

    /// The gated blocks of layer `index`'s experts, in one tensor of each kind.
    pub(super) fn expert_stack(&self, index: usize, plan: ExpertPlan) -> Result<FeedTensors<'a>, LoadError> {
        let (ExpertPlan { count, ffn, .. }, hidden) = (plan, self.blueprint.hidden);
        let name = |part: &str| format!("blk.{index}.{part}.weight");
        let is_one = self.blueprint.has(Extra::BlockBeside) && self.file.tensor(&name("ffn_gate_exps")).is_none();
        let [gate, up] = if is_one || self.file.tensor(&name("ffn_gate_up_exps")).is_some() {
            Slice::in_turns(self.stack(&name("ffn_gate_up_exps"), [hidden, 2 * ffn, count])?, ffn)
        } else {
            let stack = |part: &str| Ok::<_, LoadError>(Slice::whole(self.stack(&name(part), [hidden, ffn, count])?));
            [stack("ffn_gate_exps")?, stack("ffn_up_exps")?]
        };
        let down = Slice::whole(self.stack(&name("ffn_down_exps"), [ffn, hidden, count])?);
        Ok(FeedTensors { gate, up, down, hidden, ffn })
    }

    /// The experts of layer `index` and their router.
    fn experts(&self, index: usize, plan: ExpertPlan) -> Result<FeedWeights, LoadError> {
        let (count, hidden) = (plan.count, self.blueprint.hidden);
        let name = |part: &str| format!("blk.{index}.{part}.weight");
        let shared = |width| {
            let gate = plan.shared_gate.then(|| self.vector(&name("ffn_gate_inp_shexp"), hidden)).transpose()?;
            Ok::<_, LoadError>((gate, self.feed(index, (names::SHARED, self.shared_suffix()), width)?))
        };
        let bias = |extra: Extra, part: &str| {
            let has = self.blueprint.has(extra);
            has.then(|| self.vector(&format!("blk.{index}.{part}.bias"), count)).transpose()
        };
        let has_biases = self.blueprint.has(Extra::ExpertBiases);
        Ok(FeedWeights::Experts {
            router: self.router(index, plan)?,
            router_bias: bias(Extra::ExpertBiases, "ffn_gate_inp")?,
            choice_bias: bias(Extra::ChoiceBias, "exp_probs_b")?,
            biases: has_biases.then(|| self.expert_biases(index, plan)).transpose()?,
            experts: match self.experts_in {
                ExpertsIn::Memory => ExpertWeights::Memory(self.expert_feeds(index, plan)?),
                ExpertsIn::PackedFile => ExpertWeights::on_disk(self.expert_places(index, plan)?),
            },
            shared: plan.shared.map(shared).transpose()?,
            beside: self.beside(index, plan)?,
            plan,
        })
    }

    fn expert_feeds(&self, index: usize, plan: ExpertPlan) -> Result<Vec<Feed>, LoadError> {
        let (ExpertPlan { count, ffn, .. }, hidden) = (plan, self.blueprint.hidden);
        let FeedTensors { gate, up, down, .. } = self.expert_stack(index, plan)?;
        let gate_up = |expert: usize| gated(gate, up, expert * ffn..(expert + 1) * ffn);
        let downward = |expert: usize| vec![down.rows((expert * hidden..(expert + 1) * hidden).map(Some))];
        let gate_ups = self.pack_many(count, |expert| names::gate_up(index, &names::expert(expert)), gate_up)?;
        let downs = self.pack_many(count, |expert| names::down(index, &names::expert(expert)), downward)?;
        Ok(gate_ups.into_iter().zip(downs).map(|(gate_up, down)| Feed { gate_up, down }).collect())
    }

    /// Where the experts of layer `index` lie in the file of packed weights; none if not all of them are there as they should
    /// be, which the file has noted.
    fn expert_places(&self, index: usize, plan: ExpertPlan) -> Result<Vec<ExpertPlace>, LoadError> {
        let (ExpertPlan { count, ffn, .. }, hidden) = (plan, self.blueprint.hidden);
        let FeedTensors { gate, up, down, .. } = self.expert_stack(index, plan)?;
        let Some(packed) = self.packed else { return Ok(Vec::new()) };
        let form = |slices: &[Slice<'_>]| {
            let kinds: Vec<_> = slices.iter().map(|slice| slice.tensor.info.kind).collect();
            if kinds.iter().all(|kind| *kind == kinds[0]) { stored_form(kinds[0]) } else { Form::Q8_0 }
        };
        let neurons = 2 * ffn.next_multiple_of(PANEL);
        let place = |expert: usize| {
            let suffix = names::expert(expert);
            let gate_up = packed.place(&names::gate_up(index, &suffix), hidden, &[(neurons, form(&[gate, up]))])?;
            let down = packed.place(&names::down(index, &suffix), ffn, &[(hidden, form(&[down]))])?;
            packed.together(ExpertPlace::new(gate_up, down))
        };
        Ok((0..count).map(place).collect::<Option<_>>().unwrap_or_default())
    }

    /// What is added to the products of layer `index`'s experts.
    fn expert_biases(
        &self,
        index: usize,
        ExpertPlan { count, ffn, .. }: ExpertPlan,
    ) -> Result<Vec<ExpertBias>, LoadError> {
        let hidden = self.blueprint.hidden;
        let floats = |part: &str, width| self.floats(&format!("blk.{index}.{part}.bias"), count, width);
        let (gates, values) = (floats("ffn_gate_exps", ffn)?, floats("ffn_up_exps", ffn)?);
        let down = floats("ffn_down_exps", hidden)?;
        let experts = gates.chunks_exact(ffn).zip(values.chunks_exact(ffn)).zip(down.chunks_exact(hidden));
        let bias = |((gates, values), down): ((&[f32], &[f32]), &[f32])| {
            let panels = ffn.div_ceil(PANEL);
            let mut gate_up = vec![0.0; 2 * panels * PANEL];
            for neuron in 0..ffn {
                let at = neuron / PANEL * 2 * PANEL + neuron % PANEL;
                (gate_up[at], gate_up[at + PANEL]) = (gates[neuron], values[neuron]);
            }
            ExpertBias { gate_up, down: down.to_vec() }
        };
        Ok(experts.map(bias).collect())
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
    pub(super) fn floats(&self, name: &str, outputs: usize, inputs: usize) -> Result<Vec<f32>, LoadError> {
        let tensor = self.matrix(name, outputs, inputs)?;
        let mut values = vec![0.0; outputs * inputs];
        for (row, values) in values.chunks_exact_mut(inputs).enumerate() {
            tensor.dequantize_row(row, values);
        }
        finite(name, values)
    }

    /// The order of a projection's rows in which rope turns halves: files that pair neighbours have the two halves of
    /// what is turned of each head interleaved.
    fn rope_order(&self, layer: usize, rows: usize) -> Vec<usize> {
        let b = self.blueprint;
        let pairs = b.ropes[b.layers[layer].rope].frequencies.len();
        let within = |i: usize| match b.rope_pairs {
            RopePairs::Neighbours if i < pairs => 2 * i,
            RopePairs::Neighbours if i < 2 * pairs => 2 * (i - pairs) + 1,
            RopePairs::Neighbours | RopePairs::Halves => i,
        };
        let head_dim = b.heads_of(layer).head_dim;
        (0..rows).map(|row| row / head_dim * head_dim + within(row % head_dim)).collect()
    }

    /// A vector over the dimensions of heads, in the same order.
    fn halves_of_heads(&self, layer: usize, vector: Vec<f32>) -> Vec<f32> {
        self.rope_order(layer, vector.len()).into_iter().map(|at| vector[at]).collect()
    }

    /// Packs the parts' rows, one below the other; or takes the matrix of this name that was packed before.
    pub(super) fn pack(&self, name: &str, parts: &[Part<'a>]) -> Result<PackedMatrix, LoadError> {
        let (_, forms) = forms_of(parts);
        let inputs = parts.first().map_or(0, |part| part.tensor.info.row_len());
        match self.packed.and_then(|packed| packed.matrix(name, inputs, &forms)) {
            Some(packed) => Ok(packed),
            None => self.pack_one(parts),
        }
    }

    /// Packs the parts' rows, one below the other, each in the form of its own type if they can be sections of a matrix, else
    /// in eight bits.
    pub(super) fn pack_one(&self, parts: &[Part<'a>]) -> Result<PackedMatrix, LoadError> {
        let (keeps_form, forms) = forms_of(parts);
        let inputs = parts.first().map_or(0, |part| part.tensor.info.row_len());
        let rows = rows_of(parts);
        let mut reader = RowReader::new(inputs, &rows, (!keeps_form).then_some(Form::Q8_0));
        PackedMatrix::of_rows(inputs, &forms, &mut reader).map_err(|error| out_of_range(&error, &rows))
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
        let outputs = rows.len() / count;
        let forms = [(outputs, form)];
        let before = |packed: &PackedFile| (0..count).map(|i| packed.matrix(&name(i), inputs, &forms)).collect();
        if let Some(packed) = self.packed.and_then(before) {
            return Ok(packed);
        }
        let mut reader = RowReader::new(inputs, &rows, Some(form));
        PackedMatrix::many(count, outputs, inputs, form, &mut reader).map_err(|error| out_of_range(&error, &rows))
    }
}

/// Whether rows keep the forms of their types, and how many are of which form.
fn forms_of(parts: &[Part<'_>]) -> (bool, Vec<(usize, Form)>) {
    let together = || vec![(parts.iter().map(|part| part.rows.len()).sum(), Form::Q8_0)];
    let apart = sections(parts);
    (apart.is_some(), apart.unwrap_or_else(together))
}

pub(super) fn out_of_range(error: &OutOfRange, rows: &[(Tensor<'_>, Option<usize>)]) -> LoadError {
    LoadError::Values { tensor: rows[error.output].0.info.name.clone(), problem: error.to_string() }
}

pub(super) fn finite(name: &str, values: Vec<f32>) -> Result<Vec<f32>, LoadError> {
    if values.iter().all(|value| value.is_finite()) {
        Ok(values)
    } else {
        Err(LoadError::Values { tensor: name.to_owned(), problem: "it holds infinities or NaN".to_owned() })
    }
}

pub(super) fn shape(tensor: Tensor<'_>, expected: Vec<usize>) -> LoadError {
    LoadError::Shape { tensor: tensor.info.name.clone(), expected, found: tensor.info.shape.clone() }
}
