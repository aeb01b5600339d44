//! `duet bench load`: mixed load on an engine in this process or on another server.

use crate::bad_input::BadInput;
use crate::cli::{LoadArgs, Peer, SchedulingArgs};
use crate::failure::print;
use crate::progress::eprintln_quiet;
use crate::{models, session};
use duet_bench::load::{
    self, Background, Bound, Classes, CurvePoint, CurveSettings, Extent, LoadReport, MixedSettings, Rates,
    ReportSettings, Server, Subject, Summary, Target, Workload,
};
use duet_engine::{EngineConfig, PolicyName};
use duet_model::Model;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub(super) fn load(arguments: &LoadArgs) -> anyhow::Result<()> {
    let workload = Workload::read(&arguments.workload)?;
    if !arguments.peer.is_empty() && !arguments.curve && arguments.report.is_none() {
        return Err(BadInput("--peer needs --curve or --report; --url measures one server".into()).into());
    }
    if let Some(directory) = &arguments.report {
        return write_report(arguments, &workload, directory);
    }
    if arguments.curve { measure_curve(arguments, &workload) } else { measure_one(arguments, &workload) }
}

/// Everything, into a directory.
fn write_report(arguments: &LoadArgs, workload: &Workload, directory: &Path) -> anyhow::Result<()> {
    let engines = Engines::open(arguments)?;
    let mut others = engines.of_policies(arguments);
    let subject = others.remove(0);
    let batching = PolicyName::CpuBatching;
    if !arguments.policies().contains(&batching) {
        others.push(engines.of(batching));
    }
    others.extend(arguments.peer.iter().map(|peer| server(peer, arguments)));
    let extent = match (arguments.full, arguments.smoke) {
        (true, _) => Extent::Full,
        (false, true) => Extent::Smoke,
        (false, false) => Extent::Short,
    };
    let settings = ReportSettings { subject, others, extent, parts: arguments.section.clone(), seed: arguments.seed };
    let sections = load::report(&settings, workload, directory, &tell)?;
    if arguments.json {
        return print(&(serde_json::to_string(&sections)? + "\n"));
    }
    let mut page = String::new();
    for section in &sections {
        page += &format!("{} (n {})\n", section.title, section.n);
        for target in &section.targets {
            page += &target_line(target);
        }
    }
    print(&format!("{page}written to {}\n", directory.join("index.html").display()))
}

/// Latency over load, of all policies and peers.
fn measure_curve(arguments: &LoadArgs, workload: &Workload) -> anyhow::Result<()> {
    let mut subjects = Engines::open(arguments)?.of_policies(arguments);
    subjects.extend(arguments.peer.iter().map(|peer| server(peer, arguments)));
    let points = if arguments.points.is_empty() {
        load::POINTS.map(|(reactive, proactive)| Rates { reactive, proactive }).into()
    } else {
        arguments.points.clone()
    };
    let settings = CurveSettings {
        points,
        window: Duration::from_secs_f64(arguments.seconds),
        alone: Duration::from_secs_f64(arguments.seconds.min(ALONE_SECONDS)),
        rounds: arguments.rounds.unwrap_or(1),
        seed: arguments.seed,
    };
    let points = load::curve(&subjects, workload, &settings, &tell)?;
    if arguments.json {
        let lines: Result<String, _> =
            points.iter().map(|point| serde_json::to_string(point).map(|line| line + "\n")).collect();
        return print(&lines?);
    }
    print(&curve_page(&points))
}

/// One policy or server under one load.
fn measure_one(arguments: &LoadArgs, workload: &Workload) -> anyhow::Result<()> {
    if arguments.policies().len() > 1 {
        return Err(BadInput("--policy: several policies need --curve".into()).into());
    }
    let settings = mixed(arguments);
    let subject = match &arguments.url {
        Some(url) => server(&Peer { name: url.clone(), url: url.clone() }, arguments),
        None => Engines::open(arguments)?.of_policies(arguments).swap_remove(0),
    };
    let report = load::run(&subject, workload, &settings, &tell)?;
    if arguments.json {
        return print(&(serde_json::to_string(&report)? + "\n"));
    }
    print(&page(&report))
}

