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

impl Loaded {
    /// Chooses how products are computed, and then how many threads share out an output for few rows and for many: as a feed-forward
    /// block is done soonest.
    pub(crate) fn choose(&mut self) -> Result<(), GpuError> {
        let all = [Products::Bytes, Products::Floats].into_iter().flat_map(|products| [(products, 64), (products, 16)]);
        let first = self.method;
        let methods: Vec<_> = all.map(|(products, width)| Method { products, width, split: first.split }).collect();
        let mut times = vec![self.fastest(&methods, ROWS)?];
        for (size, splits) in SPLITS.iter().enumerate() {
            let before = self.method;
            let with = |&threads: &usize| {
                let mut method = before;
                method.split[size] = threads;
                method
            };
            // A program on the processor has few threads: what it gains by more of them is found with two.
            let few = if self.gpu.kind == Kind::Software { 2 } else { splits.len() };
            let methods: Vec<_> = splits[..few].iter().map(with).collect();
            times.push(self.fastest(&methods, SIZES[size].min(MANY))?);
        }
        tracing::info!(method = ?self.method, ?times, fusing = ?self.gpu.fusing, "products on a GPU were measured");
        Ok(())
    }

    /// Takes the method in which so many rows are done soonest. How soon that is.
    fn fastest(&mut self, methods: &[Method], rows: usize) -> Result<Duration, GpuError> {
        let mut best: Option<(Duration, Method)> = None;
        for &method in methods {
            self.method = method;
            // The first compiles.
            self.block_time(rows)?;
            let time = self.block_time(rows)?.min(self.block_time(rows)?);
            if best.is_none_or(|(least, _)| time < least) {
                best = Some((time, method));
            }
        }
        let (time, method) = best.unwrap_or((Duration::ZERO, self.method));
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
