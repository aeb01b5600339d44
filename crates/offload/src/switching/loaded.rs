//! Which graphs of which blocks are loaded.

use super::assembled::Assembled;
use super::block_graphs::BlockGraphs;
use super::error::SwitchingError;
use super::shelf::Shelf;
use duet_scheduler::progressive::{Pair, Resident, Role};
use duet_types::Tokens;
use std::sync::Arc;

/// The graphs that are loaded, block by block.
#[derive(Debug, Default)]
pub struct Loaded {
    blocks: Vec<Both>,
}

/// Either graph of a block, if it is loaded.
#[derive(Debug, Default)]
struct Both {
    prefill: Option<Arc<BlockGraphs>>,
    decode: Option<Arc<BlockGraphs>>,
}

impl Loaded {
    /// Loads what is to be resident, one after the other; graphs have these `rows`.
    ///
    /// # Errors
    /// If one of them cannot be loaded.
    pub fn load(shelf: &Shelf, rows: Pair<Tokens>, resident: &[Resident]) -> Result<Self, SwitchingError> {
        let mut loaded = Self::default();
        for (block, resident) in resident.iter().enumerate() {
            let mut both = Both::default();
            for role in [Role::Prefill, Role::Decode].into_iter().filter(|&role| resident.has(role)) {
                *both.of_mut(role) = Some(Arc::new(shelf.load(block, rows.of(role))?));
            }
            loaded.blocks.push(both);
        }
        Ok(loaded)
    }

    /// A block's graphs.
    ///
    /// # Errors
    /// If they are not loaded.
    pub fn get(&self, block: usize, role: Role) -> Result<Arc<BlockGraphs>, SwitchingError> {
        let graphs = self.blocks.get(block).and_then(|both| both.of(role));
        graphs.cloned().ok_or(SwitchingError::NotLoaded(block))
    }

    /// All blocks as one device.
    ///
    /// # Errors
    /// If a block has no such graph loaded.
    pub fn assembled(&self, role: Role, shelf: &Shelf) -> Result<Assembled, SwitchingError> {
        let blocks = (0..self.blocks.len()).map(|block| self.get(block, role)).collect::<Result<_, _>>()?;
        Ok(Assembled::new(blocks, shelf.head()))
    }

    pub(super) fn put(&mut self, block: usize, role: Role, graphs: Arc<BlockGraphs>) {
        if let Some(both) = self.blocks.get_mut(block) {
            *both.of_mut(role) = Some(graphs);
        }
    }

    /// Takes out what is not `resident` any more: to be dropped where nobody waits for it.
    pub(super) fn take_released(&mut self, resident: &[Resident]) -> Vec<Arc<BlockGraphs>> {
        let released = self.blocks.iter_mut().zip(resident).flat_map(|(both, resident)| {
            let gone = [Role::Prefill, Role::Decode].into_iter().filter(|&role| !resident.has(role));
            gone.filter_map(|role| both.of_mut(role).take()).collect::<Vec<_>>()
        });
        released.collect()
    }
}

impl Both {
    fn of(&self, role: Role) -> Option<&Arc<BlockGraphs>> {
        match role {
            Role::Prefill => self.prefill.as_ref(),
            Role::Decode => self.decode.as_ref(),
        }
    }

    fn of_mut(&mut self, role: Role) -> &mut Option<Arc<BlockGraphs>> {
        match role {
            Role::Prefill => &mut self.prefill,
            Role::Decode => &mut self.decode,
        }
    }
}
