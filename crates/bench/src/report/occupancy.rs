//! A cap on the iGPU's occupancy: what reactive and proactive requests lose, and what graphics get.

use super::lab::{Lab, Results};
use super::outcome::{Outcome, Read};
use super::policies::{BASELINE, OURS};
use super::readings::{proactive_mean, reactive_mean, utilisation};
use super::row::{Row, Unit};
use super::section::{Plot, Section};
use super::setting::{Load, Setting, Size};
use crate::plot::{Axis, Mark, Point, Series, lines};
use duet_scheduler::policy::PolicyName;

/// A cap of a policy, in per cent, so that it can be compared exactly.
type Capped = (Size, PolicyName, u32);

/// Runs it.
pub(crate) fn section(lab: &mut Lab<'_>) -> Section {
    let caps: Vec<u32> = lab.plan.occupancies.iter().map(|share| (share * 100.0).round() as u32).collect();
    let load = Load::mixed(3.0, 6.0);
    let mut settings = Vec::new();
    for size in Size::ALL {
        for policy in OURS.into_iter().chain([BASELINE]) {
            for &cap in &caps {
                let mut simulation = lab.simulation(size, policy);
                simulation.config.machine.cap_decode_lane(f64::from(cap) / 100.0);
                settings.push(((size, policy, cap), Setting { simulation, load }));
            }
        }
    }
    let results = lab.run("occupancy", lab.plan.seeds, settings);
    let mut section = Section {
        id: "occupancy",
        title: "A cap on the iGPU's occupancy",
        prose: PROSE.map(str::to_owned).into(),
        ..Section::default()
    };
    for size in Size::ALL {
        for policy in OURS.into_iter().chain([BASELINE]) {
            section.rows.extend(caps.iter().flat_map(|&cap| rows(&results, (size, policy, cap), load)));
        }
        section.plots.extend(plot(&results, size, &caps, "reactive", reactive_mean));
        section.plots.extend(plot(&results, size, &caps, "proactive", proactive_mean));
    }
    section
}

const PROSE: [&str; 1] = [
    "A screen needs the iGPU too. Under a cap the policy lets it rest after each kernel, so that its share of any slice of time \
     stays below. What graphics get is the share of the arrivals' time for which the iGPU was free. All at 3 + 6 requests a \
     minute.",
];

fn rows(results: &Results<Capped>, capped: Capped, load: Load) -> [Row; 3] {
    let (size, policy, cap) = capped;
    let outcome: &Outcome = results.get(&capped);
    let row = |quantity: &str, read: Read, unit: Unit| {
        Row::new("occupancy", format!("{size}, {load}, {policy}, cap {cap} %"), quantity, unit)
            .predicted(outcome.read(read), outcome)
    };
    let free: Read = |figures| utilisation(BASELINE)(figures).map(|busy| 100.0 - busy);
    [
        row("reactive mean", reactive_mean, Unit::Seconds),
        row("proactive mean", proactive_mean, Unit::Seconds),
        row("free for graphics", free, Unit::Percent),
    ]
}

fn plot(results: &Results<Capped>, size: Size, caps: &[u32], class: &str, read: Read) -> Option<Plot> {
    let series: Vec<Series> = OURS
        .into_iter()
        .chain([BASELINE])
        .map(|policy| {
            let point = |&cap: &u32| {
                let y = results.get(&(size, policy, cap)).read(read)?.value;
                Some(Point { x: f64::from(cap), y, mark: Mark::Dot })
            };
            Series { name: policy.to_string(), points: caps.iter().filter_map(point).collect() }
        })
        .collect();
    let svg = lines(&Axis::Linear { label: "cap, %" }, &Axis::Log { label: "mean latency, s" }, &series);
    Plot::of(format!("{size}: mean {class} latency under a cap on the iGPU"), svg)
}
