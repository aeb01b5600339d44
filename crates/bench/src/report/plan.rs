//! How much is simulated.

use duet_types::Nanos;

/// The grids of a report.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Traces of each setting.
    pub(crate) seeds: u64,
    /// Traces of each setting of a sweep, of which only the best or a sign is told.
    pub(crate) sweep_seeds: u64,
    /// For how long requests come.
    pub(crate) window: Nanos,
    /// Proactive requests a minute, where there are no others.
    pub(crate) rates: Vec<f64>,
    /// Of them, more than any policy can serve.
    pub(crate) overload: f64,
    /// Proactive requests a minute beside three reactive ones.
    pub(crate) curve: Vec<f64>,
    /// Rows of a chunk, of what is tuned.
    pub(crate) chunks: Vec<u32>,
    /// Members of a batch, of baselines.
    pub(crate) batches: Vec<usize>,
    /// Members of a batch with a reactive request (`B_cap`), of the paper's policy.
    pub(crate) batch_caps: Vec<usize>,
    /// Seconds after which proactive requests are overdue, of the paper's policy.
    pub(crate) ages: Vec<u64>,
    /// Shares of the iGPU.
    pub(crate) occupancies: Vec<f64>,
    /// Positions that memory holds where clients come again; absent: all there are.
    pub(crate) memories: Vec<Option<u32>>,
    /// Of the uncertain constants, and of the limits that differ from serving, every how-many-th is varied; 1 is all.
    pub(crate) constant_of: usize,
}

impl Plan {
    /// As the paper has it: traces of 15 minutes. (Agent.xpu §6.1)
    #[must_use]
    pub fn whole(seeds: u64) -> Self {
        Self {
            seeds,
            sweep_seeds: seeds.min(2),
            window: Nanos(900_000_000_000),
            rates: vec![1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 15.0, 20.0, 30.0],
            overload: 120.0,
            curve: vec![2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0],
            chunks: vec![64, 128, 256, 512, 1024, 2048],
            batches: vec![4, 8, 16, 32],
            batch_caps: vec![1, 2, 3, 4, 6, 8],
            ages: vec![10, 30, 60, 120],
            occupancies: vec![1.0, 0.9, 0.8, 0.7, 0.6, 0.5],
            memories: vec![None, Some(16_384), Some(8_192)],
            constant_of: 1,
        }
    }

    /// The same of fewer points, for a first look.
    #[must_use]
    pub fn quick(seeds: u64) -> Self {
        Self {
            sweep_seeds: 1,
            rates: vec![2.0, 6.0, 12.0, 30.0],
            curve: vec![2.0, 6.0, 10.0, 16.0],
            chunks: vec![128, 512, 2048],
            batches: vec![8, 32],
            batch_caps: vec![1, 3, 8],
            ages: vec![30, 120],
            occupancies: vec![1.0, 0.7],
            constant_of: 4,
            ..Self::whole(seeds)
        }
    }

    /// As little as can be, on traces of half a minute.
    #[cfg(test)]
    pub(crate) fn smoke() -> Self {
        Self {
            window: Nanos(30_000_000_000),
            rates: vec![2.0, 10.0],
            overload: 20.0,
            curve: vec![2.0, 6.0],
            chunks: vec![256, 512],
            batches: vec![8],
            batch_caps: vec![8],
            ages: vec![30],
            occupancies: vec![1.0, 0.7],
            memories: vec![Some(8_192)],
            constant_of: 16,
            ..Self::quick(1)
        }
    }
}
