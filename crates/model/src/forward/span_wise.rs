//! Spans of nodes on a device that runs all of them: what lies between the nodes stays there. (Agent.xpu §4.2: the iGPU
//! takes any node)
//!
//! The device is given the residual stream, and what the first node reads beside it; it gives back what the last one leaves,
//! and the keys and values of all rows, layer by layer, which go into the cache here, if it has not put them there. So whoever runs the next node, the
//! cores or another device, finds the pass and the cache as if the span had been run here, and a device that fails half-way
//! has changed nothing. What a device keeps of the cache it names by its lineage, as [`super::AttentionWise`] does.

use super::attention_wise::CacheRows;
use super::pass::Pass;
use super::sought::Sought;
use super::token_wise::{NotRun, sparse};
use crate::arch::WideHeads;
use crate::load::Model;
use duet_kernels::crew::Crew;
use duet_kernels::fused::{Angles, ComputedRows, SpannedRows, store_computed};
use duet_types::{Bytes, Node, RequestId, Tokens};
use std::fmt::Debug;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Runs spans of a model's nodes whole.
pub trait SpanWise: Debug + Send + Sync {
    /// Runs nodes, one after the other, on all rows of a pass.
    ///
    /// # Errors
    /// [`NotRun`].
    fn run_span(&self, nodes: &[Node], rows: &mut SpanRows<'_>) -> Result<(), NotRun>;

    /// What its copies of keys and values may take; nothing if it reads and writes the cache itself.
    fn copies_room(&self) -> Option<Bytes>;

    /// Gives up its copies of a request's keys and values, before it runs anything else. Waits for nothing.
    fn drop_copy(&self, request: RequestId);
}

/// All rows of a pass, and what they see. What is written is to be written whole, or not at all.
#[derive(Debug)]
pub struct SpanRows<'a> {
    /// The residual stream, `[rows][hidden]`: read, and written.
    pub residual: &'a mut [f32],
    /// Queries, keys and values, `[rows][queries + 2 × keys]`, turned by rope: read where the span begins with attention, and
    /// written where it ends before that.
    pub projected: &'a mut [f32],
    /// What attention found, `[rows][queries]`: read where the span begins behind it, and written where it ends there.
    pub attended: &'a mut [f32],
    /// What rope turns each row by.
    pub angles: Angles<'a>,
    /// Where the rows are.
    pub sequences: Vec<SpanSequence<'a>>,
    /// Of each `Qkv` of the span, in order, for keys and values of all rows: empty, and left so where the device has put them into
    /// the cache itself, as the cache has them.
    pub keys_and_values: &'a mut [Brought],
    /// Where the span is the pass's last: rows whose best logits are wanted. A device that has the head may bring them along.
    pub sought: Option<&'a mut Sought>,
}

/// Keys and values of a layer that a device brings back, in one of two forms.
#[derive(Debug, Default)]
pub struct Brought {
    /// Of all rows, turned by rope, `[rows][2 × keys]`.
    pub rows: Vec<f32>,
    /// Of each sequence, what its pages have of the layer from that of its first row on to that of its last, as
    /// [`duet_kernels::attention::KvLayout::of_layer`]: all of it as the cache is to have it. For passes without trees.
    pub pages: Vec<u8>,
}

impl Brought {
    fn clear(&mut self) {
        self.rows.clear();
        self.pages.clear();
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(self.rows.as_slice()) + self.pages.len()
    }
}

/// Rows of one sequence.
#[derive(Debug)]
pub struct SpanSequence<'a> {
    model: &'a Model,
    kv: &'a crate::kv::KvTable,
    /// Whose they are, as [`SpanWise::drop_copy`] knows them.
    pub request: Option<RequestId>,
    /// Which of the pass.
    pub rows: Range<usize>,
    /// Positions before them.
    pub before: Tokens,
    /// Of a draft tree, for each row the rows on its path, itself last, counted within the sequence; else each row follows
    /// the one before.
    pub paths: Option<&'a [Vec<usize>]>,
}

impl SpanSequence<'_> {
    /// The keys and values of a layer up to a position.
    ///
    /// # Panics
    /// If there is no such layer.
    #[must_use]
    pub fn cache(&self, layer: usize, positions: Tokens) -> CacheRows<'_> {
        CacheRows::new(self.kv, self.model.key_bias(layer), self.model.blueprint().place(layer), positions)
    }
}

