//! Where keys and values lie in a page, and how a row is written there.
//!
//! A page holds [`PAGE`] positions of one sequence for all layers with attention and all key heads, and behind them what
//! recurrent layers know after the last of these. Keys are stored across: for each 16
//! positions and each dimension, the 16 positions' values side by side, so that scores of 16 positions come from one
//! register. Values are stored along: a position's dimensions side by side.
//!
//! With eight bits, four numbers that are added up in a product lie side by side, a *quad*, as integer products want them:
//! keys `[16 positions][4 dimensions][position][dimension]`, values `[4 positions][dimension][position]`. Values of four bits
//! lie `[4 positions][group][dimension][position]`: a byte has dimension `d` of its group in its low and `d + 16` in its high
//! bits, so that no two positions share one.

use super::layer::LayerLayout;
use super::rotation::turn;
use crate::isa::Isa;
use crate::memory::{Aligned, Region, Shared};
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
    /// Keys as [`Self::Int8`] has them. Values in four bits, each group turned and with a scale and a centre.
    Int4,
}

impl KvFormat {
    /// All of them, the largest first.
    pub const ALL: [Self; 3] = [Self::F16, Self::Int8, Self::Int4];

    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Int8 => "int8",
            Self::Int4 => "int4",
        }
    }

    /// Whether keys are without their [bias](super::KeyBias).
    #[must_use]
    pub const fn keeps_key_bias_apart(self) -> bool {
        !matches!(self, Self::F16)
    }

    pub(super) const fn of_keys(self) -> Side {
        match self {
            Self::F16 => Side::Halves,
            Self::Int8 | Self::Int4 => Side::Bytes,
        }
    }

    pub(super) const fn of_values(self) -> Side {
        match self {
            Self::F16 => Side::Halves,
            Self::Int8 => Side::Bytes,
            Self::Int4 => Side::Nibbles,
        }
    }
}

/// How the keys, or the values, of a page are stored: numbers, and behind them what groups have for each position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Halves,
    Bytes,
    Nibbles,
}

impl Side {
    /// Bytes of the numbers of a head.
    pub(super) const fn numbers(self, head_dim: usize) -> usize {
        match self {
            Self::Halves => PAGE * head_dim * size_of::<u16>(),
            Self::Bytes => PAGE * head_dim,
            Self::Nibbles => PAGE * head_dim.div_ceil(GROUP) * (GROUP / 2),
        }
    }

    /// Numbers in half precision that a group has for each position: a scale, and a centre.
    pub(super) const fn of_groups(self) -> usize {
        match self {
            Self::Halves => 0,
            Self::Bytes => 1,
            Self::Nibbles => 2,
        }
    }

    /// Bytes of all of it.
    pub(super) const fn bytes(self, head_dim: usize) -> usize {
        self.numbers(head_dim) + self.of_groups() * head_dim.div_ceil(GROUP) * SCALES
    }
}

/// Bytes of a group's scales, one for each position of a page.
pub(super) const SCALES: usize = PAGE * size_of::<u16>();

/// Dimensions that share a scale.
pub(super) const GROUP: usize = 32;

/// Numbers side by side that are added up in a product of eight bits.
pub(super) const QUAD: usize = 4;

/// What scales count in: half precision then reaches from keys of half precision's largest down to 1e-5.
pub(super) const SCALE_UNIT: f32 = 1.0 / 64.0;

/// Where the parts of a layer and head begin, in bytes behind where its keys do: for devices that read pages as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadParts {
    /// Scales of keys, `[group][position]` in half precision, as are the other two; unless keys are half precision.
    pub key_scales: usize,
    /// Values.
    pub values: usize,
    /// Scales of values.
    pub value_scales: usize,
    /// Centres of values of four bits.
    pub value_centres: usize,
    /// All of it: where the next head begins.
    pub bytes: usize,
}

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
    /// Floats behind all keys and values: the state that recurrent layers have after the page's last position.
    pub state: usize,
    /// Layers behind these whose heads are of another shape.
    pub wide: WideLayers,
    /// Layers whose keys and values are of use for as long as their sequence is; of the others, those behind a window are not.
    /// The first ones, or the wide ones.
    pub lasting: Lasting,
}

