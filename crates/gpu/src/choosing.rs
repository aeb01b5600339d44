//! How products are computed on an adapter, chosen by measurement with the model's own blocks when it is brought there. All methods
//! have the same results, to the bit.

use crate::adapters::Kind;
use crate::error::GpuError;
use crate::loaded::Loaded;
use crate::products::{Method, Products, TILE_COUNT, TILES};
use crate::recording::Recording;
use crate::room::Widths;
use std::time::{Duration, Instant};

/// Rows that the kind of products is chosen with, and how many threads share out an output where tiles are whole: two tiles.
const SOME: usize = 16;
/// Rows of a chunk of a prompt; and of a short one and a long one.
const MANY: usize = 256;
const SHORT_AND_LONG: [usize; 2] = [128, 512];
/// How many threads may share out an output, for tiles as [`TILES`] has them.
const SPLITS: [&[usize]; TILE_COUNT] = [&[1, 8, 16, 32], &[1, 4, 8, 16], &[1, 4, 8]];
/// How many workgroups share out the outputs of few rows at most.
const WORKGROUPS: [usize; 4] = [usize::MAX, 512, 256, 128];
/// With how many threads an adapter may be busy.
const BUSY: [usize; 4] = [0, 1 << 13, 1 << 15, 1 << 17];
/// From how many workgroups on tiles may be shared, small ones and large ones.
const SMALL: [usize; 3] = [64, 256, usize::MAX];
const LARGE: [usize; 3] = [256, 1024, usize::MAX];
/// How often each method is timed, in turns: a GPU that had nothing to do becomes faster meanwhile.
const ROUNDS: usize = 5;
/// After which no other round is begun: a slow GPU takes long for many rows.
const ROUNDS_MAX: Duration = Duration::from_millis(200);
/// How much longer than the soonest way one may take that comes before it and is taken: clocks are not better, and what is chosen is to
/// be the same at each start.
const AS_SOON: f64 = 1.02;

impl Loaded {
    /// Chooses how products are computed, how many threads share out an output, in how many workgroups, up to how many outputs they
    /// do, how wide a row may be that each workgroup rounds for itself, and from how many workgroups on tiles are shared: as a
    /// feed-forward block is done soonest. All of this is measured at each start, so one after the other and not each with each.
    pub(crate) fn choose(&mut self) -> Result<(), GpuError> {
        let ways = [(Products::Bytes, 64), (Products::Bytes, 16), (Products::Floats, 64), (Products::Floats, 16)];
        self.settle(&ways, &[SOME], |method, (products, width)| (method.products, method.width) = (products, width))?;
        for size in 0..TILE_COUNT {
            self.choose_split(size)?;
        }
        // A program on the processor has few threads, and takes seconds for many rows.
        if self.gpu.kind != Kind::Software {
            self.settle(&BUSY, &[SOME], |method, busy| method.busy[0] = busy)?;
            self.settle(&BUSY, &[MANY], |method, busy| method.busy[1] = busy)?;
            self.settle(&SMALL, &SHORT_AND_LONG, |method, small| method.tiled.small = small)?;
            self.settle(&LARGE, &SHORT_AND_LONG, |method, large| method.tiled.large = large)?;
        }
        tracing::info!(method = ?self.method, fusing = ?self.gpu.fusing, "products on a GPU were measured");
        Ok(())
    }

    /// The same for tiles of a size: how many threads share out an output; of one row, who rounds it; and in how many workgroups.
    fn choose_split(&mut self, size: usize) -> Result<(), GpuError> {
        let is_program = self.gpu.kind == Kind::Software;
        let Widths { hidden, queries, .. } = self.widths;
        let before = self.method.rounds_within;
        // No row, those that are not inside the block, and all; only one row may be rounded by whom multiplies it.
        let all = [0, hidden.max(queries), usize::MAX];
        let columns: &[_] = if size == 0 { &all } else { &[before] };
        let splits = if is_program { &SPLITS[size][..2] } else { SPLITS[size] };
        let ways: Vec<_> =
            splits.iter().flat_map(|&split| columns.iter().map(move |&columns| (split, columns))).collect();
        let rows = if size + 1 == TILE_COUNT { SOME } else { TILES[size] };
        self.settle(&ways, &[rows], |method, (split, columns)| {
            (method.split[size], method.rounds_within) = (split, columns);
        })?;
        if !is_program {
            self.settle(&WORKGROUPS, &[rows], |method, workgroups| method.workgroups[size] = workgroups)?;
        }
        Ok(())
    }

    /// Takes the one of some ways with which so many rows are done soonest.
    fn settle<Way: Copy>(
        &mut self,
        ways: &[Way],
        rows: &[usize],
        set: impl Fn(&mut Method, Way),
    ) -> Result<(), GpuError> {
        let before = self.method;
        let with = |&way: &Way| {
            let mut method = before;
            set(&mut method, way);
            method
        };
        self.take_fastest(&ways.iter().map(with).collect::<Vec<_>>(), rows)
    }

    /// Takes the method in which a block is done soonest with so many rows, the sum of several.
    fn take_fastest(&mut self, methods: &[Method], rows: &[usize]) -> Result<(), GpuError> {
        let rounds = if self.gpu.kind == Kind::Software { 2 } else { ROUNDS };
        let mut best = vec![Duration::MAX; methods.len()];
        let mut began = Instant::now();
        // The first round compiles.
        for round in 0..=rounds {
            if round == 1 {
                began = Instant::now();
            } else if round > 1 && began.elapsed() > ROUNDS_MAX {
                break;
            }
            for (&method, best) in methods.iter().zip(&mut best) {
                self.method = method;
                let time = rows.iter().map(|&rows| self.block_time(rows)).sum::<Result<Duration, _>>()?;
                if round > 0 {
                    *best = time.min(*best);
                }
            }
        }
        let least = best.iter().min().copied().unwrap_or_default().mul_f64(AS_SOON);
        let soonest = best.iter().zip(methods).find(|(time, _)| **time <= least);
        self.method = soonest.map_or(self.method, |(_, method)| *method);
        tracing::debug!(?rows, ?best, "ways to compute products were timed");
        Ok(())
    }

    fn block_time(&self, rows: usize) -> Result<Duration, GpuError> {
        let Widths { hidden, queries, .. } = self.widths;
        let Some((_, node)) = self.layers.first() else { return Ok(Duration::ZERO) };
        let mut recording = Recording::timed(&self.gpu);
        self.launcher().feed_forward(&mut recording, node, (queries, hidden), rows)?;
        recording.run()
    }
}
