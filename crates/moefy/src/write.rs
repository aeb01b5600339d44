//! The file of a model that was made into experts.
//!
//! With a shared expert it is a `qwen2moe`, without one a `llama` with experts: both are architectures that other
//! programs know, and what they compute is what was carved. Their weights of experts come from a softmax, and here an
//! expert counts fully or not at all. So the router is scaled down until its softmax is as good as even, its order being
//! what it was, and what an even share takes away is in the experts' own weights. In the same way the shared expert's
//! gate is nearly nothing, so that its logistic function is a half.
//!
//! Rows of gates and values keep the file's own type, to the bit. What neurons add was fitted anew, and is `Q8_0`.

use crate::carve::Carved;
use crate::matrix::Matrix;
use crate::{MoefyError, Shape};
use duet_model::LoadError;
use duet_model::Model;
use duet_model::arch::{Blueprint, RopePairs};
use duet_model::gguf::writer::{GgufWriter, quantise};
use duet_model::gguf::{GgufFile, Tensor, TensorType};
use std::io::Write;

/// Which architecture the file is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// `llama` with experts: softmax of the chosen, pairs of neighbours in rope.
    Mixtral,
    /// `qwen2moe`: softmax of all, halves in rope, a shared expert.
    QwenMoe,
}

impl Target {
    fn architecture(self) -> &'static str {
        match self {
            Self::Mixtral => "llama",
            Self::QwenMoe => "qwen2moe",
        }
    }

    /// What an expert's weight comes to when all scores are alike.
    fn even_share(self, shape: &Shape) -> f32 {
        match self {
            Self::Mixtral => 1.0 / shape.chosen as f32,
            Self::QwenMoe => 1.0 / shape.experts as f32,
        }
    }
}

/// Refuses models that no architecture's experts describe.
pub(crate) fn check(model: &Model, shared: usize) -> Result<(), MoefyError> {
    target(model, shared).map(|_| ())
}

fn target(model: &Model, shared: usize) -> Result<Target, MoefyError> {
    let architecture = &model.config().architecture;
    let refuse = |problem| Err(MoefyError::Architecture { architecture: architecture.clone(), problem });
    let Blueprint { experts, heads, head_dim, hidden, .. } = model.blueprint();
    if experts.is_some() {
        return refuse("it has experts already");
    }
    match (architecture.as_str(), shared) {
        ("llama", 0) => Ok(Target::Mixtral),
        ("qwen2", 0) => refuse("its experts need a shared one beside them: give --shared"),
        ("llama" | "qwen2", _) if heads * head_dim != *hidden => {
            refuse("its heads are not as wide as the residual stream, which a file with a shared expert cannot say")
        }
        ("llama" | "qwen2", _) => Ok(Target::QwenMoe),
        _ => refuse("only `llama` and `qwen2` can"),
    }
}

/// Writes the file.
pub(crate) fn write(
    model: &Model,
    file: &GgufFile,
    shape: &Shape,
    layers: &[Carved],
    out: &mut dyn Write,
) -> Result<(), MoefyError> {
    let target = target(model, shape.shared)?;
    let mut writer = GgufWriter::new();
    let scribe = Scribe { model, file, shape, target };
    scribe.metadata(&mut writer)?;
    scribe.common(&mut writer)?;
    for (layer, carved) in layers.iter().enumerate() {
        scribe.attention(&mut writer, layer)?;
        scribe.experts(&mut writer, layer, carved)?;
        if target == Target::QwenMoe {
            scribe.shared(&mut writer, layer, carved)?;
        }
    }
    Ok(writer.write_to(out)?)
}

struct Scribe<'a> {
    model: &'a Model,
    file: &'a GgufFile,
    shape: &'a Shape,
    target: Target,
}

