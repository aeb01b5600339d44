//! The activations of a pass: one layer's, reused through the layers.

use super::Matrix;
use crate::memory::{Aligned, Shared};
use crate::packed::PANEL;
use crate::quantize::{Operands, QuantizedRows, SharedRows, TILE};
use std::ops::Range;

/// Widths that a model's layers need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferShape {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Query, key and value heads side by side, or what else layers project to.
    pub qkv: usize,
    /// All query heads side by side, or what else is found in a layer, the widest.
    pub queries: usize,
    /// Width of the feed-forward block; none if all layers have experts in its place.
    pub ffn: usize,
    /// Experts in place of the block.
    pub experts: Option<ExpertShape>,
    /// Floats of cosines (as many of sines) for each row.
    pub angles: usize,
    /// Inputs that layers have of their own, of all layers side by side; none: they have none.
    pub layer_inputs: usize,
    /// What products read of rows.
    pub operands: Operands,
}

/// Experts in place of a feed-forward block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertShape {
    /// How many there are, the shared one not counted.
    pub experts: usize,
    /// How many a row goes to.
    pub chosen: usize,
    /// Width of each.
    pub ffn: usize,
    /// Width of the one that all rows go to; none: there is none.
    pub shared: usize,
    /// Whether that one is a block beside the others, which takes in rows of a norm of its own.
    pub beside: bool,
}

impl ExpertShape {
    /// Experts that a row goes to, the shared one counted.
    pub(super) fn places(&self) -> usize {
        self.chosen + usize::from(self.shared > 0)
    }

    /// Scores of a row: one for each expert, and for the shared one.
    pub(super) fn scores(&self) -> usize {
        self.experts + usize::from(self.shared > 0)
    }

    /// Room for the rows that are gathered for the experts that rows are routed to, each expert's beginning at a tile.
    fn gathered(&self, rows: usize) -> usize {
        let routed = rows * self.chosen;
        (routed / TILE + routed.min(self.experts)) * TILE
    }

    /// The same for all experts.
    fn inner(&self, rows: usize) -> usize {
        self.gathered(rows) + if self.shared > 0 { rows.next_multiple_of(TILE) } else { 0 }
    }
}

/// The activations of up to [`Self::rows`] rows. (Agent.xpu §4.1: one recurrent single-layer buffer.)
#[derive(Debug)]
pub struct Buffers {
    shape: BufferShape,
    rows: usize,
    residual: Aligned<f32>,
    normed: Aligned<f32>,
    qkv: Aligned<f32>,
    attended: Aligned<f32>,
    gated: Aligned<f32>,
    quantized: QuantizedRows,
    routing: Routed,
    cosines: Aligned<f32>,
    sines: Aligned<f32>,
    layer_inputs: Aligned<f32>,
    partials: Vec<f32>,
}

/// What experts need beside the buffers of a dense block.
#[derive(Debug)]
struct Routed {
    scores: Aligned<f32>,
    /// For each row the experts it goes to, the shared one last.
    chosen: Aligned<u32>,
    /// And their weights.
    weights: Aligned<f32>,
    /// What each made of it, in the order of the experts.
    products: Aligned<f32>,
    /// The rows of each expert, quantised, as they go in and behind the gates.
    gathered: QuantizedRows,
    inner: QuantizedRows,
    /// What a block beside them takes in.
    beside: QuantizedRows,
    /// Whether the last feed-forward kernel chose any.
    is_of_last: bool,
}

impl Routed {
    fn new(rows: usize, BufferShape { hidden, experts, operands, .. }: BufferShape) -> Self {
        let (scores, places) = experts.map_or((0, 0), |experts| (stride(experts.scores()), experts.places()));
        let widest = experts.map_or(0, |experts| experts.ffn.max(experts.shared));
        let beside = experts.filter(|experts| experts.beside).map_or(0, |_| rows);
        Self {
            scores: Aligned::zeroed(rows * scores),
            chosen: Aligned::zeroed(rows * places),
            weights: Aligned::zeroed(rows * places),
            products: Aligned::zeroed(rows * places * stride(hidden)),
            gathered: QuantizedRows::new(experts.map_or(0, |experts| experts.gathered(rows)), hidden, operands),
            inner: QuantizedRows::new(experts.map_or(0, |experts| experts.inner(rows)), widest, operands),
            beside: QuantizedRows::new(beside, hidden, operands),
            is_of_last: false,
        }
    }

    fn bytes(&self) -> usize {
        let floats = self.scores.bytes() + self.chosen.bytes() + self.weights.bytes() + self.products.bytes();
        floats + self.gathered.bytes() + self.inner.bytes() + self.beside.bytes()
    }
}

