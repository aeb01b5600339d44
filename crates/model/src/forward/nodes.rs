//! The nodes of a pass, each a fused kernel on some rows; which they are, and in what order, is `duet-types`' to say. (Agent.xpu §4.2)

use super::Pass;
use super::pass::{Segment, Tree};
use crate::arch::{Extra, WideHeads};
use crate::disk_experts::{ExpertUnread, IfMissing};
use crate::load::Model;
use crate::weights::{BesideWeights, FeedWeights, LayerWeights, NormWeights};
use duet_kernels::attention::TurnedBias;
use duet_kernels::crew::{Crew, Solo};
use duet_kernels::fused::{
    AttentionShape, Beside, Block, Buffers, CacheOf, Experts, FfnWeights, HeadNorms, HeadWeights, KvDestination,
    KvTail, Norm, QkvWeights, RowNorm, SequenceRows, SharedExpert, TreeRows, attention, feed_forward, gate_attended,
    head, keys_and_values, project, qkv,
};
use duet_types::{Node, NodeOrder, TokenId, Tokens};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Rows that are worth a crew: few are sooner done than all workers have begun.
const EMBEDDED_TOGETHER: usize = 32;

impl Model {
    /// The nodes of a pass, three a layer.
    #[must_use]
    pub fn order(&self) -> NodeOrder {
        NodeOrder::fused(self.config().layers)
    }

