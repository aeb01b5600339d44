//! `duet profile`: measures this machine's lanes with a model's own kernels, and keeps what the scheduler predicts with.
//! Of a GPU the lanes are measured with it, as an engine would have them; with a device that takes compiled graphs it goes on with
//! those.

use super::profile_graphs;
use crate::cli::{DeviceArgs, GraphProfileArgs, ProfileArgs};
use crate::failure::print;
use crate::progress::eprintln_quiet;
use crate::{models, session};
use anyhow::Context;
use duet_engine::profile::{PredictionError, Profile, Profiler, Sweep};
use serde::Serialize;
use std::sync::Arc;
use std::time::Instant;

/// What is printed with `--json`.
#[derive(Debug, Serialize)]
struct Report<'a> {
    /// Seconds that measuring the lanes took.
    measured_s: f64,
    /// How products of few rows fetch their weights: the fastest way of those there are.
    read_ahead: Option<String>,
    lanes: Vec<LaneReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prediction_error: Option<PredictionError>,
    contention: ContentionReport,
    sweep: &'a Sweep,
}

#[derive(Debug, Serialize)]
struct LaneReport {
    name: String,
    kind: &'static str,
    int8_gmacs: f64,
    attention_gmacs: f64,
    read_gbs: f64,
    launch_us: f64,
    exposed: f64,
}

/// Factors on the time of a kernel while another one runs on the other lane.
#[derive(Debug, Serialize)]
struct ContentionReport {
    memory_beside_memory: f64,
    memory_beside_compute: f64,
    compute_beside_memory: f64,
    compute_beside_compute: f64,
}

pub(super) fn profile(arguments: &ProfileArgs) -> anyhow::Result<()> {
    let device = beside(&arguments.graphs);
    device.check()?;
    let model = session::open_beside(&arguments.model, &arguments.engine, &device)?;
    let path = models::locate(&arguments.model)?;
    let config = session::beside_devices((&model, &path), &arguments.engine, &device, arguments.engine.config())?;
    let profiler = Profiler::start(Arc::clone(&model), &config)?;
    eprintln_quiet("profile: measuring lanes");
    let start = Instant::now();
    let mut profile = profiler.measure(arguments.effort.into())?;
    let measured_s = start.elapsed().as_secs_f64();
    if let Some(disturbance) = profile.disturbance() {
        eprintln_quiet(&format!("profile: {disturbance}; measure again when nothing else runs"));
    }
    // It was asked for.
    profile.is_settled = true;
    if let Some(folder) = &config.profile_folder {
        let path = profile.save(folder).with_context(|| format!("cannot write to {}", folder.display()))?;
        eprintln_quiet(&format!("profile: written to {}", path.display()));
    }
    eprintln_quiet("profile: measuring batches and contexts");
    let sweep = profiler.sweep()?;
    let error = arguments.check.then(|| {
        eprintln_quiet("profile: comparing predictions with measurements");
        profiler.check(&profile)
    });
    let error = error.transpose()?;
    let report = report(&profile, measured_s, error, &sweep);
    print(&if arguments.json { serde_json::to_string(&report)? + "\n" } else { page(&report) })?;
    // Their threads would be on the device's cores.
    drop(profiler);
    profile_graphs::profile(&model, arguments, config.profile_folder.as_deref())
}

/// The device that lanes are measured with: one that takes compiled graphs is measured by its graphs, behind the lanes of the
/// cores.
fn beside(device: &GraphProfileArgs) -> DeviceArgs {
    DeviceArgs::only(device.device.iter().filter(|name| !name.takes_graphs()).cloned())
}

fn report<'a>(
    profile: &Profile,
    measured_s: f64,
    prediction_error: Option<PredictionError>,
    sweep: &'a Sweep,
) -> Report<'a> {
    let machine = &profile.machine;
    let lanes = machine.lanes.iter().map(|lane| (lane.name.clone(), "lane", lane.anchors));
    let team = machine.teams.iter().map(|team| (format!("team {}", team.lanes), "team", team.anchors));
    let lanes = lanes.chain(team).map(|(name, kind, anchors)| LaneReport {
        name,
        kind,
        int8_gmacs: anchors.macs_per_s / 1e9,
        attention_gmacs: anchors.attention_macs_per_s / 1e9,
        read_gbs: anchors.bytes_per_s / 1e9,
        launch_us: anchors.launch.as_millis_f64() * 1e3,
        exposed: anchors.exposed,
    });
    let contention = machine.contention;
    Report {
        measured_s,
        read_ahead: profile.read_ahead.map(|way| way.to_string()),
        lanes: lanes.collect(),
        prediction_error,
        contention: ContentionReport {
            memory_beside_memory: contention.memory_beside_memory,
            memory_beside_compute: contention.memory_beside_compute,
            compute_beside_memory: contention.compute_beside_memory,
            compute_beside_compute: contention.compute_beside_compute,
        },
        sweep,
    }
}

fn page(report: &Report<'_>) -> String {
    let mut page = format!("measured in {:.1} s\n", report.measured_s);
    if let Some(way) = &report.read_ahead {
        page += &format!("a row fetches its weights fastest with {way}\n");
    }
    for lane in &report.lanes {
        page += &format!(
            "{:<8} {:>6.0} GMAC/s in products, {:.0} in attention; {:.1} GB/s; launch {:.1} us; {:.0} % exposed\n",
            lane.name,
            lane.int8_gmacs,
            lane.attention_gmacs,
            lane.read_gbs,
            lane.launch_us,
            lane.exposed * 100.0
        );
    }
    let contention = &report.contention;
    page += &format!(
        "side by side: memory-bound x{:.2} beside memory-bound, x{:.2} beside compute-bound; \
         compute-bound x{:.2} beside memory-bound, x{:.2} beside compute-bound\n",
        contention.memory_beside_memory,
        contention.memory_beside_compute,
        contention.compute_beside_memory,
        contention.compute_beside_compute
    );
    for prefill in &report.sweep.prefill {
        page += &format!("prefill   {:>2} prompts of {}: {:.1} ms\n", prefill.batch, prefill.prompt, prefill.ms);
    }
    for decode in &report.sweep.decode {
        page += &format!("decode    {:>2} at a context of {}: {:.2} ms\n", decode.batch, decode.context, decode.ms);
    }
    if let Some(error) = &report.prediction_error {
        page += &format!(
            "predicted against measured, {} kernels: off by {:.1} % on average, {:.1} % at the ninetieth percentile\n",
            error.n, error.mean_abs_pct, error.p90_abs_pct
        );
    }
    page
}
