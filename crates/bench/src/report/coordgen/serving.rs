//! The same answers under the scheduler that serves: drafts verified on the unit of the iGPU role, as many rows as pay.
//!
//! The rest of the report is of the paper's systems, which decode on an NPU's static graph. The scheduler of duet reads
//! prompts on the NPU and decodes on the dynamic lane, a phone's GPU; it verifies as many rows of a draft as pay by the
//! annotations. Here it serves the traced requests one after the other, in virtual time. (CoordGen §3.4; ours)

use super::phones::{Phone, Target};
use super::study::Study;
use super::sweep::{Place, places};
use crate::plot::{Bar, bars};
use crate::report::jobs;
use crate::report::outcome::Estimate;
use crate::report::row::{Row, Unit};
use crate::report::section::{Plot, Section};
use crate::traces::RequestTrace;
use duet_scheduler::policy::PolicyName;
use duet_sim::{Client, Replayed, Simulation, SocProfile};
use duet_speculate::Method;
use duet_types::{Class, Instant, Nanos};
use std::num::NonZeroUsize;

/// Without drafts, with the paper's, and with ours.
const METHODS: [(&str, Method); 3] =
    [("no drafts", Method::None), ("CoordGen's drafts", Method::CoordGen), ("duet's drafts", Method::Duet)];

/// Constants of the unit that decodes; the sweep is over these.
const SWEPT: [&str; 3] = ["igpu.gemm_tflops", "igpu.read_gb_s", "igpu.launch_ms"];

/// Between arrivals: longer than any request takes.
const APART: Nanos = Nanos(1_000_000_000_000);

pub(super) fn section(study: &Study) -> Section {
    let places: Vec<Place> = places().collect();
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    // By method, milliseconds a token under each profile.
    let served = jobs::map(&places, threads, |&(phone, target)| {
        let socs = profiles(&phone.soc());
        METHODS.map(|(_, method)| socs.iter().map(|soc| ms_per_token(study, soc, target, method)).collect::<Vec<_>>())
    });
    let rows = places.iter().zip(&served).flat_map(|(&place, latencies)| rows(study, place, latencies));
    Section {
        id: "serving",
        title: "Under the scheduler that serves",
        prose: PROSE.map(str::to_owned).into(),
        rows: rows.collect(),
        plots: plot(&places, &served).into_iter().collect(),
        ..Section::default()
    }
}

const PROSE: [&str; 2] = [
    "Not a system of the papers: policy duet reads prompts on the NPU and decodes on the GPU, where a pass may have any number \
     of rows, and verifies as many rows of each draft as pay. The requests of all tasks, one after the other; the same drafts \
     and the same answers as above. From and to are over the GPU's constants.",
    "Where fewer rows are verified than were right, the rest of the draft is offered again, as the drafters would; that they \
     would have drafted anew is not simulated.",
];

/// The profile, and with each swept constant at its ends.
fn profiles(soc: &SocProfile) -> Vec<SocProfile> {
    let mut profiles = vec![soc.clone()];
    for (path, constant) in soc.constants() {
        if let Some((low, high)) = constant.interval().filter(|_| SWEPT.contains(&path.to_string().as_str())) {
            profiles.extend([low, high].map(|end| soc.with(path, end)));
        }
    }
    profiles
}

/// All requests, one after the other.
fn ms_per_token(study: &Study, soc: &SocProfile, target: Target, method: Method) -> f64 {
    let requests: Vec<&RequestTrace> = study.traces.iter().flat_map(|trace| &trace.requests).collect();
    let client = |(index, request): (usize, &&RequestTrace)| Client {
        arrives: Instant(APART.0 * index as u64),
        ..Client::new(Class::Reactive, request.prompt.0, request.output.0)
    };
    let clients: Vec<Client> = requests.iter().enumerate().map(client).collect();
    let window = Nanos(APART.0 * clients.len() as u64);
    let answers = Replayed::new(requests.iter().map(|request| request.by(method).steps.clone()));
    let simulation = Simulation::on_soc(soc, &target.shape().heg(), PolicyName::Duet);
    let (figures, _) = simulation.run_with(clients, window, answers);
    let tokens: u64 = requests.iter().map(|request| u64::from(request.output.0)).sum();
    figures.reactive.mean_s.unwrap_or_default() * figures.reactive.n as f64 * 1e3 / tokens as f64
}

fn rows(study: &Study, (phone, target): Place, latencies: &[Vec<f64>; 3]) -> Vec<Row> {
    let setting = format!("{}, {}, all tasks", phone.name(), target.name());
    let row = |quantity: String, unit, values: Vec<f64>| {
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let estimate = values.first().map(|&value| Estimate { value, low, high });
        Row::new("serving", study.setting(&setting), quantity, unit).computed(estimate, study.n())
    };
    let [plain, drafted @ ..] = latencies;
    let mut rows = vec![row("latency a token, no drafts".to_owned(), Unit::Milliseconds, plain.clone())];
    for ((name, _), latency) in METHODS[1..].iter().zip(drafted) {
        let faster = plain.iter().zip(latency).map(|(plain, drafted)| plain / drafted).collect();
        rows.push(row(format!("latency a token, no drafts over {name}"), Unit::Times, faster));
    }
    rows
}

fn plot(places: &[Place], served: &[[Vec<f64>; 3]]) -> Option<Plot> {
    let on = |(place, _): &(&Place, &[Vec<f64>; 3])| place.1 == Target::Qwen15;
    let mut shown = Vec::new();
    for ((phone, _), latencies) in places.iter().zip(served).filter(on) {
        for ((name, _), latency) in METHODS.iter().zip(latencies) {
            let parts = latency.first().copied().into_iter().collect();
            shown.push(Bar { name: format!("{}, {name}", Phone::name(*phone)), parts });
        }
    }
    Plot::of("qwen2.5-1.5b, all requests", bars("ms a token", &["latency"], &shown))
}
