//! A feed-forward node whose experts are on disk: routed first, then computed wave by wave, as experts come.
//!
//! While the experts of a few rows are waited for, the next layer's router is asked where it would send them as they are now:
//! what it says is read ahead, if its place is worth it.
//!
//! Rows whose experts have not come may leave in the middle, and go on when the node is run again: what was computed of them
//! is in the pass's buffers, and what they hold of the experts stays held.
//!
//! What all waves come to is added at the end, in the order in which it always is, so that the node is the same to the bit
//! wherever experts lie.

use super::Pass;
use crate::disk_experts::{ExpertReads, ExpertStore, ExpertUnread, IfMissing, Tell, Wanted, Wave};
use crate::load::Model;
use duet_kernels::crew::Crew;
use duet_kernels::fused::{
    Block, Buffers, Feeds, FfnWeights, Places, PresentFeeds, add_waves, feed_wave, project_attended, route,
};
use duet_types::Node;
use std::ops::Range;
use std::time::Duration;

/// Rows in the middle of such a node: they left, and what they wait for is on its way.
#[derive(Debug)]
pub(super) struct Left {
    layer: usize,
    rows: Range<usize>,
    wanted: Wanted,
    had_wave: bool,
}

/// What became of rows of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    /// They are computed.
    ToItsEnd,
    /// Experts that they go to are being read, which takes about so long. They go on when the node is run again, after
    /// [`Pass::when_ready`].
    ToMissing(Duration),
}

impl Model {
    /// [`Self::try_run_node`], but where experts are on disk it leaves in the middle of a node instead of waiting for them.
    ///
    /// # Errors
    /// [`ExpertUnread`], likewise.
    ///
    /// # Panics
    /// If the rows or the layer do not exist.
    pub fn run_node_or_leave(
        &self,
        pass: &mut Pass,
        node: Node,
        rows: Range<usize>,
        crew: &dyn Crew,
    ) -> Result<Came, ExpertUnread> {
        match (node, self.on_disk()) {
            (Node::Ffn { layer }, Some(store)) if self.blueprint().experts_of(layer).is_some() => {
                assert!(rows.end <= pass.rows());
                let rows = self.rows_of(pass, node, rows);
                if rows.is_empty() {
                    return Ok(Came::ToItsEnd);
                }
                self.feed_from_disk(store, pass, (layer, rows), crew, IfMissing::Leave)
            }
            _ => self.try_run_node(pass, node, rows, crew).map(|()| Came::ToItsEnd),
        }
    }

    pub(super) fn feed_from_disk(
        &self,
        store: &ExpertStore,
        pass: &mut Pass,
        (layer, rows): (usize, Range<usize>),
        crew: &dyn Crew,
        if_missing: IfMissing,
    ) -> Result<Came, ExpertUnread> {
        let (isa, weights) = (self.isa(), self.ffn_weights(layer));
        let left = pass.left.take().filter(|left| (left.layer, &left.rows) == (layer, &rows));
        let mut left = left.unwrap_or_else(|| self.begin_from_disk(store, pass, (layer, rows.clone()), crew));
        loop {
            match left.wanted.next_wave(if_missing)? {
                Wave::Here => {}
                Wave::Over => break,
                Wave::Coming(about) => {
                    pass.left = Some(left);
                    return Ok(Came::ToMissing(about));
                }
            }
            // One that all rows go to, which is in memory, comes with the first.
            let wave: Vec<bool> = left.wanted.in_wave().iter().copied().chain([!left.had_wave]).collect();
            let weights = with(&weights, left.wanted.present());
            feed_wave(isa, crew, &weights, &mut pass.activations.buffers, rows.clone(), (Places::All, &wave));
            left.had_wave = true;
        }
        pass.expert_reads += left.wanted.reads();
        add_waves(isa, crew, &weights, &mut pass.activations.buffers, rows.clone(), Places::All);
        self.end_layer(pass, layer, rows, crew);
        Ok(Came::ToItsEnd)
    }

    /// Routes rows, and asks for their experts.
    fn begin_from_disk(
        &self,
        store: &ExpertStore,
        pass: &mut Pass,
        (layer, rows): (usize, Range<usize>),
        crew: &dyn Crew,
    ) -> Left {
        let (isa, weights, buffers) = (self.isa(), self.ffn_weights(layer), &mut pass.activations.buffers);
        project_attended(isa, crew, &weights, buffers, rows.clone());
        route(isa, crew, &weights, buffers, rows.clone());
        let wanted = store.want((layer, pass.class), rows.len(), &experts_of(buffers, rows.len()));
        if rows.len() <= GUESSED_ROWS {
            store.foresee(layer + 1, &self.guess(layer + 1, buffers, rows.clone()));
        }
        Left { layer, rows, wanted, had_wave: false }
    }
}

impl Pass {
    /// Experts that were not in memory when it asked for them, so far.
    #[must_use]
    pub fn expert_reads(&self) -> ExpertReads {
        self.expert_reads
    }

    /// Tells somebody when experts are there that its rows wait for. If they wait for none, who is to be told is returned, for
    /// the caller to tell.
    #[must_use]
    pub fn when_ready(&self, tell: Tell) -> Option<Tell> {
        match &self.left {
            Some(left) => left.wanted.when_ready(tell),
            None => Some(tell),
        }
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
