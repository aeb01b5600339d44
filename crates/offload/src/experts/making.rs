//! A group's graph, made of the model's weights for who loads it and finds none in the cache.

use super::blocks::BlockMaker;
use super::shelf::{Kept, MakesGroups};
use crate::layers::LayersError;
use crate::placed::{OffloadError, Target};
use crate::source::Source;
use duet_graphs::Rows;
use duet_model::Model;
use duet_runtimes::{BlobCache, Graph, GraphDevice, GraphSource};
use std::sync::Arc;

/// Makes groups of a model that stays loaded.
#[derive(Debug)]
pub(super) struct GroupMaker {
    pub(super) model: Arc<Model>,
    pub(super) device: Arc<dyn GraphDevice>,
    pub(super) cache: BlobCache,
}

impl MakesGroups for GroupMaker {
    fn make(&self, kept: &Kept) -> Result<Box<dyn Graph>, OffloadError> {
        let maker = BlockMaker { model: &self.model, rule: self.device.rules().weights };
        let read = self.model.read_experts(kept.layer, |plain| maker.group(&plain, &kept.group.experts));
        let block = read.map_err(LayersError::from)?.ok_or(OffloadError::Dense)??;
        let target = Target { model: &self.model.config().name, device: &*self.device, cache: Some(&self.cache) };
        let (rows, ranges) = (Rows::Static(kept.group.capacity), kept.ranges.as_ref());
        Source::of(&target, &GraphSource { block: &block, rows, ranges })?.obtain(&target)
    }
}