impl<'a> Scribe<'a> {
    fn metadata(&self, writer: &mut GgufWriter<'a>) -> Result<(), MoefyError> {
        let (architecture, shape) = (self.target.architecture(), self.shape);
        let prefix = format!("{}.", self.model.config().architecture);
        let key = |name: &str| format!("{architecture}.{name}");
        let mut entries = vec![
            (key("expert_count"), shape.experts as u32),
            (key("expert_used_count"), shape.chosen as u32),
            (key("expert_feed_forward_length"), shape.width as u32),
            (key("feed_forward_length"), shape.width as u32),
        ];
        if self.target == Target::QwenMoe {
            entries.push((key("expert_shared_feed_forward_length"), shape.shared as u32));
        }
        for (name, value) in self.file.metadata().iter() {
            let to = name.strip_prefix(&prefix).map_or_else(|| name.to_owned(), &key);
            match to.as_str() {
                "general.architecture" => writer.metadata(&to, architecture)?,
                "general.name" => {
                    let name = &self.model.config().name;
                    writer.metadata(&to, format!("{name} ({} experts)", shape.experts))?
                }
                // What most tensors' type was says nothing of the others.
                "general.file_type" => writer,
                _ if entries.iter().any(|(key, _)| *key == to) => writer,
                _ => writer.metadata(&to, value.clone())?,
            };
        }
        for (key, value) in entries {
            writer.metadata(&key, value)?;
        }
        Ok(())
    }

    /// What is no layer's.
    fn common(&self, writer: &mut GgufWriter<'a>) -> Result<(), MoefyError> {
        for info in self.file.tensors().iter().filter(|info| !info.name.starts_with("blk.")) {
            if info.name == "rope_freqs.weight" && self.target == Target::QwenMoe {
                return Err(MoefyError::Architecture {
                    architecture: self.model.config().architecture.clone(),
                    problem: "its rope has factors, which a file with a shared expert cannot say",
                });
            }
            let tensor = self.tensor(&info.name)?;
            writer.tensor(&info.name, &info.shape, info.kind, tensor.data())?;
        }
        if self.target == Target::QwenMoe && self.file.tensor("output.weight").is_none() {
            let head = self.tensor("token_embd.weight")?;
            writer.tensor("output.weight", &head.info.shape, head.info.kind, head.data())?;
        }
        Ok(())
    }

    /// What is not the block's.
    fn attention(&self, writer: &mut GgufWriter<'a>, layer: usize) -> Result<(), MoefyError> {
        let prefix = format!("blk.{layer}.");
        let block = ["ffn_gate.weight", "ffn_up.weight", "ffn_down.weight"];
        for info in self.file.tensors() {
            let Some(part) = info.name.strip_prefix(&prefix).filter(|part| !block.contains(part)) else { continue };
            let tensor = self.tensor(&info.name)?;
            let turned = matches!(part, "attn_q.weight" | "attn_k.weight") && self.turns_pairs();
            match turned.then(|| self.halves(tensor)) {
                Some(bytes) => writer.tensor(&info.name, &info.shape, info.kind, bytes)?,
                None => writer.tensor(&info.name, &info.shape, info.kind, tensor.data())?,
            };
        }
        let biases = ["attn_q", "attn_k", "attn_v"].map(|part| format!("{prefix}{part}"));
        for part in biases.iter().filter(|_| self.target == Target::QwenMoe) {
            let name = format!("{part}.bias");
            if self.file.tensor(&name).is_none() {
                let outputs = self.tensor(&format!("{part}.weight"))?.info.rows();
                writer.tensor(&name, &[outputs as u64], TensorType::F32, vec![0; 4 * outputs])?;
            }
        }
        Ok(())
    }

    /// Whether rope pairs other dimensions in the file that is written.
    fn turns_pairs(&self) -> bool {
        self.target == Target::QwenMoe && self.model.blueprint().rope_pairs == RopePairs::Neighbours
    }

    /// The rows of a projection, pairs of neighbours within each head made pairs of halves.
    fn halves(&self, tensor: Tensor<'_>) -> Vec<u8> {
        let dim = self.model.blueprint().head_dim;
        let from = |row: usize| {
            let (head, i) = (row / dim, row % dim);
            head * dim + if i < dim / 2 { 2 * i } else { 2 * (i - dim / 2) + 1 }
        };
        (0..tensor.info.rows()).flat_map(|row| tensor.row_bytes(from(row))).copied().collect()
    }

