//! What spans do between the products of a layer: heads, and attention over pages in the cache's own form.

use crate::back::layer_stride;
use crate::error::GpuError;
use crate::gpu::Gpu;
use crate::heads::KeyBiasOnGpu;
use crate::kept::View;
use crate::nodes::whole;
use crate::placed::Loaded;
use crate::products::Products;
use crate::recording::{Groups, Recording};
use crate::shader::{ATTENTION, HEADS, WIDTH_NORM};
use crate::spans::Spans;
use duet_kernels::attention::{KvFormat, KvLayout};
use duet_kernels::quantize::GROUP;
use duet_model::Model;
use duet_model::kv::PAGE_TOKENS;

/// What launches of a span are bound to, and how many rows they have.
#[derive(Clone, Copy)]
pub(crate) struct Sight<'a> {
    pub(crate) loaded: &'a Loaded,
    pub(crate) model: &'a Model,
    pub(crate) spans: &'a Spans,
    /// Angles from one row to the next.
    pub(crate) stride: usize,
    pub(crate) count: usize,
}

impl Sight<'_> {
    /// Norms of heads, rope, and keys and values to where they belong, and to the `results`th of those that are read back.
    pub(crate) fn heads(&self, to: &mut Recording<'_>, layer: usize, results: usize) -> Result<(), GpuError> {
        let Self { loaded, model, spans, count, .. } = *self;
        let b = model.blueprint();
        let (place, rope) = (loaded.place(model, layer), b.layers[layer].rope);
        let first: usize = b.ropes[..rope].iter().map(|rope| rope.frequencies.len()).sum();
        let of_layer = loaded.heads_of(layer)?;
        let pages = spans.kept.view(place)?;
        if let Some(weights) = &of_layer.width_norms {
            let constants = [("HEADS", b.heads as u32), ("KV_HEADS", b.kv_heads as u32), ("DIM", b.head_dim as u32)];
            let pipeline = loaded.gpu.pipeline(&WIDTH_NORM, 1, &constants)?;
            let buffers = [&loaded.room.qkv, weights].map(whole);
            to.launch(&pipeline, &buffers, &[b.epsilon.to_bits()], Groups(2, count));
        }
        let (bias, mut constants) = constants(loaded, model, &pages, layer)?;
        constants.push(("NORMED", of_layer.norms.is_some().into()));
        let pipeline = loaded.gpu.pipeline(&HEADS, 1, &constants)?;
        // What is not read is bound all the same.
        let spare = &loaded.room.spare;
        let norms = of_layer.norms.as_ref().unwrap_or(spare);
        let [bias, by_page] = bias.map_or([spare; 2], |bias| [&bias.bias, &bias.angles]);
        let results = wgpu::BufferBinding {
            buffer: &spans.results,
            offset: (results * layer_stride(count * 2 * b.kv_heads * b.head_dim) * size_of::<f32>()) as u64,
            size: None,
        };
        let buffers = [&loaded.room.qkv, &spans.angles, norms, &spans.slots, pages.buffer].map(whole);
        let [bias, by_page] = [bias, by_page].map(whole);
        let buffers: Vec<_> = buffers.into_iter().chain([results, bias, by_page]).collect();
        let told = [count as u32, self.stride as u32, first as u32, b.epsilon.to_bits(), pages.first_word];
        to.launch(&pipeline, &buffers, &told, Groups(b.heads + 2 * b.kv_heads, count));
        Ok(())
    }

    /// Attention of all rows.
    pub(crate) fn attention(&self, to: &mut Recording<'_>, layer: usize, divided: Divided) -> Result<(), GpuError> {
        let (count, heads) = (self.count, self.model.blueprint().heads);
        if divided.spans == 0 {
            return self.attend(to, layer, (0, divided), Groups(heads, count));
        }
        self.attend(to, layer, (1, divided), Groups(heads, count * divided.spans))?;
        self.attend(to, layer, (2, divided), Groups(heads, count))
    }

    fn attend(
        &self,
        to: &mut Recording<'_>,
        layer: usize,
        (phase, divided): (u32, Divided),
        groups: Groups,
    ) -> Result<(), GpuError> {
        let Self { loaded, model, spans, .. } = *self;
        let b = model.blueprint();
        let pages = spans.kept.view(loaded.place(model, layer))?;
        let (bias, mut constants) = constants(loaded, model, &pages, layer)?;
        let bytes = loaded.method.products == Products::Bytes;
        let window = b.layers[layer].window.unwrap_or(0);
        constants.extend([("WINDOW", window as u32), ("PHASE", phase), ("BYTES", bytes.into())]);
        let quick = bias.map_or(0, |bias| bias.quick);
        constants.push(("SIDE", divided.side(&loaded.gpu, pages.layout, quick, phase) as u32));
        let pipeline = loaded.gpu.pipeline(&ATTENTION, 1, &constants)?;
        let room = &loaded.room;
        let [bias, by_page] = bias.map_or([&room.spare; 2], |bias| [&bias.bias, &bias.angles]);
        let buffers =
            [&room.qkv, &spans.rows, &spans.places, pages.buffer, &room.attended, bias, by_page, &spans.apart];
        let scale = (b.attention_scale * std::f32::consts::LOG2_E).to_bits();
        to.launch(&pipeline, &buffers.map(whole), &[scale, pages.first_word, divided.spans as u32], groups);
        Ok(())
    }
}

/// How attention is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Divided {
    /// Spans of a row that have workgroups of their own, at most; 0: a row's heads have one each.
    pub(crate) spans: usize,
    /// Pages that a workgroup has at once, if it has threads and memory for them.
    side: usize,
}

