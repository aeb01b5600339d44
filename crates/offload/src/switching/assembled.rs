//! All blocks' graphs and the head as one device: what decodes when the graphs are exchanged.

use super::block_graphs::{BlockGraphs, HeadGraph};
use duet_model::forward::{NotRun, TokenWise};
use std::sync::Arc;

/// A whole model on the graphs that are loaded now.
#[derive(Clone, Debug)]
pub struct Assembled {
    /// In the order of their layers.
    blocks: Vec<Arc<BlockGraphs>>,
    head: Arc<HeadGraph>,
}

impl Assembled {
    /// These blocks, in the order of their layers, and the head.
    #[must_use]
    pub fn new(blocks: Vec<Arc<BlockGraphs>>, head: Arc<HeadGraph>) -> Self {
        Self { blocks, head }
    }

    fn block(&self, layer: usize) -> Result<&BlockGraphs, NotRun> {
        let index = self.blocks.partition_point(|block| block.layers().end <= layer);
        let block = self.blocks.get(index).ok_or_else(|| NotRun::Unsupported(format!("there is no layer {layer}")))?;
        Ok(block)
    }
}

impl TokenWise for Assembled {
    fn qkv(&self, layer: usize, residual: &[f32], qkv: &mut [f32]) -> Result<(), NotRun> {
        self.block(layer)?.qkv(layer, residual, qkv)
    }

    fn feed_forward(&self, layer: usize, attended: &[f32], residual: &[f32], fed: &mut [f32]) -> Result<(), NotRun> {
        self.block(layer)?.feed_forward(layer, attended, residual, fed)
    }

    fn head(&self, residual: &[f32], logits: &mut [f32]) -> Result<(), NotRun> {
        self.head.head(residual, logits)
    }
}
