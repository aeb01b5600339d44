//! Copies of keys and values in the memory of devices that have their own, as a device keeps them: of each layer, up to where
//! it last attended. What it lacks is copied before it attends, and its kernel waits for that.
//!
//! The scheduler's own account of them goes by passes, and is not read here. What it tells to go goes.
//!
//! A kernel whose members alone have no room there attends in the host's memory. Asserted of every other one: with what it brings,
//! a device has no more than its room.

use duet_scheduler::Kernel;
use duet_scheduler::machine::{Machine, MemoryDomain};
use duet_types::{LaneId, LaneSet, Nanos, Node, NodeKind, NodeOrder, RequestId, Tokens};
use std::collections::BTreeMap;
use std::ops::Range;

/// What each device has of each request, by layer.
#[derive(Clone, Debug)]
pub(crate) struct Copies {
    /// Positions that go together.
    page: Tokens,
    held: BTreeMap<(LaneId, RequestId), BTreeMap<usize, Tokens>>,
    /// Requests that took over what others had left, up to a position. A device knows those until it attends for these.
    heirs: BTreeMap<RequestId, (RequestId, Tokens)>,
}

impl Copies {
    pub(crate) fn new(page: Tokens) -> Self {
        Self { page, held: BTreeMap::new(), heirs: BTreeMap::new() }
    }

    /// Brings what a kernel attends to to its device. How long that takes, of a position of a layer in so many bytes.
    pub(crate) fn bring(
        &mut self,
        machine: &Machine,
        lanes: LaneSet,
        (kernel, nodes): (&Kernel, &Range<usize>),
        (order, position_bytes): (NodeOrder, f64),
    ) -> Nanos {
        let layers = order.count_of(NodeKind::Attention, &(0..order.count()));
        // In a team the cores attend.
        let Some(lane) = lanes.leader().filter(|_| lanes.len() == 1) else { return Nanos::ZERO };
        let MemoryDomain::Own { bytes_per_s, room } = machine.lane(lane).capabilities.memory else {
            return Nanos::ZERO;
        };
        let room = room.0 as f64 / (position_bytes * layers as f64);
        if f64::from(kernel.members.iter().map(|member| self.taken(member.rows.end)).sum::<u32>()) > room {
            return Nanos::ZERO;
        }
        let mut positions = 0;
        for member in &kernel.members {
            self.inherit(lane, member.request);
            let held = self.held.entry((lane, member.request)).or_default();
            for node in nodes.clone().map(|index| order.node(index)) {
                let Node::Attention { layer } = node else { continue };
                let held = held.entry(layer).or_default();
                positions += u64::from(member.rows.start.saturating_sub(*held).0);
                *held = member.rows.end;
            }
        }
        assert!(f64::from(self.taken_on(lane)) <= room, "copies on {lane} have no room");
        Nanos((positions as f64 * position_bytes / bytes_per_s * 1e9) as u64)
    }

    /// What positions take: whole pages, and one for the rows of a draft tree.
    fn taken(&self, positions: Tokens) -> u32 {
        positions.0.next_multiple_of(self.page.0) + self.page.0
    }

    /// What all requests take.
    fn taken_on(&self, lane: LaneId) -> u32 {
        let on_lane = self.held.iter().filter(|((on, _), _)| *on == lane);
        on_lane.filter_map(|(_, held)| held.values().max()).map(|&positions| self.taken(positions)).sum()
    }

    /// What a request took over is its own from its first attention on.
    fn inherit(&mut self, lane: LaneId, heir: RequestId) {
        let (mut of, mut positions) = (heir, Tokens(u32::MAX));
        // The one before may never have attended there.
        while let Some(&(before, cached)) = self.heirs.get(&of).filter(|_| !self.held.contains_key(&(lane, of))) {
            (of, positions) = (before, positions.min(cached));
        }
        if let Some(mut held) = self.held.remove(&(lane, of)) {
            held.values_mut().for_each(|held| *held = (*held).min(positions));
            self.held.insert((lane, heir), held);
        }
    }

    /// A request has taken over what an ended one had left.
    pub(crate) fn taken_over(&mut self, of: RequestId, by: RequestId, cached: Tokens) {
        self.heirs.insert(by, (of, cached));
    }

    /// The scheduler lets a device give a request's copy up.
    pub(crate) fn dropped(&mut self, lane: LaneId, request: RequestId) {
        self.held.remove(&(lane, request));
    }

    /// A pass of a request is complete: what lies behind was no part of it.
    pub(crate) fn computed(&mut self, request: RequestId, end: Tokens) {
        for (_, held) in self.held.iter_mut().filter(|((_, of), _)| *of == request) {
            held.values_mut().for_each(|held| *held = (*held).min(end));
        }
    }

    /// The keys and values of a request are not in the host's memory any more.
    pub(crate) fn forget(&mut self, request: RequestId) {
        self.held.retain(|(_, of), _| *of != request);
    }

    /// A device is lost with what it has.
    pub(crate) fn lost(&mut self, lane: LaneId) {
        self.held.retain(|(on, _), _| *on != lane);
    }
}
