//! The report: every measurement, one after another, each within its share of the time.

use super::arrivals::Rates;
use super::cases::{Case, Trace, case};
use super::conservation::conservation;
use super::curve::{CurvePoint, CurveSettings, POINTS, curve};
use super::decision::{DecisionCost, decision_cost};
use super::interference::{identical_outputs, interference};
use super::mixed::{self, Background, Mixed, MixedSettings};
use super::preemption::preemption;
use super::sampled::{Decisions, PreemptMs};
use super::section::{Plot, Section, Target};
use super::stage::Slice;
use super::starvation::starvation;
use super::subject::Subject;
use super::summary::{Sample, Summary, ratio};
use super::workload::Workload;
use super::{LoadError, Progress, page};
use crate::plot::{Axis, Mark, Point, Series, cumulative, histogram, lines};
use duet_engine::PolicyName;
use duet_files::WholeFile;
use duet_types::Class;
use serde::Serialize;
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// What a report is made of.
#[derive(Clone, Debug)]
pub struct ReportSettings {
    /// The policy that everything is measured of.
    pub subject: Subject,
    /// What it is compared with, over load.
    pub others: Vec<Subject>,
    /// How much time there is.
    pub extent: Extent,
    /// Only these, in the report's own order; all if empty. Some look at the slices of the first.
    pub parts: Vec<Part>,
    /// Same seed, same arrivals and prompts.
    pub seed: u64,
}

/// How much time a report takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// A minute or two, to see that everything runs: its figures mean nothing.
    Smoke,
    /// A quarter of an hour: means and maxima.
    Short,
    /// An hour and a half: 99th percentiles too.
    Full,
}

/// How the time is shared.
struct Budget {
    /// Of each setting of the mixed run.
    mixed: Duration,
    mixed_rounds: usize,
    /// Of the whole curve, if nothing had to be waited for.
    curve: Duration,
    curve_rounds: usize,
    /// The least time of one subject at one point and round: fewer arrivals say nothing.
    curve_slice: Duration,
    /// Of each subject alone.
    curve_alone: Duration,
    preemption: Duration,
    starvation_rounds: usize,
    chats: usize,
}

impl Extent {
    fn budget(self) -> Budget {
        let seconds = Duration::from_secs;
        match self {
            Self::Smoke => Budget {
                mixed: seconds(4),
                mixed_rounds: 1,
                curve: seconds(12),
                curve_rounds: 1,
                curve_slice: seconds(1),
                curve_alone: seconds(2),
                preemption: seconds(5),
                starvation_rounds: 1,
                chats: 1,
            },
            Self::Short => Budget {
                mixed: seconds(60),
                mixed_rounds: 3,
                curve: seconds(180),
                curve_rounds: 1,
                curve_slice: seconds(10),
                curve_alone: seconds(12),
                preemption: seconds(60),
                starvation_rounds: 1,
                chats: 2,
            },
            // 240 requests are expected of each setting, so that 200 are nearly certain.
            Self::Full => Budget {
                mixed: seconds(480),
                mixed_rounds: 16,
                curve: seconds(1200),
                curve_rounds: 2,
                curve_slice: seconds(30),
                curve_alone: seconds(30),
                preemption: seconds(150),
                starvation_rounds: 4,
                chats: 10,
            },
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Smoke => "smoke",
            Self::Short => "short",
            Self::Full => "full",
        }
    }
}

/// Measures everything and writes `report.json` and `index.html` into `directory`, anew after every section, so that
/// what was measured is not lost with what was not.
///
/// # Errors
/// If the directory cannot be written, the subject cannot be started, or the workload lacks a class.
pub fn report(
    settings: &ReportSettings,
    workload: &Workload,
    directory: &Path,
    progress: Progress<'_>,
) -> Result<Vec<Section>, LoadError> {
    std::fs::create_dir_all(directory).map_err(|error| write_error(directory, &error))?;
    let reporter = Reporter { settings, workload, budget: settings.extent.budget(), progress };
    let mut sections: Vec<Section> = Vec::new();
    let mut played = Mixed::default();
    let wanted = |part: &Part| settings.parts.is_empty() || settings.parts.contains(part);
    for part in Part::ALL.into_iter().filter(wanted) {
        let started = Instant::now();
        let mut section = reporter.measure(part, &mut played)?.note_missing();
        section.took_s = started.elapsed().as_secs_f64();
        sections.push(section);
        write(settings, &sections, directory)?;
    }
    Ok(sections)
}

