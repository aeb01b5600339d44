//! Gemma 4 (text): layers with a window and narrow heads, and layers that see everything, with wide heads that rope turns in a
//! part; the last layers read keys and values of earlier ones. Values are normed as keys are. In the smaller models each layer
//! has an input of its own, made of a row's token and embedding; in one, experts stand beside each layer's block.

use super::experts::{ExpertPlan, ExpertWidth, experts};
use super::{Blueprint, Extra, Facts, Heads, LayerPlan, RopePairs, WideHeads};
use crate::load::LoadError;
use duet_kernels::fused::Routing;
use duet_kernels::matmul::Gating;

/// The base of layers with a window, where a file does not say.
const LOCAL_THETA: f32 = 10_000.0;

pub(super) fn blueprint(facts: &Facts<'_>) -> Result<Blueprint, LoadError> {
    let common = facts.common(RopePairs::Halves)?;
    let heads = heads(facts, common.layers.len())?;
    let (wide, narrow) = (heads.wide, heads.narrow);
    let local_dims = facts.opt_number("rope.dimension_count_swa")?.unwrap_or(narrow.head_dim);
    if local_dims > narrow.head_dim || !local_dims.is_multiple_of(2) {
        let problem = format!("{local_dims} of {} dimensions: pairs of these are supported", narrow.head_dim);
        return Err(facts.refuse("rope.dimension_count_swa", problem));
    }
    let theta = facts.opt_f32("rope.freq_base_swa")?.unwrap_or(LOCAL_THETA);
    let local = facts.rope_over(local_dims, theta, 1.0, None)?;
    for shape in [wide, narrow] {
        if !common.heads.is_multiple_of(shape.kv_heads) {
            let problem = format!("{} heads do not divide by {} key heads", common.heads, shape.kv_heads);
            return Err(facts.refuse("attention.head_count", problem));
        }
    }
    let cap = facts.opt_f32("final_logit_softcapping")?.filter(|cap| *cap != 0.0);
    if cap.is_some_and(|cap| !(cap.is_finite() && cap > 0.0)) {
        return Err(facts.refuse("final_logit_softcapping", format!("{cap:?}")));
    }
    let layer_input = layer_input(facts, &common)?;
    let experts = if facts.has_experts()? { Some(beside(facts, layer_input)?) } else { None };
    Ok(Blueprint {
        experts,
        kv_heads: narrow.kv_heads,
        head_dim: narrow.head_dim,
        wide: Some(wide),
        embedding_scale: (common.hidden as f32).sqrt(),
        attention_scale: 1.0,
        logit_cap: cap,
        layer_input,
        gating: Gating::GeluTanh,
        ropes: vec![common.ropes[0].clone(), local],
        layers: plans(facts, &heads, common.ffn)?,
        extras: match (experts.is_some(), facts.has_tensor("blk.0.layer_output_scale.weight")) {
            (false, false) => &[HEADS, VALUES, OF_KEYS, POST],
            (false, true) => &[HEADS, VALUES, OF_KEYS, POST, SCALES],
            (true, false) => &[HEADS, VALUES, OF_KEYS, POST, BESIDE],
            (true, true) => &[HEADS, VALUES, OF_KEYS, POST, SCALES, BESIDE],
        },
        ..common
    })
}

const HEADS: Extra = Extra::HeadNorms;
const VALUES: Extra = Extra::ValueNorms;
const OF_KEYS: Extra = Extra::ValuesOfKeys;
const POST: Extra = Extra::PostNorms;
const SCALES: Extra = Extra::LayerScales;
const BESIDE: Extra = Extra::BlockBeside;

/// Experts beside a block that all rows go to.
fn beside(facts: &Facts<'_>, layer_input: Option<usize>) -> Result<ExpertPlan, LoadError> {
    // What the block's width says in files that lack this is another model's.
    facts.number("expert_feed_forward_length")?;
    let experts = experts(facts, ExpertWidth::OfItsOwn, Routing::SoftmaxOfChosen)?;
    if layer_input.is_some() {
        return Err(
            facts.refuse("expert_count", "experts in layers with inputs of their own are not supported".to_owned())
        );
    }
    let widths = facts.of_layers("feed_forward_length")?;
    match widths.iter().find(|width| **width != widths[0]) {
        Some(other) => {
            let problem = format!("blocks of {} and {other} beside experts, which are to be of one width", widths[0]);
            Err(facts.refuse("feed_forward_length", problem))
        }
        None => Ok(ExpertPlan { shared: widths.first().copied(), ..experts }),
    }
}

