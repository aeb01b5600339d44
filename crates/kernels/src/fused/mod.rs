//! The fused kernels of a layer: QKV, attention, feed-forward; and the head. (Agent.xpu §4.2: three kernels a layer.)
//!
//! Each takes a crew and some rows of [`Buffers`], and is safe to call alone: what its workers share is borrowed for
//! the call, and steps that read each other's results are separated by syncs. Token-wise kernels (QKV, feed-forward,
//! head) take any rows of any sequences; attention takes the rows of one sequence at a time, and so does what stands in its
//! place in some models' layers: short convolutions and recurrences.

mod attention;
mod buffers;
mod computed_rows;
mod convolution;
mod experts;
mod ffn;
mod gate;
mod head;
mod layer_inputs;
mod qkv;
mod recurrence;

pub use attention::{AttentionShape, SequenceRows, TreeRows, attention};
pub use buffers::{Angles, BufferShape, Buffers, ExpertShape, RoutedRows, SpannedRows};
pub use computed_rows::{ComputedRows, store_computed};
pub use convolution::{ConvolvedRows, TAPS_MAX, project, short_convolution};
pub use experts::{Beside, ExpertBias, Experts, Feeds, Places, PresentFeeds, Routing, SharedExpert};
pub use ffn::{Block, Feed, FfnWeights, add_waves, feed_experts, feed_forward, feed_wave, project_attended, route};
pub use gate::gate_attended;
pub use head::{HeadWeights, head};
pub use layer_inputs::{InputWeights, LayerInputWeights, add_layer_input, layer_inputs, scale_stream};
pub use qkv::{CacheOf, HeadNorms, KvDestination, KvTail, QkvWeights, keys_and_values, qkv};
pub use recurrence::{Beginning, RecurrenceShape, RecurrenceWeights, RecurrentRows, Rule, Sharing, recurrence, replay};

use crate::crew::Worker;
use crate::isa::Isa;
use crate::matmul::FirstLines;
use crate::memory::Shared;
use crate::packed::PANEL;
use crate::quantize::{GROUP, SharedRows};
use crate::rows::{centre_columns, inverse_rms, mean_and_inverse_deviation, scale_columns};
use std::ops::Range;

/// A root-mean-square norm.
#[derive(Clone, Copy, Debug)]
pub struct Norm<'a> {
    /// One factor a column.
    pub weight: &'a [f32],
    /// Added to the mean square.
    pub epsilon: f32,
}

/// The norm of a row of the residual stream.
#[derive(Clone, Copy, Debug)]
pub enum RowNorm<'a> {
    /// By its root mean square.
    Rms(Norm<'a>),
    /// By its deviation, its mean taken off before; and a bias for each column, added after.
    Layer(Norm<'a>, &'a [f32]),
}

impl RowNorm<'_> {
    /// Norms a whole row.
    ///
    /// # Panics
    /// If `out` is not as long as `x`.
    pub fn row(&self, isa: Isa, x: &[f32], out: &mut [f32]) {
        self.columns(isa, x, 0..x.len(), out);
    }

    /// Norms some columns of the row `x`, whose moments are found anew.
    fn columns(&self, isa: Isa, x: &[f32], columns: Range<usize>, out: &mut [f32]) {
        let part = &x[columns.clone()];
        match *self {
            Self::Rms(norm) => {
                scale_columns(isa, part, inverse_rms(isa, x, norm.epsilon), &norm.weight[columns], out);
            }
            Self::Layer(norm, bias) => {
                let moments = mean_and_inverse_deviation(isa, x, norm.epsilon);
                centre_columns(isa, part, moments, &norm.weight[columns.clone()], &bias[columns], out);
            }
        }
    }
}

/// Rows of floats at a stride, shared by a crew.
#[derive(Clone, Copy, Debug)]
struct Matrix<'a> {
    values: Shared<'a, f32>,
    stride: usize,
    columns: usize,
}

impl<'a> Matrix<'a> {
    fn row(&self, row: usize) -> Range<usize> {
        row * self.stride..row * self.stride + self.columns
    }
}

/// Norms row `row(i)` of `x` into row `i` of `scratch` and quantises it as row `i` of `to`, for all rows of `to`, on all
/// workers. Where they divide columns, each finds the whole row's mean square anew.
///
/// # Safety
/// Nobody writes `x`, and no one but this crew touches `scratch` and `to`, between the surrounding syncs.
unsafe fn norm_rows(
    isa: Isa,
    norm: RowNorm<'_>,
    x: &Matrix<'_>,
    row: impl Fn(usize) -> usize,
    scratch: &Matrix<'_>,
    to: &SharedRows<'_>,
    worker: &Worker<'_>,
) {
    let (rows, groups) = to.part(worker);
    let columns = groups.start * GROUP..(groups.end * GROUP).min(x.columns);
    for index in rows {
        let start = scratch.row(index).start;
        // SAFETY: the caller's; these columns of the row are this worker's part.
        unsafe {
            let x = x.values.part(x.row(row(index)));
            let normed = scratch.values.part_mut(start + columns.start..start + columns.end);
            norm.columns(isa, x, columns.clone(), normed);
            to.set_groups(isa, index, groups.start, normed);
        }
    }
}

/// The rows and columns of a matrix that are this worker's: whole rows if there is one for each worker, else some columns
/// of all, in whole cache lines.
fn part(rows: usize, columns: usize, worker: &Worker<'_>) -> (Range<usize>, Range<usize>) {
    if rows >= worker.size() {
        return (worker.share(rows), 0..columns);
    }
    let panels = worker.share(columns.div_ceil(PANEL));
    (0..rows, panels.start * PANEL..(panels.end * PANEL).min(columns))
}

/// Meets the others, and fetches what the next product reads first until they have come.
fn sync_fetching(worker: &Worker<'_>, next: Option<&mut FirstLines<'_>>) {
    match next {
        Some(next) => worker.sync_while(|| next.fetch_next()),
        None => worker.sync(),
    }
}

/// Whether no two ranges have anything in common: what kernels that write to several places at once rely on. Empty ones
/// have nothing in common with any.
fn are_disjoint<T: Ord>(ranges: impl Iterator<Item = Range<T>>) -> bool {
    let mut ranges: Vec<Range<T>> = ranges.filter(|range| !range.is_empty()).collect();
    ranges.sort_unstable_by(|a, b| a.start.cmp(&b.start));
    ranges.windows(2).all(|pair| pair[0].end <= pair[1].start)
}

#[cfg(test)]
mod tests {
    use super::are_disjoint;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_are_disjoint_if_nothing_is_in_two(ranges in prop::collection::vec((0_usize..20, 0_usize..5), 0..6)) {
            let ranges = || ranges.iter().map(|&(start, len)| start..start + len);
            let most = (0..25).map(|at| ranges().filter(|range| range.contains(&at)).count()).max();
            prop_assert_eq!(are_disjoint(ranges()), most <= Some(1));
        }
    }
}
