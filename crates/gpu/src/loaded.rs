//! What of a model lies on a GPU: its weights, and room for rows on their way.

use crate::adapters::Adapter;
use crate::error::GpuError;
use crate::experts::ExpertWidths;
use crate::gpu::Gpu;
use crate::heads::HeadsOnGpu;
use crate::matrix::WeightBytes;
use crate::nodes::{FfnOnGpu, HeadOnGpu, Launcher, QkvOnGpu};
use crate::pages::Place;
use crate::prepared::{Chosen, Part, Prepared};
use crate::products::Method;
use crate::recording::Recording;
use crate::room::{Room, SPAN_ROWS, Widths};
use duet_model::{Model, Work};
use std::ops::Range;

/// The weights, and room for rows.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) gpu: Gpu,
    pub(crate) widths: Widths,
    /// The first of the layers that are there.
    pub(crate) first: usize,
    pub(crate) layers: Vec<(QkvOnGpu, FfnOnGpu)>,
    heads: Vec<HeadsOnGpu>,
    /// With the last layer.
    pub(crate) head: Option<HeadOnGpu>,
    pub(crate) room: Room,
    pub(crate) method: Method,
    /// What nodes compute.
    pub(crate) work: Work,
}

/// Of a layer that is not there.
pub(crate) const NO_LAYER: GpuError = GpuError::Model("there is no such layer");

impl Loaded {
    /// The model's, as if no matrix had floats.
    pub(crate) fn widths(model: &Model) -> Widths {
        let b = model.blueprint();
        Widths {
            hidden: b.hidden,
            qkv: (b.heads + 2 * b.kv_heads) * b.head_dim,
            queries: b.heads * b.head_dim,
            // An expert that all rows go to is one more dense block.
            ffn: b.ffn.max(b.experts.and_then(|experts| experts.shared).unwrap_or(0)),
            vocabulary: b.vocabulary,
            has_floats: false,
            experts: ExpertWidths::of(b),
        }
    }

    pub(crate) fn new(model: &Model, adapter: &Adapter, held: &Range<usize>) -> Result<Self, GpuError> {
        let gpu = Gpu::open(adapter)?;
        let widths = Self::widths(model);
        let layer = |layer| {
            let (qkv, ffn) = (model.qkv_weights(layer), model.ffn_weights(layer));
            Ok((QkvOnGpu::new(&gpu, &qkv)?, FfnOnGpu::new(&gpu, &ffn)?))
        };
        let layers = held.clone().map(layer).collect::<Result<Vec<_>, GpuError>>()?;
        let has_head = held.end == model.blueprint().layers.len();
        let head = has_head.then(|| HeadOnGpu::new(&gpu, &model.head_weights())).transpose()?;
        let of_floats = |(qkv, ffn): &(QkvOnGpu, FfnOnGpu)| qkv.has_floats() || ffn.has_floats();
        let head_has_floats = head.as_ref().is_some_and(|head| head.matrix.has_floats());
        let has_floats = head_has_floats || layers.iter().any(of_floats);
        let widths = Widths { has_floats, ..widths };
        let heads = held.clone().map(|layer| HeadsOnGpu::new(&gpu, &model.qkv_weights(layer))).collect();
        let room = Room::new(&gpu, widths, SPAN_ROWS)?;
        let (first, method) = (held.start, Method::FIRST);
        let mut loaded = Self { gpu, widths, first, layers, heads, head, room, method, work: model.work() };
        loaded.choose()?;
        Ok(loaded)
    }

    pub(crate) fn bytes(&self) -> WeightBytes {
        let layers = self.layers.iter().flat_map(|(qkv, ffn)| [qkv.bytes(), ffn.bytes()]);
        layers.chain(self.head.iter().map(HeadOnGpu::bytes)).sum()
    }

    /// A layer that is there.
    pub(crate) fn layer(&self, layer: usize) -> Result<&(QkvOnGpu, FfnOnGpu), GpuError> {
        layer.checked_sub(self.first).and_then(|place| self.layers.get(place)).ok_or(NO_LAYER)
    }

    /// Where a layer's keys and values are.
    pub(crate) fn place(&self, model: &Model, layer: usize) -> Place {
        let b = model.blueprint();
        let owner = b.layers[layer].cache_of.unwrap_or(layer);
        let here = (self.first..owner).filter(|&before| b.layers[before].cache_of.is_none()).count();
        Place { layer, in_cache: b.place(layer), here }
    }

    /// How many are there.
    pub(crate) fn layer_count(&self) -> usize {
        self.layers.len()
    }

    /// What is there of a layer's heads.
    pub(crate) fn heads_of(&self, layer: usize) -> Result<&HeadsOnGpu, GpuError> {
        layer.checked_sub(self.first).and_then(|place| self.heads.get(place)).ok_or(NO_LAYER)
    }

    /// Records the best logits of rows.
    pub(crate) fn best(
        &self,
        to: &mut Recording<'_>,
        prepared: &mut Prepared,
        head: &HeadOnGpu,
        (rows, count): (Chosen, usize),
    ) -> Result<(), GpuError> {
        let Widths { hidden, vocabulary, .. } = self.widths;
        let (residual, of_rows) = match rows {
            Chosen::First(rows) => (&self.room.residual, rows),
            Chosen::Copied(rows) => (&self.room.normed, rows),
        };
        to.part(prepared, Part::Best { rows, count }, |to| {
            self.launcher().head(to, head, residual, (hidden, of_rows))?;
            self.launcher().best(to, vocabulary, of_rows, count)
        })
    }

    pub(crate) fn launcher(&self) -> Launcher<'_> {
        Launcher { gpu: &self.gpu, room: &self.room, method: self.method }
    }

    pub(crate) fn write(&self, to: &wgpu::Buffer, floats: &[f32]) {
        self.gpu.queue.write_buffer(to, 0, bytemuck::cast_slice(floats));
    }
}