/// A section of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Reactive latency beside a background, over alone.
    Interference,
    /// Latency over load, of several policies and servers.
    Curve,
    /// What the background keeps.
    Conservation,
    /// How soon a reactive request begins.
    Preemption,
    /// That every proactive request ends.
    Starvation,
    /// A heartbeat agent, and titles.
    Cases,
    /// What deciding costs.
    Scheduler,
}

impl Part {
    /// All of them, in the report's order.
    pub const ALL: [Self; 7] = [
        Self::Interference,
        Self::Curve,
        Self::Conservation,
        Self::Preemption,
        Self::Starvation,
        Self::Cases,
        Self::Scheduler,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Interference => "interference",
            Self::Curve => "curve",
            Self::Conservation => "conservation",
            Self::Preemption => "preemption",
            Self::Starvation => "starvation",
            Self::Cases => "cases",
            Self::Scheduler => "scheduler",
        }
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|part| part.name() == name);
        let names = || Self::ALL.map(Self::name).join(", ");
        known.ok_or_else(|| format!("no section is called `{name}`; there are {}", names()))
    }
}

struct Reporter<'a> {
    settings: &'a ReportSettings,
    workload: &'a Workload,
    budget: Budget,
    progress: Progress<'a>,
}

impl Reporter<'_> {
    /// `played` is what the first part leaves for those that look at the same slices.
    fn measure(&self, part: Part, played: &mut Mixed) -> Result<Section, LoadError> {
        match part {
            Part::Interference => {
                let settings = self.mixed_settings();
                *played = mixed::run(&self.settings.subject, self.workload, &settings, self.progress)?;
                Ok(self.interference(played))
            }
            Part::Curve => self.curve(),
            Part::Conservation => Ok(self.conservation(played)),
            Part::Preemption => self.preemption(),
            Part::Starvation => self.starvation(),
            Part::Cases => self.cases(),
            Part::Scheduler => Ok(self.scheduler(played)),
        }
    }

    fn mixed_settings(&self) -> MixedSettings {
        MixedSettings {
            reactive: REACTIVE_A_MINUTE,
            backgrounds: vec![Background::InFlight(IN_FLIGHT), Background::InFlight(2 * IN_FLIGHT)],
            seconds: self.budget.mixed,
            rounds: self.budget.mixed_rounds,
            seed: self.settings.seed,
            record: None,
        }
    }

    fn settings_shown(&self) -> Value {
        json!({
            "policy": self.settings.subject.name(),
            "extent": self.settings.extent.name(),
            "seed": self.settings.seed,
        })
    }

    fn mixed_shown(&self) -> Value {
        let mut shown = self.settings_shown();
        shown["reactive_per_min"] = json!(REACTIVE_A_MINUTE);
        shown["in_flight"] = json!([IN_FLIGHT, 2 * IN_FLIGHT]);
        shown["seconds_each"] = json!(self.budget.mixed.as_secs_f64());
        shown["rounds"] = json!(self.budget.mixed_rounds);
        shown
    }

    fn interference(&self, played: &Mixed) -> Section {
        let beside = |index: usize| played.mixed.get(index).map(Vec::as_slice).unwrap_or_default();
        let first = interference(&played.reactive_alone, beside(0));
        let second = interference(&played.reactive_alone, beside(1));
        let growth = ratio(second.mean_ratio, first.mean_ratio);
        let identical = identical_outputs(played);
        let targets = vec![
            Target::at_most(format!("mean ratio, {IN_FLIGHT} in flight"), RATIO_MAX, first.mean_ratio),
            Target::at_most(format!("p99 ratio, {IN_FLIGHT} in flight"), RATIO_MAX, first.p99_ratio),
            Target::at_most(
                format!("mean ratio with {} in flight over that with {IN_FLIGHT}", 2 * IN_FLIGHT),
                1.1,
                growth,
            ),
            Target::holds("identical outputs", identical),
        ];
        let summary = |slices: &[Slice]| Summary::of(Class::Reactive, slices);
        let alone = summary(&played.reactive_alone);
        let latencies = |slices: &[Slice]| {
            let whole = slices.iter().flat_map(|slice| slice.whole(Class::Reactive));
            Sample::new(whole.map(|record| record.latency).collect())
        };
        let curves = [
            cumulative("alone", latencies(&played.reactive_alone).values()),
            cumulative(format!("{IN_FLIGHT} in flight"), latencies(beside(0)).values()),
            cumulative(format!("{} in flight", 2 * IN_FLIGHT), latencies(beside(1)).values()),
        ];
        let svg = lines(&Axis::Linear { label: "latency, s" }, &Axis::Linear { label: "share of requests" }, &curves);
        Section {
            name: "interference",
            title: "Interference",
            about: "Reactive latency beside a background that always has work, over that of the same requests alone. \
                    The settings take turns.",
            settings: self.mixed_shown(),
            n: first.n,
            figures: json!({
                "interference": first, "interference_doubled": second, "identical_outputs": identical,
                "alone": alone, "mixed": summary(beside(0)), "mixed_doubled": summary(beside(1)),
            }),
            targets,
            not_measured: Vec::new(),
            took_s: 0.0,
            plots: plot("Reactive latency: the share of requests that took at most so long", svg),
        }
    }

    fn curve(&self) -> Result<Section, LoadError> {
        let subjects: Vec<_> = std::iter::once(&self.settings.subject).chain(&self.settings.others).cloned().collect();
        let points: Vec<_> = POINTS.map(|(reactive, proactive)| Rates { reactive, proactive }).into();
        let window = self.budget.curve / (points.len() * subjects.len()) as u32;
        let settings = CurveSettings {
            points,
            window: window.max(self.budget.curve_slice * self.budget.curve_rounds as u32),
            alone: self.budget.curve_alone,
            rounds: self.budget.curve_rounds,
            seed: self.settings.seed,
        };
        let points = curve(&subjects, self.workload, &settings, self.progress)?;
        let mut shown = self.settings_shown();
        shown["subjects"] = subjects.iter().map(Subject::name).collect();
        shown["seconds_each"] = json!(settings.window.as_secs_f64());
        shown["rounds"] = json!(settings.rounds);
        let ours = self.settings.subject.name();
        let mut not_measured = Vec::new();
        if !self.settings.others.iter().any(|other| matches!(other, Subject::Server(_))) {
            not_measured.push("peers: none was given by --peer".to_owned());
        }
        let latency = |label, class| {
            let axis = Axis::Names { label: "reactive + proactive requests a minute", names: point_names() };
            lines(&axis, &Axis::Log { label }, &over_load(&points, class))
        };
        let mut plots = plot(
            "Mean reactive latency over load; a ring marks a load past saturation, where the true mean is higher",
            latency("mean latency, s", Class::Reactive),
        );
        plots.extend(plot("Mean proactive latency over load", latency("mean latency, s", Class::Proactive)));
        Ok(Section {
            name: "curve",
            title: "Latency over load",
            about: "Both streams arrive at random, from a light load to past what the machine can do. All subjects \
                    get the same arrivals and prompts, and take turns at each load.",
            settings: shown,
            n: points.iter().filter(|point| point.policy == ours).map(|point| point.n).sum(),
            targets: curve_targets(&ours, &points),
            figures: json!(points),
            not_measured,
            took_s: 0.0,
            plots,
        })
    }

    fn conservation(&self, played: &Mixed) -> Section {
        let found = conservation(played);
        Section {
            name: "conservation",
            title: "Work conservation",
            about: "The background's tokens a second beside the foreground, over those that it makes alone in the time \
                    that the foreground, alone, leaves free. Of the same slices as the interference.",
            settings: self.mixed_shown(),
            n: found.n,
            targets: vec![Target::at_least("work conservation", 0.9, found.work_conservation)],
            figures: json!(found),
            not_measured: Vec::new(),
            took_s: 0.0,
            plots: Vec::new(),
        }
    }

    fn preemption(&self) -> Result<Section, LoadError> {
        let found = preemption(&self.settings.subject, self.budget.preemption, self.settings.seed, self.progress)?;
        let waits = found.preempt_ms.as_ref();
        let svg = histogram("from admission to the first kernel, ms", found.waits_ms.values(), PREEMPT_MS);
        let mut shown = self.settings_shown();
        shown["seconds"] = json!(self.budget.preemption.as_secs_f64());
        Ok(Section {
            name: "preemption",
            title: "Preemption",
            about: "From a reactive request's admission to its first kernel, while a long proactive prompt is read and \
                    eight proactive requests decode.",
            settings: shown,
            n: waits.map_or(0, |waits| waits.n),
            targets: vec![Target::at_most("p99, ms", PREEMPT_MS, waits.and_then(|waits| waits.p99))],
            figures: json!(found),
            not_measured: Vec::new(),
            took_s: 0.0,
            plots: plot("Waits for the first kernel; the dashed line is the bound", svg),
        })
    }

    fn starvation(&self) -> Result<Section, LoadError> {
        let rounds = self.budget.starvation_rounds;
        let found = starvation(&self.settings.subject, self.workload, rounds, self.settings.seed, self.progress)?;
        let mut shown = self.settings_shown();
        shown["rounds"] = json!(rounds);
        Ok(Section {
            name: "starvation",
            title: "No starvation",
            about: "Reactive requests take the whole machine, always; every proactive one must end within \
                    age + work / 0.05, its work being its own service time and that of those queued before it, alone.",
            settings: shown,
            n: found.n,
            targets: vec![
                Target::at_most("largest share of its bound", 1.0, found.worst_ratio),
                Target::at_most("unfinished", 0.0, Some(found.unfinished as f64)),
            ],
            figures: json!(found),
            not_measured: Vec::new(),
            took_s: 0.0,
            plots: Vec::new(),
        })
    }

    fn cases(&self) -> Result<Section, LoadError> {
        let play = |trace| case(&self.settings.subject, trace, self.budget.chats, self.settings.seed, self.progress);
        let cases: Vec<Case> = Trace::ALL.into_iter().map(play).collect::<Result<_, _>>()?;
        let targets = cases.iter().flat_map(|case| {
            [
                Target::at_most(format!("{}: chat latency over alone", case.trace), 1.15, case.mean_ratio),
                Target::holds(format!("{}: second turns hit the cache", case.trace), case.second_turn_hit),
            ]
        });
        let mut shown = self.settings_shown();
        shown["chats"] = json!(self.budget.chats);
        Ok(Section {
            name: "cases",
            title: "Two cases people complain of",
            about: "heartbeat: an agent's prompts of 1500 to 3000 tokens arrive every two seconds while a person \
                    chats. titles: the chat program asks for a title and tags after every answer, unmarked, with KV \
                    memory for one context only.",
            settings: shown,
            n: cases.iter().map(|case| case.n).sum(),
            targets: targets.collect(),
            figures: json!(cases),
            not_measured: Vec::new(),
            took_s: 0.0,
            plots: Vec::new(),
        })
    }

    fn scheduler(&self, played: &Mixed) -> Section {
        let together = played.mixed.first().map(Vec::as_slice).unwrap_or_default();
        let live = Decisions::of(together);
        let costs = self.decision_costs();
        Section {
            name: "scheduler",
            title: "What deciding costs",
            about: "Time in the scheduler for each event and its share of wall time, sampled by the engine in the mixed \
                    slices; and time for the end of a kernel with queues of several lengths, the scheduler alone.",
            settings: self.mixed_shown(),
            n: live.as_ref().map_or(0, |live| live.n),
            targets: vec![Target::at_most("share of wall time", 0.02, live.as_ref().and_then(|live| live.share))],
            figures: json!({"mixed": live, "preempt_ms": PreemptMs::of(together), "queued": costs}),
            not_measured: Vec::new(),
            took_s: 0.0,
            plots: Vec::new(),
        }
    }

    /// None of a server, whose scheduler is not ours.
    fn decision_costs(&self) -> Vec<DecisionCost> {
        match &self.settings.subject {
            Subject::Engine { config, .. } => {
                QUEUES.map(|queued| decision_cost(config.policy, queued, DECISIONS)).into()
            }
            Subject::Server(_) => Vec::new(),
        }
    }
}

