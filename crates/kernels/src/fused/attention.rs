//! Attention of the rows of one sequence. Sequence-wise.

use super::{Buffers, are_disjoint};
use crate::attention::{Attention, Branch, Context, KvLayout, LayerLayout, PageMemory, Partials, Queries, TurnedBias};
use crate::crew::{Crew, Worker};
use crate::isa::Isa;

/// What a layer's attention is like.
#[derive(Clone, Copy, Debug)]
pub struct AttentionShape<'a> {
    /// Query heads.
    pub heads: usize,
    /// Scores are multiplied with this.
    pub scale: f32,
    /// Positions visible to a row, itself included; `None`: all.
    pub window: Option<usize>,
    /// Of each query head a score of no position, which weighs with the others and has no value; none: there are none.
    pub sinks: Option<&'a [f32]>,
    /// What keys of eight bits are without, as [`super::QkvWeights::key_bias`].
    pub key_bias: Option<TurnedBias<'a>>,
}

/// Rows of one sequence.
#[derive(Debug)]
pub struct SequenceRows<'a> {
    /// All pages of the sequence up to the last row's position.
    pub pages: Vec<&'a PageMemory>,
    /// The first row in the buffers.
    pub first_row: usize,
    /// How many rows.
    pub rows: usize,
    /// Position of the first row; the others follow. For a tree: the end of the context.
    pub start: usize,
    /// Present if the rows are a draft tree.
    pub tree: Option<TreeRows<'a>>,
}

/// A draft tree: row `i`'s key and value lie in slot `i` of a page of their own.
#[derive(Clone, Copy, Debug)]
pub struct TreeRows<'a> {
    /// The rows' keys and values.
    pub page: &'a PageMemory,
    /// For each row the rows on its path from the root, itself last.
    pub paths: &'a [Vec<usize>],
}

/// Runs the kernel.
///
/// # Panics
/// If a shape does not fit, there is no such layer, or two sequences have a row in common.
pub fn attention(
    isa: Isa,
    crew: &dyn Crew,
    shape: &AttentionShape<'_>,
    buffers: &mut Buffers,
    layout: &KvLayout,
    layer: usize,
    sequences: &[SequenceRows<'_>],
) {
    let rows = sequences.iter().map(|sequence| sequence.first_row..sequence.first_row + sequence.rows);
    assert!(are_disjoint(rows), "a row of two sequences");
    assert!(layer < layout.all_layers());
    let (of_pages, layout) = (layout, layout.layer(layer));
    let hidden = buffers.shape().hidden;
    let workers = crew.size();
    let floats = {
        let (shared, _, _) = buffers.share(hidden, 0);
        let needs = sequences.iter().map(|sequence| {
            let queries = queries(&shared, shape, sequence);
            if splits_spans(&queries, &layout, workers) { Partials::floats(&queries, &layout) } else { 0 }
        });
        needs.sum()
    };
    let (shared, _, memory) = buffers.share(hidden, floats);
    let mut offset = 0;
    let calls: Vec<Call<'_>> = sequences
        .iter()
        .map(|sequence| {
            let queries = queries(&shared, shape, sequence);
            let AttentionShape { window, scale, sinks, key_bias, .. } = *shape;
            let context = Context { of_pages, layout, pages: &sequence.pages, window, scale, sinks, key_bias };
            let partials = splits_spans(&queries, &layout, workers).then(|| {
                let floats = Partials::floats(&queries, &layout);
                offset += floats;
                Partials::new(memory.narrow(offset - floats..offset), &queries, &layout)
            });
            Call { attention: Attention::new(isa, context, queries), partials }
        })
        .collect();
    let total = calls.iter().map(Call::cost).sum();
    let merges = calls.iter().map(Call::merges).sum();
    crew.run(&|worker| {
        let mut turns = Turns::new(worker, total);
        for call in &calls {
            call.attend(&mut turns);
        }
        if floats > 0 {
            worker.sync();
            let mut turns = Turns::new(worker, merges);
            for call in &calls {
                call.merge(&mut turns);
            }
        }
    });
}

/// Few tiles over a long context: then workers share the spans of a tile.
fn splits_spans(queries: &Queries<'_>, layout: &LayerLayout, workers: usize) -> bool {
    workers > 1 && queries.spans() > 1 && queries.tiles(layout) * layout.kv_heads < 4 * workers
}

fn queries<'a>(
    shared: &super::buffers::SharedBuffers<'a>,
    shape: &AttentionShape<'_>,
    sequence: &SequenceRows<'a>,
) -> Queries<'a> {
    Queries {
        values: shared.qkv.values,
        out: shared.attended.values,
        stride: shared.qkv.stride,
        out_stride: shared.attended.stride,
        first_row: sequence.first_row,
        rows: sequence.rows,
        start: sequence.start,
        heads: shape.heads,
        branch: sequence.tree.map(|tree| Branch { page: tree.page, paths: tree.paths }),
    }
}

struct Call<'a> {
    attention: Attention<'a>,
    partials: Option<Partials<'a>>,
}

impl Call<'_> {
    /// Head by head, so that what a worker has fetched of a head serves all tiles that it takes.
    fn attend(&self, turns: &mut Turns<'_>) {
        let attention = &self.attention;
        for kv_head in 0..attention.kv_heads() {
            for tile in 0..attention.tiles() {
                match &self.partials {
                    // SAFETY: each item is one worker's; the queries and pages are read only.
                    None if turns.is_mine(attention.pages(tile)) => unsafe { attention.attend(kv_head, tile) },
                    None => {}
                    Some(partials) => {
                        for span in 0..attention.spans() {
                            if turns.is_mine(attention.pages(tile)) {
                                // SAFETY: as above.
                                unsafe { attention.attend_span(kv_head, tile, span, partials) };
                            }
                        }
                    }
                }
            }
        }
    }

    fn merge(&self, turns: &mut Turns<'_>) {
        let Some(partials) = &self.partials else { return };
        for tile in 0..self.attention.tiles() {
            for kv_head in 0..self.attention.kv_heads() {
                if turns.is_mine(1) {
                    // SAFETY: each item is one worker's; the partials were completed before the sync.
                    unsafe { self.attention.merge(kv_head, tile, partials) };
                }
            }
        }
    }

    /// What [`Self::attend`]'s items cost.
    fn cost(&self) -> usize {
        let spans = if self.partials.is_some() { self.attention.spans() } else { 1 };
        let items = self.attention.kv_heads() * spans;
        (0..self.attention.tiles()).map(|tile| items * self.attention.pages(tile)).sum()
    }

    /// How many items [`Self::merge`] has.
    fn merges(&self) -> usize {
        self.partials.map_or(0, |_| self.attention.kv_heads() * self.attention.tiles())
    }
}

/// Deals items out to workers: to each those that follow each other, of about the same cost together.
struct Turns<'a> {
    worker: Worker<'a>,
    /// What all items cost.
    total: usize,
    /// What those before the next one cost.
    before: usize,
}

impl<'a> Turns<'a> {
    fn new(worker: Worker<'a>, total: usize) -> Self {
        Self { worker, total, before: 0 }
    }

    /// Whether the next item is this worker's: whether its middle lies in the worker's share.
    fn is_mine(&mut self, cost: usize) -> bool {
        let middle = 2 * self.before + cost;
        self.before += cost;
        self.worker.share(2 * self.total).contains(&middle)
    }
}
