//! Dividing the rows of a kernel over the executors of its team, so that they end together.
//!
//! Algorithm 1's rule for an idle decode, for any number of executors and without chunks: a team's cores are one
//! executor, and each device another. What an executor takes is its annotation for so many rows, what it costs to hand
//! them over and back, its launch, and how it drifted when it last ran alone; what it gets is as many whole tiles as it ends with by the
//! time at which all do. An executor that cannot end one tile by then gets none. (Agent.xpu §4.3 ④, Algorithm 1)
//!
//! Invariant: every row is one executor's; the cores' are the last ones, and devices' come in the order of their lanes.

use crate::annotation;
use crate::drift::{Drift, Kind};
use crate::heg::{Heg, Load};
use crate::kernel::{Share, Yields};
use crate::machine::{Anchors, Joins, Machine};
use duet_types::{LaneId, LaneSet, Nanos, Net, NodeKind, Stage, Tokens};

/// How fast the members of a team are, one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Members<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) heg: &'a Heg,
    /// Absent while anchors are measured.
    pub(crate) drift: Option<&'a Drift>,
}

/// The shares of a team's devices of a kernel of so many rows, as the annotations have it; of a team of cores there are
/// none. Whoever measures a team before it serves divides in the same way.
#[must_use]
pub fn shares(machine: &Machine, heg: &Heg, lanes: LaneSet, rows: Tokens) -> Vec<Share> {
    Members { machine, heg, drift: None }.shares(lanes, Stage::Prefill, rows)
}

impl Members<'_> {
    /// The shares of the devices among these lanes; none where there is one executor.
    pub(crate) fn shares(&self, lanes: LaneSet, stage: Stage, rows: Tokens) -> Vec<Share> {
        let of = |joins| move |lane: &LaneId| self.machine.lane(*lane).capabilities.joins == joins;
        let devices: Vec<LaneId> = lanes.iter().filter(of(Joins::Rows)).collect();
        let crew: LaneSet = lanes.iter().filter(of(Joins::Crew)).collect();
        if devices.is_empty() || lanes.len() == 1 {
            return Vec::new();
        }
        let of_node = |node| {
            let time = |lane: LaneSet| move |rows| self.time(lane, stage, node, rows);
            let mut times: Vec<Box<dyn Fn(Tokens) -> Nanos + '_>> =
                devices.iter().map(|&lane| Box::new(time(LaneSet::from_iter([lane]))) as _).collect();
            if self.machine.is_team(crew) {
                times.push(Box::new(time(crew)));
            }
            divide(rows, &times)
        };
        let (qkv, ffn) = (of_node(NodeKind::Qkv), of_node(NodeKind::Ffn));
        devices.iter().enumerate().map(|(at, &lane)| Share { lane, qkv: qkv[at], ffn: ffn[at] }).collect()
    }

    fn time(&self, lanes: LaneSet, stage: Stage, node: NodeKind, rows: Tokens) -> Nanos {
        let load = Load::default().with_rows(Tokens::ZERO..rows, Yields::Context);
        let anchors = self.machine.anchors(lanes);
        let time = annotation::node_time(self.heg, anchors, &load, node) + launch(self.machine, lanes, anchors);
        let kind = Kind { net: Net::Decoder, stage, rows: load.rows };
        self.drift.map_or(time, |drift| drift.correct(self.machine.executors(lanes), kind, time))
    }
}

/// Cores of the team that is at work already are not launched for a node.
fn launch(machine: &Machine, lanes: LaneSet, anchors: &Anchors) -> Nanos {
    let joins = lanes.leader().map(|lane| machine.lane(lane).capabilities.joins);
    if joins == Some(Joins::Rows) { anchors.launch } else { Nanos::ZERO }
}