/// How much longer a reactive request may take beside background work than alone, on average and in the worst of a hundred.
const RATIO_MAX: f64 = 1.1;
/// Requests that wait while decisions are timed.
const QUEUES: [usize; 3] = [1, 100, 10_000];
/// Decisions timed with each.
const DECISIONS: usize = 5_000;
/// Reactive requests a minute of the mixed run: a third of a machine that serves one in two thirds of a second.
const REACTIVE_A_MINUTE: f64 = 30.0;
/// Proactive requests under way: what saturates the machine.
const IN_FLIGHT: usize = 16;
/// The bound of a wait for the first kernel.
const PREEMPT_MS: f64 = 10.0;
/// The peer's name that `cpu-batching` is held against, as `--peer` gives it.
const OPENVINO: &str = "openvino";
/// From this multiple of our own time alone on, a peer counts as one that makes people wait.
const PEER_WAITS: f64 = 20.0;

fn curve_targets(ours: &str, points: &[CurvePoint]) -> Vec<Target> {
    let mine = |point: &CurvePoint| {
        let same = |other: &&CurvePoint| other.policy == ours && rates(other) == rates(point);
        points.iter().find(same)
    };
    let mut targets = Vec::new();
    for theirs in points.iter().filter(|point| point.policy != ours) {
        let Some(mine) = mine(theirs) else { continue };
        let at = format!("{} + {}", theirs.reactive_per_min, theirs.proactive_per_min);
        let share = ratio(mine.reactive.mean_known_s(), theirs.reactive.mean_known_s());
        targets.push(Target::at_most(format!("reactive mean over that of {} at {at}", theirs.policy), 1.0, share));
        let slowness = ratio(theirs.reactive.mean_known_s(), mine.alone.reactive_mean_s);
        if slowness.is_some_and(|slowness| slowness > PEER_WAITS) {
            targets.push(Target::at_most(
                format!("the same where {} takes {PEER_WAITS} times our time alone, at {at}", theirs.policy),
                0.05,
                share,
            ));
        }
        if theirs.policy == PolicyName::CpuBatching.to_string() && !theirs.saturated && !mine.saturated {
            let share = ratio(mine.proactive.mean_known_s(), theirs.proactive.mean_known_s());
            targets.push(Target::at_most(format!("proactive mean over that of {} at {at}", theirs.policy), 1.0, share));
        }
    }
    targets.extend(batching_targets(points));
    targets
}