/// Which layers have windows, and the shapes of their heads and of the others'.
struct HeadsOfLayers {
    windowed: Vec<bool>,
    narrow: WideHeads,
    wide: WideHeads,
}

fn heads(facts: &Facts<'_>, layers: usize) -> Result<HeadsOfLayers, LoadError> {
    let windowed = facts.bools_of_layers("attention.sliding_window_pattern")?;
    let kv_heads = facts.of_layers("attention.head_count_kv")?;
    // Of all layers of a kind, or of none.
    let of_kind = |has_window: bool| {
        let mut all = (0..layers).filter(|&layer| windowed[layer] == has_window).map(|layer| kv_heads[layer]);
        let first = all.next();
        match (first, all.find(|heads| Some(*heads) != first)) {
            (Some(first), Some(other)) => {
                let problem = format!("{first} and {other} key heads in layers of one kind");
                Err(facts.refuse("attention.head_count_kv", problem))
            }
            (first, _) => Ok(first.unwrap_or(1)),
        }
    };
    let (local, global) = ("attention.key_length_swa", "attention.key_length");
    let narrow = WideHeads { kv_heads: of_kind(true)?, head_dim: facts.head_dim(local)? };
    let wide = WideHeads { kv_heads: of_kind(false)?, head_dim: facts.head_dim(global)? };
    let values = facts.opt_number("attention.value_length_swa")?.unwrap_or(narrow.head_dim);
    if values != narrow.head_dim {
        let problem = format!("values of {values} dimensions beside keys of {}", narrow.head_dim);
        return Err(facts.refuse("attention.value_length_swa", problem));
    }
    Ok(HeadsOfLayers { windowed, narrow, wide })
}

fn plans(facts: &Facts<'_>, heads: &HeadsOfLayers, widest: usize) -> Result<Vec<LayerPlan>, LoadError> {
    let layers = heads.windowed.len();
    let window = facts.number("attention.sliding_window")?;
    let ffns = facts.of_layers("feed_forward_length")?;
    let shared = facts.opt_count("attention.shared_kv_layers")?.unwrap_or(0);
    let own = layers.saturating_sub(shared);
    let plan = |layer: usize| {
        let has_window = heads.windowed[layer];
        // The last layer of its kind that has keys and values.
        let before = (0..own.min(layer)).rev().find(|&other| heads.windowed[other] == has_window);
        if layer >= own && before.is_none() {
            let problem =
                format!("layer {layer} reads keys and values of an earlier layer of its kind, and there is none");
            return Err(facts.refuse("attention.shared_kv_layers", problem));
        }
        Ok(LayerPlan {
            window: has_window.then_some(window),
            rope: usize::from(has_window),
            heads: if has_window { Heads::Common } else { Heads::Wide },
            cache_of: before.filter(|_| layer >= own),
            ffn: Some(ffns[layer]).filter(|&ffn| ffn != widest),
            ..LayerPlan::ATTENTION
        })
    };
    (0..layers).map(plan).collect()
}

/// The width of the inputs that layers have of their own.
fn layer_input(facts: &Facts<'_>, common: &Blueprint) -> Result<Option<usize>, LoadError> {
    const WIDTH: &str = "embedding_length_per_layer_input";
    const EMBEDDINGS: &str = "per_layer_token_embd.weight";
    let Some(width) = facts.opt_count(WIDTH)?.filter(|width| *width > 0) else { return Ok(None) };
    let narrowest = facts.of_layers("feed_forward_length")?.into_iter().min().unwrap_or(0);
    if !width.is_multiple_of(WIDTH_STEP) || width > narrowest {
        let problem = format!("{width}; supported: multiples of {WIDTH_STEP} to the width of feed-forward blocks");
        return Err(facts.refuse(WIDTH, problem));
    }
    match facts.shape_of(EMBEDDINGS) {
        Some(shape) if shape == (common.vocabulary, width * common.layers.len()) => Ok(Some(width)),
        Some((rows, row_len)) => Err(LoadError::Shape {
            tensor: EMBEDDINGS.to_owned(),
            expected: vec![width * common.layers.len(), common.vocabulary],
            found: vec![row_len as u64, rows as u64],
        }),
        None => Err(LoadError::MissingTensor { name: EMBEDDINGS.to_owned() }),
    }
}

/// Inputs are whole panels.
const WIDTH_STEP: usize = 16;
