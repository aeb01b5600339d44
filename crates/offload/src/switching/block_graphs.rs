//! The graphs of a block of layers, loaded, and the head's.

use crate::slot::Slot;
use duet_model::forward::{NotRun, TokenWise};
use std::ops::Range;

/// The graphs of some layers, all of the same number of rows.
#[derive(Debug)]
pub struct BlockGraphs {
    layers: Range<usize>,
    qkv: Vec<Slot>,
    feed_forward: Vec<Slot>,
}

/// The head's graph.
#[derive(Debug)]
pub struct HeadGraph {
    slot: Slot,
}

impl BlockGraphs {
    pub(super) fn new(layers: Range<usize>, qkv: Vec<Slot>, feed_forward: Vec<Slot>) -> Self {
        Self { layers, qkv, feed_forward }
    }

    /// The layers.
    #[must_use]
    pub fn layers(&self) -> Range<usize> {
        self.layers.clone()
    }

    fn slot<'a>(&self, slots: &'a [Slot], layer: usize) -> Result<&'a Slot, NotRun> {
        let index = layer.checked_sub(self.layers.start);
        let slot = index.and_then(|index| slots.get(index));
        slot.ok_or_else(|| NotRun::Unsupported(format!("layer {layer} is in another block")))
    }
}

impl HeadGraph {
    pub(super) fn new(slot: Slot) -> Self {
        Self { slot }
    }
}

impl TokenWise for BlockGraphs {
    fn qkv(&self, layer: usize, residual: &[f32], qkv: &mut [f32]) -> Result<(), NotRun> {
        self.slot(&self.qkv, layer)?.run(&[residual], qkv)
    }

    fn feed_forward(&self, layer: usize, attended: &[f32], residual: &[f32], fed: &mut [f32]) -> Result<(), NotRun> {
        self.slot(&self.feed_forward, layer)?.run(&[attended, residual], fed)
    }

    fn head(&self, _residual: &[f32], _logits: &mut [f32]) -> Result<(), NotRun> {
        Err(NotRun::Unsupported("a block of layers has no head".to_owned()))
    }
}

impl TokenWise for HeadGraph {
    fn qkv(&self, layer: usize, _residual: &[f32], _qkv: &mut [f32]) -> Result<(), NotRun> {
        Err(NotRun::Unsupported(format!("the head has no layer {layer}")))
    }

    fn feed_forward(&self, layer: usize, _: &[f32], _: &[f32], _: &mut [f32]) -> Result<(), NotRun> {
        Err(NotRun::Unsupported(format!("the head has no layer {layer}")))
    }

    fn head(&self, residual: &[f32], logits: &mut [f32]) -> Result<(), NotRun> {
        self.slot.run(&[residual], logits)
    }
}
