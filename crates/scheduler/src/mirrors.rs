//! Mirrors: what devices with memory of their own have of requests' keys and values.
//!
//! The cache in the host's memory is what counts. Such a device attends to copies of it, and what a request has got elsewhere
//! since is copied before its next attention there. That takes the time of so many bytes, which is predicted with the kernel:
//! a request goes to another lane where that is worth the way, and not otherwise. Where copies have no room, those go that were
//! not used for longest; devices go by the same rule. (Agent.xpu §4.2 has one memory for all, and no such cost)
//!
//! A turn that begins with what an earlier one left is taken to have no copy, so that the first prediction of it is too long
//! rather than too short.
//!
//! Invariant: no request is taken to have more positions on a device than were computed of it there.

use crate::capabilities::MemoryDomain;
use crate::config::SchedulerConfig;
use crate::heg::{Heg, Load};
use crate::kernel::Member;
use crate::machine::Machine;
use crate::pass::Pass;
use duet_types::{LaneId, LaneSet, Nanos, NodeKind, RequestId, Tokens};
use std::collections::BTreeMap;
use std::ops::Range;

/// Passes within which copies are to be won back for a request to go to a device: how long an answer will be is not known, and
/// one that has begun goes on for some. Whoever chose by the next pass alone would leave a long conversation on the cores, where
/// each pass is slower by less than the way takes.
const WON_BACK_WITHIN: f64 = 16.0;

/// A load by which lanes are chosen: what is copied once is there for the passes that follow.
pub(crate) fn spread(load: Load) -> Load {
    Load { lacking: load.lacking / WON_BACK_WITHIN, ..load }
}

/// The mirrors of each device, the last that was used last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mirrors {
    of_lanes: BTreeMap<LaneId, Vec<Mirror>>,
}

/// The first positions of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mirror {
    request: RequestId,
    positions: Tokens,
}

impl Mirrors {
    /// Positions before the members' rows that a device has no copy of; of several devices, the one that lacks most.
    pub(crate) fn lacking(&self, machine: &Machine, members: &[Member]) -> f64 {
        let devices = machine.all().iter().filter(|&lane| has_own_memory(machine, lane));
        devices.map(|lane| self.lacking_on(lane, members)).fold(0.0, f64::max)
    }

    fn lacking_on(&self, lane: LaneId, members: &[Member]) -> f64 {
        let held = |request| {
            let mut mirrors = self.of_lanes.get(&lane).into_iter().flatten();
            mirrors.find(|mirror| mirror.request == request).map_or(Tokens::ZERO, |mirror| mirror.positions)
        };
        let decoded = members.iter().filter(|member| member.net.is_decoder());
        decoded.map(|member| f64::from(member.rows.start.saturating_sub(held(member.request)).0)).sum()
    }

    /// All attention of a pass ran on a device: it has a request's keys and values up to a position. `room` is how many it has
    /// room for in all.
    pub(crate) fn attended(&mut self, lane: LaneId, request: RequestId, positions: Tokens, room: Tokens) {
        let mirrors = self.of_lanes.entry(lane).or_default();
        mirrors.retain(|mirror| mirror.request != request);
        mirrors.push(Mirror { request, positions });
        let all = |mirrors: &[Mirror]| mirrors.iter().map(|mirror| u64::from(mirror.positions.0)).sum::<u64>();
        while !mirrors.is_empty() && all(mirrors) > u64::from(room.0) {
            mirrors.remove(0);
        }
    }

    /// A request has ended, or its keys and values have left the host's memory.
    pub(crate) fn forget(&mut self, request: RequestId) {
        for mirrors in self.of_lanes.values_mut() {
            mirrors.retain(|mirror| mirror.request != request);
        }
    }

    /// A device was lost, and its memory with it.
    pub(crate) fn lost(&mut self, lane: LaneId) {
        self.of_lanes.remove(&lane);
    }
}

/// The device whose copies a kernel on these lanes attends to: in a team the cores attend, to the cache.
pub(crate) fn attending(machine: &Machine, lanes: LaneSet) -> Option<LaneId> {
    lanes.leader().filter(|&lane| lanes.len() == 1 && has_own_memory(machine, lane))
}

