//! A model on a device in the paper's role of an NPU: graphs for chunks that are always there, and graphs for exactly a
//! prompt's rows that are made while the prompt waits. (Agent.xpu §4.3 ⑤)
//!
//! Graphs for a prompt's rows are compiled layer by layer and tried like all others, and come from no cache and go to
//! none: lengths of prompts hardly repeat, and they would push out the graphs that every start needs. Their head is the
//! chunks': of a prompt it takes one row.

use crate::known_ranges::{KnownRanges, Place};
use crate::layers::layer_blocks;
use crate::placed::{OffloadError, PlacedModel, PlacedProgress, Target};
use crate::ready::{ReadyGraph, Widths};
use crate::shapes::Shapes;
use crate::slot::Slot;
use crate::source::Source;
use duet_graphs::{Block, Ranges, RowRule, Rows};
use duet_model::Model;
use duet_model::forward::{Begun, NotPrepared, NotRun, Prepared, PreparesRows, TokenWise};
use duet_runtimes::{BlobCache, GraphDevice, GraphSource};
use duet_types::{Bytes, Tokens};
use std::sync::Arc;

/// A model in chunks, and what makes graphs of it for other rows.
#[derive(Debug)]
pub struct ExactModel {
    chunks: PlacedModel,
    model: Arc<Model>,
    device: Arc<dyn GraphDevice>,
    /// Where ranges are kept, for devices that compute in integers.
    cache: Option<BlobCache>,
}

/// A model's layers for exactly one number of rows.
#[derive(Debug, Default)]
struct ExactLayers {
    qkv: Vec<Slot>,
    feed_forward: Vec<Slot>,
    bytes: Bytes,
}

impl ExactModel {
    /// Makes graphs ready for a chunk of rows and for a few, also on a device that would take any number. They are taken
    /// from the cache if they were compiled before.
    ///
    /// # Errors
    /// If the device does not take the blocks.
    pub fn ready_on(
        model: Arc<Model>,
        device: Arc<dyn GraphDevice>,
        cache: Option<&BlobCache>,
        progress: &mut dyn FnMut(PlacedProgress),
    ) -> Result<Self, OffloadError> {
        let target = Target { model: &model.config().name, device: &*device, cache };
        let chunks = PlacedModel::ready_in(&model, &target, &Shapes::fixed(), progress)?;
        Ok(Self { chunks, model, device, cache: cache.cloned() })
    }

    fn layers(&self, rows: Tokens, goes_on: &dyn Fn() -> bool) -> Result<Option<ExactLayers>, OffloadError> {
        let mut layers = ExactLayers::default();
        let rows = self.taken(rows);
        let ranges = KnownRanges::of(&self.model, &*self.device, self.cache.as_ref());
        for layer in 0..self.model.config().layers {
            if !goes_on() {
                return Ok(None);
            }
            let blocks = layer_blocks(&self.model, layer, self.device.rules().weights)?;
            let seen = ranges.get(Place::Qkv(layer), &blocks.qkv)?;
            layers.qkv.push(self.slot(&blocks.qkv, seen.as_ref(), rows, &mut layers.bytes)?);
            let seen = ranges.get(Place::FeedForward(layer), &blocks.feed_forward)?;
            layers.feed_forward.push(self.slot(&blocks.feed_forward, seen.as_ref(), rows, &mut layers.bytes)?);
        }
        Ok(Some(layers))
    }

    /// The least number of rows that the device takes and that holds `rows`.
    fn taken(&self, rows: Tokens) -> Tokens {
        match self.device.rules().rows {
            RowRule::Any => rows,
            RowRule::StaticMultipleOf(of) => Tokens(rows.0.next_multiple_of(of.0.max(1))),
        }
    }

    /// A block, compiled for `rows` rows; what it takes is added to `bytes`.
    fn slot(
        &self,
        block: &Block,
        ranges: Option<&Ranges>,
        rows: Tokens,
        bytes: &mut Bytes,
    ) -> Result<Slot, OffloadError> {
        let target = Target { model: &self.model.config().name, device: &*self.device, cache: None };
        let source = Source::of(&target, &GraphSource { block, rows: Rows::Static(rows), ranges })?;
        *bytes += source.bytes();
        let (graph, widths) = (source.obtain(&target)?, Widths::of(block));
        let graph = ReadyGraph::tried(graph, &widths, Rows::Static(rows))?;
        Ok(Slot::of(graph, rows, widths))
    }
}

impl PreparesRows for ExactModel {
    fn prepare(&self, rows: Tokens, goes_on: &dyn Fn() -> bool) -> Result<Prepared, NotPrepared> {
        let layers = self.layers(rows, goes_on).map_err(|error| NotPrepared::Failed(error.to_string()))?;
        let layers = layers.ok_or(NotPrepared::CalledOff)?;
        Ok(Prepared { bytes: layers.bytes, kernels: Arc::new(layers) })
    }

    fn bytes(&self) -> Bytes {
        self.model.weight_bytes()
    }
}

impl TokenWise for ExactLayers {
    fn qkv(&self, layer: usize, residual: &[f32], qkv: &mut [f32]) -> Result<(), NotRun> {
        crate::placed::slot(&self.qkv, layer)?.run(&[residual], qkv)
    }

    fn feed_forward(&self, layer: usize, attended: &[f32], residual: &[f32], fed: &mut [f32]) -> Result<(), NotRun> {
        crate::placed::slot(&self.feed_forward, layer)?.run(&[attended, residual], fed)
    }

    fn head(&self, _: &[f32], _: &mut [f32]) -> Result<(), NotRun> {
        Err(NotRun::Unsupported("a prompt's own graphs have no head".to_owned()))
    }
}

impl TokenWise for ExactModel {
    fn qkv(&self, layer: usize, residual: &[f32], qkv: &mut [f32]) -> Result<(), NotRun> {
        self.chunks.qkv(layer, residual, qkv)
    }

    fn feed_forward(&self, layer: usize, attended: &[f32], residual: &[f32], fed: &mut [f32]) -> Result<(), NotRun> {
        self.chunks.feed_forward(layer, attended, residual, fed)
    }

    fn head(&self, residual: &[f32], logits: &mut [f32]) -> Result<(), NotRun> {
        self.chunks.head(residual, logits)
    }

    fn begin_qkv(&self, layer: usize, residual: &[f32], len: usize) -> Result<Box<dyn Begun + '_>, NotRun> {
        self.chunks.begin_qkv(layer, residual, len)
    }

    fn begin_feed_forward(
        &self,
        layer: usize,
        attended: &[f32],
        residual: &[f32],
    ) -> Result<Box<dyn Begun + '_>, NotRun> {
        self.chunks.begin_feed_forward(layer, attended, residual)
    }
}
