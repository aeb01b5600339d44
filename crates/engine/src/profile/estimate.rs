//! A profile of cores that nobody has measured yet, from a probe of one of them: tens of milliseconds instead of a second or two.
//!
//! It is for a first answer to one person, on a machine that has nothing else to do. All cores together are then faster than one,
//! which is all that has to be known; what drafts cost is roughly right. Whoever weighs lanes against each other measures.

use super::capabilities;
use super::measure::Probes;
use super::{Measured, Profile};
use duet_driver::Rates;
use duet_scheduler::Machine;
use duet_scheduler::machine::{Anchors, FewRows, Lane, PerRow, Team};
use duet_types::{LaneId, Nanos};

/// Lanes of cores alone: of devices a probe says nothing.
pub(crate) fn estimate(of: &Measured<'_>) -> Profile {
    let mut probes = Probes::new(of.model);
    probes.take();
    let probe = probes.fastest;
    let mut machine = Machine::of(Vec::new());
    for (lane, &threads) in of.cpu.lanes.iter().enumerate() {
        let capabilities = capabilities::of_lane(of, LaneId(lane as u8));
        machine.lanes.push(Lane::new(format!("cpu{lane}x{threads}"), capabilities, anchors(threads, probe)));
    }
    let all = of.cpu.lanes.iter().sum();
    let teams = capabilities::teams(&machine).into_iter();
    machine.teams = teams.map(|lanes| Team { lanes, anchors: anchors(all, probe) }).collect();
    let (measured_at, read_ahead, waited) = (Profile::NOT_MEASURED, None, None);
    Profile { of: of.subject(), machine, measured_at, read_ahead, probe, waited, is_settled: false }
}

/// What so many threads are taken to reach of what one core does from registers, and reads.
fn anchors(threads: usize, probe: Rates) -> Anchors {
    let threads = threads as f64;
    let macs_per_s = (threads * probe.macs_per_s * PRODUCTS).max(1.0);
    Anchors {
        macs_per_s,
        attention_macs_per_s: macs_per_s * ATTENTION,
        bytes_per_s: (threads * probe.bytes_per_s * READING).max(1.0),
        launch: LAUNCH,
        exposed: EXPOSED,
        per_row: PerRow::NONE,
        few_rows: FewRows::NONE,
    }
}

/// Shares of the probe's rates, and times, about as profiles of a 135M and a 1.5B on two cores of Zen 4 have them.
const PRODUCTS: f64 = 0.6;
const ATTENTION: f64 = 0.4;
const READING: f64 = 0.35;
const EXPOSED: f64 = 0.3;
const LAUNCH: Nanos = Nanos(650);
