//! Proactive requests alone: how many each policy can serve. (Agent.xpu §6.2, Fig. 10)
//!
//! The paper compares throughput and does not define it for open arrivals. Here it is twofold: the rate of requests at
//! which normalised latency comes to a level, between the rates that were run, and tokens served a second at a rate that is
//! past what any policy can do.

use super::crossing::crossing;
use super::lab::{Lab, Results};
use super::outcome::{Estimate, Outcome, Read, ratio};
use super::policies::COMPARED;
use super::readings::{proactive_norm, served};
use super::row::{Paper, Row, Unit};
use super::section::{Plot, Section};
use super::setting::{Cell, Load, ProactiveOf, Size};
use crate::plot::{Axis, Mark, Point, Series, lines};
use duet_scheduler::policy::PolicyName;

/// Seconds for each token of prompt and answer. The first is the paper's.
const LEVELS: [f64; 2] = [1.0, 0.1];
/// A trace past what can be served has 1800 requests: one is enough.
const OVERLOAD_SEEDS: u64 = 1;

/// Runs it.
pub(crate) fn section(lab: &mut Lab<'_>) -> Section {
    let rates = lab.plan.rates.clone();
    let results = lab.cells("proactive requests alone", cells(&rates));
    let overload = lab.plan.overload;
    let overloaded = cells(&[overload]).into_iter().map(|cell| (cell, lab.setting(cell))).collect();
    let overloaded = lab.run("proactive requests alone, overload", OVERLOAD_SEEDS, overloaded);
    let compared = Compared { results, rates, overloaded, overload };
    let mut rows = Vec::new();
    for size in Size::ALL {
        for of in ProactiveOf::DATA_SETS {
            for against in [PolicyName::IgpuBatching, PolicyName::Serial, PolicyName::CpuBatching] {
                rows.extend(compared.rows(size, of, PolicyName::AgentXpu, against));
            }
            rows.extend(compared.rows(size, of, PolicyName::Duet, PolicyName::IgpuBatching));
        }
    }
    let plots = Size::ALL.into_iter().flat_map(|size| ProactiveOf::DATA_SETS.map(|of| compared.plot(size, of)));
    Section {
        id: "proactive",
        title: "Proactive requests alone (Fig. 10)",
        prose: PROSE.map(str::to_owned).into(),
        rows,
        tables: Vec::new(),
        plots: plots.flatten().collect(),
    }
}

const PROSE: [&str; 3] = [
    "Normalised latency is the mean over requests of latency over the tokens of prompt and answer. The first comparison is \
     of the rates at which it comes to 1 s a token (and, for what a person would call usable, 0.1 s), read between the rates \
     that were run; it is absent where a policy never comes to the level. The second is of tokens served in a second at 120 \
     requests a minute, from the first arrival to the last answer; the baseline's drain says how far past its limit that is.",
    "The paper gives ranges over its data sets and models. For the 3B model it names 2.0 to 2.4 times the iGPU's throughput on \
     SAMSum and about 20 % more requests at 1.0 s a token on the others; the other comparisons are held against its ranges for \
     each baseline. Its 1.0 s a token is far past saturation: a request of 800 tokens takes 13 minutes then, within traces of \
     15.",
    "Where the prediction is lower than the paper's, the baseline is better here: on one unit, batched decode hides under the \
     products of a prompt's chunk in the same pass, and the sweep has given it its best chunk. What the NPU adds cannot be more \
     than the share of the work that it takes over.",
];

fn cells(rates: &[f64]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for size in Size::ALL {
        for of in ProactiveOf::DATA_SETS {
            for policy in COMPARED {
                cells.extend(rates.iter().map(|&rate| Cell { size, policy, load: Load::only(of, rate) }));
            }
        }
    }
    cells
}

struct Compared {
    results: Results<Cell>,
    rates: Vec<f64>,
    overloaded: Results<Cell>,
    overload: f64,
}

impl Compared {
    fn at(&self, size: Size, of: ProactiveOf, policy: PolicyName, rate: f64) -> &Outcome {
        self.results.get(&Cell { size, policy, load: Load::only(of, rate) })
    }