impl Model {
    /// Runs nodes, one after the other, on all rows of a pass on a device; embeddings are read here.
    ///
    /// # Errors
    /// [`NotRun`]; the pass is as it was, but for embeddings, which anybody may read again.
    ///
    /// # Panics
    /// If there are no such layers.
    pub fn run_span_on(
        &self,
        device: &dyn SpanWise,
        pass: &mut Pass,
        mut nodes: &[Node],
        crew: &dyn Crew,
    ) -> Result<(), NotRun> {
        let rows = pass.rows();
        if let [Node::Embed, rest @ ..] = nodes {
            self.run_node(pass, Node::Embed, 0..rows, crew);
            nodes = rest;
        }
        let attends_first = matches!(nodes.first(), Some(Node::Attention { .. }));
        if attends_first && pass.trees.iter().any(Option::is_some) {
            return Err(NotRun::Unsupported("a span of a draft tree begins with attention".to_owned()));
        }
        let layers: Vec<usize> = nodes.iter().filter_map(qkv_layer).collect();
        let mut brought = std::mem::take(&mut pass.activations.brought);
        brought.resize_with(brought.len().max(layers.len()), Brought::default);
        let keys_and_values = &mut brought[..layers.len()];
        keys_and_values.iter_mut().for_each(Brought::clear);
        if !nodes.is_empty() {
            let mut first = 0;
            let sequences = pass.segments.iter().zip(&pass.trees).map(|(segment, tree)| {
                let rows = first..first + segment.tokens.len();
                first = rows.end;
                let paths = tree.as_ref().map(|tree| tree.paths.as_slice());
                SpanSequence {
                    model: self,
                    kv: &segment.kv,
                    request: segment.request,
                    rows,
                    before: segment.kv.len(),
                    paths,
                }
            });
            let sequences = sequences.collect();
            let buffers = &mut pass.activations.buffers;
            let SpannedRows { residual, projected, attended, angles } = buffers.spanned(0..rows).ok_or_else(sparse)?;
            let keys_and_values = &mut *keys_and_values;
            let is_last = nodes.last().copied() == self.last_node();
            let sought = pass.sought.as_mut().filter(|_| is_last);
            let mut rows = SpanRows { residual, projected, attended, angles, sequences, keys_and_values, sought };
            let run = device.run_span(nodes, &mut rows);
            if matches!(run, Err(NotRun::Failed(_))) && device.copies_room().is_none() {
                pass.segments.iter_mut().for_each(|segment| segment.kv.leave_tail());
            }
            run?;
        }
        self.store_rows(pass, &layers, keys_and_values, crew);
        self.store_pages(pass, &layers, keys_and_values, crew);
        pass.activations.brought = brought;
        Ok(())
    }

    /// The node behind which there is the head alone.
    fn last_node(&self) -> Option<Node> {
        self.blueprint().layers.len().checked_sub(1).map(|layer| Node::Ffn { layer })
    }

    /// Puts what came by pages into the cache: of each layer, one after the other, those that rows of the pass are in. A page is one
    /// worker's.
    fn store_pages(&self, pass: &mut Pass, layers: &[usize], brought: &[Brought], crew: &dyn Crew) {
        let by_page: Vec<_> = layers.iter().zip(brought).filter(|(_, brought)| !brought.pages.is_empty()).collect();
        if by_page.is_empty() {
            return;
        }
        let segments = pass.segments.iter_mut();
        let written = segments.flat_map(|segment| segment.kv.tail(Tokens(segment.tokens.len() as u32)).1);
        let pages: Vec<_> = written.map(Mutex::new).collect();
        crew.run(&|worker| {
            for (index, page) in pages.iter().enumerate().skip(worker.rank()).step_by(worker.size()) {
                let mut page = page.lock().unwrap_or_else(PoisonError::into_inner);
                let layout = *page.layout();
                for (layer, Brought { pages, .. }) in &by_page {
                    let place = self.blueprint().place(**layer);
                    let (start, count) = (layout.layer_start(place), layout.of_layer(page.bytes(), place).len());
                    page.bytes_mut()[start..start + count].copy_from_slice(&pages[index * count..][..count]);
                }
            }
        });
    }

    /// Puts keys and values into the cache, of layers that came by rows and have a cache of their own.
    fn store_rows(&self, pass: &mut Pass, layers: &[usize], brought: &[Brought], crew: &dyn Crew) {
        let blueprint = self.blueprint();
        let stored: Vec<_> = layers
            .iter()
            .zip(brought)
            .filter(|(layer, brought)| !brought.rows.is_empty() && blueprint.layers[**layer].cache_of.is_none())
            .map(|(&layer, brought)| {
                let WideHeads { kv_heads, head_dim } = blueprint.heads_of(layer);
                let (place, key_bias) = (blueprint.place(layer), self.key_bias(layer));
                ComputedRows { layer: place, kv_heads, head_dim, key_bias, keys_and_values: &brought.rows }
            })
            .collect();
        if !stored.is_empty() {
            let rows = 0..pass.rows();
            let (_, mut tails, destinations) = super::nodes::cache_rows(pass, &rows);
            store_computed(self.isa(), crew, &stored, &mut tails, &destinations);
        }
    }
}

fn qkv_layer(node: &Node) -> Option<usize> {
    match node {
        Node::Qkv { layer } => Some(*layer),
        _ => None,
    }
}
