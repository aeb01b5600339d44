//! Where keys and values lie in a page, and how a row is written there.
//!
//! A page holds [`PAGE`] positions of one sequence for all layers and key heads. Keys are stored across: for each 16
//! positions and each dimension, the 16 positions' values side by side, so that scores of 16 positions come from one
//! register. Values are stored along: a position's dimensions side by side.
//!
//! With eight bits, four numbers that are added up in a product lie side by side, a *quad*, as integer products want them:
//! keys `[16 positions][4 dimensions][position][dimension]`, values `[4 positions][dimension][position]`.

use super::rotation::turn;
use crate::isa::Isa;
use crate::memory::{Aligned, Shared};
use crate::simd::{Kernel, LANES, Simd};
use half::f16;

/// Positions in a page.
pub const PAGE: usize = 64;

/// Registers of a page's positions, one number of each.
pub(super) const VECTORS: usize = PAGE / LANES;

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KvFormat {
    /// Half precision.
    F16,
    /// Eight bits in groups of 32 dimensions, each [turned](super::rotation) and with a scale; what a model adds to every
    /// key is [kept apart](super::KeyBias). Answers are as good as with half precision.
    #[default]
    Int8,
}

/// Dimensions that share a scale.
pub(super) const GROUP: usize = 32;

/// Numbers side by side that are added up in a product of eight bits.
pub(super) const QUAD: usize = 4;

/// What scales count in: half precision then reaches from keys of half precision's largest down to 1e-5.
pub(super) const SCALE_UNIT: f32 = 1.0 / 64.0;

/// The shape of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvLayout {
    /// Layers.
    pub layers: usize,
    /// Key heads.
    pub kv_heads: usize,
    /// Dimensions of a head, a multiple of 16.
    pub head_dim: usize,
    /// How numbers are stored.
    pub format: KvFormat,
}

impl KvLayout {
    /// Bytes of the keys (or the values) of one layer and head in a page.
    fn side(&self) -> usize {
        match self.format {
            KvFormat::F16 => PAGE * self.head_dim * 2,
            KvFormat::Int8 => PAGE * self.head_dim + self.groups() * PAGE * size_of::<u16>(),
        }
    }

    /// Groups of a head.
    pub(super) fn groups(&self) -> usize {
        self.head_dim.div_ceil(GROUP)
    }

    /// Bytes of a page.
    #[must_use]
    pub fn page_bytes(&self) -> usize {
        self.layers * self.kv_heads * 2 * self.side()
    }

    /// Where the keys of a layer and head begin in a page; their values follow.
    pub(crate) fn keys(&self, layer: usize, kv_head: usize) -> usize {
        (layer * self.kv_heads + kv_head) * 2 * self.side()
    }

    /// Where the values of a layer and head begin in a page.
    pub(crate) fn values(&self, layer: usize, kv_head: usize) -> usize {
        self.keys(layer, kv_head) + self.side()
    }

    /// Where the scales of a group lie behind the quants of one side (eight bits only): one for each position, in half
    /// precision.
    pub(super) fn scales(&self, group: usize) -> usize {
        PAGE * self.head_dim + group * PAGE * size_of::<u16>()
    }

    /// Copies position `from` of `source` to position `to` of `target`, all layers and heads.
    ///
    /// # Panics
    /// If a position is beyond the page or a page is smaller than [`Self::page_bytes`].
    pub fn copy_position(&self, source: &[u8], from: usize, target: &mut [u8], to: usize) {
        assert!(from < PAGE && to < PAGE);
        let (side, width) = (self.side(), self.value_bytes());
        for start in (0..self.page_bytes()).step_by(side) {
            let is_keys = (start / side).is_multiple_of(2);
            for dimension in 0..self.head_dim {
                let (a, b) = if is_keys {
                    (self.key_at(from, dimension), self.key_at(to, dimension))
                } else {
                    (self.value_at(from, dimension), self.value_at(to, dimension))
                };
                target[start + b..start + b + width].copy_from_slice(&source[start + a..start + a + width]);
            }
            let groups = if self.format == KvFormat::Int8 { 0..self.groups() } else { 0..0 };
            for scales in groups.map(|group| start + self.scales(group)) {
                target[scales + to * 2..][..2].copy_from_slice(&source[scales + from * 2..][..2]);
            }
        }
    }

