//! What comes back of a span beside the residual stream: the keys and values of its rows, in the form that is least.
//!
//! Where shaders write the cache itself, nothing; where whole pages are less than rows, as in a prompt, the pages as they are; else
//! rows, which the cores round. What pages have is what the cores would have made of rows, on an adapter with their bits.

use crate::pages::Listed;
use crate::spans::Way;
use crate::staging::Piece;
use duet_model::forward::{Brought, SpanSequence};

/// In which form they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Back {
    /// They are in the cache.
    Nothing,
    /// So many floats of pages, layer by layer.
    Pages { each: usize },
    /// So many floats of rows, layer by layer, from one layer to the next so many.
    Rows { each: usize, stride: usize },
}

/// Floats that what is bound begins at multiples of: 256 bytes, the most that any adapter asks for.
const ALIGNED: usize = 64;

/// Floats from the keys and values of one layer to those of the next, where a layer's rows have so many.
pub(crate) fn layer_stride(width: usize) -> usize {
    width.next_multiple_of(ALIGNED)
}

impl Way<'_, '_> {
    /// What is to be read.
    pub(crate) fn back(&self) -> (Back, Vec<Piece>) {
        let (kept, layers) = (&self.spans.kept, self.computed.len());
        let b = self.model.blueprint();
        let each = self.count * 2 * b.kv_heads * b.head_dim;
        // On an adapter with other bits the cores round what the cache gets.
        let is_exact = self.loaded.gpu.fusing.is_exact();
        if layers == 0 || is_exact && kept.is_stored(self.rows) {
            return (Back::Nothing, Vec::new());
        }
        if let Some(copies) = kept.read_by_page(self.rows, &self.listed, each).filter(|_| is_exact) {
            let of_layer = |&layer: &usize| {
                let place = self.loaded.place(self.model, layer);
                let written =
                    |(sequence, listed): (&SpanSequence<'_>, &Listed)| copies.written(place, sequence, listed);
                self.rows.sequences.iter().zip(&self.listed).flat_map(written).collect::<Vec<_>>()
            };
            let pieces: Vec<_> = self.computed.iter().flat_map(of_layer).collect();
            let all: usize = pieces.iter().map(|piece| piece.floats).sum();
            return (Back::Pages { each: all / layers }, pieces);
        }
        let stride = layer_stride(each);
        let rows = Piece::beginning(&self.spans.results, layers * stride);
        (Back::Rows { each, stride }, vec![rows])
    }
}

impl Back {
    /// Takes what was read.
    pub(crate) fn take(self, floats: &[f32], to: &mut [Brought]) {
        match self {
            Self::Nothing => {}
            Self::Pages { each } => {
                for (to, from) in to.iter_mut().zip(floats.chunks_exact(each)) {
                    to.pages.extend_from_slice(bytemuck::cast_slice(from));
                }
            }
            Self::Rows { each, stride } => {
                for (to, from) in to.iter_mut().zip(floats.chunks_exact(stride)) {
                    to.rows.extend_from_slice(&from[..each]);
                }
            }
        }
    }
}