    fn experts(&self, writer: &mut GgufWriter<'a>, layer: usize, carved: &Carved) -> Result<(), MoefyError> {
        let (shape, hidden) = (self.shape, carved.down.columns() as u64);
        let (experts, width) = (shape.experts as u64, shape.width as u64);
        let neurons: Vec<usize> = carved.experts.concat();
        for part in ["ffn_gate", "ffn_up"] {
            let (kind, bytes) = self.rows(layer, part, &neurons)?;
            writer.tensor(&format!("blk.{layer}.{part}_exps.weight"), &[hidden, width, experts], kind, bytes)?;
        }
        let scale = self.target.even_share(shape).recip();
        let down: Vec<u8> = carved.experts.iter().flat_map(|of| quantised(&carved.down, of, scale)).collect();
        let shape = [width, hidden, experts];
        writer.tensor(&format!("blk.{layer}.ffn_down_exps.weight"), &shape, TensorType::Q8_0, down)?;
        let router = faint(carved.router.values());
        let shape = [hidden, experts];
        writer.tensor(&format!("blk.{layer}.ffn_gate_inp.weight"), &shape, TensorType::F32, router)?;
        Ok(())
    }

    fn shared(&self, writer: &mut GgufWriter<'a>, layer: usize, carved: &Carved) -> Result<(), MoefyError> {
        let (hidden, width) = (carved.down.columns() as u64, self.shape.shared as u64);
        for part in ["ffn_gate", "ffn_up"] {
            let (kind, bytes) = self.rows(layer, part, &carved.shared)?;
            writer.tensor(&format!("blk.{layer}.{part}_shexp.weight"), &[hidden, width], kind, bytes)?;
        }
        // The logistic function of next to nothing is a half.
        let down = quantised(&carved.down, &carved.shared, 2.0);
        writer.tensor(&format!("blk.{layer}.ffn_down_shexp.weight"), &[width, hidden], TensorType::Q8_0, down)?;
        let gate = bytes_of(vec![GATE; hidden as usize]);
        writer.tensor(&format!("blk.{layer}.ffn_gate_inp_shexp.weight"), &[hidden], TensorType::F32, gate)?;
        Ok(())
    }

    /// Some rows of a tensor of a layer, as they are.
    fn rows(&self, layer: usize, part: &str, rows: &[usize]) -> Result<(TensorType, Vec<u8>), MoefyError> {
        let tensor = self.tensor(&format!("blk.{layer}.{part}.weight"))?;
        Ok((tensor.info.kind, rows.iter().flat_map(|&row| tensor.row_bytes(row)).copied().collect()))
    }

    fn tensor(&self, name: &str) -> Result<Tensor<'a>, MoefyError> {
        Ok(self.file.tensor(name).ok_or_else(|| LoadError::MissingTensor { name: name.to_owned() })?)
    }
}

/// What some neurons add, a row for each value of the residual stream.
fn quantised(down: &Matrix, neurons: &[usize], scale: f32) -> Vec<u8> {
    let mut columns = down.gather(neurons).transposed();
    for row in 0..columns.rows() {
        columns.row_mut(row).iter_mut().for_each(|value| *value *= scale);
    }
    quantise::q8_0(columns.values())
}

/// A router whose scores are so small that their softmax is even to a thousandth, in the same order.
fn faint(router: &[f32]) -> Vec<u8> {
    let largest = router.iter().fold(0.0_f32, |largest, weight| largest.max(weight.abs()));
    let scale = if largest > 0.0 { ROUTER_LARGEST / largest } else { 0.0 };
    bytes_of(router.iter().map(|weight| weight * scale).collect())
}

fn bytes_of(values: Vec<f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

/// Largest weight of a router: scores of normed rows stay within some thousandths.
const ROUTER_LARGEST: f32 = 1e-4;
/// Weights of the shared expert's gate: not zero, since programs divide by the score.
const GATE: f32 = 1e-8;