    pub(super) fn value_at(&self, position: usize, dimension: usize) -> usize {
        match self.format {
            KvFormat::F16 => (position * self.head_dim + dimension) * 2,
            KvFormat::Int8 => (position / QUAD * self.head_dim + dimension) * QUAD + position % QUAD,
        }
    }

    fn value_bytes(&self) -> usize {
        match self.format {
            KvFormat::F16 => 2,
            KvFormat::Int8 => 1,
        }
    }

    pub(super) fn key_at(&self, position: usize, dimension: usize) -> usize {
        let (block, lane) = (position / LANES * self.head_dim, position % LANES);
        match self.format {
            KvFormat::F16 => ((block + dimension) * LANES + lane) * 2,
            KvFormat::Int8 => (block + dimension / QUAD * QUAD) * LANES + lane * QUAD + dimension % QUAD,
        }
    }
}

/// One page.
#[derive(Debug)]
pub struct PageMemory {
    layout: KvLayout,
    bytes: Aligned<u8>,
}

impl PageMemory {
    /// A page of zeros.
    #[must_use]
    pub fn new(layout: KvLayout) -> Self {
        Self { layout, bytes: Aligned::zeroed(layout.page_bytes()) }
    }

    /// Several pages of zeros that take memory from the system together.
    #[must_use]
    pub fn slab(layout: KvLayout, count: usize) -> Vec<Self> {
        let pages = Aligned::slab(count, layout.page_bytes());
        pages.into_iter().map(|bytes| Self { layout, bytes }).collect()
    }

    /// Its shape.
    #[must_use]
    pub fn layout(&self) -> &KvLayout {
        &self.layout
    }

    /// Its bytes, as they are spilled to disk and read back.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its bytes, to restore or to move positions.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// For a crew that writes different positions of it.
    pub(crate) fn writer(&mut self) -> PageWriter<'_> {
        PageWriter { layout: self.layout, memory: Shared::new(&mut self.bytes) }
    }
}

/// A page in the hands of a crew, each member writing positions and heads of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageWriter<'a> {
    layout: KvLayout,
    memory: Shared<'a, u8>,
}

impl PageWriter<'_> {
    /// How numbers are stored.
    pub(crate) fn format(&self) -> KvFormat {
        self.layout.format
    }

    /// Writes the key and the value of position `slot`, for one layer and head.
    ///
    /// Values beyond what the format holds are stored as its largest: a page never holds an infinity or NaN, which the
    /// zero weight of a masked position would not silence.
    ///
    /// # Safety
    /// Nobody else touches this position of this layer and head meanwhile.
    pub(crate) unsafe fn write(&self, isa: Isa, at: Slot, key: &[f32], value: &[f32]) {
        let layout = &self.layout;
        assert!(at.position < PAGE && at.layer < layout.layers && at.kv_head < layout.kv_heads);
        assert!(key.len() == layout.head_dim && value.len() == layout.head_dim);
        assert!(layout.head_dim <= super::HEAD_DIM_MAX && layout.head_dim.is_multiple_of(LANES));
        isa.run(WriteRow { layout, page: self.memory.as_mut_ptr(), at, key, value });
    }
}

/// A place in a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) position: usize,
    pub(crate) layer: usize,
    pub(crate) kv_head: usize,
}

struct WriteRow<'a> {
    layout: &'a KvLayout,
    page: *mut u8,
    at: Slot,
    key: &'a [f32],
    value: &'a [f32],
}