pub(super) fn mixed(arguments: &LoadArgs) -> MixedSettings {
    MixedSettings {
        reactive: arguments.reactive,
        backgrounds: vec![background(arguments)],
        seconds: Duration::from_secs_f64(arguments.seconds),
        rounds: arguments.rounds.unwrap_or((arguments.seconds / TURN_SECONDS).ceil() as usize).max(1),
        seed: arguments.seed,
        record: None,
    }
}

/// Half a minute each: shorter than the drift of a machine's speed, longer than any request.
const TURN_SECONDS: f64 = 30.0;
/// Some twenty requests of a fast engine, a handful of a slow one.
const ALONE_SECONDS: f64 = 12.0;
/// What keeps a machine busy.
const IN_FLIGHT_DEFAULT: u16 = 16;

fn background(arguments: &LoadArgs) -> Background {
    match arguments.proactive {
        Some(rate) => Background::Rate(rate),
        None => Background::InFlight(arguments.in_flight.unwrap_or(IN_FLIGHT_DEFAULT).into()),
    }
}

/// What engines are started with: a model in memory, and on the devices that were named.
pub(super) struct Engines {
    pub(super) model: Arc<Model>,
    pub(super) config: EngineConfig,
}

impl Engines {
    pub(super) fn open(arguments: &LoadArgs) -> anyhow::Result<Self> {
        Self::open_with(arguments, &arguments.scheduling)
    }

    /// With other bounds of scheduling than the load's. Graphs are made for chunks as large as these say.
    pub(super) fn open_with(arguments: &LoadArgs, scheduling: &SchedulingArgs) -> anyhow::Result<Self> {
        // Before anything is downloaded or loaded.
        arguments.device.check()?;
        let speculate = arguments.draft.method(arguments.engine.speculate)?;
        let path = models::locate(&arguments.model)?;
        let model = session::open_beside(&arguments.model, &arguments.engine, &arguments.device)?;
        let draft = session::open_draft(&arguments.draft, &arguments.engine)?;
        let config = scheduling.apply(arguments.engine.config());
        let config = EngineConfig { speculate, draft, ..config };
        let config = session::beside_devices((&model, &path), &arguments.engine, &arguments.device, config)?;
        Ok(Self { model, config })
    }

    /// One for each policy that was named.
    fn of_policies(&self, arguments: &LoadArgs) -> Vec<Subject> {
        arguments.policies().into_iter().map(|policy| self.of(policy)).collect()
    }

    pub(super) fn of(&self, policy: PolicyName) -> Subject {
        let config = EngineConfig { policy, ..self.config.clone() };
        Subject::Engine { model: Arc::clone(&self.model), config: Box::new(config) }
    }
}

fn server(peer: &Peer, arguments: &LoadArgs) -> Subject {
    let classes = if arguments.tier { Classes::ServiceTier } else { Classes::Untold };
    Subject::Server(Server { name: peer.name.clone(), url: peer.url.clone(), classes })
}

pub(super) fn tell(phase: &str) {
    eprintln_quiet(&format!("bench: {phase}"));
}

