//! Which layers go to a device that has no room for all: the scheduler's plan, with what was measured.
//!
//! A layer takes what annotations say of its nodes for a prompt's chunk, and for as many tokens of an answer one by one. The
//! device was measured with layers that it holds already, which may be others than it is to hold: all are alike in this.

use super::Measured;
use duet_scheduler::annotation::span_time;
use duet_scheduler::heg::Load;
use duet_scheduler::layers::{LayerCost, LayerPlan, plan};
use duet_scheduler::machine::{Anchors, Joins};
use duet_scheduler::{Heg, Machine, Yields};
use duet_types::{LaneId, LaneSet, Nanos, Tokens};

/// Plans the layers of all devices that hold some only, on a machine whose lanes are measured.
pub(super) fn plan_all(of: &Measured<'_>, machine: &mut Machine) {
    let heg = super::heg(of.model, of.kv);
    let cores: LaneSet =
        machine.all().iter().filter(|&lane| machine.lane(lane).capabilities.joins == Joins::Crew).collect();
    // Together they are not measured yet: as quick as all of them side by side.
    let threads = cores.len() as u64;
    let Some(core) = cores.leader() else { return };
    for lane in of.executors.device_lanes().iter() {
        if let Some(plan) = planned(of, &heg, machine, lane, (core, threads)) {
            tracing::info!(?lane, ?plan, "layers of a device are planned");
            machine.lanes[usize::from(lane.0)].capabilities.layers = Some(plan.held);
        }
    }
}

fn planned(
    of: &Measured<'_>,
    heg: &Heg,
    machine: &Machine,
    lane: LaneId,
    (core, cores): (LaneId, u64),
) -> Option<LayerPlan> {
    let device = of.executors.device(lane)?.layers.as_ref()?;
    let time = |lane: LaneId, layer: usize| layer_time(heg, &machine.lane(lane).anchors, layer);
    let cost = |layer| LayerCost {
        bytes: device.bytes_of(layer),
        device: time(lane, layer),
        cores: Nanos(time(core, layer).0 / cores.max(1)),
    };
    let handover = machine.lane(lane).anchors.launch + machine.lane(core).anchors.launch;
    let passes = Nanos(handover.0 * (1 + u64::from(ANSWER.0)));
    plan(&(0..heg.layers).map(cost).collect::<Vec<_>>(), passes, device.room())
}

/// A layer of a chunk and of an answer's tokens; of the last one with the head.
fn layer_time(heg: &Heg, anchors: &Anchors, layer: usize) -> Nanos {
    let order = heg.order();
    let nodes = order.first_node(layer)..order.first_node(layer + 1);
    let chunk = Load::default().with_rows(Tokens::ZERO..CHUNK, Yields::Token);
    let token = Load::default().with_rows(CHUNK..CHUNK + Tokens(1), Yields::Token);
    let of = |load: &Load| span_time(heg, anchors, load, &nodes);
    of(&chunk) + Nanos(of(&token).0 * u64::from(ANSWER.0))
}

/// A prompt as prompts are read, and an answer of half as many tokens.
const CHUNK: Tokens = Tokens(256);
const ANSWER: Tokens = Tokens(128);