/// Which layers see all positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lasting {
    /// All, or nobody wants to know.
    #[default]
    All,
    /// So many: those with the smallest numbers.
    First(usize),
    /// The wide ones.
    Wide,
}

/// Layers whose heads are of a shape of their own (Gemma 4: those that see all positions).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WideLayers {
    /// How many; their numbers follow those of the others.
    pub layers: usize,
    /// Key heads of each.
    pub kv_heads: usize,
    /// Dimensions of a head, a multiple of 16.
    pub head_dim: usize,
}

impl KvLayout {
    /// Layers that are all alike, without state.
    #[must_use]
    pub const fn uniform(layers: usize, kv_heads: usize, head_dim: usize, format: KvFormat) -> Self {
        Self {
            layers,
            kv_heads,
            head_dim,
            format,
            state: 0,
            wide: WideLayers { layers: 0, kv_heads: 0, head_dim: 0 },
            lasting: Lasting::All,
        }
    }

    /// Where the keys and values of a layer lie. Wide layers lie before the others.
    pub(crate) fn layer(&self, layer: usize) -> LayerLayout {
        let (common, wide) = (self.common(), self.first_wide());
        match layer.checked_sub(self.layers) {
            None => LayerLayout { start: self.wide.layers * wide.bytes() + layer * common.bytes(), ..common },
            Some(within) => LayerLayout { start: within * wide.bytes(), ..wide },
        }
    }

    fn common(&self) -> LayerLayout {
        LayerLayout { start: 0, kv_heads: self.kv_heads, head_dim: self.head_dim, format: self.format }
    }

    fn first_wide(&self) -> LayerLayout {
        LayerLayout { kv_heads: self.wide.kv_heads, head_dim: self.wide.head_dim, ..self.common() }
    }

    /// Where in a page begins what is of no use behind a window: behind the layers that see all positions. All of it is of
    /// use if there are none of the others, or if there is a state.
    #[must_use]
    pub fn lasting_bytes(&self) -> usize {
        match self.lasting {
            Lasting::First(layers) if layers < self.layers && self.wide.layers == 0 && self.state == 0 => {
                self.layer(layers).start
            }
            Lasting::Wide if self.layers > 0 && self.state == 0 => self.layer(0).start,
            _ => self.page_bytes(),
        }
    }

    /// All layers, the wide ones among them.
    pub(crate) fn all_layers(&self) -> usize {
        self.layers + self.wide.layers
    }

    /// Bytes of a page.
    #[must_use]
    pub fn page_bytes(&self) -> usize {
        self.state_start() + self.state * size_of::<f32>()
    }

    /// Where the parts of a head are, of layers that are alike.
    #[must_use]
    pub fn head_parts(&self) -> HeadParts {
        let layer = self.common();
        let values = layer.values(0);
        HeadParts {
            key_scales: layer.key_scales(0),
            values,
            value_scales: values + layer.value_scales(0),
            value_centres: values + layer.value_centres(0),
            bytes: layer.head_bytes(),
        }
    }

