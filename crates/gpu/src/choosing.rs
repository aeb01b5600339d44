//! How products are computed on an adapter, chosen by measurement with the model's own blocks when it is copied there. All methods
//! have the same results, to the bit.

use crate::adapters::Kind;
use crate::error::GpuError;
use crate::placed::Loaded;
use crate::products::{Method, Products, TILE_COUNT, TILES};
use crate::recording::Recording;
use crate::room::Widths;
use std::time::Duration;

/// Rows that the kind of products is chosen with, and how many threads share out an output where tiles are whole: two tiles.
const SOME: usize = 16;
/// Rows of a chunk of a prompt.
const MANY: usize = 256;
/// How many threads may share out an output, for tiles as [`TILES`] has them.
const SPLITS: [&[usize]; TILE_COUNT] = [&[1, 8, 16, 32], &[1, 4, 8, 16], &[1, 4, 8]];
/// How many workgroups share out the outputs of few rows at most.
const WORKGROUPS: [usize; 4] = [usize::MAX, 512, 256, 128];
/// With how many threads an adapter may be busy.
const BUSY: [usize; 4] = [0, 1 << 13, 1 << 15, 1 << 17];
/// How often each method is timed, in turns: a GPU that had nothing to do becomes faster meanwhile.
const ROUNDS: usize = 5;

impl Loaded {
    /// Chooses how products are computed, how many threads share out an output, in how many workgroups, up to how many outputs they
    /// do, and how wide a row may be that each workgroup rounds for itself: as a feed-forward block is done soonest.
    pub(crate) fn choose(&mut self) -> Result<(), GpuError> {
        let first = self.method;
        let all = [Products::Bytes, Products::Floats].into_iter().flat_map(|products| [(products, 64), (products, 16)]);
        let methods = all.map(|(products, width)| {
            let mut method = first;
            (method.products, method.width) = (products, width);
            method
        });
        let mut times = vec![self.fastest(methods.collect(), SOME)?];
        // A program on the processor has few threads, and takes seconds for many rows: two are tried there, with few rows.
        let is_program = self.gpu.kind == Kind::Software;
        let Widths { hidden, queries, .. } = self.widths;
        // No row, those that are not inside the block, and all.
        let columns = [0, hidden.max(queries), usize::MAX];
        for (size, splits) in SPLITS.into_iter().enumerate() {
            let before = self.method;
            let with = |(&threads, &columns): (&usize, &usize)| {
                let mut method = before;
                (method.split[size], method.rounds_within) = (threads, columns);
                method
            };
            // Only one row may be rounded by whom multiplies it.
            let columns: &[_] = if size == 0 { &columns } else { &[before.rounds_within] };
            let splits = if is_program { &splits[..2] } else { splits };
            let methods = splits.iter().flat_map(|split| columns.iter().map(move |columns| (split, columns)));
            let rows = if size + 1 == TILE_COUNT { SOME } else { TILES[size] };
            times.push(self.fastest(methods.map(with).collect(), rows)?);
            // All of this is measured at each start, so one after the other and not each with each.
            if !is_program {
                let before = self.method;
                let with = |workgroups: usize| {
                    let mut method = before;
                    method.workgroups[size] = workgroups;
                    method
                };
                times.push(self.fastest(WORKGROUPS.into_iter().map(with).collect(), rows)?);
            }
        }
        if !is_program {
            for (which, rows) in [SOME, MANY].into_iter().enumerate() {
                let before = self.method;
                let with = |busy: usize| {
                    let mut method = before;
                    method.busy[which] = busy;
                    method
                };
                times.push(self.fastest(BUSY.into_iter().map(with).collect(), rows)?);
            }
        }
        tracing::info!(method = ?self.method, ?times, fusing = ?self.gpu.fusing, "products on a GPU were measured");
        Ok(())
    }

    /// Takes the method in which so many rows are done soonest. How soon that is.
    fn fastest(&mut self, methods: Vec<Method>, rows: usize) -> Result<Duration, GpuError> {
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
        let soonest = best.iter().zip(&methods).min_by_key(|(time, _)| **time);
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
