//! What matrices are called that are made of several tensors, or of a part of one.

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

/// What makes the inputs of all layers.
pub(super) const INPUTS: &str = "per_layer_model_proj";

pub(super) fn input_gate(layer: usize) -> String {
    format!("blk.{layer}.inp_gate")
}

pub(super) fn input_projection(layer: usize) -> String {
    format!("blk.{layer}.proj")
}

/// Whether a matrix of this name is one of an expert that rows are routed to.
pub(crate) fn is_of_expert(name: &str) -> bool {
    name.contains("_exps.")
}

/// A matrix's name without the number of its expert, and that number; 0 if it is none's.
pub(crate) fn name_without_expert(name: &str) -> (&str, usize) {
    let apart = name.rsplit_once('.').filter(|_| is_of_expert(name));
    apart.and_then(|(kind, expert)| Some((kind, expert.parse().ok()?))).unwrap_or((name, 0))
}