    /// What a page has of a layer, head by head.
    ///
    /// # Panics
    /// If there is no such layer, or the page is smaller than [`Self::page_bytes`].
    #[must_use]
    pub fn of_layer<'a>(&self, page: &'a [u8], layer: usize) -> &'a [u8] {
        assert!(layer < self.all_layers());
        let of = self.layer(layer);
        &page[of.start..of.start + of.bytes()]
    }

    /// Where a layer begins in a page, in bytes.
    ///
    /// # Panics
    /// If there is no such layer.
    #[must_use]
    pub fn layer_start(&self, layer: usize) -> usize {
        assert!(layer < self.all_layers());
        self.layer(layer).start
    }

    /// Where the state begins in a page: behind all layers.
    fn state_start(&self) -> usize {
        self.wide.layers * self.first_wide().bytes() + self.layers * self.common().bytes()
    }

    /// Reads a part of a page's state, from its `first` float on.
    ///
    /// # Panics
    /// If there is no such part.
    pub fn read_state(&self, page: &[u8], first: usize, out: &mut [f32]) {
        assert!(first + out.len() <= self.state);
        let bytes = page[self.state_start() + first * size_of::<f32>()..].as_chunks().0;
        out.iter_mut().zip(bytes).for_each(|(out, bytes)| *out = f32::from_le_bytes(*bytes));
    }

    /// Writes it.
    ///
    /// # Panics
    /// As [`Self::read_state`].
    pub fn write_state(&self, page: &mut [u8], first: usize, values: &[f32]) {
        assert!(first + values.len() <= self.state);
        let bytes = page[self.state_start() + first * size_of::<f32>()..].as_chunks_mut().0;
        bytes.iter_mut().zip(values).for_each(|(bytes, value)| *bytes = value.to_le_bytes());
    }

    /// Copies position `from` of `source` to position `to` of `target`, all layers and heads.
    ///
    /// # Panics
    /// If a position is beyond the page or a page is smaller than [`Self::page_bytes`].
    pub fn copy_position(&self, source: &[u8], from: usize, target: &mut [u8], to: usize) {
        (0..self.all_layers()).for_each(|layer| self.layer(layer).copy_position(source, from, target, to));
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

    /// The memory that it shares with the other pages of its slab; none where the allocator gave it.
    #[must_use]
    pub fn region(&self) -> Option<Region> {
        self.bytes.region()
    }

    /// Which page of a region it is; nothing if it lies elsewhere.
    #[must_use]
    pub fn number_in(&self, region: &Region) -> Option<usize> {
        Some(self.bytes.place_in(region)? / self.stride())
    }

    /// Bytes from one page of a slab to the next.
    #[must_use]
    pub fn stride(&self) -> usize {
        self.bytes.bytes()
    }

    /// Its bytes, as they are spilled to disk and read back.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Forgets what is of no use behind a window ([`KvLayout::lasting_bytes`]): it takes no memory until it is written again.
    pub fn forget_window(&mut self) {
        let lasting = self.layout.lasting_bytes();
        let bytes = self.bytes.len();
        self.bytes.clear(lasting..bytes);
    }

    /// Forgets all of it likewise.
    pub fn forget(&mut self) {
        let bytes = self.bytes.len();
        self.bytes.clear(0..bytes);
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
        assert!(at.position < PAGE && at.layer < self.layout.all_layers());
        let layout = self.layout.layer(at.layer);
        assert!(at.kv_head < layout.kv_heads);
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
    layout: LayerLayout,
    page: *mut u8,
    at: Slot,
    key: &'a [f32],
    value: &'a [f32],
}

impl Kernel for WriteRow<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (layout, dim) = (&self.layout, self.layout.head_dim);
        let mut halves = [0_u16; super::HEAD_DIM_MAX];
        // SAFETY: all offsets lie within the page by the layout; the position is this worker's (`PageWriter::write`).
        unsafe {
            let keys = self.page.add(layout.keys(self.at.kv_head));
            let values = self.page.add(layout.values(self.at.kv_head));
            match layout.format {
                KvFormat::F16 => {
                    to_halves(s, self.key, halves.as_mut_ptr());
                    for (d, bits) in halves[..dim].iter().enumerate() {
                        keys.add(layout.key_at(self.at.position, d)).cast::<u16>().write(*bits);
                    }
                    to_halves(s, self.value, values.cast::<u16>().add(self.at.position * dim));
                }
                KvFormat::Int8 | KvFormat::Int4 => {
                    self.write_keys(s, keys);
                    self.write_values(s, values);
                }
            }
        }
    }
}

