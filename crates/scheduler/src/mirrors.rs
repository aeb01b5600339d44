//! Mirrors: what devices with memory of their own have of requests' keys and values.
//!
//! The cache in the host's memory is what counts. Such a device attends to copies of it, and what a request has got elsewhere
//! since is copied before its next attention there. That takes the time of so many bytes, which is predicted with the kernel:
//! a request goes to another lane where that is worth the way, and not otherwise. (Agent.xpu §4.2 has one memory for all, and no
//! such cost)
//!
//! Who makes room on a device is decided here: before a kernel is launched, copies of what ended requests left go, then those of the
//! background, then people's, of each the one that was not used for longest. A turn that takes over what an earlier one left takes
//! over its mirrors.
//!
//! Invariants: no request is taken to have more positions on a device than were computed of it there; what mirrors take on
//! a device is at most its room.

use crate::capabilities::MemoryDomain;
use crate::config::SchedulerConfig;
use crate::heg::{Heg, Load};
use crate::kernel::Member;
use crate::machine::Machine;
use crate::pass::Pass;
use duet_types::{Class, LaneId, LaneSet, Nanos, NodeKind, RequestId, Tokens};
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
    /// The request that the device knows it by: the one that it last computed for.
    known_as: RequestId,
    /// Those that need not be copied.
    positions: Tokens,
    /// Room that it takes.
    takes: Tokens,
    standing: Standing,
}

/// Whose it is: the least makes room first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    /// What an ended request left, for the next turn.
    Left,
    Background,
    Person,
}

impl Standing {
    fn of(class: Class) -> Self {
        match class {
            Class::Proactive => Self::Background,
            Class::Reactive => Self::Person,
        }
    }
}

/// How much a device holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Space {
    pub(crate) room: Tokens,
    /// Positions that go together.
    pub(crate) page: Tokens,
}

impl Space {
    /// Room for some positions, and for the rows of a draft tree.
    fn of(self, positions: Tokens) -> Tokens {
        let page = self.page.0.max(1);
        Tokens(positions.0.next_multiple_of(page).saturating_add(page))
    }
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

    /// A kernel of these members is about to attend on a device. Returns the requests, as the device knows them, whose copies
    /// are to go first. Where even theirs have no room they get none: the device then attends to none.
    pub(crate) fn make_room(&mut self, lane: LaneId, members: &[Member], space: Space) -> Vec<RequestId> {
        let mirrors = self.of_lanes.entry(lane).or_default();
        let needs = |member: &Member| space.of(member.rows.end);
        let needed: u64 = members.iter().map(|member| u64::from(needs(member).0)).sum();
        if needed > u64::from(space.room.0) {
            return Vec::new();
        }
        for member in members {
            let at = mirrors.iter().position(|mirror| mirror.request == member.request);
            let positions = at.map_or(Tokens::ZERO, |at| mirrors.remove(at).positions);
            let (request, standing) = (member.request, Standing::of(member.class));
            mirrors.push(Mirror { request, known_as: request, positions, takes: needs(member), standing });
        }
        let mut gone = Vec::new();
        while mirrors.iter().map(|mirror| u64::from(mirror.takes.0)).sum::<u64>() > u64::from(space.room.0) {
            let others = 0..mirrors.len() - members.len();
            let Some(least) = others.min_by_key(|&at| (mirrors[at].standing, at)) else { break };
            gone.push(mirrors.remove(least).known_as);
        }
        gone
    }

    /// All attention of a pass ran on a device: it has a request's keys and values up to a position.
    pub(crate) fn attended(&mut self, lane: LaneId, request: RequestId, positions: Tokens) {
        let mut mirrors = self.of_lanes.get_mut(&lane).into_iter().flatten();
        if let Some(mirror) = mirrors.find(|mirror| mirror.request == request) {
            mirror.positions = positions;
        }
    }

    /// A request has ended, and what it has got is kept for the next turn.
    pub(crate) fn left(&mut self, request: RequestId) {
        self.each_of(request, |mirror| mirror.standing = Standing::Left);
    }

    /// A turn has taken over what an ended request had left, up to a position.
    pub(crate) fn taken_over(&mut self, of: RequestId, by: (RequestId, Class), cached: Tokens) {
        self.each_of(of, |mirror| {
            (mirror.request, mirror.standing) = (by.0, Standing::of(by.1));
            mirror.positions = mirror.positions.min(cached);
        });
    }

    fn each_of(&mut self, request: RequestId, change: impl Fn(&mut Mirror)) {
        let all = self.of_lanes.values_mut().flatten();
        all.filter(|mirror| mirror.request == request).for_each(change);
    }

