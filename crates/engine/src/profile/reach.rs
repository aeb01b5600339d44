//! How far a lane is measured: a slow one with fewer rows and a shorter context, so that nobody waits for minutes.
//!
//! Sizes are tried from the smallest on, and the next one only if it is predicted to take no longer than a sample may, in
//! proportion to what the one before took. Rates are the same beyond: what is left out is reckoned with those that were
//! measured. Cores, and devices of fixed shapes, which compute a chunk whatever is asked of them, are measured whole.
//!
//! Invariant: two sizes at least, which is what a roofline needs.

use super::ProfileError;
use super::bench::{Bench, Part, Shape};
use crate::executors::Site;
use duet_model::forward::Node;
use duet_scheduler::machine::RowsTaken;
use std::time::Duration;

/// Sizes of passes, and where attention is timed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reach {
    pub(super) rows: Vec<usize>,
    pub(super) context: usize,
}

impl Reach {
    /// As far as a sample of one layer takes no longer than this on the lanes of the site.
    pub(super) fn find(
        bench: &Bench,
        site: Site<'_>,
        (rows, context): (&[usize], usize),
        longest: Duration,
        product: Part,
    ) -> Result<Self, ProfileError> {
        let whole = Self { rows: rows.to_vec(), context };
        let device = site.lanes.leader().and_then(|lane| bench.executors.device(lane));
        if site.lanes.len() > 1 || device.is_none_or(|device| device.rows == RowsTaken::Chunk) {
            return Ok(whole);
        }
        let layer = bench.layers(site.lanes).start;
        let time = |shape: Shape, node: Node| -> Result<Duration, ProfileError> {
            let mut pass = bench.pass(&[shape])?;
            // The first compiles what it needs.
            bench.time(&mut pass, std::iter::once(node), site)?;
            bench.time(&mut pass, std::iter::once(node), site)
        };
        let count = sizes_within(rows, longest, |rows| time(Shape { context: 0, rows }, product.node(layer)))?;
        let largest = rows[count - 1];
        let near = time(Shape { context: 0, rows: largest }, Node::Attention { layer })?;
        let found = Self { rows: rows[..count].to_vec(), context: context_within(largest, context, near, longest) };
        if found != whole {
            tracing::info!(
                lanes = ?site.lanes, rows = largest, context = found.context,
                "a slow lane is measured with no more rows and no longer a context; what is beyond is reckoned"
            );
        }
        Ok(found)
    }
}

/// How many of the sizes take no longer, two at least.
fn sizes_within<E>(
    sizes: &[usize],
    longest: Duration,
    mut time: impl FnMut(usize) -> Result<Duration, E>,
) -> Result<usize, E> {
    let mut count = sizes.len().min(2);
    while count < sizes.len() {
        let [last, next] = [sizes[count - 1], sizes[count]];
        if time(last)?.mul_f64(next as f64 / last as f64) > longest {
            break;
        }
        count += 1;
    }
    Ok(count)
}

/// The longest context at which attention of so many rows takes no longer, where without one it takes `near`: it grows with
/// the positions that are seen.
fn context_within(rows: usize, context: usize, near: Duration, longest: Duration) -> usize {
    let pairs = |context: usize| rows as f64 * (2.0 * context as f64 + rows as f64 + 1.0) / 2.0;
    let most = longest.as_secs_f64() / near.as_secs_f64().max(1e-9) * pairs(0);
    let mut context = context;
    while context > 1 && pairs(context) > most {
        context /= 2;
    }
    context
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_lane_is_measured_with_fewer_rows() {
        let within = |row_us: u64| {
            let time = |rows: usize| Ok::<_, ()>(Duration::from_micros(row_us * rows as u64));
            sizes_within(&[1, 4, 16, 48, 256], Duration::from_millis(200), time).unwrap()
        };
        assert_eq!([10, 700, 1_000, 5_000, 100_000].map(within), [5, 5, 4, 3, 2]);
    }

    #[test]
    fn and_in_a_shorter_context() {
        let within = |near_ms| context_within(256, 1024, Duration::from_millis(near_ms), Duration::from_millis(200));
        assert_eq!([1, 20, 60, 300].map(within), [1024, 1024, 256, 1]);
        assert_eq!(context_within(256, 0, Duration::from_secs(1), Duration::from_millis(200)), 0);
    }
}
