//! A model on a device that cannot hold all of its graphs: every kernel runs on the graph that its block has.
//!
//! Which that is, the serving scheduler decides; here graphs are loaded and released as it asks. A graph of few rows takes
//! many in several passes, and computes the same. (CoordGen §3.2: graph equivalence by repetition)
//!
//! Invariants: a graph that is to go first is gone before the other one is loaded; one that was taken over from is gone
//! before the next one is loaded; nothing is loaded or dropped under the lock or by a lane.

use super::block_graphs::BlockGraphs;
use super::error::SwitchingError;
use super::shelf::Shelf;
use duet_model::forward::{NotRun, TokenWise};
use duet_scheduler::GraphLoad;
use duet_scheduler::progressive::{Exchange, Pair, Role};
use duet_types::Tokens;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// A model's blocks, each with the graph that it has at present.
#[derive(Debug)]
pub struct ResidentModel {
    shelf: Shelf,
    rows: Pair<Tokens>,
    /// None where a graph is being loaded, or could not be.
    blocks: RwLock<Vec<Option<Arc<BlockGraphs>>>>,
    /// A graph that was taken over from: a kernel may still run on it.
    retired: Mutex<Option<Arc<BlockGraphs>>>,
}

impl ResidentModel {
    /// Loads the prefill graphs of all blocks; graphs have these `rows`.
    ///
    /// # Errors
    /// If one of them cannot be loaded.
    pub fn prefilling(shelf: Shelf, rows: Pair<Tokens>) -> Result<Self, SwitchingError> {
        let load = |block| Ok(Some(Arc::new(shelf.load(block, rows.of(Role::Prefill))?)));
        let blocks = (0..shelf.count()).map(load).collect::<Result<_, SwitchingError>>()?;
        Ok(Self { blocks: RwLock::new(blocks), retired: Mutex::new(None), shelf, rows })
    }

    /// Loads a graph in the place of the other one, or beside it.
    ///
    /// # Errors
    /// If it cannot be loaded. Then the block has none if the other one was to go first.
    pub fn load(&self, load: GraphLoad) -> Result<(), SwitchingError> {
        let retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(retired);
        if load.exchange == Exchange::InPlace {
            drop(self.put(load.block, None));
        }
        let graphs = Arc::new(self.shelf.load(load.block, self.rows.of(load.role))?);
        let old = self.put(load.block, Some(graphs));
        *self.retired.lock().unwrap_or_else(PoisonError::into_inner) = old;
        Ok(())
    }

    fn put(&self, block: usize, graphs: Option<Arc<BlockGraphs>>) -> Option<Arc<BlockGraphs>> {
        let mut blocks = self.blocks.write().unwrap_or_else(PoisonError::into_inner);
        blocks.get_mut(block).and_then(|place| std::mem::replace(place, graphs))
    }

    fn graphs_of(&self, layer: usize) -> Result<Arc<BlockGraphs>, NotRun> {
        let block = (0..self.shelf.count()).find(|&block| self.shelf.layers(block).contains(&layer));
        let blocks = self.blocks.read().unwrap_or_else(PoisonError::into_inner);
        let graphs = block.and_then(|block| blocks.get(block).cloned().flatten());
        graphs.ok_or_else(|| NotRun::Unsupported(format!("no graph of layer {layer} is loaded")))
    }
}

impl TokenWise for ResidentModel {
    fn qkv(&self, layer: usize, residual: &[f32], qkv: &mut [f32]) -> Result<(), NotRun> {
        self.graphs_of(layer)?.qkv(layer, residual, qkv)
    }

    fn feed_forward(&self, layer: usize, attended: &[f32], residual: &[f32], fed: &mut [f32]) -> Result<(), NotRun> {
        self.graphs_of(layer)?.feed_forward(layer, attended, residual, fed)
    }

    fn head(&self, residual: &[f32], logits: &mut [f32]) -> Result<(), NotRun> {
        self.shelf.head().head(residual, logits)
    }
}