    /// The policy over a baseline at each level, and past what they can do.
    fn rows(&self, size: Size, of: ProactiveOf, policy: PolicyName, against: PolicyName) -> Vec<Row> {
        let setting = format!("{size}, {of}, {policy} over {against}");
        let told = |row: Row| match paper(size, of, against).filter(|_| policy == PolicyName::AgentXpu) {
            Some(paper) => row.paper(paper),
            None => row,
        };
        let highest = self.rates.last().copied().unwrap_or_default();
        let ours = self.at(size, of, policy, highest);
        let mut rows = Vec::new();
        for level in LEVELS {
            let quantity = format!("requests a minute at {level} s a token");
            let row = Row::new("Fig. 10", setting.clone(), quantity, Unit::Times).predicted(None, ours);
            let [ours_at, theirs_at] = [policy, against].map(|policy| self.reaches(size, of, policy, level));
            let row = match (ours_at, theirs_at) {
                (Some(ours_at), Some(theirs_at)) => row.predicted(spread_ratio(&ours_at, &theirs_at), ours),
                _ => row.note(format!("not reached by {highest} a minute")),
            };
            rows.push(if level == LEVELS[0] { told(row) } else { row });
        }
        rows.push(told(self.overloaded(setting, size, of, [policy, against])));
        rows
    }

    /// Tokens a second that a policy serves over those of another, past what they can do.
    fn overloaded(&self, setting: String, size: Size, of: ProactiveOf, policies: [PolicyName; 2]) -> Row {
        let load = Load::only(of, self.overload);
        let [ours, theirs] = policies.map(|policy| self.overloaded.get(&Cell { size, policy, load }));
        Row::new("Fig. 10", setting, format!("tokens a second at {} a minute", self.overload), Unit::Times)
            .predicted(ours.beside(theirs, served, ratio), ours)
            .against(policies[1], theirs)
    }

    /// The rate at which a policy comes to a level: of the means over seeds, then of each seed.
    fn reaches(&self, size: Size, of: ProactiveOf, policy: PolicyName, level: f64) -> Option<Vec<f64>> {
        let outcomes: Vec<(f64, &Outcome)> =
            self.rates.iter().map(|&rate| (rate, self.at(size, of, policy, rate))).collect();
        let mean = |(rate, outcome): &(f64, &Outcome)| Some((*rate, outcome.read(proactive_norm)?.value));
        let all = crossing(&outcomes.iter().filter_map(mean).collect::<Vec<_>>(), level)?;
        let seeds = outcomes.first().map_or(0, |(_, outcome)| outcome.seed_count());
        let of_seed = |seed: usize| {
            let point = |(rate, outcome): &(f64, &Outcome)| Some((*rate, proactive_norm(outcome.seeds().nth(seed)?)?));
            crossing(&outcomes.iter().filter_map(point).collect::<Vec<_>>(), level)
        };
        Some([all].into_iter().chain((0..seeds).filter_map(of_seed)).collect())
    }

    fn plot(&self, size: Size, of: ProactiveOf) -> Option<Plot> {
        let read: Read = proactive_norm;
        let series = COMPARED.map(|policy| {
            let point = |&rate: &f64| {
                let y = self.at(size, of, policy, rate).read(read)?.value;
                Some(Point { x: rate, y, mark: Mark::Dot })
            };
            Series { name: policy.to_string(), points: self.rates.iter().filter_map(point).collect() }
        });
        let x = Axis::Linear { label: "requests a minute" };
        let svg = lines(&x, &Axis::Log { label: "s/token" }, &series);
        Plot::of(format!("{size}, {of}: normalised latency over the rate of requests"), svg)
    }
}

/// What the paper says of Agent.xpu's throughput over a baseline's.
fn paper(size: Size, of: ProactiveOf, against: PolicyName) -> Option<Paper> {
    match (against, size, of) {
        (PolicyName::IgpuBatching, Size::Small, ProactiveOf::Samsum) => Some(Paper::Between(2.0, 2.4)),
        (PolicyName::IgpuBatching, Size::Small, _) => Some(Paper::Is(1.2)),
        (PolicyName::IgpuBatching, Size::Large, _) => Some(Paper::Between(1.2, 2.4)),
        (PolicyName::Serial, ..) => Some(Paper::Between(1.4, 4.9)),
        (PolicyName::CpuBatching, ..) => Some(Paper::AtMost(3.9)),
        _ => None,
    }
}

/// Of rates, the first of which are those of the means.
fn spread_ratio(ours: &[f64], theirs: &[f64]) -> Option<Estimate> {
    let mut each = ours.iter().zip(theirs).map(|(&ours, &theirs)| ratio(ours, theirs));
    let value = each.next()?;
    let (low, high) = each.fold((value, value), |(low, high), ratio| (low.min(ratio), high.max(ratio)));
    Some(Estimate { value, low, high })
}
