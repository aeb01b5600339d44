//! What a layer's graphs cost in each shape, and so what those of a block do.
//!
//! Layers are alike: a block of n layers costs n times one layer, and each load what loads have in common besides.

use super::GraphProfileError;
use duet_scheduler::progressive::{Block, Blocks, Candidate, GraphCost, Pair, PassTime};
use duet_types::{Bytes, Nanos, Tokens};
use serde::{Deserialize, Serialize};
use std::num::NonZeroUsize;

/// A model's layers, and what each costs in every shape that was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GraphCosts {
    /// Of the model.
    pub(super) layers: usize,
    /// Of the measurement: what is said of all of them is extrapolated.
    pub(super) measured: usize,
    /// By their rows, ascending.
    pub(super) shapes: Vec<ShapeCost>,
}

/// What the graphs of a layer cost in one shape: medians, and of loads the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShapeCost {
    /// Rows.
    pub rows: Tokens,
    /// A pass of the layer over all of them, attention on the CPU included.
    pub pass: PassTime,
    /// Loading.
    pub load: LoadTime,
    /// What the layer's graphs take in the cache.
    pub bytes: Bytes,
    /// Compiling the layer's graphs.
    pub compile: Nanos,
    /// Samples of passes and loads.
    pub samples: usize,
}

/// How long loading a block takes: `fixed + layers × per_layer`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadTime {
    /// What a load takes however few layers it has.
    pub fixed: Nanos,
    /// More for each layer.
    pub per_layer: Nanos,
}

impl ShapeCost {
    /// The graphs of a block of `layers` layers. A time that is too long for a profile is said to be by
    /// [`GraphCosts::blocks`].
    #[must_use]
    pub fn of_block(&self, layers: usize) -> GraphCost {
        let times = |each: u64| each.saturating_mul(layers as u64);
        let Self { pass: PassTime { empty, per_position }, load: LoadTime { fixed, per_layer }, bytes, .. } = *self;
        GraphCost {
            pass: PassTime { empty: Nanos(times(empty.0)), per_position: Nanos(times(per_position.0)) },
            load: Nanos(fixed.0.saturating_add(times(per_layer.0))),
            bytes: Bytes(times(bytes.0)),
        }
    }
}

impl GraphCosts {
    /// Layers of the model.
    #[must_use]
    pub fn layers(&self) -> usize {
        self.layers
    }

    /// Layers that were measured; the others are taken to be like them.
    #[must_use]
    pub fn measured(&self) -> usize {
        self.measured
    }

    /// Every shape that was measured, by their rows, ascending.
    #[must_use]
    pub fn shapes(&self) -> &[ShapeCost] {
        &self.shapes
    }

    /// The model, cut into the candidate's blocks, with graphs of its rows.
    ///
    /// # Errors
    /// If such graphs were not measured, or the blocks cannot be.
    pub fn blocks(&self, candidate: Candidate) -> Result<Blocks, GraphProfileError> {
        let Candidate { blocks: count, rows } = candidate;
        let (Some(prefill), Some(decode)) = (self.shape(rows.prefill), self.shape(rows.decode)) else {
            return Err(GraphProfileError::NotMeasured(rows));
        };
        let count = NonZeroUsize::new(count.min(Blocks::COUNT_MAX + 1)).unwrap_or(NonZeroUsize::MIN);
        let sizes = crate::switching::shelf::cut(self.layers, count).into_iter().map(|layers| layers.len());
        let block = |layers| Block { prefill: prefill.of_block(layers), decode: decode.of_block(layers) };
        Blocks::new(rows, sizes.map(block).collect()).map_err(GraphProfileError::Blocks)
    }

    /// The smallest set of graphs of which one of each block is exchanged for another.
    pub(super) fn least_set(&self) -> Bytes {
        // Exchanging two shapes needs room for the larger one.
        let mut each: Vec<u64> = self.shapes.iter().map(|shape| shape.bytes.0).collect();
        each.sort_unstable();
        Bytes(each.get(1).or(each.first()).map_or(0, |bytes| bytes.saturating_mul(self.layers as u64)))
    }

    /// The largest set of graphs, and a tenth of it: room for a block more where the model is cut into ten or more.
    pub(super) fn set_and_a_tenth(&self) -> Bytes {
        let largest = self.shapes.iter().map(|shape| shape.bytes.0).max().unwrap_or(0);
        Bytes(largest.saturating_mul((self.layers + self.layers.div_ceil(10)) as u64))
    }

    fn shape(&self, rows: Tokens) -> Option<&ShapeCost> {
        self.shapes.iter().find(|shape| shape.rows == rows)
    }

    /// All pairs of shapes that may be exchanged: more rows for prompts, fewer to decode.
    pub(super) fn pairs(&self) -> impl Iterator<Item = Pair<Tokens>> {
        self.shapes.iter().flat_map(|prefill| {
            let fewer = self.shapes.iter().filter(|decode| decode.rows < prefill.rows);
            fewer.map(|decode| Pair { prefill: prefill.rows, decode: decode.rows })
        })
    }
}
