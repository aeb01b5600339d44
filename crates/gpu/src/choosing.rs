//! How products are computed on an adapter, chosen by measurement with the model's own blocks when it is copied there. All methods
//! have the same results, to the bit.

use crate::error::GpuError;
use crate::placed::Loaded;
use crate::products::{Method, Products};
use crate::recording::Recording;
use crate::room::Widths;
use std::time::Duration;

/// Rows that the method for several is chosen with: some tiles.
const ROWS: usize = 16;

impl Loaded {
    /// Chooses how products of several rows are computed, and then how those of one: as a feed-forward block is done soonest.
    pub(crate) fn choose(&mut self) -> Result<(), GpuError> {
        let all = [Products::Bytes, Products::Floats].into_iter().flat_map(|products| [(products, 64), (products, 16)]);
        let methods: Vec<_> = all.map(|(products, width)| Method { products, width, ..self.method }).collect();
        let several = self.fastest(&methods, ROWS)?;
        let methods = [1, 4, 8].map(|split| Method { split, ..self.method });
        let one = self.fastest(&methods, 1)?;
        tracing::info!(method = ?self.method, ?several, ?one, fusing = ?self.gpu.fusing, "products on a GPU were measured");
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