/// Rows whose experts are chosen.
#[derive(Debug)]
pub struct RoutedRows<'a> {
    /// Experts of a row, the one that all rows go to counted.
    pub places: usize,
    /// Which they are, `[rows][places]`, best first; the one that all rows go to is last, and its number is how many there
    /// are beside it.
    pub experts: &'a [u32],
    /// What each counts.
    pub weights: &'a [f32],
    /// What attention found, all heads side by side.
    pub attended: &'a [f32],
    /// What experts take in.
    pub normed: &'a [f32],
    /// Where what they make of it is added.
    pub residual: &'a mut [f32],
}

/// Rows for a device that runs several nodes, dense.
#[derive(Debug)]
pub struct SpannedRows<'a> {
    /// The residual stream.
    pub residual: &'a mut [f32],
    /// Queries, keys and values.
    pub projected: &'a mut [f32],
    /// What attention found.
    pub attended: &'a mut [f32],
    /// What rope turns them by.
    pub angles: Angles<'a>,
}

/// What rope turns some rows by: of each pair of dimensions the cosine and the sine.
#[derive(Clone, Copy, Debug)]
pub struct Angles<'a> {
    /// `[rows][stride]`.
    pub cosines: &'a [f32],
    /// Likewise.
    pub sines: &'a [f32],
    /// Floats from one row to the next.
    pub stride: usize,
}

/// [`Buffers`] in the hands of a crew.
#[derive(Clone, Copy, Debug)]
pub(super) struct SharedBuffers<'a> {
    pub(super) residual: Matrix<'a>,
    pub(super) normed: Matrix<'a>,
    pub(super) qkv: Matrix<'a>,
    pub(super) attended: Matrix<'a>,
    /// With experts, the rows of each at its own width, in the order of the experts.
    pub(super) gated: Matrix<'a>,
    pub(super) scores: Matrix<'a>,
    pub(super) chosen: Shared<'a, u32>,
    pub(super) weights: Shared<'a, f32>,
    pub(super) products: Matrix<'a>,
    pub(super) gathered: SharedRows<'a>,
    pub(super) inner: SharedRows<'a>,
    pub(super) beside: SharedRows<'a>,
    pub(super) cosines: Matrix<'a>,
    pub(super) sines: Matrix<'a>,
    pub(super) layer_inputs: Matrix<'a>,
}

impl Buffers {
    /// Zeroed buffers.
    #[must_use]
    pub fn new(shape: BufferShape, rows: usize) -> Self {
        let experts = shape.experts;
        let widest = shape.ffn.max(shape.hidden).max(shape.queries);
        let gated = experts.map_or(0, |experts| experts.chosen * stride(experts.ffn) + stride(experts.shared));
        let floats = |columns| Aligned::zeroed(rows * stride(columns));
        Self {
            shape,
            rows,
            residual: floats(shape.hidden),
            normed: floats(shape.hidden),
            qkv: floats(shape.qkv),
            attended: floats(shape.queries),
            gated: floats(shape.ffn + gated),
            quantized: QuantizedRows::new(rows, widest, shape.operands),
            routing: Routed::new(rows, shape),
            cosines: floats(shape.angles),
            sines: floats(shape.angles),
            layer_inputs: floats(shape.layer_inputs),
            partials: Vec::new(),
        }
    }