/// Whether our `cpu-batching` is as good a batching server as OpenVINO's: at loads that neither is saturated by, each
/// latency in terms of its own time alone. A baseline that is worse than what it stands for would flatter.
fn batching_targets(points: &[CurvePoint]) -> Vec<Target> {
    let in_own_time = |point: &CurvePoint| ratio(point.reactive.mean_known_s(), point.alone.reactive_mean_s);
    let unsaturated = |name: &str| -> Vec<&CurvePoint> {
        points.iter().filter(|point| point.policy == name && !point.saturated).collect()
    };
    let ours = unsaturated(&PolicyName::CpuBatching.to_string());
    let theirs = unsaturated(OPENVINO);
    let pairs = theirs.iter().filter_map(|theirs| {
        let ours = ours.iter().find(|ours| rates(ours) == rates(theirs))?;
        let at = format!("{} + {}", theirs.reactive_per_min, theirs.proactive_per_min);
        let share = ratio(in_own_time(ours), in_own_time(theirs));
        Some(Target::at_most(format!("cpu-batching over {OPENVINO}, each over its time alone, at {at}"), 1.1, share))
    });
    pairs.collect()
}

fn rates(point: &CurvePoint) -> (f64, f64) {
    (point.reactive_per_min, point.proactive_per_min)
}

