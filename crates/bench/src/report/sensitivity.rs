//! Sensitivity: whether the conclusions hold across the profile's intervals, one constant at a time, and beside what it
//! does not say: graphs for single prompts, and kernels that do not keep to their predictions.

use super::lab::{Lab, Results};
use super::outcome::{Estimate, Outcome, Read, ratio};
use super::policies::{BASELINE, OURS};
use super::readings::{igpu_seconds, joules, proactive_mean, reactive_mean};
use super::row::{Row, Unit};
use super::section::{Entry, Section, Table};
use super::setting::{Load, Setting, Size};
use super::varied::{JITTERS, Varied};
use duet_scheduler::policy::PolicyName;
use duet_sim::SocProfile;

/// The paper's mix, with both models.
const LOAD: (f64, f64) = (3.0, 6.0);

/// What is run on each profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Mixed(PolicyName),
    DuetAlone,
}

type Point = (Size, Varied, Of);

/// Something that the report says. It is a ratio, and holds if that is small.
struct Conclusion {
    says: &'static str,
    limit: f64,
    ratio: fn(&Profile<'_>) -> Option<Estimate>,
}

const CONCLUSIONS: [Conclusion; 6] = [
    Conclusion { says: "duet's reactive mean over alone is at most 1.3", limit: 1.3, ratio: beside_alone },
    Conclusion { says: "agent-xpu's reactive mean is below the iGPU baseline's", limit: 1.0, ratio: reactive_gain },
    Conclusion { says: "agent-xpu's proactive mean is below the iGPU baseline's", limit: 1.0, ratio: proactive_gain },
    Conclusion { says: "duet's means are below agent-xpu's, the worse of both classes", limit: 1.0, ratio: beyond },
    Conclusion { says: "agent-xpu takes less energy a token than the iGPU baseline", limit: 1.0, ratio: energy },
    Conclusion {
        says: "agent-xpu takes less of the iGPU's time than the serial baseline",
        limit: 1.0,
        ratio: igpu_time,
    },
];

/// Runs it.
pub(crate) fn section(lab: &mut Lab<'_>) -> Section {
    let varied = Varied::all(lab);
    let constants = varied.iter().filter(|at| at.is_constant()).count();
    let settings = varied.iter().flat_map(|&at| Size::ALL.map(|size| settings(lab, size, at))).flatten().collect();
    let results = lab.run("sensitivity", lab.plan.sweep_seeds, settings);
    let (mut rows, mut tables) = (Vec::new(), Vec::new());
    for size in Size::ALL {
        rows.extend(CONCLUSIONS.iter().flat_map(|conclusion| conclusion.rows(&results, size, &varied, constants)));
        tables.push(table(&results, &lab.soc, size, &varied));
        rows.extend(jittered(&results, size));
    }
    Section {
        id: "sensitivity",
        title: "Sensitivity to what is not known",
        prose: PROSE.map(str::to_owned).into(),
        rows,
        tables,
        plots: Vec::new(),
    }
}

const PROSE: [&str; 3] = [
    "Each constant that has an interval is set to its ends, one at a time, at 3 + 6 requests a minute. A conclusion is a ratio \
     that is to be below its limit; a ratio on the other side of the limit than with the profile as it is, is marked. The \
     baselines keep the settings that were best with the profile as it is.",
    "Constants of the CPU change nothing here, since none of these policies computes on it; those of power change energy alone. \
     Where memory has no room for a prompt's own graphs, those of compiling and loading them change nothing either.",
    "Beside constants, what the machine does not tell: no graphs for single prompts at all, and as many as the profile allows, \
     whatever memory holds; and kernels that take up to 10, 20 or 30 % more or less than the scheduler predicts, evenly and \
     each by itself, where it predicts them exactly otherwise.",
];

fn settings(lab: &Lab<'_>, size: Size, varied: Varied) -> Vec<(Point, Setting)> {
    let soc = varied.profile(&lab.soc);
    let load = Load::mixed(LOAD.0, LOAD.1);
    let policies = [PolicyName::Duet, PolicyName::AgentXpu, BASELINE, PolicyName::Serial];
    let simulation = |policy| varied.apply(lab.simulation_on(&soc, size, policy));
    let mixed =
        policies.map(|policy| ((size, varied, Of::Mixed(policy)), Setting { simulation: simulation(policy), load }));
    let alone = Setting { simulation: simulation(PolicyName::Duet), load: load.alone() };
    let alone = ((size, varied, Of::DuetAlone), alone);
    mixed.into_iter().chain([alone]).collect()
}

/// What came out on one profile.
struct Profile<'a> {
    results: &'a Results<Point>,
    size: Size,
    varied: Varied,
}

impl<'a> Profile<'a> {
    fn get(&self, of: Of) -> &'a Outcome {
        self.results.get(&(self.size, self.varied, of))
    }

    fn over(&self, ours: PolicyName, theirs: PolicyName, read: Read) -> Option<Estimate> {
        self.get(Of::Mixed(ours)).beside(self.get(Of::Mixed(theirs)), read, ratio)
    }
}

fn beside_alone(profile: &Profile<'_>) -> Option<Estimate> {
    profile.get(Of::Mixed(PolicyName::Duet)).beside(profile.get(Of::DuetAlone), reactive_mean, ratio)
}

fn reactive_gain(profile: &Profile<'_>) -> Option<Estimate> {
    profile.over(PolicyName::AgentXpu, BASELINE, reactive_mean)
}