/// Rows and their spans that may have workgroups of their own.
const APART_MAX: usize = 1024;
/// Workgroups that a GPU has enough of. Rows and heads that are as many have one each, page by page.
const ENOUGH: usize = 512;
/// Pages of a span, after which the CPU's kernels merge as well.
pub(crate) const SPAN_PAGES: usize = 8;
const SPAN_POSITIONS: usize = SPAN_PAGES * PAGE_TOKENS;

impl Divided {
    /// Not at all.
    pub(crate) const NOT: Self = Self { spans: 0, side: 1 };

    /// For so many rows, of which one sees so many positions, on an adapter that has so many pages at once.
    pub(crate) fn of(rows: usize, heads: usize, positions: usize, side: usize) -> Self {
        if rows * heads >= ENOUGH || positions <= PAGE_TOKENS {
            return Self::NOT;
        }
        // As few sizes as serve, since launches are kept by size.
        let spans = positions.div_ceil(SPAN_POSITIONS).next_power_of_two();
        let are_apart = spans > 1 && rows * spans <= APART_MAX;
        Self { spans: if are_apart { spans } else { 0 }, side }
    }

    /// Bytes for what spans come to, of heads of so many dimensions.
    pub(crate) fn bytes(heads: usize, dimensions: usize) -> usize {
        APART_MAX * heads * (dimensions + 2) * size_of::<f32>()
    }

    /// Pages that a workgroup of a phase has at once on an adapter. Where keys are of half precision, sums go through all pages in order.
    fn side(self, gpu: &Gpu, layout: &KvLayout, quick: usize, phase: u32) -> usize {
        let fits = |side: usize| gpu.takes_workgroup(side * PAGE_TOKENS, shared_bytes(layout, side, quick));
        let mut side = if phase == 2 || layout.format == KvFormat::F16 { 1 } else { self.side };
        while side > 1 && !fits(side) {
            side /= 2;
        }
        side
    }
}

/// Bytes that the threads of a workgroup share, which has so many pages at once, where keys have a bias with so many quick pairs
/// (`attention.wgsl` and the files before it).
fn shared_bytes(layout: &KvLayout, side: usize, quick: usize) -> usize {
    /// Between one array and the next, of all of them.
    const BETWEEN: usize = 512;
    const LANES: usize = 16;
    const EIGHTHS: usize = 8;
    let (dimensions, groups) = (layout.head_dim, layout.head_dim.div_ceil(GROUP));
    let of_head = 2 * dimensions + dimensions / 4 + groups + 2 * dimensions + PAGE_TOKENS + 1;
    let of_page = PAGE_TOKENS + groups * (2 * PAGE_TOKENS + EIGHTHS + LANES + 2) + LANES + 1 + dimensions;
    (of_head + side * (of_page + 2 * quick.max(1))) * size_of::<f32>() + BETWEEN
}

/// What shaders are to know of a layer's heads and pages, and the bias that keys are without.
fn constants<'a>(
    loaded: &'a Loaded,
    model: &Model,
    pages: &View<'_>,
    layer: usize,
) -> Result<(Option<&'a KeyBiasOnGpu>, Constants), GpuError> {
    let b = model.blueprint();
    let bias = loaded.heads_of(layer)?.key_bias.as_ref().filter(|_| pages.layout.format.keeps_key_bias_apart());
    let mut constants = of_layout(pages.layout);
    constants.extend([
        ("PAGE_WORDS", pages.page_words),
        ("HEADS", b.heads as u32),
        ("PAIRS", b.ropes[b.layers[layer].rope].frequencies.len() as u32),
        ("BIASED", bias.is_some().into()),
        ("QUICK", bias.map_or(0, |bias| bias.quick as u32)),
    ]);
    Ok((bias, constants))
}

/// Constants of a shader, by their names.
type Constants = Vec<(&'static str, u32)>;

/// Where keys and values are in a page, in words.
fn of_layout(layout: &KvLayout) -> Constants {
    let parts = layout.head_parts();
    let format = match layout.format {
        KvFormat::F16 => 0,
        KvFormat::Int8 => 1,
        KvFormat::Int4 => 2,
    };
    let words = |bytes: usize| (bytes / 4) as u32;
    vec![
        ("DIM", layout.head_dim as u32),
        ("KV_HEADS", layout.kv_heads as u32),
        ("FORMAT", format),
        ("HEAD_WORDS", words(parts.bytes)),
        ("KEY_SCALES", words(parts.key_scales)),
        ("VALUES", words(parts.values)),
        ("VALUE_SCALES", words(parts.value_scales)),
        ("VALUE_CENTRES", words(parts.value_centres)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_rows_with_long_contexts_are_divided() {
        let spans = |rows, positions| Divided::of(rows, 9, positions, 1).spans;
        assert_eq!(spans(1, SPAN_POSITIONS), 0);
        assert_eq!(spans(1, SPAN_POSITIONS + 1), 2);
        assert_eq!(spans(16, 5 * SPAN_POSITIONS), 8);
        assert_eq!(spans(64, 5 * SPAN_POSITIONS), 0);
        // More than there is room for.
        assert_eq!(spans(16, 65 * SPAN_POSITIONS), 0);
    }

    #[test]
    fn few_rows_have_pages_side_by_side() {
        let side = |rows, positions| Divided::of(rows, 9, positions, SPAN_PAGES).side;
        assert_eq!(side(1, PAGE_TOKENS), 1);
        assert_eq!(side(1, PAGE_TOKENS + 1), SPAN_PAGES);
        assert_eq!(side(16, 65 * SPAN_POSITIONS), SPAN_PAGES);
        assert_eq!(side(64, 5 * SPAN_POSITIONS), 1);
    }
}
