//! The lanes of an engine, as they were measured: for people at the start, and as a line of JSON each.

use duet_engine::Engine;
use duet_scheduler::machine::{AttendedChunks, Attention, Capabilities, Joins, Lane, RowsTaken};
use duet_types::Tokens;
use serde::Serialize;

/// One lane.
#[derive(Debug, Serialize)]
struct LaneLine<'a> {
    lane: &'a str,
    kind: &'static str,
    capabilities: &'a Capabilities,
    int8_gmacs: f64,
    read_gbs: f64,
    launch_us: f64,
    measured_at: u64,
}

/// A JSON object for each lane, one a line.
pub(crate) fn json(engine: &Engine) -> serde_json::Result<String> {
    let (machine, measured_at) = engine.machine();
    let lines =
        machine.lanes.iter().map(|lane| serde_json::to_string(&line(lane, measured_at)).map(|line| line + "\n"));
    lines.collect()
}

/// A line for each lane, for people.
pub(crate) fn page(engine: &Engine) -> String {
    let lines = engine.machine().0.lanes.iter().map(|lane| {
        let LaneLine { int8_gmacs, read_gbs, launch_us, .. } = line(lane, 0);
        let measured = format!("{int8_gmacs:.0} GMAC/s, {read_gbs:.1} GB/s, {launch_us:.0} us a launch");
        format!("{:<16} {}; {measured}\n", lane.name, described(lane))
    });
    lines.collect()
}

/// All lanes in a sentence.
pub(crate) fn sentence(engine: &Engine) -> String {
    let lanes = engine.machine().0.lanes.iter();
    let lanes: Vec<String> = lanes
        .map(|lane| format!("{} ({}, {:.0} GMAC/s)", lane.name, described(lane), lane.anchors.macs_per_s / 1e9))
        .collect();
    format!("lanes: {}", lanes.join(", "))
}

fn line(lane: &Lane, measured_at: u64) -> LaneLine<'_> {
    LaneLine {
        lane: &lane.name,
        kind: match lane.capabilities.joins {
            Joins::Crew => "cores",
            Joins::Rows => "device",
        },
        capabilities: &lane.capabilities,
        int8_gmacs: lane.anchors.macs_per_s / 1e9,
        read_gbs: lane.anchors.bytes_per_s / 1e9,
        launch_us: lane.anchors.launch.as_millis_f64() * 1e3,
        measured_at,
    }
}

/// What it can do, in a few words.
fn described(lane: &Lane) -> String {
    let Capabilities { joins, rows, attention, exact, layers, .. } = &lane.capabilities;
    let mut words = match (joins, rows) {
        (Joins::Crew, _) => "cores, everything".to_owned(),
        (Joins::Rows, RowsTaken::Any) => "device, any rows".to_owned(),
        (Joins::Rows, RowsTaken::Chunk) => "device, chunks".to_owned(),
    };
    match attention {
        _ if *joins == Joins::Crew => {}
        Attention::None => {}
        Attention::Chunks(AttendedChunks { context_min: Tokens::ZERO, context_max, .. }) => {
            words += &format!(" and their attention up to {context_max} positions");
        }
        Attention::Chunks(AttendedChunks { context_min, context_max, .. }) => {
            words += &format!(" and their attention from {context_min} to {context_max} positions");
        }
        Attention::UpTo(_) | Attention::Any => words += " and attention",
    }
    if let Some(layers) = layers {
        words += &format!(", layers {} to {}", layers.first, layers.end.saturating_sub(1));
    }
    if let Some(exact) = exact {
        words += &format!(", a prompt's own graphs in {:.1} s", exact.compile.as_secs_f64());
    }
    if lane.occupancy < 1.0 {
        words += &format!(", at most {:.0} %", 100.0 * lane.occupancy);
    }
    words
}
