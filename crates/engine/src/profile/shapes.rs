//! The shapes that a lane takes, and for a device that is used as the paper's NPU what a graph for other rows costs.

use super::{Measured, ProfileError};
use crate::placement::{DeviceUse, Placement};
use crate::site::DEVICE_LANE;
use duet_model::forward::NotPrepared;
use duet_scheduler::machine::Shapes;
use duet_types::{LaneId, Nanos, Tokens};
use std::time::Instant;

/// Whether the lanes can run one kernel together: a device that takes chunks only computes beside the cores, not with
/// them.
pub(super) fn form_a_team(placement: &Placement) -> bool {
    placement.device_lane().is_none_or(|device| device.device_use != DeviceUse::Static)
}

/// The shapes of a lane. Where these are static, a set of graphs is made once, timed and dropped.
pub(super) fn of_lane(of: &Measured<'_>, lane: LaneId) -> Result<Shapes, ProfileError> {
    if lane != DEVICE_LANE || form_a_team(of.placement) {
        return Ok(Shapes::Dynamic);
    }
    let Some(device) = of.placement.prepares() else { return Ok(Shapes::Static { compile: NEVER }) };
    let start = Instant::now();
    let rows = TIMED_ROWS.min(of.model.config().context);
    match device.prepare(rows, &|| true) {
        Ok(prepared) => {
            let compile = start.elapsed().into();
            drop(prepared);
            Ok(Shapes::Static { compile })
        }
        // Prompts are read in chunks then.
        Err(NotPrepared::CalledOff | NotPrepared::Failed(_)) => Ok(Shapes::Static { compile: NEVER }),
    }
}

/// As many as most prompts have; how many there are makes little difference to a compiler.
const TIMED_ROWS: Tokens = Tokens(256);
/// A graph that nobody waits for. A year, so that sums with it stay times.
const NEVER: Nanos = Nanos(365 * 24 * 3600 * 1_000_000_000);
