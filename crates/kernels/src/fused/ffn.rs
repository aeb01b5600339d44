//! Feed-forward: output projection, norm, gated block, all added to the residual stream. Token-wise.
//!
//! Where experts stand in the block's place, it can also be run in three parts, so that a device may do the first or some
//! of the last: [`project_attended`], [`route`], [`feed_experts`]. Together they are [`feed_forward`], to the bit.

use super::buffers::SharedBuffers;
use super::{Buffers, Experts, Matrix, Norm, Places, RowNorm, experts, norm_rows, part, sync_fetching};
use crate::crew::{Crew, Worker};
use crate::isa::Isa;
use crate::matmul::{Epilogue, FirstLines, Gating, Target, matmul};
use crate::packed::PackedMatrix;
use crate::quantize::{Rows, SharedRows};
use crate::rows::{add, rms_norm_in_place};
use std::ops::Range;

/// The weights of a layer's feed-forward kernel.
#[derive(Clone, Copy, Debug)]
pub struct FfnWeights<'a> {
    /// From the attention's heads to the residual stream.
    pub output: &'a PackedMatrix,
    /// Added to the output projection.
    pub output_bias: Option<&'a [f32]>,
    /// Of the output projection before it is added (gemma).
    pub output_norm: Option<Norm<'a>>,
    /// Before the block.
    pub norm: RowNorm<'a>,
    /// The gates' nonlinearity.
    pub gating: Gating,
    /// The block.
    pub block: Block<'a>,
}

/// What is between the second norm and the residual stream.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "one a call, on the stack")]
pub enum Block<'a> {
    /// One gated block.
    Dense {
        /// Its matrices.
        feed: &'a Feed,
        /// Of its result before it is added (gemma).
        norm: Option<Norm<'a>>,
    },
    /// Many, of which each row goes to a few.
    Experts(Experts<'a>),
}

/// The matrices of a gated feed-forward block.
#[derive(Debug)]
pub struct Feed {
    /// Gates in the even panels, values in the odd ones.
    pub gate_up: PackedMatrix,
    /// Back to the residual stream.
    pub down: PackedMatrix,
}

impl Feed {
    /// Bytes that a product with one row reads.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.gate_up.bytes() + self.down.bytes()
    }

    /// Whether one of them has floats.
    #[must_use]
    pub fn has_floats(&self) -> bool {
        self.gate_up.has_floats() || self.down.has_floats()
    }

    /// Multiply-accumulates of a row.
    #[must_use]
    pub fn macs(&self) -> usize {
        self.gate_up.macs() + self.down.macs()
    }
}

/// Runs the kernel on `rows` of the buffers.
///
/// # Panics
/// If a shape does not fit.
pub fn feed_forward(isa: Isa, crew: &dyn Crew, weights: &FfnWeights<'_>, buffers: &mut Buffers, rows: Range<usize>) {
    let call = Call::new(isa, weights, buffers, rows);
    crew.run(&|worker| call.run(&worker));
}

/// Adds the output projection of what attention found to the residual stream.
///
/// # Panics
/// If a shape does not fit.
pub fn project_attended(
    isa: Isa,
    crew: &dyn Crew,
    weights: &FfnWeights<'_>,
    buffers: &mut Buffers,
    rows: Range<usize>,
) {
    let call = Call::new(isa, weights, buffers, rows);
    crew.run(&|worker| call.project_attended(&worker));
}

/// Norms the residual stream and chooses each row's experts. Nothing if the block is dense.
///
/// # Panics
/// If a shape does not fit.
pub fn route(isa: Isa, crew: &dyn Crew, weights: &FfnWeights<'_>, buffers: &mut Buffers, rows: Range<usize>) {
    let call = Call::new(isa, weights, buffers, rows);
    crew.run(&|worker| {
        call.norm(&worker);
        worker.sync();
        if let Inner::Experts(experts) = &call.block {
            experts.route(&worker);
        }
    });
}

