//! Experts in place of a feed-forward block: each row goes to the few that a router chooses. Token-wise.
//!
//! Rows are sorted by expert ([`plan`]); each expert that has any is one gated block over its own rows, with nothing
//! padded. Most experts are one worker's, who does all their steps; a few are divided. Rows are quantised once, however
//! many experts they go to. A row's results are added in the order in which its
//! experts were chosen, so they are the same to the bit whatever other rows are in the call. Only the weights of experts
//! that a row goes to are read. Scores are computed in single precision: they decide, and a router is small.
//!
//! Routing and computing are two steps, so that others may compute some places between them. Computing may be several:
//! experts that are not all in memory at once are computed wave by wave, and what they made of their rows is added when all
//! have been, in the order that it always is.
//! (NPUMoE §2; static shapes and tiers are for devices that need them)

mod beside;
mod feeds;
mod plan;
mod routing;

pub use beside::Beside;
pub use feeds::{Feeds, PresentFeeds};
pub use plan::Places;
pub use routing::Routing;

use super::buffers::{SharedBuffers, stride};
use super::{Feed, RowNorm, part};
use crate::crew::Worker;
use crate::isa::Isa;
use crate::matmul::{Epilogue, Gating, Target, matmul_units, units};
use crate::packed::PANEL;
use crate::quantize::SharedRows;
use crate::rows::{add, add_scaled, dots};
use plan::{Batch, Plan};
use routing::Chooser;
use std::ops::Range;

/// The experts of a layer and their router.
#[derive(Clone, Copy, Debug)]
pub struct Experts<'a> {
    /// A row of weights for each expert, over the residual stream.
    pub router: &'a [f32],
    /// Added to scores.
    pub router_bias: Option<&'a [f32]>,
    /// How scores become weights.
    pub routing: Routing,
    /// Of each expert, added to what it is chosen by, by rules that know such a thing; its weight is without it.
    pub choice_bias: Option<&'a [f32]>,
    /// How many experts a row goes to.
    pub chosen: usize,
    /// The experts, all of one shape.
    pub experts: Feeds<'a>,
    /// What is added to each one's products.
    pub biases: Option<&'a [ExpertBias]>,
    /// One that every row goes to.
    pub shared: Option<SharedExpert<'a>>,
    /// That one is a block beside the others, which has norms of its own.
    pub beside: Option<Beside<'a>>,
}

/// What is added to an expert's products.
#[derive(Clone, Debug)]
pub struct ExpertBias {
    /// To gates and values, in the order of the panels: zeros where these are padding.
    pub gate_up: Vec<f32>,
    /// To what goes back to the residual stream.
    pub down: Vec<f32>,
}

/// An expert that every row goes to.
#[derive(Clone, Copy, Debug)]
pub struct SharedExpert<'a> {
    /// Weights over the residual stream: the logistic function of a row's score is what the expert counts. One without
    /// counts in full.
    pub gate: Option<&'a [f32]>,
    /// The block.
    pub feed: &'a Feed,
}

impl Experts<'_> {
    /// The experts that a row of the residual stream would go to if the layer's norm and router saw it as it is: what an
    /// earlier layer can guess.
    ///
    /// # Panics
    /// If the row is not as wide as the router.
    #[must_use]
    pub fn guess(&self, isa: Isa, norm: RowNorm<'_>, row: &[f32]) -> Vec<u32> {
        let mut scores = vec![0.0; self.experts.len()];
        match &self.beside {
            Some(beside) => beside.score(isa, row, self.router, &mut scores),
            None => {
                let mut normed = vec![0.0; row.len()];
                norm.row(isa, row, &mut normed);
                dots(isa, &normed, self.router, &mut scores);
            }
        }
        if let Some(bias) = self.router_bias {
            add(isa, &mut scores, bias);
        }
        let (mut chosen, mut weights) = (vec![0; self.chosen], vec![0.0; self.chosen]);
        Chooser::new(isa, self.routing, self.choice_bias).choose(&scores, &mut chosen, &mut weights);
        chosen
    }
}

/// The experts' part of a feed-forward kernel: from normed rows to the residual stream.
pub(super) struct Call<'a> {
    pub(super) isa: Isa,
    pub(super) experts: &'a Experts<'a>,
    pub(super) gating: Gating,
    pub(super) shared: SharedBuffers<'a>,
    /// The normed rows, quantised.
    pub(super) quantized: SharedRows<'a>,
    /// What a block beside the experts takes in.
    of_block: SharedRows<'a>,
    /// Rows of the residual stream; their norms are rows `0..` of the normed ones.
    pub(super) rows: Range<usize>,
}

