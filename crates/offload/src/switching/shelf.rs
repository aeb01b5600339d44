//! A model's graphs that can be loaded, block by block, and the head's, which is loaded.

use super::block_graphs::{BlockGraphs, HeadGraph};
use super::error::SwitchingError;
use super::layer_shelf::{LayerShelf, Placement};
use crate::known_ranges::{KnownRanges, Place};
use crate::layers::head_block;
use crate::placed::{OffloadError, PlacedProgress, Target};
use crate::ready::{ReadyGraph, Widths};
use crate::slot::Slot;
use crate::source::Source;
use duet_graphs::Rows;
use duet_model::Model;
use duet_runtimes::GraphSource;
use duet_scheduler::layers_of;
use duet_types::{Bytes, Tokens};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;

/// A model's graphs that can be loaded, block by block.
#[derive(Debug)]
pub struct Shelf {
    layers: LayerShelf,
    /// Layers of each block.
    blocks: Vec<Range<usize>>,
    head: Arc<HeadGraph>,
}

impl Shelf {
    /// Compiles the graphs of all layers for each number of `rows`, or finds them in the cache, and cuts the model into
    /// `blocks` blocks, or as many as it has layers. The head gets a graph of the first number of rows and stays loaded.
    ///
    /// # Errors
    /// If the device does not take the graphs.
    pub fn fill(
        model: &Arc<Model>,
        placement: Placement,
        blocks: NonZeroUsize,
        rows: &[Tokens],
        progress: &mut dyn FnMut(PlacedProgress),
    ) -> Result<Self, SwitchingError> {
        let count = model.config().layers;
        let mut progress = |done| progress(PlacedProgress { done, total: count + 1 });
        let layers = LayerShelf::fill(model, placement.clone(), count, rows, &mut progress)?;
        let head = head(model, &placement, rows.first().copied().unwrap_or(Tokens(32)))?;
        progress(count + 1);
        Ok(Self { layers, blocks: cut(count, blocks), head: Arc::new(head) })
    }

    /// The graphs of all layers, whatever the blocks.
    #[must_use]
    pub fn all_layers(&self) -> &LayerShelf {
        &self.layers
    }

    /// How many blocks.
    #[must_use]
    pub fn count(&self) -> usize {
        self.blocks.len()
    }

    /// Layers of a block.
    ///
    /// # Panics
    /// If there is no such block.
    #[must_use]
    pub fn layers(&self, block: usize) -> Range<usize> {
        self.blocks[block].clone()
    }

    /// The head's graph, which is always loaded.
    #[must_use]
    pub fn head(&self) -> Arc<HeadGraph> {
        Arc::clone(&self.head)
    }

    /// Loads the graphs of a block that have `rows` rows.
    ///
    /// # Errors
    /// If there are none, or the device does not take them up.
    pub fn load(&self, block: usize, rows: Tokens) -> Result<BlockGraphs, SwitchingError> {
        let layers = self.blocks.get(block).cloned().ok_or(SwitchingError::NotLoaded(block))?;
        self.layers.load(layers, rows)
    }

    /// What the graphs of a block take in the cache; nothing if there are none.
    ///
    /// # Panics
    /// If there is no such block.
    #[must_use]
    pub fn bytes(&self, block: usize, rows: Tokens) -> Bytes {
        self.layers.bytes(self.layers(block), rows)
    }
}

fn head(model: &Model, placement: &Placement, rows: Tokens) -> Result<HeadGraph, OffloadError> {
    let device = &*placement.device;
    let target = Target { model: &model.config().name, device, cache: Some(&placement.cache) };
    let block = head_block(model, device.rules().weights)?;
    let widths = Widths::of(&block);
    let known = KnownRanges::of(model, device, target.cache);
    let ranges = known.get(Place::Head, &block)?;
    known.keep();
    let wanted = GraphSource { block: &block, rows: Rows::Static(rows), ranges: ranges.as_ref() };
    let graph = Source::of(&target, &wanted)?.obtain(&target)?;
    Ok(HeadGraph::new(Slot::of(ReadyGraph::tried(graph, &widths, Rows::Static(rows))?, rows, widths)))
}

/// Cuts layers into `blocks` blocks, or as many as there are layers, where the scheduler takes them to be cut.
pub(super) fn cut(layers: usize, blocks: NonZeroUsize) -> Vec<Range<usize>> {
    let count = blocks.get().min(layers);
    (0..count).map(|block| layers_of(block, count, layers)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_layer_is_in_one_block_and_no_block_is_empty(layers in 0_usize..200, blocks in 1_usize..300) {
            let cut = cut(layers, NonZeroUsize::new(blocks).unwrap());
            prop_assert_eq!(cut.iter().cloned().flatten().collect::<Vec<_>>(), (0..layers).collect::<Vec<_>>());
            let sizes = cut.iter().map(ExactSizeIterator::len);
            prop_assert!(sizes.clone().max() <= sizes.min().map(|least| least + 1));
            prop_assert!(cut.iter().all(|block| !block.is_empty()));
        }
    }
}
