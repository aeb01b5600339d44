//! Whether a device is worth a lane that nobody asked for.
//!
//! It is where it reads prompts faster together with the cores than they do alone, or where it reads them by itself, however
//! much slower, while the cores decode: less than a third of their speed keeps a person waiting for a lane that looks free.
//! (Agent.xpu §4.3 ④: elastic splits; ①②: decoupled pipelines)

use crate::annotation;
use crate::heg::{Heg, Load};
use crate::kernel::Yields;
use crate::machine::{Joins, Machine};
use duet_types::{LaneId, LaneSet, Nanos, NodeKind, Tokens};

/// Whether a device's lane pays beside the cores, as they were measured, for chunks of so many rows. A machine without cores
/// has nothing else.
#[must_use]
pub fn pays(machine: &Machine, heg: &Heg, lane: LaneId, chunk: Tokens) -> bool {
    let is_core = |lane: &LaneId| machine.lane(*lane).capabilities.joins == Joins::Crew;
    let cores: LaneSet = machine.all().iter().filter(is_core).collect();
    if cores.is_empty() || !machine.is_team(cores) {
        return true;
    }
    let time = |lanes: LaneSet| layer_time(machine, heg, lanes, chunk).0 as f64;
    let (by_cores, alone) = (time(cores), time(LaneSet::from_iter([lane])));
    let mut teams = machine.teams.iter().map(|team| team.lanes).filter(|lanes| lanes.iter().any(|of| of == lane));
    alone <= SLOWEST * by_cores || teams.any(|team| time(team) <= FASTER * by_cores)
}

/// The token-wise nodes of a layer.
fn layer_time(machine: &Machine, heg: &Heg, lanes: LaneSet, rows: Tokens) -> Nanos {
    let load = Load::default().with_rows(Tokens::ZERO..rows, Yields::Context);
    let anchors = machine.anchors(lanes);
    let node = |node| annotation::node_time(heg, anchors, &load, node) + anchors.launch;
    node(NodeKind::Qkv) + node(NodeKind::Ffn)
}

/// Times of the cores' that a device alone may take.
const SLOWEST: f64 = 3.0;
/// Share of the cores' time that a team must do with: measurements differ by some per cent.
const FASTER: f64 = 0.9;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heg::{SequenceWise, TokenWise};
    use crate::machine::{Anchors, Capabilities, FewRows, Lane, PerRow, Team};

    fn anchors(macs_per_s: f64) -> Anchors {
        Anchors {
            macs_per_s,
            attention_macs_per_s: macs_per_s,
            bytes_per_s: 1e10,
            launch: Nanos::ZERO,
            exposed: 0.0,
            per_row: PerRow::NONE,
            few_rows: FewRows::NONE,
        }
    }

    fn device_pays(device: f64, team: Option<f64>) -> bool {
        let lanes = vec![
            Lane::new("igpu", Capabilities::DYNAMIC, anchors(device)),
            Lane::new("cpu", Capabilities::CORES, anchors(1e12)),
        ];
        let mut machine = Machine::of(lanes);
        machine.teams.extend(team.map(|macs| Team { lanes: machine.all(), anchors: anchors(macs) }));
        let linear = TokenWise { macs_per_row: 1e7, weight_bytes: 1e6, row_bytes: 1e3, routed: None };
        let attention = SequenceWise { macs_per_pair: 1.0, bytes_per_position: 1.0, row_bytes: 1.0, windowed: None };
        let heg = Heg { layers: 2, qkv: linear, ffn: linear, attention, head: linear, experts: None, for_head: None };
        pays(&machine, &heg, LaneId(0), Tokens(256))
    }

    #[test]
    fn a_device_pays_alone_or_in_a_team() {
        assert!(device_pays(2e12, None), "it is faster");
        assert!(device_pays(4e11, None), "it works beside the cores");
        assert!(!device_pays(2e11, None), "it is slow, and nothing was measured together");
        assert!(!device_pays(2e11, Some(1.05e12)), "the team gains less than measurements differ by");
        assert!(device_pays(2e11, Some(1.2e12)), "the team is faster");
    }
}