fn point_names() -> Vec<String> {
    POINTS.iter().map(|(reactive, proactive)| format!("{reactive} + {proactive}")).collect()
}

/// One series per subject, in the order in which they come.
fn over_load(points: &[CurvePoint], class: Class) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    for point in points {
        let summary = match class {
            Class::Reactive => &point.reactive,
            Class::Proactive => &point.proactive,
        };
        let index = POINTS.iter().position(|&rates| rates == self::rates(point));
        let Some((index, mean)) = index.zip(summary.mean_known_s()) else { continue };
        let mark = if point.saturated { Mark::Ring } else { Mark::Dot };
        let point_drawn = Point { x: index as f64, y: mean, mark };
        match series.iter_mut().find(|series| series.name == point.policy) {
            Some(series) => series.points.push(point_drawn),
            None => series.push(Series { name: point.policy.clone(), points: vec![point_drawn] }),
        }
    }
    series
}

fn plot(caption: &str, svg: Option<String>) -> Vec<Plot> {
    svg.map(|svg| Plot { caption: caption.to_owned(), svg }).into_iter().collect()
}

fn write(settings: &ReportSettings, sections: &[Section], directory: &Path) -> Result<(), LoadError> {
    let json = to_json(sections).map_err(|error| write_error(directory, &error))?;
    let title = format!("duet bench load: {}, {}", settings.subject.name(), settings.extent.name());
    for (name, text) in [("report.json", json), ("index.html", page::page(&title, sections))] {
        let path = directory.join(name);
        let written = WholeFile::begin(&path).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.commit()
        });
        written.map_err(|error| write_error(&path, &error))?;
    }
    Ok(())
}

fn to_json(sections: &[impl Serialize]) -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(sections)? + "\n")
}

fn write_error(path: &Path, error: &dyn std::error::Error) -> LoadError {
    LoadError::Write { path: path.to_owned(), problem: error.to_string() }
}