impl WriteRow<'_> {
    /// A key in eight bits.
    #[inline(always)]
    unsafe fn write_keys<S: Simd>(&self, s: S, keys: *mut u8) {
        let mut bytes = [0_i8; super::HEAD_DIM_MAX];
        let turned = turned(s, self.key);
        // SAFETY: the caller's, see `run`.
        unsafe {
            for (group, part) in turned[..self.key.len()].chunks(GROUP).enumerate() {
                let scale = to_bytes(s, part, bytes.as_mut_ptr().add(group * GROUP));
                self.half(keys, self.layout.key_scales(group), scale);
            }
            for (quad, quants) in bytes[..self.key.len()].as_chunks::<QUAD>().0.iter().enumerate() {
                keys.add(self.layout.key_at(self.at.position, quad * QUAD)).cast::<[i8; QUAD]>().write(*quants);
            }
        }
    }

    /// A value in eight bits, or in four.
    #[inline(always)]
    unsafe fn write_values<S: Simd>(&self, s: S, values: *mut u8) {
        let (layout, position) = (&self.layout, self.at.position);
        let turned = turned(s, self.value);
        for (group, part) in turned[..self.value.len()].chunks(GROUP).enumerate() {
            let mut bytes = [0_i8; GROUP];
            // SAFETY: the caller's, see `run`.
            unsafe {
                if layout.format.of_values() == Side::Nibbles {
                    let (scale, centre) = to_nibbles(s, part, bytes.as_mut_ptr());
                    self.half(values, layout.value_scales(group), scale);
                    self.half(values, layout.value_centres(group), centre);
                    let (low, high) = bytes.split_at(LANES);
                    for (d, (low, high)) in low.iter().zip(high).enumerate() {
                        let both = (*low | *high << 4).cast_unsigned();
                        values.add(layout.value_at(position, group * GROUP + d)).write(both);
                    }
                } else {
                    self.half(values, layout.value_scales(group), to_bytes(s, part, bytes.as_mut_ptr()));
                    for (d, byte) in bytes[..part.len()].iter().enumerate() {
                        values.add(layout.value_at(position, group * GROUP + d)).cast::<i8>().write(*byte);
                    }
                }
            }
        }
    }

    /// Writes what a group has for this position, among those of all positions that begin at `first`.
    #[inline(always)]
    unsafe fn half(&self, side: *mut u8, first: usize, bits: u16) {
        // SAFETY: the caller's, see `run`.
        unsafe { side.add(first + self.at.position * size_of::<u16>()).cast::<u16>().write(bits) };
    }
}

/// A head, turned.
#[inline(always)]
fn turned<S: Simd>(s: S, head: &[f32]) -> [f32; super::HEAD_DIM_MAX] {
    let mut turned = [0.0; super::HEAD_DIM_MAX];
    turned[..head.len()].copy_from_slice(head);
    turn(s, &mut turned[..head.len()]);
    turned
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

/// The same in four bits, around a centre. Returns its scale and its centre.
#[inline(always)]
unsafe fn to_nibbles<S: Simd>(s: S, from: &[f32], to: *mut i8) -> (u16, u16) {
    let (lowest, highest) = (s.splat(f16::MIN.to_f32()), s.splat(f16::MAX.to_f32()));
    let (mut least, mut largest) = (highest, lowest);
    for d in (0..from.len()).step_by(LANES) {
        // SAFETY: `from` holds a multiple of 16 values.
        let bounded = s.min(s.max(unsafe { s.load(from.as_ptr().add(d)) }, lowest), highest);
        (least, largest) = (s.min(bounded, least), s.max(bounded, largest));
    }
    let least = -s.max_lane(s.sub(s.splat(0.0), least));
    let half = f16::from_f32(((s.max_lane(largest) - least) / (NIBBLE_MAX * SCALE_UNIT)).min(f16::MAX.to_f32()));
    let scale = half.to_f32() * SCALE_UNIT;
    let zero = NIBBLE_ZERO as f32;
    let centre = f16::from_f32(zero.mul_add(scale, least).clamp(f16::MIN.to_f32(), f16::MAX.to_f32()));
    let inverse = s.splat(if scale > 0.0 { 1.0 / scale } else { 0.0 });
    for d in (0..from.len()).step_by(LANES) {
        // SAFETY: as above.
        unsafe {
            let above = s.sub(s.load(from.as_ptr().add(d)), s.splat(centre.to_f32()));
            let scaled = s.round(s.fma(above, inverse, s.splat(zero)));
            s.store_i8(to.add(d), s.min(s.max(scaled, s.splat(0.0)), s.splat(NIBBLE_MAX)));
        }
    }
    (half.to_bits(), centre.to_bits())
}

/// The largest number of four bits.
const NIBBLE_MAX: f32 = 15.0;

/// The number of four bits that stands for a group's centre.
pub(super) const NIBBLE_ZERO: i32 = 8;