    /// Rows there is room for.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The widths.
    #[must_use]
    pub fn shape(&self) -> &BufferShape {
        &self.shape
    }

    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let of_layers = [&self.residual, &self.normed, &self.qkv, &self.attended, &self.gated, &self.layer_inputs];
        let floats = of_layers.into_iter().chain([&self.cosines, &self.sines]);
        floats.map(|buffer| buffer.bytes()).sum::<usize>()
            + self.quantized.bytes()
            + self.routing.bytes()
            + self.partials.capacity() * 4
    }

    /// Row `row` of the residual stream.
    #[must_use]
    pub fn residual(&self, row: usize) -> &[f32] {
        &self.residual[row * stride(self.shape.hidden)..][..self.shape.hidden]
    }

    /// Row `row` of the residual stream, to set it.
    pub fn residual_mut(&mut self, row: usize) -> &mut [f32] {
        &mut self.residual[row * stride(self.shape.hidden)..][..self.shape.hidden]
    }

    /// Some rows, dense, for a device that projects the residual stream to queries, keys and values: what it reads and
    /// where it writes. Nothing if rows are not dense, which is so where a width is no whole number of panels.
    pub fn projected(&mut self, rows: Range<usize>) -> Option<(&[f32], &mut [f32])> {
        let BufferShape { hidden, qkv, .. } = self.shape;
        let input = dense(hidden, &rows)?;
        Some((&self.residual[input], &mut self.qkv[dense(qkv, &rows)?]))
    }

    /// The same for a device that does all after attention: what attention found, the residual stream, and where the new
    /// residual stream is written before [`Self::take_fed`].
    pub fn fed(&mut self, rows: Range<usize>) -> Option<(&[f32], &[f32], &mut [f32])> {
        let BufferShape { hidden, queries, .. } = self.shape;
        let stream = dense(hidden, &rows)?;
        let attended = &self.attended[dense(queries, &rows)?];
        Some((attended, &self.residual[stream.clone()], &mut self.normed[stream]))
    }

    /// The same for a device that attends: queries, keys and values of these rows, of which queries come first; floats from
    /// one row to the next; and where it writes what it finds.
    pub fn attending(&mut self, rows: Range<usize>) -> Option<(&[f32], usize, &mut [f32])> {
        let BufferShape { qkv, queries, .. } = self.shape;
        let input = dense(qkv, &rows)?;
        Some((&self.qkv[input], qkv, &mut self.attended[dense(queries, &rows)?]))
    }

    /// The same for a device that runs several nodes.
    pub fn spanned(&mut self, rows: Range<usize>) -> Option<SpannedRows<'_>> {
        let BufferShape { hidden, qkv, queries, angles, .. } = self.shape;
        let turned = rows.start * stride(angles)..rows.end * stride(angles);
        let angles =
            Angles { cosines: &self.cosines[turned.clone()], sines: &self.sines[turned], stride: stride(angles) };
        Some(SpannedRows {
            residual: &mut self.residual[dense(hidden, &rows)?],
            projected: &mut self.qkv[dense(qkv, &rows)?],
            attended: &mut self.attended[dense(queries, &rows)?],
            angles,
        })
    }

    /// Takes what a device wrote as the new residual stream of these rows.
    pub fn take_fed(&mut self, rows: Range<usize>) {
        let stride = stride(self.shape.hidden);
        let stream = rows.start * stride..rows.end * stride;
        self.residual[stream.clone()].copy_from_slice(&self.normed[stream]);
    }

    /// Row `row` of what attention found, all heads side by side.
    #[must_use]
    pub fn attended(&self, row: usize) -> &[f32] {
        &self.attended[row * stride(self.shape.queries)..][..self.shape.queries]
    }

    /// Which experts the last feed-forward kernel chose for the `row`th of its rows, best first and the shared one not
    /// counted, and their weights. Nothing where a layer has no experts. It is what the kernel keeps anyway: nobody pays
    /// for it who does not look.
    ///
    /// # Panics
    /// If there is no such row.
    #[must_use]
    pub fn routes(&self, row: usize) -> Option<(&[u32], &[f32])> {
        let experts = self.shape.experts.filter(|_| self.routing.is_of_last)?;
        let places = row * experts.places()..row * experts.places() + experts.chosen;
        Some((&self.routing.chosen[places.clone()], &self.routing.weights[places]))
    }

    /// What the last routing of these rows found, dense, and where results are added; nothing where a layer has no experts
    /// or rows are not dense.
    pub fn routed(&mut self, rows: Range<usize>) -> Option<RoutedRows<'_>> {
        let (experts, hidden) = (self.shape.experts?, self.shape.hidden);
        let places = 0..rows.len() * experts.places();
        Some(RoutedRows {
            places: experts.places(),
            experts: &self.routing.chosen[places.clone()],
            weights: &self.routing.weights[places],
            attended: &self.attended[dense(self.shape.queries, &rows)?],
            normed: &self.normed[dense(hidden, &(0..rows.len()))?],
            residual: &mut self.residual[dense(hidden, &rows)?],
        })
    }

    /// The column that a row of a short convolution adds to its sequence's state, if it is projected.
    ///
    /// # Panics
    /// If there is no such row, or `column` is not as wide as the residual stream.
    pub fn column(&self, row: usize, column: &mut [f32]) {
        let hidden = self.shape.hidden;
        let projected = &self.qkv[row * stride(self.shape.qkv)..][..3 * hidden];
        let products = projected[..hidden].iter().zip(&projected[2 * hidden..]);
        assert!(column.len() == hidden);
        column.iter_mut().zip(products).for_each(|(column, (gate, value))| *column = gate * value);
    }

    /// A part of what a row was projected to.
    ///
    /// # Panics
    /// If there is no such row or part.
    #[must_use]
    pub fn projection(&self, row: usize, part: Range<usize>) -> &[f32] {
        &self.qkv[row * stride(self.shape.qkv)..][..self.shape.qkv][part]
    }

    /// Notes what feed-forward kernel comes: one that chooses experts, or another.
    pub(super) fn note_routing(&mut self, routes: bool) {
        self.routing.is_of_last = routes;
    }

    /// The cosines and sines that rope turns row `row` by.
    pub fn angles_mut(&mut self, row: usize) -> (&mut [f32], &mut [f32]) {
        let start = row * stride(self.shape.angles);
        (&mut self.cosines[start..][..self.shape.angles], &mut self.sines[start..][..self.shape.angles])
    }

    /// Of each of some rows the residual stream, and the cosines and sines that rope turns it by, to set them.
    pub fn embedded_mut(&mut self, rows: Range<usize>) -> impl Iterator<Item = (&mut [f32], &mut [f32], &mut [f32])> {
        let BufferShape { hidden, angles, .. } = self.shape;
        let begin = |columns: usize| rows.start * stride(columns);
        let residual = self.residual[begin(hidden)..].chunks_mut(stride(hidden)).map(move |row| &mut row[..hidden]);
        let (cosines, sines) = (&mut self.cosines[begin(angles)..], &mut self.sines[begin(angles)..]);
        // Models without rope have none.
        let of_row = stride(angles).max(1);
        let mut turned = cosines.chunks_mut(of_row).zip(sines.chunks_mut(of_row));
        residual.take(rows.len()).map(move |row| {
            let (cosines, sines) = turned.next().unwrap_or_default();
            (row, &mut cosines[..angles], &mut sines[..angles])
        })
    }

    /// The inputs that all layers have of a row, side by side.
    pub fn layer_inputs_mut(&mut self, row: usize) -> &mut [f32] {
        &mut self.layer_inputs[row * stride(self.shape.layer_inputs)..][..self.shape.layer_inputs]
    }

    /// Shares everything with a crew; quantised rows are `columns` wide, and there are `partials` floats for partial
    /// results.
    pub(super) fn share(
        &mut self,
        columns: usize,
        partials: usize,
    ) -> (SharedBuffers<'_>, SharedRows<'_>, Shared<'_, f32>) {
        if self.partials.len() < partials {
            self.partials.resize(partials, 0.0);
        }
        let shape = self.shape;
        let shared = SharedBuffers {
            residual: matrix(&mut self.residual, shape.hidden),
            normed: matrix(&mut self.normed, shape.hidden),
            qkv: matrix(&mut self.qkv, shape.qkv),
            attended: matrix(&mut self.attended, shape.queries),
            gated: matrix(&mut self.gated, shape.ffn),
            scores: matrix(&mut self.routing.scores, shape.experts.map_or(0, |experts| experts.scores())),
            chosen: Shared::new(&mut self.routing.chosen),
            weights: Shared::new(&mut self.routing.weights),
            products: matrix(&mut self.routing.products, shape.hidden),
            gathered: self.routing.gathered.share(shape.hidden),
            inner: self.routing.inner.share(0),
            beside: self.routing.beside.share(shape.hidden),
            cosines: matrix(&mut self.cosines, shape.angles),
            sines: matrix(&mut self.sines, shape.angles),
            layer_inputs: matrix(&mut self.layer_inputs, shape.layer_inputs),
        };
        (shared, self.quantized.share(columns), Shared::new(&mut self.partials))
    }

    /// Shares the quantised rows at two widths, for kernels that quantise twice.
    pub(super) fn share_widths(&mut self, widths: [usize; 3]) -> (SharedBuffers<'_>, [SharedRows<'_>; 3]) {
        let (shared, rows, _) = self.share(widths[0], 0);
        let rows = widths.map(|columns| rows.with_columns(columns));
        (shared, rows)
    }
}

/// Rows begin at cache lines and hold whole panels.
pub(super) fn stride(columns: usize) -> usize {
    columns.next_multiple_of(PANEL)
}

/// The floats of some rows if nothing lies between them.
fn dense(columns: usize, rows: &Range<usize>) -> Option<Range<usize>> {
    columns.is_multiple_of(PANEL).then(|| rows.start * columns..rows.end * columns)
}

fn matrix(buffer: &mut Aligned<f32>, columns: usize) -> Matrix<'_> {
    Matrix { values: Shared::new(buffer), stride: stride(columns), columns }
}
