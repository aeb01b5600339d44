//! Sensitivity: whether the conclusions hold across the profile's intervals, one constant at a time.

use super::lab::{Lab, Results};
use super::outcome::{Estimate, Outcome, Read, ratio};
use super::policies::BASELINE;
use super::readings::{igpu_seconds, joules, proactive_mean, reactive_mean};
use super::row::{Row, Unit};
use super::section::{Entry, Section, Table};
use super::setting::{Load, Setting, Size};
use duet_scheduler::policy::PolicyName;
use duet_sim::SocProfile;
use duet_sim::soc::Path;

/// The paper's mix, with both models.
const LOAD: (f64, f64) = (3.0, 6.0);

/// What the profile is, or which constant is another.
type Varied = Option<(Path, End)>;

/// An end of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Low,
    High,
}

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
    let varied = varied(lab);
    let settings = varied.iter().flat_map(|&at| Size::ALL.map(|size| settings(lab, size, at))).flatten().collect();
    let results = lab.run("sensitivity", lab.plan.sweep_seeds, settings);
    let (mut rows, mut tables) = (Vec::new(), Vec::new());
    for size in Size::ALL {
        rows.extend(CONCLUSIONS.iter().flat_map(|conclusion| conclusion.rows(&results, size, &varied)));
        tables.push(table(&results, &lab.soc, size, &varied));
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

const PROSE: [&str; 2] = [
    "Each constant that has an interval is set to its ends, one at a time, at 3 + 6 requests a minute. A conclusion is a ratio \
     that is to be below its limit; a ratio on the other side of the limit than with the profile as it is, is marked. The \
     baselines keep the settings that were best with the profile as it is.",
    "Constants of the CPU change nothing here, since none of these policies computes on it, nor does the rate at which graphs \
     are loaded, since none exchanges them; those of power change energy alone.",
];

/// The profile as it is, then every end of every interval.
fn varied(lab: &Lab<'_>) -> Vec<Varied> {
    let uncertain = lab.soc.constants().into_iter().filter(|(_, constant)| constant.interval().is_some());
    let paths = uncertain.map(|(path, _)| path).step_by(lab.plan.constant_of);
    [None].into_iter().chain(paths.flat_map(|path| [End::Low, End::High].map(|end| Some((path, end))))).collect()
}

/// The profile with one constant at an end of its interval.
fn profile(soc: &SocProfile, varied: Varied) -> SocProfile {
    let constants = soc.constants();
    let found = varied.and_then(|(path, end)| {
        let (_, constant) = constants.iter().find(|(known, _)| *known == path)?;
        let (low, high) = constant.interval()?;
        Some(soc.with(path, if end == End::Low { low } else { high }))
    });
    found.unwrap_or_else(|| soc.clone())
}

fn settings(lab: &Lab<'_>, size: Size, varied: Varied) -> Vec<(Point, Setting)> {
    let soc = profile(&lab.soc, varied);
    let load = Load::mixed(LOAD.0, LOAD.1);
    let policies = [PolicyName::Duet, PolicyName::AgentXpu, BASELINE, PolicyName::Serial];
    let mixed = policies.map(|policy| {
        ((size, varied, Of::Mixed(policy)), Setting { simulation: lab.simulation_on(&soc, size, policy), load })
    });
    let simulation = lab.simulation_on(&soc, size, PolicyName::Duet);
    let alone = ((size, varied, Of::DuetAlone), Setting { simulation, load: load.alone() });
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
        holds(varied) != holds(None)
    }

    /// How often it flips, and where; and the least and the most that its ratio comes to.
    fn rows(&self, results: &Results<Point>, size: Size, varied: &[Varied]) -> [Row; 2] {
        let ratio = |&varied: &Varied| (self.ratio)(&Profile { results, size, varied });
        let of = results.get(&(size, None, Of::Mixed(PolicyName::Duet)));
        let setting = format!("{size}, {}, each constant over its interval", Load::mixed(LOAD.0, LOAD.1));
        let values: Vec<f64> = varied.iter().filter_map(ratio).map(|estimate| estimate.value).collect();
        let nominal = ratio(&None).map(|estimate| Estimate {
            value: estimate.value,
            low: values.iter().copied().fold(estimate.value, f64::min),
            high: values.iter().copied().fold(estimate.value, f64::max),
        });
        let flips: Vec<Varied> = varied.iter().copied().filter(|&varied| self.flips(results, size, varied)).collect();
        let places: Vec<String> = flips.iter().copied().map(shown).collect();
        let holds = if self.holds(nominal) == Some(true) { "it holds" } else { "it does not hold" };
        let found =
            if places.is_empty() { "never flips".to_owned() } else { format!("flips at {}", places.join(", ")) };
        [
            Row::new("sensitivity", setting.clone(), format!("ratio: {}", self.says), Unit::Times)
                .predicted(nominal, of)
                .note(format!("{holds}; low and high over the intervals")),
            Row::new(
                "sensitivity",
                setting,
                format!("ends of {} that flip: {}", varied.len() - 1, self.says),
                Unit::Count,
            )
            .predicted(Some(Estimate::exact(flips.len() as f64)), of)
            .note(found),
        ]
    }
}

fn shown(varied: Varied) -> String {
    match varied {
        None => "as it is".to_owned(),
        Some((path, End::Low)) => format!("{path} low"),
        Some((path, End::High)) => format!("{path} high"),
    }
}

fn table(results: &Results<Point>, soc: &SocProfile, size: Size, varied: &[Varied]) -> Table {
    let caption = format!("{size}, {}: the ratios that the conclusions are about", Load::mixed(LOAD.0, LOAD.1));
    let mut table = Table::new(caption, &["constant", "value"]);
    table.head.extend(CONCLUSIONS.iter().map(|conclusion| conclusion.says.to_owned()));
    for &at in varied {
        let value = at.and_then(|(path, _)| {
            let changed = profile(soc, at);
            changed.constants().into_iter().find(|(known, _)| *known == path).map(|(_, constant)| constant.value)
        });
        let mut row = vec![Entry::text(shown(at)), value.map_or(Entry::text("–"), Entry::text)];
        for conclusion in &CONCLUSIONS {
            let ratio = (conclusion.ratio)(&Profile { results, size, varied: at });
            let entry = Entry::number(ratio.map(|estimate| estimate.value), 3);
            row.push(if conclusion.flips(results, size, at) { entry.flagged() } else { entry });
        }
        table.push(row);
    }
    table
}