impl Kernel for WriteRow<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (layout, dim) = (self.layout, self.layout.head_dim);
        let mut halves = [0_u16; super::HEAD_DIM_MAX];
        let mut bytes = [0_i8; super::HEAD_DIM_MAX];
        // SAFETY: all offsets lie within the page by the layout; the position is this worker's (`PageWriter::write`).
        unsafe {
            let keys = self.page.add(layout.keys(self.at.layer, self.at.kv_head));
            let values = self.page.add(layout.values(self.at.layer, self.at.kv_head));
            match layout.format {
                KvFormat::F16 => {
                    to_halves(s, self.key, halves.as_mut_ptr());
                    for (d, bits) in halves[..dim].iter().enumerate() {
                        keys.add(layout.key_at(self.at.position, d)).cast::<u16>().write(*bits);
                    }
                    to_halves(s, self.value, values.cast::<u16>().add(self.at.position * dim));
                }
                KvFormat::Int8 => {
                    let scale_at = |group: usize| layout.scales(group) + self.at.position * size_of::<u16>();
                    let mut turned = [0.0_f32; super::HEAD_DIM_MAX];
                    turned[..dim].copy_from_slice(self.key);
                    turn(s, &mut turned[..dim]);
                    for (group, part) in turned[..dim].chunks(GROUP).enumerate() {
                        let scale = to_bytes(s, part, bytes.as_mut_ptr().add(group * GROUP));
                        keys.add(scale_at(group)).cast::<u16>().write(scale);
                    }
                    for (quad, quants) in bytes[..dim].as_chunks::<QUAD>().0.iter().enumerate() {
                        keys.add(layout.key_at(self.at.position, quad * QUAD)).cast::<[i8; QUAD]>().write(*quants);
                    }
                    turned[..dim].copy_from_slice(self.value);
                    turn(s, &mut turned[..dim]);
                    for (group, part) in turned[..dim].chunks(GROUP).enumerate() {
                        let scale = to_bytes(s, part, bytes.as_mut_ptr().add(group * GROUP));
                        values.add(scale_at(group)).cast::<u16>().write(scale);
                    }
                    for (d, byte) in bytes[..dim].iter().enumerate() {
                        values.add(layout.value_at(self.at.position, d)).cast::<i8>().write(*byte);
                    }
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn to_halves<S: Simd>(s: S, from: &[f32], to: *mut u16) {
    let largest = s.splat(f16::MAX.to_f32());
    let smallest = s.splat(f16::MIN.to_f32());
    for d in (0..from.len()).step_by(LANES) {
        // SAFETY: `from` and `to` hold a multiple of 16 values (a head).
        unsafe { s.store_f16(to.add(d), s.min(s.max(s.load(from.as_ptr().add(d)), smallest), largest)) };
    }
}

/// A group, or the last part of one. Returns its scale.
#[inline(always)]
unsafe fn to_bytes<S: Simd>(s: S, from: &[f32], to: *mut i8) -> u16 {
    let bound = s.splat(f16::MAX.to_f32());
    let mut largest = s.splat(0.0);
    for d in (0..from.len()).step_by(LANES) {
        // SAFETY: `from` holds a multiple of 16 values.
        largest = s.max(s.min(s.abs(unsafe { s.load(from.as_ptr().add(d)) }), bound), largest);
    }
    let half = f16::from_f32(s.max_lane(largest) / (127.0 * SCALE_UNIT));
    let scale = half.to_f32() * SCALE_UNIT;
    // What is too small for any scale counts as zero.
    let inverse = s.splat(if scale > 0.0 { 1.0 / scale } else { 0.0 });
    let limit = s.splat(127.0);
    for d in (0..from.len()).step_by(LANES) {
        // SAFETY: as above.
        unsafe {
            let scaled = s.round(s.mul(s.load(from.as_ptr().add(d)), inverse));
            s.store_i8(to.add(d), s.max(s.min(scaled, limit), s.splat(-127.0)));
        }
    }
    half.to_bits()
}
