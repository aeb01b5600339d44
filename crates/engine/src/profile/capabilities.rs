//! What lanes can do, alone and together: what a device says of itself, and what making a graph on it was measured to cost.

use super::Measured;
use duet_scheduler::heg::Load;
use duet_scheduler::machine::{Anchors, Attention, Capabilities, Covers, ExactGraphs, Joins};
use duet_scheduler::{Heg, Machine, Yields, annotation};
use duet_types::{LaneId, LaneSet, Nanos, NodeKind, Tokens};
use std::time::Instant;

/// What a lane can do. Where a device makes graphs for exactly a prompt's rows, two sets are made, timed and dropped. The
/// attention that it is given was measured before.
pub(super) fn of_lane(of: &Measured<'_>, lane: LaneId) -> Capabilities {
    Capabilities { exact: exact_graphs(of, lane), ..of.executors.capabilities(lane) }
}

/// How long the longest node takes for a chunk: nothing interrupts a device in it.
pub(super) fn chunk_time(heg: &Heg, anchors: &Anchors, attention: Attention) -> Nanos {
    let time = |node, before: Tokens| {
        let load = Load::default().with_rows(before..before + MANY_ROWS, Yields::Context);
        annotation::node_time(heg, anchors, &load, node)
    };
    let attends = match attention {
        Attention::Chunks(chunks) => time(NodeKind::Attention, chunks.context_max - MANY_ROWS.min(chunks.context_max)),
        Attention::None | Attention::UpTo(_) | Attention::Any => Nanos::ZERO,
    };
    time(NodeKind::Qkv, Tokens::ZERO).max(time(NodeKind::Ffn, Tokens::ZERO)).max(attends)
}

/// What graphs for a prompt's rows cost; nothing where none can be made, and prompts are read in chunks.
fn exact_graphs(of: &Measured<'_>, lane: LaneId) -> Option<ExactGraphs> {
    let (_, device) = of.executors.prepares().filter(|(prepares, _)| *prepares == lane)?;
    let made = |rows: Tokens| {
        let start = Instant::now();
        let prepared = device.prepare(rows.min(of.model.config().context), &|| true).ok()?;
        Some((Nanos::from(start.elapsed()), prepared.bytes))
    };
    let ((few, _), (many, bytes)) = (made(FEW_ROWS)?, made(MANY_ROWS)?);
    let per_row = Nanos(many.saturating_sub(few).0 / u64::from(MANY_ROWS.0 - FEW_ROWS.0));
    let compile = many.saturating_sub(Nanos(per_row.0 * u64::from(MANY_ROWS.0)));
    Some(ExactGraphs { compile, compile_per_row: per_row, bytes, covers: Covers::TokenWise })
}

/// Teams that are worth a measurement: cores with cores, and devices that take any rows with all of the cores.
pub(super) fn teams(machine: &Machine) -> Vec<LaneSet> {
    let of = |joins: Joins| -> LaneSet {
        let lanes = machine.dynamic().iter();
        lanes.filter(|&lane| machine.lane(lane).capabilities.joins == joins).collect()
    };
    let (cores, devices) = (of(Joins::Crew), of(Joins::Rows));
    let mut sets = vec![LaneSet::EMPTY];
    for device in devices.iter() {
        let with = sets.iter().map(|set| set.union(LaneSet::from_iter([device]))).collect::<Vec<_>>();
        sets.extend(with);
    }
    sets.into_iter().map(|set| set.union(cores)).filter(|team| team.len() > 1).collect()
}

/// Lanes of different executors, two by two: of a machine of cores alone there are none.
pub(super) fn pairs(machine: &Machine) -> Vec<[usize; 2]> {
    let is_device = |lane: usize| machine.lanes[lane].capabilities.joins == Joins::Rows;
    let all = machine.lanes.len();
    let pairs = (0..all).flat_map(|first| (first + 1..all).map(move |second| [first, second]));
    pairs.filter(|pair| pair.iter().any(|&lane| is_device(lane))).collect()
}

/// A short prompt and a longer one: compilers take about as long for both, and somewhat longer for more.
const FEW_ROWS: Tokens = Tokens(64);
const MANY_ROWS: Tokens = Tokens(256);

#[cfg(test)]
mod tests {
    use super::*;
    use duet_scheduler::machine::{FewRows, Lane, PerRow};

    fn machine(lanes: &[Capabilities]) -> Machine {
        let anchors = Anchors {
            macs_per_s: 1.0,
            attention_macs_per_s: 1.0,
            bytes_per_s: 1.0,
            launch: Nanos::ZERO,
            exposed: 0.0,
            per_row: PerRow::NONE,
            few_rows: FewRows::NONE,
        };
        Machine::of(lanes.iter().map(|&capabilities| Lane::new("lane", capabilities, anchors)).collect())
    }

    fn sets(teams: &[&[u8]]) -> Vec<LaneSet> {
        teams.iter().map(|team| team.iter().map(|&lane| LaneId(lane)).collect()).collect()
    }

    #[test]
    fn devices_that_take_any_rows_join_the_cores_and_an_npu_does_not() {
        let (cores, gpu, npu) = (Capabilities::CORES, Capabilities::DYNAMIC, Capabilities::STATIC);
        assert_eq!(teams(&machine(&[cores, cores])), sets(&[&[0, 1]]));
        assert_eq!(teams(&machine(&[cores])), sets(&[]));
        assert_eq!(teams(&machine(&[npu, gpu, cores])), sets(&[&[1, 2]]));
        assert_eq!(teams(&machine(&[gpu, gpu, cores])), sets(&[&[0, 2], &[1, 2], &[0, 1, 2]]));
        assert!(pairs(&machine(&[cores, cores])).is_empty());
        assert_eq!(pairs(&machine(&[npu, gpu, cores])), [[0, 1], [0, 2], [1, 2]]);
    }
}
