//! Weights as the kernels read them, packed from a file.
//!
//! Types whose blocks hold 32 weights (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K) are packed block by block: the kernels
//! compute with the file's own quants. Others (F32, F16, BF16, Q2_K, Q3_K, Q6_K) are requantised to eight bits in groups
//! of 32. Everything is checked here, so that the forward pass cannot fail.

use crate::arch::{Blueprint, Extra, RopePairs};
use crate::gguf::{GgufFile, Group, GroupForm, Tensor};
use crate::load::LoadError;
use crate::plain::{PlainLayer, PlainMatrix};
use duet_kernels::packed::{Form, PANEL, PackedMatrix, WeightGroup};
use duet_kernels::quantize::GROUP;

/// All packed weights but the input embeddings, which are read from the file row by row.
#[derive(Debug)]
pub(crate) struct Weights {
    pub(crate) layers: Vec<LayerWeights>,
    pub(crate) final_norm: Vec<f32>,
    pub(crate) head: PackedMatrix,
}

/// One layer's.
#[derive(Debug)]
pub(crate) struct LayerWeights {
    pub(crate) attention_norm: Vec<f32>,
    pub(crate) qkv: PackedMatrix,
    pub(crate) qkv_bias: Option<Vec<f32>>,
    pub(crate) query_norm: Option<Vec<f32>>,
    pub(crate) key_norm: Option<Vec<f32>>,
    pub(crate) output: PackedMatrix,
    pub(crate) output_norm: Option<Vec<f32>>,
    pub(crate) ffn_norm: Vec<f32>,
    pub(crate) gate_up: PackedMatrix,
    pub(crate) down: PackedMatrix,
    pub(crate) feed_norm: Option<Vec<f32>>,
}

impl LayerWeights {
    /// Bytes that a pass over one row reads.
    pub(crate) fn bytes(&self) -> usize {
        [&self.qkv, &self.output, &self.gate_up, &self.down].iter().map(|matrix| matrix.bytes()).sum()
    }
}

/// Reads tensors of one file, for one blueprint.
#[derive(Clone, Copy)]
pub(crate) struct Packer<'a> {
    pub(crate) file: &'a GgufFile,
    pub(crate) blueprint: &'a Blueprint,
}

impl<'a> Packer<'a> {
    /// Packs layer `index`.
    pub(crate) fn layer(&self, index: usize) -> Result<LayerWeights, LoadError> {
        let b = self.blueprint;
        let name = |part: &str| format!("blk.{index}.{part}.weight");
        let when =
            |extra: Extra, part: &str, len: usize| b.has(extra).then(|| self.vector(&name(part), len)).transpose();
        let queries = b.heads * b.head_dim;
        Ok(LayerWeights {
            attention_norm: self.vector(&name("attn_norm"), b.hidden)?,
            qkv: self.qkv(index)?,
            qkv_bias: b.has(Extra::QkvBias).then(|| self.qkv_bias(index)).transpose()?,
            query_norm: when(Extra::HeadNorms, "attn_q_norm", b.head_dim)?.map(|norm| self.halves_of_head(norm)),
            key_norm: when(Extra::HeadNorms, "attn_k_norm", b.head_dim)?.map(|norm| self.halves_of_head(norm)),
            output: self.pack(&[Part::whole(self.matrix(&name("attn_output"), b.hidden, queries)?)])?,
            output_norm: when(Extra::PostNorms, "post_attention_norm", b.hidden)?,
            ffn_norm: self.vector(&name("ffn_norm"), b.hidden)?,
            gate_up: self.gate_up(index)?,
            down: self.pack(&[Part::whole(self.matrix(&name("ffn_down"), b.hidden, b.ffn)?)])?,
            feed_norm: when(Extra::PostNorms, "post_ffw_norm", b.hidden)?,
        })
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
        let matrix = |part: &str, outputs: usize, inputs: usize| {
            self.matrix(&format!("blk.{index}.{part}.weight"), outputs, inputs)
                .map(|tensor| plain(&[Part::whole(tensor)]))
        };
        Ok(PlainLayer {
            attention_norm: packed.attention_norm.clone(),
            qkv: plain(&self.qkv_parts(index)?),
            qkv_bias: packed.qkv_bias.clone(),
            output: matrix("attn_output", b.hidden, b.heads * b.head_dim)?,
            output_norm: packed.output_norm.clone(),
            ffn_norm: packed.ffn_norm.clone(),
            gate: matrix("ffn_gate", b.ffn, b.hidden)?,
            up: matrix("ffn_up", b.ffn, b.hidden)?,
            down: matrix("ffn_down", b.hidden, b.ffn)?,
            feed_norm: packed.feed_norm.clone(),
        })
    }

