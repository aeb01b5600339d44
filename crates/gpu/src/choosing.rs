//! How products are computed on an adapter, chosen by measurement with the model's own blocks when it is copied there. All methods
//! have the same results, to the bit.

use crate::adapters::Kind;
use crate::error::GpuError;
use crate::placed::Loaded;
use crate::products::{Method, Products, SIZE_COUNT, SIZES};
use crate::recording::Recording;
use crate::room::Widths;
use std::time::Duration;

/// Rows that the method for many is chosen with: some tiles.
const ROWS: usize = 16;
/// How many threads may share out an output, for rows as [`SIZES`] has them.
const SPLITS: [&[usize]; SIZE_COUNT] = [&[1, 8, 16, 32], &[1, 4, 8, 16], &[1, 4, 8], &[1, 4, 8], &[1, 4]];
/// Rows that a size without end is measured with.
const MANY: usize = 256;
/// How often each method is timed, in turns: a GPU that had nothing to do becomes faster meanwhile.
const ROUNDS: usize = 5;

impl Loaded {
    /// Chooses how products are computed, and then how many threads share out an output for few rows and for many: as a feed-forward
    /// block is done soonest.
    pub(crate) fn choose(&mut self) -> Result<(), GpuError> {
        let all = [Products::Bytes, Products::Floats].into_iter().flat_map(|products| [(products, 64), (products, 16)]);
        let first = self.method;
        let methods: Vec<_> = all.map(|(products, width)| Method { products, width, split: first.split }).collect();
        let mut times = vec![self.fastest(&methods, ROWS)?];
        for (size, splits) in self.tried_splits().enumerate() {
            let before = self.method;
            let with = |&threads: &usize| {
                let mut method = before;
                method.split[size] = threads;
                method
            };
            let methods: Vec<_> = splits.iter().map(with).collect();
            times.push(self.fastest(&methods, SIZES[size].min(MANY))?);
        }
        tracing::info!(method = ?self.method, ?times, fusing = ?self.gpu.fusing, "products on a GPU were measured");
        Ok(())
    }

    /// What is tried: of a program on the processor, which has few threads and takes seconds for many rows, what it may gain by.
    fn tried_splits(&self) -> impl Iterator<Item = &'static [usize]> + use<> {
        let few = if self.gpu.kind == Kind::Software { (2, 3) } else { (usize::MAX, SIZE_COUNT) };
        SPLITS.into_iter().take(few.1).map(move |splits| &splits[..splits.len().min(few.0)])
    }

    /// Takes the method in which so many rows are done soonest. How soon that is.
    fn fastest(&mut self, methods: &[Method], rows: usize) -> Result<Duration, GpuError> {
        let rounds = if self.gpu.kind == Kind::Software { 2 } else { ROUNDS };
        let mut best = vec![Duration::MAX; methods.len()];
        // The first round compiles.
        for round in 0..=rounds {
            for (&method, best) in methods.iter().zip(&mut best) {
                self.method = method;
                let time = self.block_time(rows)?;
                if round > 0 {
                    *best = time.min(*best);
                }
            }
        }
        let soonest = best.iter().zip(methods).min_by_key(|(time, _)| **time);
        let (time, method) = soonest.map_or((Duration::ZERO, self.method), |(time, method)| (*time, *method));
        self.method = method;
        Ok(time)
    }

    fn block_time(&self, rows: usize) -> Result<Duration, GpuError> {
        let Widths { hidden, queries, .. } = self.widths;
        let Some((_, node)) = self.layers.first() else { return Ok(Duration::ZERO) };
        let mut recording = Recording::timed(&self.gpu);
        self.launcher().feed_forward(&mut recording, node, (queries, hidden), rows)?;
        recording.run()
    }
}