impl<'a> Call<'a> {
    /// # Panics
    /// If the experts do not have the shape that the buffers were made for.
    pub(super) fn new(
        isa: Isa,
        (experts, gating): (&'a Experts<'a>, Gating),
        (shared, quantized): (SharedBuffers<'a>, SharedRows<'a>),
        rows: Range<usize>,
    ) -> Self {
        let of_block = if experts.beside.is_some() { shared.beside.with_rows(rows.len()) } else { quantized };
        let call = Self { isa, experts, gating, shared, quantized, of_block, rows };
        let hidden = shared.residual.columns;
        assert!(experts.router.len() == experts.experts.len() * hidden);
        assert!(experts.shared.and_then(|expert| expert.gate).is_none_or(|gate| gate.len() == hidden));
        assert!(biases_fit(experts, hidden) && beside::fits(experts, hidden));
        assert!(call.scores() == shared.scores.columns && experts.chosen <= experts.experts.len());
        assert!(call.quantized.rows() == call.rows.len());
        assert!(rows_fit(&call) && call.feeds().all(|feed| feed.down.outputs() == hidden));
        call
    }

    /// Chooses each row's experts, from what was normed before a sync.
    pub(super) fn route(&self, worker: &Worker<'_>) {
        self.score(worker);
        worker.sync();
        self.choose(worker);
    }

    /// Computes some places and adds them to the residual stream, behind a sync after [`Self::route`].
    ///
    /// # Panics
    /// If places are marked, and not one for each of the call.
    pub(super) fn compute(&self, places: Places<'_>, worker: &Worker<'_>) {
        let plan = self.plan(places);
        self.multiply(&plan, worker);
        worker.sync();
        self.combine(&plan, worker);
    }

    /// Computes the places of some experts, by their numbers, and keeps what they come to for [`Self::add`].
    ///
    /// # Panics
    /// As [`Self::compute`], or if one of them is not in memory.
    pub(super) fn wave(&self, places: Places<'_>, experts: &[bool], worker: &Worker<'_>) {
        self.multiply(&self.plan(places).only(experts), worker);
    }

    /// Adds what all waves of these places came to to the residual stream.
    pub(super) fn add(&self, places: Places<'_>, worker: &Worker<'_>) {
        self.combine(&self.plan(places), worker);
    }

    fn plan(&self, places: Places<'_>) -> Plan {
        // SAFETY: nobody writes choices after the sync behind which this is called.
        let chosen = unsafe { self.shared.chosen.part(0..self.rows.len() * self.places()) };
        Plan::new(chosen, places, self.scores(), self.shared.residual.columns, |expert| self.width(expert))
    }

    fn multiply(&self, plan: &Plan, worker: &Worker<'_>) {
        for batch in plan.whole(worker) {
            self.alone(plan, batch);
        }
        self.together(plan, worker);
    }

    /// All steps of an expert, for all of its rows.
    fn alone(&self, plan: &Plan, batch: &Batch) {
        let (rows, feed) = (0..batch.slots.len(), self.feed(batch.expert));
        self.gather(plan, batch, rows.clone());
        self.gate(batch, 0..units(&feed.gate_up));
        self.quantize(batch, rows);
        self.project(batch, 0..units(&feed.down));
    }

    /// The steps of those that are divided, one after the other.
    fn together(&self, plan: &Plan, worker: &Worker<'_>) {
        if plan.divided(worker).next().is_none() {
            return;
        }
        if plan.divided(worker).any(|batch| !self.has_all(batch)) {
            plan.rows(worker).for_each(|(batch, rows)| self.gather(plan, batch, rows));
            worker.sync();
        }
        let parts = plan.parts(worker, |batch| units(&self.feed(batch.expert).gate_up));
        parts.for_each(|(batch, units)| self.gate(batch, units));
        worker.sync();
        plan.rows(worker).for_each(|(batch, rows)| self.quantize(batch, rows));
        worker.sync();
        let parts = plan.parts(worker, |batch| units(&self.feed(batch.expert).down));
        parts.for_each(|(batch, units)| self.project(batch, units));
    }

