//! A feed-forward node whose experts are on disk: routed first, then computed wave by wave, as experts come.
//!
//! While the experts of a few rows are waited for, the next layer's router is asked where it would send them as they are now:
//! what it says is read ahead, if its place is worth it.
//!
//! What all waves come to is added at the end, in the order in which it always is, so that the node is the same to the bit
//! wherever experts lie.

use super::Pass;
use crate::disk_experts::{ExpertStore, ExpertUnread};
use crate::load::Model;
use duet_kernels::crew::Crew;
use duet_kernels::fused::{
    Block, Buffers, Feeds, FfnWeights, Places, PresentFeeds, add_waves, feed_wave, project_attended, route,
};
use std::ops::Range;

impl Model {
    pub(super) fn feed_from_disk(
        &self,
        store: &ExpertStore,
        pass: &mut Pass,
        layer: usize,
        rows: Range<usize>,
        crew: &dyn Crew,
    ) -> Result<(), ExpertUnread> {
        let (isa, weights, buffers) = (self.isa(), self.ffn_weights(layer), &mut pass.activations.buffers);
        project_attended(isa, crew, &weights, buffers, rows.clone());
        route(isa, crew, &weights, buffers, rows.clone());
        let mut wanted = store.want((layer, pass.class), rows.len(), &experts_of(buffers, rows.len()));
        if rows.len() <= GUESSED_ROWS {
            store.foresee(layer + 1, &self.guess(layer + 1, buffers, rows.clone()));
        }
        let mut is_first = true;
        while wanted.next_wave()? {
            // One that all rows go to, which is in memory, comes with the first.
            let wave: Vec<bool> = wanted.in_wave().iter().copied().chain([is_first]).collect();
            let weights = with(&weights, wanted.present());
            feed_wave(isa, crew, &weights, buffers, rows.clone(), (Places::All, &wave));
            is_first = false;
        }
        add_waves(isa, crew, &weights, buffers, rows, Places::All);
        Ok(())
    }
}

/// More rows go to most experts of a layer anyway.
const GUESSED_ROWS: usize = 8;

impl Model {
    /// The experts of a layer that these rows will probably go to; none if there is no such layer, or it has none.
    fn guess(&self, layer: usize, buffers: &Buffers, rows: Range<usize>) -> Vec<u32> {
        if layer >= self.config().layers || self.blueprint().experts_of(layer).is_none() {
            return Vec::new();
        }
        let weights = self.ffn_weights(layer);
        let Block::Experts(experts) = &weights.block else { return Vec::new() };
        let mut all: Vec<u32> =
            rows.flat_map(|row| experts.guess(self.isa(), weights.norm, buffers.residual(row))).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// The experts that were chosen for so many rows, in their order, and how many rows go to each.
fn experts_of(buffers: &Buffers, rows: usize) -> Vec<(u32, u32)> {
    let chosen = (0..rows).filter_map(|row| buffers.routes(row)).flat_map(|(experts, _)| experts.iter().copied());
    let mut all: Vec<u32> = chosen.collect();
    all.sort_unstable();
    all.chunk_by(|a, b| a == b).map(|same| (same[0], same.len() as u32)).collect()
}

/// The same weights with these experts in memory.
fn with<'a>(weights: &FfnWeights<'a>, present: &'a PresentFeeds) -> FfnWeights<'a> {
    let block = match weights.block {
        Block::Experts(mut experts) => {
            experts.experts = Feeds::Present(present);
            Block::Experts(experts)
        }
        dense @ Block::Dense { .. } => dense,
    };
    FfnWeights { block, ..*weights }
}
