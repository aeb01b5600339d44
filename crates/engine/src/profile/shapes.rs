//! The shapes that a lane takes, and for a device that is used as the paper's NPU what a graph for other rows costs.

use super::Measured;
use crate::placement::{DeviceUse, Placement};
use crate::site::DEVICE_LANE;
use duet_scheduler::machine::Shapes;
use duet_types::{LaneId, Tokens};
use std::time::Instant;

/// Whether the lanes can run one kernel together: a device that takes chunks only computes beside the cores, not with
/// them.
pub(super) fn form_a_team(placement: &Placement) -> bool {
    placement.device_lane().is_none_or(|device| device.device_use != DeviceUse::Static)
}

/// The shapes of a lane. Where these are static, a set of graphs is made once, timed and dropped.
pub(super) fn of_lane(of: &Measured<'_>, lane: LaneId) -> Shapes {
    if lane != DEVICE_LANE || form_a_team(of.placement) {
        return Shapes::Dynamic;
    }
    let compile = of.placement.prepares().and_then(|device| {
        let start = Instant::now();
        let prepared = device.prepare(TIMED_ROWS.min(of.model.config().context), &|| true);
        // Where none can be made, prompts are read in chunks.
        prepared.ok().map(|prepared| {
            let compile = start.elapsed().into();
            drop(prepared);
            compile
        })
    });
    Shapes::Static { compile }
}

/// As many as most prompts have; how many there are makes little difference to a compiler.
const TIMED_ROWS: Tokens = Tokens(256);
