//! The graphs of layers in every shape that is wanted, compiled and kept in the cache: what can be loaded.
//!
//! Nothing of them is in memory. Loading reads the bytes from the cache and lets the device take them up, which is what
//! an exchange of graphs costs. What the cache has lost is compiled again by whoever loads it, which no lane does. One
//! layer's graphs are tried when they are put on the shelf, so that each of the others has a limit like theirs.
//!
//! Invariant: whatever the cache holds, every graph of the shelf can be loaded.

use super::block_graphs::BlockGraphs;
use super::error::SwitchingError;
use crate::known_ranges::{KnownRanges, Place};
use crate::layers::{LayerBlocks, layer_blocks};
use crate::patience::Patience;
use crate::placed::{OffloadError, Target};
use crate::ready::{ReadyGraph, Widths};
use crate::slot::Slot;
use crate::source::Source;
use duet_graphs::{Block, Ranges, Rows};
use duet_model::Model;
use duet_runtimes::{BlobCache, BlobKey, Graph, GraphDevice, GraphSource};
use duet_types::{Bytes, Tokens};
use std::ops::Range;
use std::sync::Arc;

/// Where graphs run, and where they are kept.
#[derive(Clone, Debug)]
pub struct Placement {
    /// The device.
    pub device: Arc<dyn GraphDevice>,
    /// The cache. What it has no room for is compiled each time that it is loaded.
    pub cache: BlobCache,
}

/// The graphs of a model's first layers, or of all.
#[derive(Debug)]
pub struct LayerShelf {
    model: Arc<Model>,
    placement: Placement,
    layers: usize,
    shapes: Vec<Shape>,
}

/// All layers' graphs of one number of rows.
#[derive(Debug)]
struct Shape {
    rows: Tokens,
    qkv: Kind,
    feed_forward: Kind,
}

/// The graphs of one kind of block: alike but for their weights.
#[derive(Debug)]
struct Kind {
    block: fn(LayerBlocks) -> Block,
    like: Like,
    layers: Vec<Kept>,
}

/// A layer's graph in the cache.
#[derive(Debug)]
struct Kept {
    key: BlobKey,
    bytes: Bytes,
    /// For devices that compute in integers.
    ranges: Option<Ranges>,
}

/// What the layers have in common.
#[derive(Clone, Debug)]
struct Like {
    widths: Widths,
    patience: Patience,
}

impl LayerShelf {
    /// Compiles the graphs of the first `layers` layers for each number of `rows`, or finds them in the cache; `done` is
    /// told how many layers are.
    ///
    /// # Errors
    /// If the device does not take the graphs.
    pub fn fill(
        model: &Arc<Model>,
        placement: Placement,
        layers: usize,
        rows: &[Tokens],
        done: &mut dyn FnMut(usize),
    ) -> Result<Self, SwitchingError> {
        let device = &*placement.device;
        let ranges = KnownRanges::of(model, device, Some(&placement.cache));
        let target = Target { model: &model.config().name, device, cache: Some(&placement.cache) };
        let filler = Filler { target, cache: &placement.cache, ranges: &ranges };
        let layers = layers.min(model.config().layers);
        let mut filling: Vec<Filling> = rows.iter().map(|&rows| Filling::new(rows)).collect();
        for layer in 0..layers {
            let blocks = layer_blocks(model, layer, device.rules().weights).map_err(OffloadError::from)?;
            for shape in &mut filling {
                shape.add(&filler, layer, &blocks)?;
            }
            done(layer + 1);
        }
        ranges.keep();
        let shapes = filling.into_iter().filter_map(Filling::filled).collect();
        Ok(Self { model: Arc::clone(model), placement, layers, shapes })
    }

    /// How many layers.
    #[must_use]
    pub fn layers(&self) -> usize {
        self.layers
    }

    /// Where they run.
    pub(super) fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Loads the graphs of some layers that have `rows` rows.
    ///
    /// # Errors
    /// If there are none, or the device does not take them up.
    pub fn load(&self, layers: Range<usize>, rows: Tokens) -> Result<BlockGraphs, SwitchingError> {
        let shape = self.shapes.iter().find(|shape| shape.rows == rows).ok_or(SwitchingError::NoShape(rows))?;
        let slots = |kind: &Kind| {
            let kept = kind.layers.get(layers.clone()).ok_or(SwitchingError::NoLayers(layers.end))?;
            let slot = |(layer, kept): (usize, &Kept)| self.slot(kind, kept, layer, rows);
            layers.clone().zip(kept).map(slot).collect::<Result<Vec<_>, _>>()
        };
        let (qkv, feed_forward) = (slots(&shape.qkv)?, slots(&shape.feed_forward)?);
        Ok(BlockGraphs::new(layers, qkv, feed_forward))
    }

