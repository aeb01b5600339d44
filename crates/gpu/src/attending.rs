//! What spans do between the products of a layer: heads, and attention over pages in the cache's own form.

use crate::error::GpuError;
use crate::heads::KeyBiasOnGpu;
use crate::kept::View;
use crate::nodes::whole;
use crate::placed::Loaded;
use crate::recording::Groups;
use crate::shader::{ATTENTION, HEADS, WIDTH_NORM};
use crate::spans::Way;
use duet_kernels::attention::{KvFormat, KvLayout};
use duet_model::Model;

impl Way<'_, '_> {
    /// Norms of heads, rope, and keys and values to where they belong.
    pub(crate) fn heads(&mut self, layer: usize) -> Result<(), GpuError> {
        let (loaded, b) = (self.loaded, self.model.blueprint());
        let (place, rope) = (self.place(layer), b.layers[layer].rope);
        for sequence in &self.rows.sequences {
            self.spans.kept.update(&loaded.gpu, place, sequence, sequence.before);
        }
        let first: usize = b.ropes[..rope].iter().map(|rope| rope.frequencies.len()).sum();
        let of_layer = loaded.heads_of(layer)?;
        let spans = &*self.spans;
        let pages = spans.kept.view(place)?;
        if let Some(weights) = &of_layer.width_norms {
            let constants = [("HEADS", b.heads as u32), ("KV_HEADS", b.kv_heads as u32), ("DIM", b.head_dim as u32)];
            let pipeline = loaded.gpu.pipeline(&WIDTH_NORM, 1, &constants)?;
            let buffers = [&loaded.room.qkv, weights].map(whole);
            self.recording.launch(&pipeline, &buffers, &[b.epsilon.to_bits()], Groups(2, self.count));
        }
        let (bias, mut constants) = constants(loaded, self.model, &pages, layer)?;
        constants.push(("NORMED", of_layer.norms.is_some().into()));
        let pipeline = loaded.gpu.pipeline(&HEADS, 1, &constants)?;
        // What is not read is bound all the same.
        let spare = &loaded.room.spare;
        let norms = of_layer.norms.as_ref().unwrap_or(spare);
        let [bias, by_page] = bias.map_or([spare; 2], |bias| [&bias.bias, &bias.angles]);
        let results = &spans.results[self.computed.len()];
        let buffers = [&loaded.room.qkv, &spans.angles, norms, &spans.slots, pages.buffer, results, bias, by_page];
        let stride = self.rows.angles.stride as u32;
        let told = [self.count as u32, stride, first as u32, b.epsilon.to_bits(), pages.first_word];
        self.recording.launch(&pipeline, &buffers.map(whole), &told, Groups(b.heads + 2 * b.kv_heads, self.count));
        self.computed.push(layer);
        Ok(())
    }

    /// Attention of all rows.
    pub(crate) fn attention(&mut self, layer: usize) -> Result<(), GpuError> {
        let (loaded, b) = (self.loaded, self.model.blueprint());
        let spans = &*self.spans;
        let pages = spans.kept.view(self.place(layer))?;
        let (bias, mut constants) = constants(loaded, self.model, &pages, layer)?;
        constants.push(("WINDOW", b.layers[layer].window.unwrap_or(0) as u32));
        let pipeline = loaded.gpu.pipeline(&ATTENTION, 1, &constants)?;
        let spare = &loaded.room.spare;
        let [bias, by_page] = bias.map_or([spare; 2], |bias| [&bias.bias, &bias.angles]);
        let room = &loaded.room;
        let buffers = [&room.qkv, &spans.rows, &spans.places, pages.buffer, &room.attended, bias, by_page];
        let told = [(b.attention_scale * std::f32::consts::LOG2_E).to_bits(), pages.first_word];
        self.recording.launch(&pipeline, &buffers.map(whole), &told, Groups(b.heads, self.count));
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