    /// A request's keys and values have left the host's memory, or nobody wants them: which copies are to go.
    pub(crate) fn forget(&mut self, request: RequestId) -> Vec<(LaneId, RequestId)> {
        let mut gone = Vec::new();
        for (&lane, mirrors) in &mut self.of_lanes {
            gone.extend(
                mirrors.extract_if(.., |mirror| mirror.request == request).map(|mirror| (lane, mirror.known_as)),
            );
        }
        gone
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

/// What a device holds.
pub(crate) fn space(config: &SchedulerConfig, lane: LaneId) -> Space {
    let page = config.memory.page;
    let MemoryDomain::Own { room, .. } = config.machine.lane(lane).capabilities.memory else {
        return Space { room: Tokens::ZERO, page };
    };
    let position = config.heg.attention.bytes_per_position * layers_on(config, lane) as f64;
    Space { room: Tokens((room.0 as f64 / position.max(1.0)).min(f64::from(u32::MAX)) as u32), page }
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

    /// Room for 1,000 positions in pages of ten: a request of 400 takes 410.
    const SPACE: Space = Space { room: Tokens(1000), page: Tokens(10) };

    /// A kernel on the device, and its end. What was to go before.
    fn attend(mirrors: &mut Mirrors, request: u64, class: Class, positions: u32) -> Vec<u64> {
        let member = Member { class, ..member(request, positions - 1) };
        let gone = mirrors.make_room(LANE, &[member], SPACE);
        mirrors.attended(LANE, RequestId(request), Tokens(positions));
        gone.into_iter().map(|request| request.0).collect()
    }

    #[test]
    fn what_was_computed_elsewhere_is_lacking() {
        let mut mirrors = Mirrors::default();
        assert_eq!(lacking(&mirrors, &[(1, 300), (2, 40)]), 340.0);
        attend(&mut mirrors, 1, Class::Reactive, 301);
        assert_eq!(lacking(&mirrors, &[(1, 301), (2, 40)]), 40.0);
        // Ten tokens on the cores, and back.
        assert_eq!(lacking(&mirrors, &[(1, 311)]), 10.0);
        assert_eq!(mirrors.forget(RequestId(1)), [(LANE, RequestId(1))]);
        assert_eq!(lacking(&mirrors, &[(1, 311)]), 311.0);
    }

    #[test]
    fn what_was_not_used_for_longest_makes_room() {
        let mut mirrors = Mirrors::default();
        let gone = [1, 2, 1, 3].map(|request| attend(&mut mirrors, request, Class::Reactive, 400));
        assert_eq!(gone, [vec![], vec![], vec![], vec![2]]);
        assert_eq!([1, 2, 3].map(|request| lacking(&mirrors, &[(request, 400)])), [0.0, 400.0, 0.0]);
        // One that has no room by itself has no copy, and sends nobody away.
        assert!(attend(&mut mirrors, 4, Class::Reactive, 1001).is_empty());
        assert_eq!(lacking(&mirrors, &[(4, 1001), (1, 400)]), 1001.0);
        mirrors.lost(LANE);
        assert_eq!(lacking(&mirrors, &[(1, 400)]), 400.0);
    }

    #[test]
    fn what_somebody_left_goes_first_then_the_background_then_people() {
        let mut mirrors = Mirrors::default();
        attend(&mut mirrors, 1, Class::Reactive, 200);
        attend(&mut mirrors, 2, Class::Proactive, 200);
        attend(&mut mirrors, 3, Class::Reactive, 200);
        mirrors.left(RequestId(3));
        assert_eq!(attend(&mut mirrors, 4, Class::Proactive, 700), [3, 2]);
        assert_eq!(attend(&mut mirrors, 5, Class::Reactive, 700), [4]);
        assert_eq!(attend(&mut mirrors, 6, Class::Proactive, 200), [1], "people's too, if there is nothing else");
    }

    #[test]
    fn a_turn_has_what_the_one_before_left() {
        let mut mirrors = Mirrors::default();
        attend(&mut mirrors, 1, Class::Reactive, 300);
        mirrors.left(RequestId(1));
        mirrors.taken_over(RequestId(1), (RequestId(2), Class::Reactive), Tokens(256));
        assert_eq!(lacking(&mirrors, &[(2, 260)]), 4.0);
        // The device has not heard of the turn yet.
        assert_eq!(mirrors.forget(RequestId(2)), [(LANE, RequestId(1))]);
    }
}