    /// Scores of all rows: blocks of experts of one row after the other.
    fn score(&self, worker: &Worker<'_>) {
        let (hidden, experts) = (self.shared.residual.columns, self.experts.experts.len());
        let blocks = self.scores().div_ceil(SCORE_BLOCK);
        for item in worker.share(self.rows.len() * blocks) {
            let (row, first) = (item / blocks, item % blocks * SCORE_BLOCK);
            let start = self.shared.scores.row(row).start;
            let end = (first + SCORE_BLOCK).min(experts);
            // SAFETY: the rows were normed before the last sync, and nobody writes the residual stream; the scores are this
            // item's.
            unsafe {
                let normed = self.shared.normed.values.part(self.shared.normed.row(row));
                let scores = self.shared.scores.values.part_mut(start + first..start + end.max(first));
                let router = &self.experts.router[first * hidden..end.max(first) * hidden];
                match &self.experts.beside {
                    None => dots(self.isa, normed, router, scores),
                    Some(beside) => {
                        let stream = self.shared.residual.row(self.rows.start + row);
                        beside.score(self.isa, self.shared.residual.values.part(stream), router, scores);
                    }
                }
                if let Some(bias) = self.experts.router_bias {
                    add(self.isa, scores, &bias[first..end.max(first)]);
                }
                if let Some(gate) = self.experts.shared.and_then(|shared| shared.gate)
                    && (first..first + SCORE_BLOCK).contains(&experts)
                {
                    let score = self.shared.scores.values.part_mut(start + experts..start + experts + 1);
                    dots(self.isa, normed, gate, score);
                }
            }
        }
    }

    fn choose(&self, worker: &Worker<'_>) {
        let (experts, chosen, places) = (self.experts.experts.len(), self.experts.chosen, self.places());
        let mut chooser = Chooser::new(self.isa, self.experts.routing, self.experts.choice_bias);
        for row in worker.share(self.rows.len()) {
            let all = row * places..(row + 1) * places;
            // SAFETY: the scores were computed before the last sync; the row's places are this worker's.
            unsafe {
                let scores = self.shared.scores.values.part(self.shared.scores.row(row));
                let (to, weights) = (self.shared.chosen.part_mut(all.clone()), self.shared.weights.part_mut(all));
                chooser.choose(&scores[..experts], &mut to[..chosen], &mut weights[..chosen]);
                if let Some(beside) = &self.experts.beside {
                    beside.weigh(&to[..chosen], &mut weights[..chosen]);
                }
                if let Some(shared) = self.experts.shared {
                    to[chosen] = experts as u32;
                    weights[chosen] = shared.gate.map_or(1.0, |_| chooser.sigmoid(scores[experts]));
                }
            }
        }
    }

    /// Gathers some rows of an expert.
    fn gather(&self, plan: &Plan, batch: &Batch, rows: Range<usize>) {
        if self.has_all(batch) {
            return;
        }
        let to = self.hidden_rows(batch);
        for row in rows {
            let from = plan.places[batch.slots.start + row] / self.places();
            // SAFETY: the rows were quantised before the last sync, and nobody writes them; the tile is this worker's.
            unsafe { to.copy_row(row, self.input(batch.expert), from) };
        }
    }

    fn gate(&self, batch: &Batch, units: Range<usize>) {
        let (feed, rows, (out, stride)) = (self.feed(batch.expert), self.hidden_rows(batch), self.gated(batch));
        let bias = self.bias(batch.expert).map(|bias| bias.gate_up.as_slice());
        let epilogue = Epilogue::Gated { target: Target { out, first_row: 0, stride }, gating: self.gating, bias };
        // SAFETY: the rows were gathered by this worker or before the last sync; the units are this worker's.
        unsafe { matmul_units(self.isa, &feed.gate_up, &rows, batch.slots.len(), &epilogue, units) };
    }

    /// Quantises what the gates let through.
    fn quantize(&self, batch: &Batch, rows: Range<usize>) {
        let (to, (gated, stride)) = (self.inner_rows(batch), self.gated(batch));
        let width = self.width(batch.expert);
        for row in rows {
            // SAFETY: the row was computed by this worker or before the last sync; the tile is this worker's.
            unsafe { to.set_row(self.isa, row, gated.part(row * stride..row * stride + width)) };
        }
    }

    fn project(&self, batch: &Batch, units: Range<usize>) {
        let products = &self.shared.products;
        let out = Target { out: products.values, first_row: batch.slots.start, stride: products.stride };
        let (down, rows) = (&self.feed(batch.expert).down, self.inner_rows(batch));
        // SAFETY: the rows were quantised by this worker or before the last sync; the units are this worker's.
        unsafe { matmul_units(self.isa, down, &rows, batch.slots.len(), &Epilogue::Store(out), units) };
    }

    /// Adds what a row's experts made of it to the residual stream.
    fn combine(&self, plan: &Plan, worker: &Worker<'_>) {
        if let Some(beside) = &self.experts.beside {
            return self.combine_beside(plan, beside, worker);
        }
        let residual = &self.shared.residual;
        let (rows, columns) = part(self.rows.len(), residual.columns, worker);
        for row in rows {
            let start = residual.row(self.rows.start + row).start;
            for place in row * self.places()..(row + 1) * self.places() {
                // SAFETY: weights and products were computed before the last sync; these columns of the row are this
                // worker's.
                unsafe {
                    let stream = residual.values.part_mut(start + columns.start..start + columns.end);
                    self.add_place(plan, place, columns.clone(), stream);
                }
            }
        }
    }