/// The devices on which the attention of all layers that they hold has run for a pass.
pub(crate) fn holding_all<'a>(pass: &'a Pass, config: &'a SchedulerConfig) -> impl Iterator<Item = LaneId> + use<'a> {
    let is_whole = |(lane, nodes): &&(LaneId, f64)| *nodes + 0.5 > layers_on(config, *lane) as f64;
    pass.attended.iter().filter(is_whole).map(|(lane, _)| *lane)
}

/// How many positions a device has room for.
pub(crate) fn room(config: &SchedulerConfig, lane: LaneId) -> Tokens {
    let MemoryDomain::Own { room, .. } = config.machine.lane(lane).capabilities.memory else { return Tokens::ZERO };
    let position = config.heg.attention.bytes_per_position * layers_on(config, lane) as f64;
    Tokens((room.0 as f64 / position.max(1.0)).min(f64::from(u32::MAX)) as u32)
}

/// How many layers a device holds.
fn layers_on(config: &SchedulerConfig, lane: LaneId) -> usize {
    let held = config.machine.lane(lane).capabilities.layers;
    held.map_or(config.heg.layers, |held| held.range().len())
}

/// How long a kernel waits for what its device lacks.
#[must_use]
pub fn copy_time(machine: &Machine, lanes: LaneSet, heg: &Heg, load: &Load, nodes: &Range<usize>) -> Nanos {
    let memory = attending(machine, lanes).map(|lane| machine.lane(lane).capabilities.memory);
    let Some(MemoryDomain::Own { bytes_per_s, .. }) = memory else { return Nanos::ZERO };
    let positions = load.lacking * heg.order().count_of(NodeKind::Attention, nodes) as f64;
    Nanos((positions * heg.attention.bytes_per_position / bytes_per_s.max(1.0) * 1e9) as u64)
}

fn has_own_memory(machine: &Machine, lane: LaneId) -> bool {
    matches!(machine.lane(lane).capabilities.memory, MemoryDomain::Own { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{HeadRows, Yields};
    use duet_types::{Class, Net, Stage};

    const LANE: LaneId = LaneId(0);

    fn member(request: u64, start: u32) -> Member {
        Member {
            request: RequestId(request),
            class: Class::Reactive,
            stage: Stage::Decode,
            rows: Tokens(start)..Tokens(start + 1),
            yields: Yields::Token,
            head: HeadRows::Last,
            net: Net::Decoder,
        }
    }

    fn lacking(mirrors: &Mirrors, members: &[(u64, u32)]) -> f64 {
        let members: Vec<Member> = members.iter().map(|&(request, start)| member(request, start)).collect();
        mirrors.lacking_on(LANE, &members)
    }

    #[test]
    fn what_was_computed_elsewhere_is_lacking() {
        let mut mirrors = Mirrors::default();
        assert_eq!(lacking(&mirrors, &[(1, 300), (2, 40)]), 340.0);
        mirrors.attended(LANE, RequestId(1), Tokens(301), Tokens(1000));
        assert_eq!(lacking(&mirrors, &[(1, 301), (2, 40)]), 40.0);
        // Ten tokens on the cores, and back.
        assert_eq!(lacking(&mirrors, &[(1, 311)]), 10.0);
        mirrors.forget(RequestId(1));
        assert_eq!(lacking(&mirrors, &[(1, 311)]), 311.0);
    }

    #[test]
    fn what_was_not_used_for_longest_makes_room() {
        let mut mirrors = Mirrors::default();
        for request in [1, 2, 1, 3] {
            mirrors.attended(LANE, RequestId(request), Tokens(400), Tokens(1000));
        }
        assert_eq!([1, 2, 3].map(|request| lacking(&mirrors, &[(request, 400)])), [0.0, 400.0, 0.0]);
        // One that has no room by itself has no copy either.
        mirrors.attended(LANE, RequestId(4), Tokens(1001), Tokens(1000));
        assert_eq!(lacking(&mirrors, &[(4, 1001)]), 1001.0);
        mirrors.lost(LANE);
        assert_eq!(lacking(&mirrors, &[(1, 400)]), 400.0);
    }
}