    /// What the graphs of some layers take in the cache; nothing if there are none.
    #[must_use]
    pub fn bytes(&self, layers: Range<usize>, rows: Tokens) -> Bytes {
        let shape = self.shapes.iter().find(|shape| shape.rows == rows);
        let kinds = shape.into_iter().flat_map(|shape| [&shape.qkv, &shape.feed_forward]);
        kinds.flat_map(|kind| kind.layers.get(layers.clone()).unwrap_or_default()).map(|kept| kept.bytes).sum()
    }

    fn slot(&self, kind: &Kind, kept: &Kept, layer: usize, rows: Tokens) -> Result<Slot, SwitchingError> {
        let Placement { device, cache } = &self.placement;
        // Bytes that are whole may be refused all the same.
        let taken_up = cache.get(&kept.key).and_then(|blob| device.import_graph(&blob).ok());
        let graph = taken_up.map_or_else(|| self.compiled(kind, kept, layer, rows), Ok)?;
        Ok(Slot::of(ReadyGraph::like(graph, kind.like.patience), rows, kind.like.widths.clone()))
    }

    /// A graph that the cache has lost.
    fn compiled(&self, kind: &Kind, kept: &Kept, layer: usize, rows: Tokens) -> Result<Box<dyn Graph>, OffloadError> {
        let Placement { device, cache } = &self.placement;
        let block = (kind.block)(layer_blocks(&self.model, layer, device.rules().weights)?);
        let target = Target { model: &self.model.config().name, device: &**device, cache: Some(cache) };
        let source = GraphSource { block: &block, rows: Rows::Static(rows), ranges: kept.ranges.as_ref() };
        Source::of(&target, &source)?.obtain(&target)
    }
}

/// A shape that is being put on the shelf.
struct Filling {
    rows: Tokens,
    qkv: Option<Kind>,
    feed_forward: Option<Kind>,
}

/// Where compiled graphs go.
struct Filler<'a> {
    target: Target<'a>,
    cache: &'a BlobCache,
    ranges: &'a KnownRanges<'a>,
}

impl Filling {
    fn new(rows: Tokens) -> Self {
        Self { rows, qkv: None, feed_forward: None }
    }

    /// The next layer.
    fn add(&mut self, filler: &Filler<'_>, layer: usize, blocks: &LayerBlocks) -> Result<(), OffloadError> {
        let rows = Rows::Static(self.rows);
        let ranges = filler.ranges.get(Place::Qkv(layer), &blocks.qkv)?;
        let source = GraphSource { block: &blocks.qkv, rows, ranges: ranges.as_ref() };
        filler.add(&mut self.qkv, &source, |blocks| blocks.qkv)?;
        let ranges = filler.ranges.get(Place::FeedForward(layer), &blocks.feed_forward)?;
        let source = GraphSource { block: &blocks.feed_forward, rows, ranges: ranges.as_ref() };
        filler.add(&mut self.feed_forward, &source, |blocks| blocks.feed_forward)
    }

    /// Absent for a model without layers.
    fn filled(self) -> Option<Shape> {
        Some(Shape { rows: self.rows, qkv: self.qkv?, feed_forward: self.feed_forward? })
    }
}

impl Filler<'_> {
    /// Adds a layer's graph; the first one is tried, and so says how long its like may take.
    fn add(
        &self,
        kind: &mut Option<Kind>,
        wanted: &GraphSource<'_>,
        block: fn(LayerBlocks) -> Block,
    ) -> Result<(), OffloadError> {
        let source = Source::of(&self.target, wanted)?;
        let key = source.key(&self.target);
        let ranges = wanted.ranges.cloned();
        let kept = Kept { bytes: source.keep(&self.target, self.cache, &key)?, key, ranges };
        match kind {
            Some(kind) => kind.layers.push(kept),
            None => {
                let widths = Widths::of(wanted.block);
                let tried = ReadyGraph::tried(source.obtain(&self.target)?, &widths, wanted.rows)?;
                *kind = Some(Kind { block, like: Like { widths, patience: tried.patience() }, layers: vec![kept] });
            }
        }
        Ok(())
    }
}
