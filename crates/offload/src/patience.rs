//! How long a graph may take before its device is taken to hang.
//!
//! Every graph is tried once when it is made ready. A later run may take many times as long as that, for the rows that it
//! has: machines are shared, and cores slow down. A device that takes longer than that loses its work to the CPU.

use duet_types::{Nanos, Tokens};

/// What a graph took when it was tried, and so what may be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Patience {
    rows: Tokens,
    took: Nanos,
}

impl Patience {
    /// A trial on `rows` rows took so long.
    pub(crate) fn new(rows: Tokens, took: Nanos) -> Self {
        Self { rows, took }
    }

    /// The limit of a run on `rows` rows. Never less than for a trial's rows, and never less than [`SHORTEST`].
    pub(crate) fn limit(&self, rows: usize) -> Nanos {
        let trials = rows.div_ceil(self.rows.as_usize().max(1)).max(1) as u64;
        let expected = self.took.0.saturating_mul(trials);
        Nanos(expected.saturating_mul(TIMES)).max(SHORTEST)
    }
}

/// The limit of the trial itself, of which nothing is known yet: devices load firmware and weights then.
pub(crate) const TRIAL_LIMIT: Nanos = Nanos(20_000_000_000);
/// Rows that a graph of any number of rows is tried on.
pub(crate) const TRIAL_ROWS: Tokens = Tokens(32);
/// How many times a run may take what is expected. With fewer, a machine that is busy for a moment loses its device.
const TIMES: u64 = 32;
/// A process may be off its core for some tenths of a second.
const SHORTEST: Nanos = Nanos(1_000_000_000);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_limit_goes_by_the_rows() {
        let patience = Patience::new(Tokens(32), Nanos(50_000_000));
        assert_eq!(patience.limit(32), Nanos(1_600_000_000));
        assert_eq!(patience.limit(33), Nanos(3_200_000_000));
        assert_eq!(patience.limit(0), patience.limit(1));
    }

    proptest! {
        #[test]
        fn more_rows_may_take_longer_and_nothing_overflows(
            rows in any::<u32>(), took in any::<u64>(), few in 0_usize..100_000, more in 0_usize..100_000,
        ) {
            let patience = Patience::new(Tokens(rows), Nanos(took));
            prop_assert!(patience.limit(few) <= patience.limit(few + more));
            prop_assert!(patience.limit(few) >= Nanos(took).max(SHORTEST));
        }
    }
}