pub(super) fn page(report: &LoadReport) -> String {
    let mut page = format!("{}\n{HEAD}", report.policy);
    page += &row("reactive", &report.reactive);
    page += &row("proactive", &report.proactive);
    let alone = &report.alone;
    page += &format!(
        "alone      reactive mean {} (n {}), proactive {}\n",
        shown(alone.reactive_mean_s, 3, "s"),
        alone.n,
        shown(alone.proactive_tok_s, 1, "tok/s")
    );
    if let Some(lost) = &report.interference {
        let p99 = lost.p99_ratio.map(|ratio| format!(", p99 {ratio:.2}x")).unwrap_or_default();
        page += &format!("mixed      reactive mean {} of alone{p99} (n {})\n", shown(lost.mean_ratio, 2, "x"), lost.n);
    }
    if let (Some(doubled), growth) = (&report.interference_doubled, report.growth) {
        let (lost, growth) = (shown(doubled.mean_ratio, 2, "x"), shown(growth, 2, "x"));
        page += &format!("twice the background: {lost} of alone, a growth of {growth} (n {})\n", doubled.n);
    }
    if let Some(waits) = &report.preempt_ms {
        page += &format!(
            "first kernel after {} (max {}, n {})\n",
            shown(waits.p50, 2, "ms"),
            shown(waits.max, 2, "ms"),
            waits.n
        );
    }
    if let Some(conserved) = report.work_conservation {
        page += &format!("the background got {:.0} % of what the foreground left\n", conserved * 100.0);
    }
    if let Some(energy) = &report.predicted_energy {
        page +=
            &format!("energy     {:.0} J predicted, {} a token\n", energy.joules, shown(energy.j_per_token, 3, "J"));
    }
    for lane in &report.lanes {
        let macs = lane.mac_share.map(|share| format!(", {:.0} % of products", share * 100.0)).unwrap_or_default();
        let error = shown(lane.prediction_error_pct, 0, "%");
        let first = lane.preempt_ms.as_ref().map(|waits| format!(", {} first kernels", waits.n)).unwrap_or_default();
        page += &format!(
            "lane {:<8} busy {:.0} %{macs}, predictions off by {error} (n {}){first}\n",
            lane.lane,
            lane.busy * 100.0,
            lane.n
        );
    }
    if let Some(scheduler) = &report.scheduler {
        let share = scheduler.share.map(|share| share * 100.0);
        page += &format!(
            "deciding   {} each, {} of the time\n",
            shown(scheduler.decision_us_p50, 1, "us"),
            shown(share, 2, "%")
        );
    }
    match report.identical_outputs {
        Some(true) => page += "every reactive answer was the same alone and mixed\n",
        Some(false) => page += "NOT every reactive answer was the same alone and mixed\n",
        None => {}
    }
    page
}

fn curve_page(points: &[CurvePoint]) -> String {
    let mut page = "load         subject           n  reactive s  ttft s  proactive s  alone s\n".to_owned();
    for point in points {
        let load = format!("{} + {}", point.reactive_per_min, point.proactive_per_min);
        page += &format!(
            "{load:12} {:14} {:5} {:>11} {:>7} {:>12} {:>8}{}\n",
            point.policy,
            point.n,
            cell(point.reactive.mean_at_least_s.or(point.reactive.mean_s), 3),
            cell(point.reactive.ttft_mean_s, 3),
            cell(point.proactive.mean_at_least_s.or(point.proactive.mean_s), 3),
            cell(point.alone.reactive_mean_s, 3),
            if point.saturated { "  past saturation" } else { "" }
        );
    }
    page
}

fn target_line(target: &Target) -> String {
    let sign = match target.bound {
        Bound::AtMost => "<=",
        Bound::AtLeast => ">=",
    };
    let word = match target.met {
        Some(true) => "met",
        Some(false) => "missed",
        None => "not measured",
    };
    format!("  {:60} {:>8} {sign} {:<6} {word}\n", target.figure, cell(target.value, 3), target.limit)
}

fn cell(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
}

const HEAD: &str = "               n   mean s    p90 s    max s   ttft s  ms/token    tok/s\n";

fn row(name: &str, summary: &Summary) -> String {
    let mut row = format!(
        "{name:10} {:5} {:>8} {:>8} {:>8} {:>8} {:>9} {:>8}",
        summary.n,
        cell(summary.mean_s, 3),
        cell(summary.p90_s, 3),
        cell(summary.max_s, 3),
        cell(summary.ttft_mean_s, 3),
        cell(summary.norm_ms, 2),
        cell(summary.tok_s, 1)
    );
    if summary.unfinished > 0 {
        row += &format!("  {} unfinished", summary.unfinished);
    }
    if let Some(error) = &summary.first_error {
        row += &format!("  {} failed: {error}", summary.errors);
    }
    row + "\n"
}

fn shown(value: Option<f64>, digits: usize, unit: &str) -> String {
    value.map_or("not measured".to_owned(), |value| format!("{value:.digits$} {unit}"))
}