fn proactive_gain(profile: &Profile<'_>) -> Option<Estimate> {
    profile.over(PolicyName::AgentXpu, BASELINE, proactive_mean)
}

fn beyond(profile: &Profile<'_>) -> Option<Estimate> {
    let classes: [Read; 2] = [reactive_mean, proactive_mean];
    let ratios = classes.map(|read| profile.over(PolicyName::Duet, PolicyName::AgentXpu, read));
    ratios.into_iter().flatten().max_by(|one, other| one.value.total_cmp(&other.value))
}

fn energy(profile: &Profile<'_>) -> Option<Estimate> {
    profile.over(PolicyName::AgentXpu, BASELINE, joules)
}

fn igpu_time(profile: &Profile<'_>) -> Option<Estimate> {
    profile.over(PolicyName::AgentXpu, PolicyName::Serial, igpu_seconds)
}

impl Conclusion {
    fn holds(&self, estimate: Option<Estimate>) -> Option<bool> {
        let value = estimate?.value;
        // A limit of 1 is somebody else's figure, which is to be beaten.
        Some(if self.limit > 1.0 { value <= self.limit } else { value < self.limit })
    }

    /// Whether it is another than with the profile as it is.
    fn flips(&self, results: &Results<Point>, size: Size, varied: Varied) -> bool {
        let holds = |varied| self.holds((self.ratio)(&Profile { results, size, varied }));
        holds(varied) != holds(Varied::Nothing)
    }

    /// How often it flips, and where; and the least and the most that its ratio comes to.
    fn rows(&self, results: &Results<Point>, size: Size, varied: &[Varied], constants: usize) -> [Row; 3] {
        let ratio = |&varied: &Varied| (self.ratio)(&Profile { results, size, varied });
        let of = results.get(&(size, Varied::Nothing, Of::Mixed(PolicyName::Duet)));
        let setting = format!("{size}, {}, each constant over its interval", Load::mixed(LOAD.0, LOAD.1));
        let ends = varied.iter().filter(|varied| varied.is_constant());
        let values: Vec<f64> = ends.filter_map(ratio).map(|estimate| estimate.value).collect();
        let nominal = ratio(&Varied::Nothing).map(|estimate| Estimate {
            value: estimate.value,
            low: values.iter().copied().fold(estimate.value, f64::min),
            high: values.iter().copied().fold(estimate.value, f64::max),
        });
        let flips: Vec<Varied> = varied.iter().copied().filter(|&varied| self.flips(results, size, varied)).collect();
        let (ends, others): (Vec<Varied>, _) = flips.into_iter().partition(|at| at.is_constant());
        let holds = if self.holds(nominal) == Some(true) { "it holds" } else { "it does not hold" };
        let found = |flips: &[Varied]| match flips {
            [] => "never flips".to_owned(),
            flips => format!("flips at {}", flips.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
        };
        let beside = format!("{size}, {}, by graphs and jitter", Load::mixed(LOAD.0, LOAD.1));
        [
            Row::new("sensitivity", setting.clone(), format!("ratio: {}", self.says), Unit::Times)
                .predicted(nominal, of)
                .note(format!("{holds}; low and high over the intervals")),
            Row::new("sensitivity", setting, format!("ends of {constants} that flip: {}", self.says), Unit::Count)
                .predicted(Some(Estimate::exact(ends.len() as f64)), of)
                .note(found(&ends)),
            Row::new(
                "sensitivity",
                beside,
                format!("of {} that flip: {}", varied.len() - 1 - constants, self.says),
                Unit::Count,
            )
            .predicted(Some(Estimate::exact(others.len() as f64)), of)
            .note(found(&others)),
        ]
    }
}

/// Both classes under both policies, by how far kernels are off.
fn jittered(results: &Results<Point>, size: Size) -> Vec<Row> {
    let varied = [Varied::Nothing].into_iter().chain(JITTERS.map(Varied::Jitter));
    let classes: [(&str, Read); 2] = [("reactive mean", reactive_mean), ("proactive mean", proactive_mean)];
    let row = |policy: PolicyName, at: Varied, (quantity, read): (&str, Read)| {
        let outcome = results.get(&(size, at, Of::Mixed(policy)));
        let percent = if let Varied::Jitter(percent) = at { percent } else { 0 };
        let setting = format!("{size}, {}, {policy}, jitter ±{percent} %", Load::mixed(LOAD.0, LOAD.1));
        Row::new("sensitivity", setting, quantity, Unit::Seconds).predicted(outcome.read(read), outcome)
    };
    let of = |policy: PolicyName| varied.clone().flat_map(move |at| classes.map(|class| row(policy, at, class)));
    OURS.into_iter().flat_map(of).collect()
}

fn table(results: &Results<Point>, soc: &SocProfile, size: Size, varied: &[Varied]) -> Table {
    let caption = format!("{size}, {}: the ratios that the conclusions are about", Load::mixed(LOAD.0, LOAD.1));
    let mut table = Table::new(caption, &["varied", "value"]);
    table.head.extend(CONCLUSIONS.iter().map(|conclusion| conclusion.says.to_owned()));
    for &at in varied {
        let mut row = vec![Entry::text(at), at.value(soc)];
        for conclusion in &CONCLUSIONS {
            let ratio = (conclusion.ratio)(&Profile { results, size, varied: at });
            let entry = Entry::number(ratio.map(|estimate| estimate.value), 3);
            row.push(if conclusion.flips(results, size, at) { entry.flagged() } else { entry });
        }
        table.push(row);
    }
    table
}