/// Computes some places of the rows that [`route`] saw last, and adds them to the residual stream. Nothing if the block is
/// dense.
///
/// # Panics
/// If a shape does not fit, or places are marked and not one for each.
pub fn feed_experts(
    isa: Isa,
    crew: &dyn Crew,
    weights: &FfnWeights<'_>,
    buffers: &mut Buffers,
    rows: Range<usize>,
    places: Places<'_>,
) {
    let call = Call::new(isa, weights, buffers, rows);
    if let Inner::Experts(experts) = &call.block {
        crew.run(&|worker| experts.compute(places, &worker));
    }
}

/// Computes the places of some experts, by their numbers, of the rows that [`route`] saw last, and keeps what they come to
/// until [`add_waves`]. Nothing if the block is dense.
///
/// # Panics
/// As [`feed_experts`], or if one of them is not in memory.
pub fn feed_wave(
    isa: Isa,
    crew: &dyn Crew,
    weights: &FfnWeights<'_>,
    buffers: &mut Buffers,
    rows: Range<usize>,
    (places, wave): (Places<'_>, &[bool]),
) {
    let call = Call::new(isa, weights, buffers, rows);
    if let Inner::Experts(experts) = &call.block {
        crew.run(&|worker| experts.wave(places, wave, &worker));
    }
}

/// Adds what the waves of some places came to to the residual stream. With the waves before it, this is [`feed_experts`], to
/// the bit. Nothing if the block is dense.
///
/// # Panics
/// As [`feed_experts`].
pub fn add_waves(
    isa: Isa,
    crew: &dyn Crew,
    weights: &FfnWeights<'_>,
    buffers: &mut Buffers,
    rows: Range<usize>,
    places: Places<'_>,
) {
    let call = Call::new(isa, weights, buffers, rows);
    if let Inner::Experts(experts) = &call.block {
        crew.run(&|worker| experts.add(places, &worker));
    }
}

struct Call<'a> {
    isa: Isa,
    weights: &'a FfnWeights<'a>,
    shared: SharedBuffers<'a>,
    /// At the widths of the attention's heads, the residual stream and the block.
    quantized: [SharedRows<'a>; 3],
    rows: Range<usize>,
    block: Inner<'a>,
}

#[expect(clippy::large_enum_variant, reason = "one a call, on the stack")]
enum Inner<'a> {
    Dense(&'a Feed, Option<Norm<'a>>),
    Experts(experts::Call<'a>),
}

impl<'a> Call<'a> {
    fn new(isa: Isa, weights: &'a FfnWeights<'a>, buffers: &'a mut Buffers, rows: Range<usize>) -> Self {
        assert!(rows.end <= buffers.rows());
        buffers.note_routing(matches!(weights.block, Block::Experts(_)));
        let shape = *buffers.shape();
        // Layers differ in how much is found in them.
        let found = weights.output.inputs();
        assert!(found <= shape.queries);
        let inner = match &weights.block {
            Block::Dense { feed, .. } => feed.down.inputs(),
            Block::Experts(_) => shape.ffn,
        };
        assert!(inner <= shape.ffn);
        let (shared, widths) = buffers.share_widths([found, shape.hidden, inner]);
        let quantized = widths.map(|quantized| quantized.with_rows(rows.len()));
        let block = match &weights.block {
            Block::Dense { feed, norm } => Inner::Dense(feed, *norm),
            Block::Experts(all) => {
                Inner::Experts(experts::Call::new(isa, (all, weights.gating), (shared, quantized[1]), rows.clone()))
            }
        };
        Self { isa, weights, shared, quantized, rows, block }
    }

    fn run(&self, worker: &Worker<'_>) {
        self.project_attended(worker);
        let mut next = match &self.block {
            Inner::Dense(feed, _) => Some(FirstLines::of(&feed.gate_up, worker)),
            Inner::Experts(_) => None,
        };
        sync_fetching(worker, next.as_mut());
        self.norm(worker);
        sync_fetching(worker, next.as_mut());
        match &self.block {
            Inner::Dense(feed, norm) => self.dense(feed, *norm, worker),
            Inner::Experts(experts) => {
                experts.route(worker);
                worker.sync();
                experts.compute(Places::All, worker);
            }
        }
    }

    fn project_attended(&self, worker: &Worker<'_>) {
        let Self { weights, shared, quantized: [heads, ..], .. } = self;
        let attended = Matrix { columns: weights.output.inputs(), ..shared.attended };
        self.quantize(&attended, self.rows.start, heads, worker);
        self.add_bias(worker);
        sync_fetching(worker, Some(&mut FirstLines::of(weights.output, worker)));
        self.project(weights.output, heads, weights.output_norm, worker);
    }

    fn norm(&self, worker: &Worker<'_>) {
        let Self { isa, weights, shared, quantized: [_, hidden, _], .. } = self;
        if let Inner::Experts(experts) = &self.block {
            experts.norm_beside(worker);
        }
        let from = |row| self.rows.start + row;
        // SAFETY: the kernel has borrowed the buffers alone; syncs surround this.
        unsafe { norm_rows(*isa, weights.norm, &shared.residual, from, &shared.normed, hidden, worker) };
    }

    fn dense(&self, feed: &Feed, norm: Option<Norm<'_>>, worker: &Worker<'_>) {
        let Self { isa, weights, shared, quantized: [_, hidden, inner], .. } = self;
        let out = Target { out: shared.gated.values, first_row: 0, stride: shared.gated.stride };
        let gated = Epilogue::Gated { target: out, gating: weights.gating, bias: None };
        // SAFETY: each worker calls once, between syncs; the kernel has borrowed the buffers alone.
        unsafe { matmul(*isa, &feed.gate_up, hidden, self.rows.len(), &gated, worker) };
        let mut next = FirstLines::of(&feed.down, worker);
        sync_fetching(worker, Some(&mut next));
        let gated = Matrix { columns: feed.down.inputs(), ..shared.gated };
        self.quantize(&gated, 0, inner, worker);
        sync_fetching(worker, Some(&mut next));
        self.project(&feed.down, inner, norm, worker);
    }

    /// Adds the output projection's bias to the residual stream, while nobody reads it.
    fn add_bias(&self, worker: &Worker<'_>) {
        let Some(bias) = self.weights.output_bias else { return };
        let residual = &self.shared.residual;
        let (rows, columns) = part(self.rows.len(), residual.columns, worker);
        for row in rows {
            let start = residual.row(self.rows.start + row).start;
            // SAFETY: these columns of the row are this worker's, with a sync after.
            let stream = unsafe { residual.values.part_mut(start + columns.start..start + columns.end) };
            add(self.isa, stream, &bias[columns.clone()]);
        }
    }

    /// Quantises rows `first..` of `from`.
    fn quantize(&self, from: &Matrix<'_>, first: usize, to: &SharedRows<'_>, worker: &Worker<'_>) {
        let source = Rows { values: from.values, stride: from.stride, columns: from.columns, first };
        // SAFETY: rows and columns are shared out between workers, with syncs before and after.
        unsafe { to.set_rows(self.isa, source, worker) };
    }

    /// Adds the product to the residual stream, by way of a norm where there is one.
    fn project(&self, matrix: &PackedMatrix, rows: &SharedRows<'_>, norm: Option<Norm<'_>>, worker: &Worker<'_>) {
        let Self { isa, shared, .. } = self;
        let residual =
            Target { out: shared.residual.values, first_row: self.rows.start, stride: shared.residual.stride };
        let Some(norm) = norm else {
            // SAFETY: each worker calls once, between syncs; the kernel has borrowed the buffers alone.
            return unsafe { matmul(*isa, matrix, rows, self.rows.len(), &Epilogue::Add(residual), worker) };
        };
        let scratch = Target { out: shared.normed.values, first_row: 0, stride: shared.normed.stride };
        // SAFETY: as above.
        unsafe { matmul(*isa, matrix, rows, self.rows.len(), &Epilogue::Store(scratch), worker) };
        worker.sync();
        for row in worker.share(self.rows.len()) {
            // SAFETY: the row is this worker's share.
            unsafe {
                let result = shared.normed.values.part_mut(shared.normed.row(row));
                rms_norm_in_place(*isa, result, norm.weight, norm.epsilon);
                add(*isa, shared.residual.values.part_mut(shared.residual.row(self.rows.start + row)), result);
            }
        }
    }
}
