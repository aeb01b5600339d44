//! What a layer has for the heads behind its projection: their norms, and what keys in the cache are without
//! (`duet_kernels::attention::KeyBias`), as shaders read them.

use crate::gpu::Gpu;
use duet_kernels::attention::TurnedBias;
use duet_kernels::fused::{HeadNorms, QkvWeights};

/// What a layer has for its heads.
#[derive(Debug)]
pub(crate) struct HeadsOnGpu {
    /// Weights of the norm of queries, and behind them of keys.
    pub(crate) norms: Option<wgpu::Buffer>,
    /// The same of all query heads together, and of all key heads.
    pub(crate) width_norms: Option<wgpu::Buffer>,
    pub(crate) key_bias: Option<KeyBiasOnGpu>,
}

impl HeadsOnGpu {
    pub(crate) fn new(gpu: &Gpu, weights: &QkvWeights<'_>) -> Self {
        let weights_of = |label, query: &[f32], key: &[f32]| Some(gpu.floats(label, &[query, key].concat()));
        let (norms, width_norms) = match weights.norms {
            HeadNorms::None => (None, None),
            HeadNorms::Heads { query, key, .. } => (weights_of("head norms", query.weight, key.weight), None),
            HeadNorms::Widths { query, key } => (None, weights_of("width norms", query.weight, key.weight)),
        };
        Self { norms, width_norms, key_bias: weights.key_bias.map(|bias| KeyBiasOnGpu::new(gpu, bias)) }
    }
}

/// The bias of a layer's keys.
#[derive(Debug)]
pub(crate) struct KeyBiasOnGpu {
    /// Biases of all heads; for each pair its number among the quick ones, or -1; the pairs of these; and of each its cosines
    /// and its sines at the positions of a page.
    pub(crate) bias: wgpu::Buffer,
    /// Cosine and sine of each page and pair.
    pub(crate) angles: wgpu::Buffer,
    pub(crate) quick: usize,
}

impl KeyBiasOnGpu {
    pub(crate) fn new(gpu: &Gpu, turned: TurnedBias<'_>) -> Self {
        let (bias, pairs) = (turned.bias, turned.bias.pairs());
        let mut numbers = vec![-1.0; pairs];
        let (mut quick, mut positions) = (Vec::new(), Vec::new());
        for (number, (pair, angles)) in bias.quick().enumerate() {
            // Small numbers, which floats hold exactly.
            numbers[pair] = number as f32;
            quick.push(pair as f32);
            positions.extend_from_slice(angles.map(|angles| angles.as_slice()).concat().as_slice());
        }
        let mut by_page = Vec::with_capacity(turned.angles.pages() * pairs * 2);
        for page in 0..turned.angles.pages() {
            let (cosines, sines) = turned.angles.page(page);
            let both = cosines[..pairs].iter().zip(&sines[..pairs]);
            by_page.extend(both.flat_map(|(cosine, sine)| [*cosine, *sine]));
        }
        Self {
            bias: gpu.floats("key bias", &[bias.of_heads(), &numbers, &quick, &positions].concat()),
            angles: gpu.floats("angles of pages", &by_page),
            quick: quick.len(),
        }
    }
}
