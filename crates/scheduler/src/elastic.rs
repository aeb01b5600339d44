//! Elastic tensor parallelism: how the token-wise nodes of a reactive prefill are shared between the static lane and
//! the dynamic one. (Agent.xpu §4.3 ④, Algorithm 1)
//!
//! A prompt is `N_chk` chunks of `S_chk` rows and a remainder, which the static lane has no graph for. While decode is
//! idle, the lanes take so many chunks each that they end at the same time. While it is busy, all chunks go to the static
//! lane, and the remainder is put off so that it ends no earlier than they do: decode may end meanwhile, and is not
//! disturbed. The decision is taken anew for every node. `t_defer` would be negative where the remainder takes longer
//! than all chunks; then nothing is put off.

use duet_types::{Nanos, Tokens};

/// What decode is doing (`D_status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeStatus {
    /// Nothing decodes.
    Idle,
    /// Something decodes, or is about to.
    Busy,
}

/// How long an operator takes (`T_op`), on either lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// A chunk on the static lane.
    pub chunk_static: Nanos,
    /// A chunk on the dynamic lane.
    pub chunk_dynamic: Nanos,
    /// The remainder on the dynamic lane; zero if there is none.
    pub remainder: Nanos,
}

/// How an operator is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Chunks for the static lane (`n_npu`); the dynamic lane takes the others.
    pub static_chunks: u32,
    /// How long the remainder is put off (`t_defer`).
    pub defer: Nanos,
}

/// Shares an operator of `chunks` chunks and a remainder.
#[must_use]
pub fn partition(chunks: u32, times: &Times, decode: DecodeStatus) -> Partition {
    match decode {
        DecodeStatus::Idle => {
            let imbalance = |on_static: u32| {
                let static_time = u64::from(on_static) * times.chunk_static.0;
                let dynamic_time = u64::from(chunks - on_static) * times.chunk_dynamic.0 + times.remainder.0;
                static_time.abs_diff(dynamic_time)
            };
            let best = (0..=chunks).min_by_key(|&on_static| imbalance(on_static));
            Partition { static_chunks: best.unwrap_or(0), defer: Nanos::ZERO }
        }
        DecodeStatus::Busy => {
            let static_time = Nanos(u64::from(chunks) * times.chunk_static.0);
            Partition { static_chunks: chunks, defer: static_time.saturating_sub(times.remainder) }
        }
    }
}

/// A prompt as chunks and a remainder: `N_chk` and `S_rem`.
#[must_use]
pub fn chunks(rows: Tokens, chunk: Tokens) -> (u32, Tokens) {
    (rows.0 / chunk.0, Tokens(rows.0 % chunk.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn equal_lanes_share_equally_and_the_remainder_counts() {
        let times = Times { chunk_static: Nanos(10), chunk_dynamic: Nanos(10), remainder: Nanos(9) };
        assert_eq!(partition(5, &times, DecodeStatus::Idle), Partition { static_chunks: 3, defer: Nanos(0) });
        let slow = Times { chunk_dynamic: Nanos(40), ..times };
        assert_eq!(partition(5, &slow, DecodeStatus::Idle).static_chunks, 4);
    }

    #[test]
    fn a_busy_decode_keeps_its_lane_until_the_chunks_are_done() {
        let times = Times { chunk_static: Nanos(10), chunk_dynamic: Nanos(10), remainder: Nanos(9) };
        assert_eq!(partition(5, &times, DecodeStatus::Busy), Partition { static_chunks: 5, defer: Nanos(41) });
        let long = Times { remainder: Nanos(99), ..times };
        assert_eq!(partition(5, &long, DecodeStatus::Busy).defer, Nanos(0));
    }

    proptest! {
        /// No other partition has a smaller makespan by more than a chunk.
        #[test]
        fn the_makespan_is_near_the_best(
            chunks in 0_u32..40,
            chunk_static in 1_u64..100,
            chunk_dynamic in 1_u64..100,
            remainder in 0_u64..100,
        ) {
            let times = Times {
                chunk_static: Nanos(chunk_static),
                chunk_dynamic: Nanos(chunk_dynamic),
                remainder: Nanos(remainder),
            };
            let makespan = |on_static: u32| {
                let dynamic = u64::from(chunks - on_static) * chunk_dynamic + remainder;
                (u64::from(on_static) * chunk_static).max(dynamic)
            };
            let chosen = makespan(partition(chunks, &times, DecodeStatus::Idle).static_chunks);
            let best = (0..=chunks).map(makespan).min().unwrap();
            prop_assert!(chosen <= best + chunk_static.max(chunk_dynamic));
        }
    }
}