    /// How many these are.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.order().count()
    }

    /// All nodes of a pass, in order.
    #[must_use]
    pub fn nodes(&self) -> Vec<Node> {
        self.order().nodes().collect()
    }

    /// Runs a span of nodes (indices into [`Self::nodes`]) on all rows.
    ///
    /// # Panics
    /// If there are no such nodes, or as [`Self::run_node`].
    pub fn run_span(&self, pass: &mut Pass, nodes: Range<usize>, crew: &dyn Crew) {
        let rows = pass.rows();
        for index in nodes {
            self.run_node(pass, self.order().node(index), 0..rows, crew);
        }
    }

    /// Runs one node on `rows` of the pass, or on those of them that anybody reads ([`Self::rows_of`]). The nodes of a row are run
    /// in order; attention of a row needs the QKV node of all rows of its sequence before it. Experts that are launched take all
    /// rows, whatever is asked for.
    ///
    /// # Panics
    /// If the rows or the layer do not exist, or experts that are on disk cannot be read: [`Self::try_run_node`] is for
    /// models of which some may be.
    pub fn run_node(&self, pass: &mut Pass, node: Node, rows: Range<usize>, crew: &dyn Crew) {
        self.try_run_node(pass, node, rows, crew).unwrap_or_else(|error| panic!("{error}"));
    }

    /// [`Self::run_node`], for a model whose experts may be on disk.
    ///
    /// # Errors
    /// [`ExpertUnread`]; the pass is good for nothing then but to be abandoned.
    ///
    /// # Panics
    /// If the rows or the layer do not exist.
    pub fn try_run_node(
        &self,
        pass: &mut Pass,
        node: Node,
        rows: Range<usize>,
        crew: &dyn Crew,
    ) -> Result<(), ExpertUnread> {
        assert!(rows.end <= pass.rows());
        let rows = self.rows_of(pass, node, rows);
        if rows.is_empty() {
            return Ok(());
        }
        match node {
            Node::Embed => {
                self.embed(pass, rows.clone(), crew);
                self.make_layer_inputs(pass, rows, crew);
            }
            Node::Qkv { layer } => self.qkv(pass, layer, rows, crew),
            Node::Attention { layer } => self.attention(pass, layer, rows, crew),
            Node::Ffn { layer } => match self.on_disk().filter(|_| self.blueprint().experts_of(layer).is_some()) {
                Some(store) => {
                    self.feed_from_disk(store, pass, (layer, rows), crew, IfMissing::Wait)?;
                }
                None => {
                    let weights = self.ffn_weights(layer);
                    feed_forward(self.isa(), crew, &weights, &mut pass.activations.buffers, rows.clone());
                    self.end_layer(pass, layer, rows, crew);
                }
            },
            Node::Route { layer } => self.route(pass, layer, crew),
            Node::Experts { layer, launch } => self.launch(pass, (layer, launch), crew),
        }
        Ok(())
    }

    /// Logits of the chosen rows (indices into the pass), after all nodes: `out[i * vocabulary..]` is row `rows[i]`. A
    /// buffer that is longer stays so.
    ///
    /// # Panics
    /// If a row does not exist, or was said not to be read ([`Pass::set_head_rows`]).
    pub fn logits(&self, pass: &mut Pass, rows: &[usize], out: &mut Vec<f32>, crew: &dyn Crew) {
        rows.iter().for_each(|&row| pass.assert_read(&(row..row + 1)));
        let head_weights = self.head_weights();
        let stride = head(self.isa(), crew, &head_weights, &mut pass.activations.buffers, rows, out);
        let vocabulary = self.config().vocabulary;
        if stride != vocabulary {
            for row in 1..rows.len() {
                out.copy_within(row * stride..row * stride + vocabulary, row * vocabulary);
            }
        }
    }

    /// The `k` largest logits of each chosen row, largest first; ties go to the smaller token.
    ///
    /// # Panics
    /// If a row does not exist.
    #[must_use]
    pub fn top_k(&self, pass: &mut Pass, rows: &[usize], k: usize, crew: &dyn Crew) -> Vec<Vec<(TokenId, f32)>> {
        let mut logits = Vec::new();
        let mut tops = Vec::with_capacity(rows.len());
        for rows in rows.chunks(TOP_K_ROWS) {
            self.logits(pass, rows, &mut logits, crew);
            let each = logits.chunks_exact(self.config().vocabulary).take(rows.len());
            tops.extend(each.map(|row| largest(row, k)));
        }
        tops
    }

    fn embed(&self, pass: &mut Pass, rows: Range<usize>, crew: &dyn Crew) {
        let Some(embeddings) = self.file().tensor("token_embd.weight") else { return };
        let blueprint = self.blueprint();
        // The stream counts in units of what is added to it, so that layers need not scale that.
        let scale = blueprint.embedding_scale / blueprint.residual_scale;
        let of_segment = |(segment, tree): (&'_ Segment, &'_ Option<Tree>)| {
            let start = segment.kv.len().as_usize();
            let depth = |index: usize| tree.as_ref().map_or(index, |tree| tree.paths[index].len() - 1);
            let tokens = segment.tokens.iter().enumerate();
            tokens.map(|(index, token)| (*token, start + depth(index))).collect::<Vec<_>>()
        };
        let all = pass.segments.iter().zip(&pass.trees).flat_map(of_segment);
        let tokens: Vec<_> = all.skip(rows.start).take(rows.len()).collect();
        let embedded = pass.activations.buffers.embedded_mut(rows.clone());
        let embedded: Vec<_> = tokens.into_iter().zip(embedded).map(Mutex::new).collect();
        let crew = if rows.len() < EMBEDDED_TOGETHER { &Solo } else { crew };
        crew.run(&|worker| {
            for row in embedded.iter().skip(worker.rank()).step_by(worker.size()) {
                let mut row = row.lock().unwrap_or_else(PoisonError::into_inner);
                let ((token, position), (residual, cosines, sines)) = &mut *row;
                embeddings.dequantize_row(token.0 as usize, residual);
                residual.iter_mut().for_each(|x| *x *= scale);
                let pairs =
                    blueprint.ropes.iter().flat_map(|rope| rope.frequencies.iter().map(|f| (f, rope.magnitude)));
                for ((cos, sin), (frequency, magnitude)) in cosines.iter_mut().zip(sines.iter_mut()).zip(pairs) {
                    let (s, c) = (*position as f64 * f64::from(*frequency)).sin_cos();
                    (*cos, *sin) = (c as f32 * magnitude, s as f32 * magnitude);
                }
            }
        });
    }

    fn qkv(&self, pass: &mut Pass, layer: usize, rows: Range<usize>, crew: &dyn Crew) {
        let own = self.layer(layer);
        if own.recurrent.is_some() {
            let projection = (self.row_norm(&own.attention_norm), &own.qkv);
            return project(self.isa(), crew, projection, &mut pass.activations.buffers, rows);
        }
        let weights = self.qkv_weights(layer);
        let (buffers, mut tails, destinations) = cache_rows(pass, &rows);
        let place = self.blueprint().place(layer);
        qkv(self.isa(), crew, &weights, buffers, rows, place, &mut tails, &destinations);
    }

    /// The QKV node of rows whose projection is in the buffers.
    pub(super) fn keys_and_values(&self, pass: &mut Pass, layer: usize, rows: Range<usize>, crew: &dyn Crew) {
        let weights = self.qkv_weights(layer);
        let (buffers, mut tails, destinations) = cache_rows(pass, &rows);
        let place = self.blueprint().place(layer);
        keys_and_values(self.isa(), crew, &weights, buffers, rows, place, &mut tails, &destinations);
    }

    fn attention(&self, pass: &mut Pass, layer: usize, rows: Range<usize>, crew: &dyn Crew) {
        if let Some(weights) = &self.layer(layer).recurrent {
            return self.recur(pass, layer, weights, &rows, crew);
        }
        let blueprint = self.blueprint();
        let mut first = 0;
        let mut sequences = Vec::with_capacity(pass.segments.len());
        for (segment, tree) in pass.segments.iter().zip(&pass.trees) {
            let all = first..first + segment.tokens.len();
            first = all.end;
            let (from, to) = (rows.start.max(all.start), rows.end.min(all.end));
            if from < to {
                let within = from - all.start..to - all.start;
                let start = segment.kv.len().as_usize();
                sequences.push(SequenceRows {
                    pages: segment.kv.memory().collect(),
                    first_row: from,
                    rows: within.len(),
                    start: if tree.is_some() { start } else { start + within.start },
                    tree: tree.as_ref().map(|tree| TreeRows { page: &tree.page, paths: &tree.paths[within] }),
                });
            }
        }
        let Some(segment) = pass.segments.first() else { return };
        let layout = *segment.kv.layout();
        let shape = AttentionShape {
            heads: blueprint.heads,
            scale: blueprint.attention_scale,
            window: blueprint.layers[layer].window,
            sinks: self.layer(layer).sinks.as_deref(),
            key_bias: self.key_bias(layer),
        };
        let place = blueprint.place(layer);
        let buffers = &mut pass.activations.buffers;
        attention(self.isa(), crew, &shape, buffers, &layout, place, &sequences);
        if blueprint.has(Extra::OutputGate) {
            let [queries, keys] = [blueprint.heads, blueprint.kv_heads].map(|heads| heads * blueprint.head_dim);
            let gates = queries + 2 * keys..2 * queries + 2 * keys;
            gate_attended(self.isa(), crew, buffers, rows, gates);
        }
    }

    /// The weights of a layer's first node, as its kernel takes them.
    ///
    /// # Panics
    /// If there is no such layer.
    #[must_use]
    pub fn qkv_weights(&self, layer: usize) -> QkvWeights<'_> {
        let blueprint = self.blueprint();
        let weights = self.layer(layer);
        let lengths = |ropes: Range<usize>| blueprint.ropes[ropes].iter().map(|r| r.frequencies.len()).sum::<usize>();
        let rope = blueprint.layers[layer].rope;
        let WideHeads { kv_heads, head_dim } = blueprint.heads_of(layer);
        QkvWeights {
            norm: self.row_norm(&weights.attention_norm),
            matrix: &weights.qkv,
            bias: weights.qkv_bias.as_deref(),
            norms: match &weights.head_norms {
                None => HeadNorms::None,
                Some([query, key]) => {
                    let (query, key) = (self.norm(query), self.norm(key));
                    let value = weights.value_norm.as_deref().map(|weight| self.norm(weight));
                    let of_widths = blueprint.has(Extra::WidthNorms);
                    if of_widths { HeadNorms::Widths { query, key } } else { HeadNorms::Heads { query, key, value } }
                }
            },
            heads: blueprint.heads,
            kv_heads,
            head_dim,
            cache: match blueprint.layers[layer].cache_of {
                None => CacheOf::Itself,
                Some(_) => CacheOf::AnotherLayer,
            },
            angles: (lengths(0..rope), lengths(0..rope + 1)),
            key_bias: self.key_bias(layer),
        }
    }

    /// What keys of eight bits are without.
    pub(super) fn key_bias(&self, layer: usize) -> Option<TurnedBias<'_>> {
        let angles = &self.weights().page_angles.as_ref()?[self.blueprint().layers[layer].rope];
        Some(TurnedBias { bias: self.layer(layer).key_bias.as_ref()?, angles })
    }

    /// The weights of a layer's last node, as its kernel takes them.
    ///
    /// # Panics
    /// If there is no such layer.
    #[must_use]
    pub fn ffn_weights(&self, layer: usize) -> FfnWeights<'_> {
        let weights = self.layer(layer);
        FfnWeights {
            output: &weights.output,
            output_bias: weights.output_bias.as_deref(),
            output_norm: weights.output_norm.as_deref().map(|weight| self.norm(weight)),
            norm: self.row_norm(&weights.ffn_norm),
            gating: self.blueprint().gating,
            block: match &weights.feed {
                FeedWeights::Dense { feed, norm } => {
                    Block::Dense { feed, norm: norm.as_deref().map(|weight| self.norm(weight)) }
                }
                FeedWeights::Experts { router, router_bias, choice_bias, experts, biases, shared, beside, plan } => {
                    Block::Experts(Experts {
                        router,
                        router_bias: router_bias.as_deref(),
                        routing: plan.routing,
                        choice_bias: choice_bias.as_deref(),
                        chosen: plan.chosen,
                        experts: experts.feeds(),
                        biases: biases.as_deref(),
                        shared: shared.as_ref().map(|(gate, feed)| SharedExpert { gate: gate.as_deref(), feed }),
                        beside: beside.as_ref().map(|beside| self.beside(beside)),
                    })
                }
            },
        }
    }

    fn beside<'a>(&self, weights: &'a BesideWeights) -> Beside<'a> {
        let BesideWeights { before, of_block, of_experts, of_both, factors } = weights;
        Beside {
            before: self.norm(before),
            of_block: self.norm(of_block),
            of_experts: self.norm(of_experts),
            of_both: self.norm(of_both),
            factors,
        }
    }

    /// The weights of the head, as its kernel takes them.
    #[must_use]
    pub fn head_weights(&self) -> HeadWeights<'_> {
        let weights = self.weights();
        HeadWeights {
            norm: self.row_norm(weights.before_head()),
            matrix: &weights.head,
            bias: weights.head_bias.as_deref(),
            cap: self.blueprint().logit_cap,
        }
    }

    fn layer(&self, layer: usize) -> &LayerWeights {
        &self.weights().layers[layer]
    }

    /// A norm of the residual stream.
    pub(super) fn row_norm<'a>(&self, weights: &'a NormWeights) -> RowNorm<'a> {
        let norm = Norm { weight: &weights.weight, epsilon: self.blueprint().stream_epsilon() };
        match &weights.bias {
            None => RowNorm::Rms(norm),
            Some(bias) => RowNorm::Layer(norm, bias),
        }
    }

    pub(super) fn norm<'a>(&self, weight: &'a [f32]) -> Norm<'a> {
        Norm { weight, epsilon: self.blueprint().epsilon }
    }
}

