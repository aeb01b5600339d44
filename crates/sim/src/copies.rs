//! Copies of keys and values in the memory of devices that have their own, as a device keeps them: of each layer, up to where
//! it last attended. What it lacks is copied before it attends, and its kernel waits for that.
//!
//! The scheduler's own account of them goes by passes, and is not read here.

use duet_scheduler::Kernel;
use duet_scheduler::machine::{Machine, MemoryDomain};
use duet_types::{LaneId, LaneSet, Nanos, Node, NodeOrder, RequestId, Tokens};
use std::collections::BTreeMap;
use std::ops::Range;

/// What each device has of each request, by layer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Copies {
    held: BTreeMap<(LaneId, RequestId), BTreeMap<usize, Tokens>>,
}

impl Copies {
    /// Brings what a kernel attends to to its device. How long that takes, of a position of a layer in so many bytes.
    pub(crate) fn bring(
        &mut self,
        machine: &Machine,
        lanes: LaneSet,
        (kernel, nodes): (&Kernel, &Range<usize>),
        (order, position_bytes): (NodeOrder, f64),
    ) -> Nanos {
        // In a team the cores attend.
        let Some(lane) = lanes.leader().filter(|_| lanes.len() == 1) else { return Nanos::ZERO };
        let MemoryDomain::Own { bytes_per_s, .. } = machine.lane(lane).capabilities.memory else { return Nanos::ZERO };
        let mut positions = 0;
        for member in &kernel.members {
            let held = self.held.entry((lane, member.request)).or_default();
            for node in nodes.clone().map(|index| order.node(index)) {
                let Node::Attention { layer } = node else { continue };
                let held = held.entry(layer).or_default();
                positions += u64::from(member.rows.start.saturating_sub(*held).0);
                *held = member.rows.end;
            }
        }
        Nanos((positions as f64 * position_bytes / bytes_per_s * 1e9) as u64)
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