    /// The weights of the head in the file.
    pub(crate) fn plain_head(&self) -> Result<PlainMatrix<'a>, LoadError> {
        Ok(plain(&[Part::whole(self.head_tensor()?)]))
    }

    /// Packs the head: `output.weight`, or the embeddings where they are tied.
    pub(crate) fn head(&self) -> Result<PackedMatrix, LoadError> {
        self.pack(&[Part::whole(self.head_tensor()?)])
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
        if values.iter().all(|value| value.is_finite()) {
            Ok(values)
        } else {
            Err(LoadError::Values { tensor: name.to_owned(), problem: "it holds infinities or NaN".to_owned() })
        }
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
        self.pack(&self.qkv_parts(index)?)
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

    fn gate_up(&self, index: usize) -> Result<PackedMatrix, LoadError> {
        let b = self.blueprint;
        let part = |name: &str| self.matrix(&format!("blk.{index}.{name}.weight"), b.ffn, b.hidden);
        let (gate, up) = (part("ffn_gate")?, part("ffn_up")?);
        let panels: Vec<Part<'a>> = (0..b.ffn.div_ceil(PANEL))
            .flat_map(|panel| {
                let rows: Vec<Option<usize>> =
                    (panel * PANEL..(panel + 1) * PANEL).map(|row| (row < b.ffn).then_some(row)).collect();
                [Part { tensor: gate, rows: rows.clone() }, Part { tensor: up, rows }]
            })
            .collect();
        self.pack(&panels)
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

    /// A vector over a head's dimensions, in the same order.
    fn halves_of_head(&self, vector: Vec<f32>) -> Vec<f32> {
        self.rope_order(vector.len()).into_iter().map(|at| vector[at.unwrap_or(0)]).collect()
    }

    /// Packs the parts' rows, one below the other.
    fn pack(&self, parts: &[Part<'a>]) -> Result<PackedMatrix, LoadError> {
        let Some(first) = parts.first() else {
            return Err(LoadError::MissingTensor { name: String::new() });
        };
        let kind = first.tensor.info.kind;
        let same = parts.iter().all(|part| part.tensor.info.kind == kind);
        let form = if same { kind.group_form().and_then(exact_form) } else { None };
        let inputs = first.tensor.info.row_len();
        let rows: Vec<(Tensor<'a>, Option<usize>)> =
            parts.iter().flat_map(|part| part.rows.iter().map(|&row| (part.tensor, row))).collect();
        let mut reader = RowReader::new(inputs, form.map(|(_, shift)| shift));
        let packed =
            PackedMatrix::new(rows.len(), inputs, form.map_or(Form::Byte, |(form, _)| form), |output, index| {
                let (tensor, row) = rows[output];
                reader.group(tensor, row, index)
            });
        packed.map_err(|error| LoadError::Values {
            tensor: rows[error.output].0.info.name.clone(),
            problem: error.to_string(),
        })
    }
}

/// The packed form with the same quants, and what is added to them.
fn exact_form(form: GroupForm) -> Option<(Form, u8)> {
    match form {
        GroupForm::Nibble { zero: None } => Some((Form::NibbleMin, 0)),
        GroupForm::Nibble { zero: Some(8) } => Some((Form::Nibble, 0)),
        GroupForm::Byte { zero: None } => Some((Form::ByteMin, 0)),
        GroupForm::Byte { zero: Some(zero) } if zero <= 128 => Some((Form::Byte, 128 - zero)),
        GroupForm::Nibble { .. } | GroupForm::Byte { .. } => None,
    }
}

/// Some rows of a tensor, in some order; `None` is a row of zeros.
struct Part<'a> {
    tensor: Tensor<'a>,
    rows: Vec<Option<usize>>,
}

impl<'a> Part<'a> {
    fn whole(tensor: Tensor<'a>) -> Self {
        Self { tensor, rows: (0..tensor.info.rows()).map(Some).collect() }
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
    /// What is added to the file's own quants; `None`: requantise.
    shift: Option<u8>,
    groups: Vec<Group>,
    weights: Vec<f32>,
}

impl RowReader {
    fn new(inputs: usize, shift: Option<u8>) -> Self {
        Self { shift, groups: vec![Group::default(); inputs.div_ceil(GROUP)], weights: vec![0.0; inputs] }
    }

    fn group(&mut self, tensor: Tensor<'_>, row: Option<usize>, index: usize) -> WeightGroup {
        let Some(row) = row else { return WeightGroup { scale: 0.0, min: 0.0, quants: [0; GROUP] } };
        let Some(shift) = self.shift else {
            if index == 0 {
                tensor.dequantize_row(row, &mut self.weights);
            }
            let end = ((index + 1) * GROUP).min(self.weights.len());
            return WeightGroup::quantize(&self.weights[index * GROUP..end]);
        };
        if index == 0 {
            tensor.groups_row(row, &mut self.groups);
        }
        let Group { scale, min, quants } = self.groups[index];
        WeightGroup { scale, min, quants: quants.map(|q| q.wrapping_add(shift)) }
    }
}

fn shape(tensor: Tensor<'_>, expected: Vec<usize>) -> LoadError {
    LoadError::Shape { tensor: tensor.info.name.clone(), expected, found: tensor.info.shape.clone() }
}
