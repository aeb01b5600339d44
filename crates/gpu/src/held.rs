//! Which layers of a model lie on a GPU, where memory has no room for all, and what each takes.
//!
//! Memory is divided: rows on their way have what they need, keys and values a quarter of it at most, and weights the rest.
//! The head goes with the last layer. Until somebody who has measured says which layers to hold, they are as many of the last
//! ones as fit.

use crate::divided::Divided;
use crate::error::GpuError;
use crate::room::{Room, SPAN_ROWS, Widths};
use duet_kernels::fused::{Block, Experts, Feed};
use duet_kernels::packed::PackedMatrix;
use duet_model::Model;
use duet_types::Bytes;
use std::ops::Range;

/// How memory is divided.
#[derive(Clone, Debug)]
pub(crate) struct Shares {
    /// Of weights, and of what each layer gives back.
    pub(crate) weights: Bytes,
    /// Of keys and values.
    pub(crate) pages: u64,
    /// Of each layer; of the last with the head.
    pub(crate) layers: Vec<Bytes>,
}

impl Shares {
    /// Of so much memory, or of as much as the model wants.
    pub(crate) fn new(model: &Model, widths: Widths, memory: Option<Bytes>) -> Self {
        let layers = layer_bytes(model);
        let Some(Bytes(memory)) = memory else {
            return Self { weights: Bytes(u64::MAX), pages: PAGE_BYTES, layers };
        };
        let pages = (memory / PAGES_OF_MEMORY).min(PAGE_BYTES);
        let b = model.blueprint();
        let rows = Room::bytes(widths, SPAN_ROWS) + Divided::bytes(b.heads, b.head_dim) as u64;
        Self { weights: Bytes(memory.saturating_sub(pages + rows)), pages, layers }
    }

    /// As many of the last layers as fit.
    pub(crate) fn longest(&self) -> Result<Range<usize>, GpuError> {
        let (all, mut left) = (self.layers.len(), self.weights.0);
        let fits = |bytes: &&Bytes| {
            let fits = bytes.0 <= left;
            left = left.saturating_sub(bytes.0);
            fits
        };
        match self.layers.iter().rev().take_while(fits).count() {
            0 => Err(GpuError::NoRoom { layer: self.layers.last().map_or(0, |bytes| bytes.0), room: self.weights.0 }),
            held => Ok(all - held..all),
        }
    }

    /// Whether these are layers, and fit.
    pub(crate) fn fit(&self, layers: &Range<usize>) -> bool {
        let bytes = self.layers.get(layers.clone()).map(|layers| layers.iter().map(|bytes| bytes.0).sum::<u64>());
        !layers.is_empty() && bytes.is_some_and(|bytes| bytes <= self.weights.0)
    }
}

/// Keys and values of all layers at most: a conversation of some ten thousand positions of a small model.
const PAGE_BYTES: u64 = 512 << 20;
/// The share of a bounded memory that keys and values get at most, as a divisor.
const PAGES_OF_MEMORY: u64 = 4;

/// Weights of each layer, with the keys and values that a span gives back of it; norms and biases are little beside them.
fn layer_bytes(model: &Model) -> Vec<Bytes> {
    let (b, layers) = (model.blueprint(), model.blueprint().layers.len());
    let of = |matrix: &PackedMatrix| matrix.parts().map(|part| part.quants.len() + part.scales.len()).sum::<usize>();
    let results = SPAN_ROWS * 2 * b.kv_heads * b.head_dim * size_of::<f32>();
    let layer = |layer: usize| {
        let ffn = model.ffn_weights(layer);
        let of_feed = |feed: &Feed| of(&feed.gate_up) + of(&feed.down);
        let feed = match ffn.block {
            Block::Dense { feed, .. } => of_feed(feed),
            Block::Experts(Experts { experts, shared, .. }) => {
                let routed = (0..experts.len()).filter_map(|expert| experts.get(expert)).map(of_feed).sum::<usize>();
                routed + shared.map_or(0, |shared| of_feed(shared.feed))
            }
        };
        let head = if layer + 1 == layers { of(model.head_weights().matrix) } else { 0 };
        Bytes((results + of(model.qkv_weights(layer).matrix) + of(ffn.output) + feed + head) as u64)
    };
    (0..layers).map(layer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(weights: u64) -> Shares {
        Shares { weights: Bytes(weights), pages: 0, layers: [10, 10, 10, 25].map(Bytes).to_vec() }
    }

    #[test]
    fn the_last_layers_are_held_first_and_no_more_than_fit() {
        let longest = |weights| shares(weights).longest().ok();
        assert_eq!([55, 54, 35, 25].map(longest), [Some(0..4), Some(1..4), Some(2..4), Some(3..4)]);
        let none = shares(24).longest().unwrap_err();
        assert_eq!(none, GpuError::NoRoom { layer: 25, room: 24 });
        assert!(none.to_string().contains("25"), "{none}");
    }

    #[test]
    fn layers_that_there_are_not_do_not_fit() {
        let fits = |layers| shares(30).fit(&layers);
        assert!(fits(0..3) && fits(3..4) && !fits(2..4) && !fits(1..1) && !fits(3..5));
    }
}