    /// Adds what a place came to, weighted, if it was computed: these columns of it.
    ///
    /// # Safety
    /// Weights and products were computed before the last sync, and nobody writes them.
    unsafe fn add_place(&self, plan: &Plan, place: usize, columns: Range<usize>, to: &mut [f32]) {
        let SharedBuffers { products, chosen, weights, .. } = &self.shared;
        let Some(slot) = plan.slots[place] else { return };
        let from = products.row(slot).start;
        // SAFETY: the caller's.
        unsafe {
            let product = products.values.part(from + columns.start..from + columns.end);
            let weight = weights.part(place..place + 1)[0];
            add_scaled(self.isa, to, weight, product);
            if let Some(bias) = self.bias(chosen.part(place..place + 1)[0] as usize) {
                add_scaled(self.isa, to, weight, &bias.down[columns]);
            }
        }
    }

    /// The shared expert has none.
    fn bias(&self, expert: usize) -> Option<&'a ExpertBias> {
        self.experts.biases?.get(expert)
    }

    /// The shared expert comes behind the others.
    fn feed(&self, expert: usize) -> &'a Feed {
        match self.experts.shared {
            Some(shared) if expert == self.experts.experts.len() => shared.feed,
            _ => self.experts.experts.get(expert).unwrap_or_else(|| panic!("expert {expert} is not in memory")),
        }
    }

    /// How wide an expert is.
    fn width(&self, expert: usize) -> usize {
        match self.experts.shared {
            Some(shared) if expert == self.experts.experts.len() => shared.feed.down.inputs(),
            _ => self.experts.experts.width(),
        }
    }

    /// All that are in memory.
    fn feeds(&self) -> impl Iterator<Item = &'a Feed> {
        self.experts.experts.present().chain(self.experts.shared.map(|shared| shared.feed))
    }

    fn places(&self) -> usize {
        self.experts.chosen + usize::from(self.experts.shared.is_some())
    }

    fn scores(&self) -> usize {
        self.experts.experts.len() + usize::from(self.experts.shared.is_some())
    }

    /// Whether an expert has all rows of the call, which then need not be gathered.
    fn has_all(&self, batch: &Batch) -> bool {
        batch.slots.len() == self.rows.len()
    }

    /// What an expert takes in, quantised.
    fn hidden_rows(&self, batch: &Batch) -> SharedRows<'a> {
        if self.has_all(batch) {
            return *self.input(batch.expert);
        }
        self.shared.gathered.narrow(batch.hidden_at, batch.slots.len(), self.shared.residual.columns)
    }

    /// All rows, as an expert takes them in.
    fn input(&self, expert: usize) -> &SharedRows<'a> {
        if expert == self.experts.experts.len() { &self.of_block } else { &self.quantized }
    }

    fn inner_rows(&self, batch: &Batch) -> SharedRows<'a> {
        self.shared.inner.narrow(batch.inner_at, batch.slots.len(), self.width(batch.expert))
    }

    /// A batch's gated rows, and their stride.
    fn gated(&self, batch: &Batch) -> (crate::memory::Shared<'a, f32>, usize) {
        let stride = stride(self.width(batch.expert));
        let all = batch.gated_at..batch.gated_at + batch.slots.len() * stride;
        (self.shared.gated.values.narrow(all), stride)
    }
}

/// Scores that are computed together: as many as a register file takes.
const SCORE_BLOCK: usize = 8;

/// Whether there is a bias for each expert, as long as what it is added to, where there are any.
fn biases_fit(experts: &Experts<'_>, hidden: usize) -> bool {
    let count = experts.experts.len();
    let fits = |(bias, feed): (&ExpertBias, &Feed)| {
        bias.gate_up.len() == feed.gate_up.panels() * PANEL && bias.down.len() == hidden
    };
    let all_fit = |biases: &[ExpertBias]| {
        let with_feeds = biases.iter().enumerate().filter_map(|(i, bias)| Some((bias, experts.experts.get(i)?)));
        biases.len() == count && { with_feeds }.all(fits)
    };
    experts.router_bias.is_none_or(|bias| bias.len() == count)
        && experts.choice_bias.is_none_or(|bias| bias.len() == count)
        && experts.biases.is_none_or(all_fit)
}

/// Whether the buffers have room for the choices and results of all rows.
fn rows_fit(call: &Call<'_>) -> bool {
    let places = call.rows.len() * call.places();
    places <= call.shared.chosen.len() && places * call.shared.products.stride <= call.shared.products.values.len()
}
