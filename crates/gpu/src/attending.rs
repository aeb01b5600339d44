//! What spans do between the products of a layer: heads, and attention over pages in the cache's own form.

use crate::back::layer_stride;
use crate::divided::Divided;
use crate::error::GpuError;
use crate::heads::KeyBiasOnGpu;
use crate::kept::View;
use crate::loaded::Loaded;
use crate::nodes::whole;
use crate::prepared::Groups;
use crate::products::Products;
use crate::recording::Recording;
use crate::shader::{ATTENTION, HEADS, WIDTH_NORM};
use crate::spans::Spans;
use duet_kernels::attention::{KvFormat, KvLayout};
use duet_model::Model;

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