/// Where the keys and values of some rows go.
pub(super) fn cache_rows<'a>(
    pass: &'a mut Pass,
    rows: &Range<usize>,
) -> (&'a mut Buffers, Vec<KvTail<'a>>, Vec<KvDestination>) {
    let mut destinations = Vec::with_capacity(rows.len());
    let mut tails = Vec::with_capacity(pass.segments.len());
    let mut row = 0;
    for (segment, tree) in pass.segments.iter_mut().zip(&mut pass.trees) {
        let (count, len) = (segment.tokens.len(), segment.kv.len().as_usize());
        let (start, (first, pages), paths) = match tree {
            None => (len, segment.kv.tail(Tokens(count as u32)), None),
            Some(Tree { page, paths }) => (0, (0, vec![page]), Some(&*paths)),
        };
        let turned_by = |index: usize| len + paths.map_or(index, |paths| paths[index].len() - 1);
        let chosen = (row..row + count).filter(|row| rows.contains(row));
        destinations.extend(chosen.map(|at| KvDestination {
            tail: tails.len(),
            position: start + at - row,
            turned_by: turned_by(at - row),
        }));
        tails.push(KvTail { first, pages });
        row += count;
    }
    (&mut pass.activations.buffers, tails, destinations)
}

/// Rows whose whole logits are in memory at once while their largest are picked: 32 × 262k floats are 32 MiB.
const TOP_K_ROWS: usize = 32;

pub(super) fn largest(logits: &[f32], k: usize) -> Vec<(TokenId, f32)> {
    let mut top: Vec<(TokenId, f32)> = Vec::with_capacity(k + 1);
    for (token, &logit) in logits.iter().enumerate() {
        if top.len() == k && top.last().is_none_or(|last| logit <= last.1) {
            continue;
        }
        let at = top.partition_point(|better| better.1 >= logit);
        top.insert(at, (TokenId(token as u32), logit));
        top.truncate(k);
    }
    top
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_come_first_and_ties_go_to_the_smaller_token() {
        let top = largest(&[1.0, 3.0, 3.0, -1.0, 2.0], 3);
        assert_eq!(top, [(TokenId(1), 3.0), (TokenId(2), 3.0), (TokenId(4), 2.0)]);
        assert_eq!(largest(&[1.0, 2.0], 0), []);
        assert_eq!(largest(&[1.0], 4).len(), 1);
    }
}
