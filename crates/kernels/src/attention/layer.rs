//! Where the keys and values of one layer lie in a page.

use super::layout::{GROUP, KvFormat, PAGE, QUAD, SCALES, Side};
use crate::simd::LANES;

/// The part of a page that is a layer's: its heads one after the other, of each first the keys, then the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LayerLayout {
    /// Where it begins.
    pub(super) start: usize,
    /// Key heads.
    pub(crate) kv_heads: usize,
    /// Dimensions of a head, a multiple of 16.
    pub(crate) head_dim: usize,
    /// How numbers are stored.
    pub(crate) format: KvFormat,
}

impl LayerLayout {
    /// Groups of a head.
    pub(super) fn groups(&self) -> usize {
        self.head_dim.div_ceil(GROUP)
    }

    /// Bytes of a head.
    pub(super) fn head_bytes(&self) -> usize {
        self.format.of_keys().bytes(self.head_dim) + self.format.of_values().bytes(self.head_dim)
    }

    /// Bytes of the layer.
    pub(super) fn bytes(&self) -> usize {
        self.kv_heads * self.head_bytes()
    }

    /// Where the keys of a head begin in a page; their values follow.
    pub(crate) fn keys(&self, kv_head: usize) -> usize {
        self.start + kv_head * self.head_bytes()
    }

    /// Where the values of a head begin in a page.
    pub(crate) fn values(&self, kv_head: usize) -> usize {
        self.keys(kv_head) + self.format.of_keys().bytes(self.head_dim)
    }

    /// Where the scales of a group of keys lie behind where keys begin, unless they are half precision: one for each
    /// position, in half precision.
    pub(super) fn key_scales(&self, group: usize) -> usize {
        self.format.of_keys().numbers(self.head_dim) + group * SCALES
    }

    /// The same of values.
    pub(super) fn value_scales(&self, group: usize) -> usize {
        self.format.of_values().numbers(self.head_dim) + group * SCALES
    }

    /// Where the centres of a group of values of four bits lie: what [`NIBBLE_ZERO`](super::layout::NIBBLE_ZERO) stands for.
    pub(super) fn value_centres(&self, group: usize) -> usize {
        self.value_scales(self.groups() + group)
    }

    /// Where a value stands behind where values begin; in four bits it shares its byte.
    pub(super) fn value_at(&self, position: usize, dimension: usize) -> usize {
        let (quad, within) = (position / QUAD, position % QUAD);
        match self.format.of_values() {
            Side::Halves => (position * self.head_dim + dimension) * 2,
            Side::Bytes => (quad * self.head_dim + dimension) * QUAD + within,
            Side::Nibbles => ((quad * self.groups() + dimension / GROUP) * LANES + dimension % LANES) * QUAD + within,
        }
    }

    /// Where a key stands behind where keys begin.
    pub(super) fn key_at(&self, position: usize, dimension: usize) -> usize {
        let (block, lane) = (position / LANES * self.head_dim, position % LANES);
        match self.format.of_keys() {
            Side::Halves => ((block + dimension) * LANES + lane) * 2,
            _ => (block + dimension / QUAD * QUAD) * LANES + lane * QUAD + dimension % QUAD,
        }
    }

    /// Copies position `from` of `source` to position `to` of `target`, all heads.
    pub(super) fn copy_position(&self, source: &[u8], from: usize, target: &mut [u8], to: usize) {
        assert!(from < PAGE && to < PAGE);
        let mut copy = |from: usize, to: usize, bytes: usize| {
            target[to..to + bytes].copy_from_slice(&source[from..from + bytes]);
        };
        for head in 0..self.kv_heads {
            let (keys, values) = (self.keys(head), self.values(head));
            for dimension in 0..self.head_dim {
                let width = if self.format == KvFormat::F16 { size_of::<u16>() } else { 1 };
                copy(keys + self.key_at(from, dimension), keys + self.key_at(to, dimension), width);
                copy(values + self.value_at(from, dimension), values + self.value_at(to, dimension), width);
            }
            let scales = (0..self.format.of_keys().of_groups() * self.groups()).map(|at| keys + self.key_scales(at));
            let of_values = 0..self.format.of_values().of_groups() * self.groups();
            for scales in scales.chain(of_values.map(|at| values + self.value_scales(at))) {
                copy(scales + from * size_of::<u16>(), scales + to * size_of::<u16>(), size_of::<u16>());
            }
        }
    }
}