/// Rows for each executor, by how long each takes for so many. The last one takes what is not a whole tile.
fn divide(rows: Tokens, times: &[Box<dyn Fn(Tokens) -> Nanos + '_>]) -> Vec<Tokens> {
    let tiles = rows.0.div_ceil(TILE);
    let of_tiles = |count: u32| Tokens((count * TILE).min(rows.0));
    // Tiles that an executor ends by then; more take longer.
    let fits = |time: &dyn Fn(Tokens) -> Nanos, by: Nanos| {
        let (mut fitting, mut exceeding) = (0, tiles + 1);
        while exceeding - fitting > 1 {
            let middle = u32::midpoint(fitting, exceeding);
            if time(of_tiles(middle)) <= by { fitting = middle } else { exceeding = middle }
        }
        fitting
    };
    let alone = times.iter().map(|time| time(rows)).min().unwrap_or_default();
    let (mut too_soon, mut enough) = (0, alone.0);
    while enough - too_soon > 1 + enough / PRECISION {
        let middle = u64::midpoint(too_soon, enough);
        let total: u64 = times.iter().map(|time| u64::from(fits(&**time, Nanos(middle)))).sum();
        if total >= u64::from(tiles) { enough = middle } else { too_soon = middle }
    }
    let mut left = tiles;
    let mut shares: Vec<u32> = Vec::with_capacity(times.len());
    for time in times {
        let share = fits(&**time, Nanos(enough)).min(left);
        left -= share;
        shares.push(share);
    }
    // What is left of the rounding goes to whoever is quickest with all of it.
    if left > 0
        && let Some(quickest) = (0..times.len()).min_by_key(|&at| times[at](of_tiles(shares[at] + left)))
    {
        shares[quickest] += left;
    }
    let mut given = 0;
    let rows_of = |share: u32| {
        let until = (given + share * TILE).min(rows.0);
        let len = until - given;
        given = until;
        Tokens(len)
    };
    shares.into_iter().map(rows_of).collect()
}

/// Rows are shared in whole tiles of the matrix products.
const TILE: u32 = 16;
/// A thousandth of the time is near enough.
const PRECISION: u64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Time = Box<dyn Fn(Tokens) -> Nanos>;

    /// Weights are read for a row already; then each row costs.
    fn executor(fixed: u64, each: u64) -> Time {
        Box::new(move |rows| if rows == Tokens::ZERO { Nanos::ZERO } else { Nanos(fixed + u64::from(rows.0) * each) })
    }

    #[test]
    fn two_or_three_end_together_and_a_slow_one_gets_nothing() {
        assert_eq!(divide(Tokens(256), &[executor(0, 10), executor(0, 30)]), [Tokens(192), Tokens(64)]);
        let three = divide(Tokens(704), &[executor(0, 10), executor(0, 20), executor(0, 25)]);
        assert_eq!(three, [Tokens(384), Tokens(192), Tokens(128)]);
        assert_eq!(divide(Tokens(256), &[executor(0, 10), executor(10_000_000, 1)]), [Tokens(256), Tokens(0)]);
        // Where each reads all weights for a row already, few rows are one executor's.
        assert_eq!(divide(Tokens(5), &[executor(1000, 1), executor(900, 1)]), [Tokens(0), Tokens(5)]);
        assert_eq!(divide(Tokens(0), &[executor(1000, 1)]), [Tokens(0)]);
    }

    proptest! {
        /// Every row is given once, and no other division of two is better by more than two tiles.
        #[test]
        fn the_makespan_is_near_the_best(
            rows in 1_u32..1000, fixed in prop::array::uniform2(0_u64..5000), each in prop::array::uniform2(1_u64..100),
        ) {
            let times = [executor(fixed[0], each[0]), executor(fixed[1], each[1])];
            let shares = divide(Tokens(rows), &times);
            prop_assert_eq!(shares.iter().map(|share| share.0).sum::<u32>(), rows);
            let makespan = |first: u32| times[0](Tokens(first)).max(times[1](Tokens(rows - first)));
            let best = (0..=rows).map(makespan).min().unwrap();
            prop_assert!(makespan(shares[0].0) <= best + Nanos(best.0 / 500 + 2 * u64::from(TILE) * each[0].max(each[1])));
        }
    }
}
