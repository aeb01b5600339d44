//! The reduction of reactive latency as a curve over load, with the baseline's utilisation.
//!
//! A reduction against a baseline whose queue grows without end says how long the trace was, not how good a policy is.
//! (Agent.xpu §6.2)

use super::crossing::crossing;
use super::lab::{Lab, Results};
use super::outcome::{Estimate, Outcome, Read, change};
use super::policies::{BASELINE, OURS};
use super::readings::{proactive_mean, reactive_mean, utilisation};
use super::row::{Row, Unit};
use super::section::{Plot, Section};
use super::setting::{Cell, Load, Size};
use crate::plot::{Axis, Mark, Point, Series, lines};
use duet_scheduler::policy::PolicyName;

/// A lane that is busy for so large a share of the arrivals' time, in per cent, has no room left.
const SATURATED: f64 = 95.0;
/// Beside the background.
const REACTIVE: f64 = 3.0;

/// Runs it.
pub(crate) fn section(lab: &mut Lab<'_>) -> Section {
    let proactive = lab.plan.curve.clone();
    let policies = || OURS.into_iter().chain([BASELINE]);
    let cells = Size::ALL.into_iter().flat_map(|size| {
        let at = |policy| proactive.iter().map(move |&rate| Cell { size, policy, load: Load::mixed(REACTIVE, rate) });
        policies().flat_map(at).collect::<Vec<_>>()
    });
    let cells: Vec<Cell> = cells.collect();
    let curve = Curve { results: lab.cells("load curve", cells), proactive };
    let mut rows = Vec::new();
    for size in Size::ALL {
        rows.push(curve.saturation(size));
        for policy in OURS {
            rows.extend(curve.proactive.iter().map(|&rate| curve.reduction(size, policy, rate)));
        }
    }
    Section {
        id: "load",
        title: "The reduction over load",
        prose: PROSE.map(str::to_owned).into(),
        rows,
        tables: Vec::new(),
        plots: Size::ALL.into_iter().filter_map(|size| curve.plot(size)).collect(),
    }
}

const PROSE: [&str; 2] = [
    "How much lower the reactive mean is than that of the iGPU baseline, beside three reactive requests a minute. Below the \
     baseline's saturation the reduction is what priority and the second unit are worth. Beyond, the baseline's queue grows \
     for as long as requests come, and the reduction comes near 100 % under any policy that does not queue reactive \
     requests behind it. Rings mark loads at which the baseline's iGPU is busy for 95 % of the time or more.",
    "Reductions of 92 to 97 %, as the paper has them, are approached here only far beyond that point. To have them at its own 6 \
     proactive requests a minute its baseline must have been busier than its kernels' published times make it with these \
     prompts; see the mixed workloads below.",
];

struct Curve {
    results: Results<Cell>,
    proactive: Vec<f64>,
}

impl Curve {
    fn at(&self, size: Size, policy: PolicyName, rate: f64) -> &Outcome {
        self.results.get(&Cell { size, policy, load: Load::mixed(REACTIVE, rate) })
    }

    /// How busy the baseline is, in per cent.
    fn busy(&self, size: Size, rate: f64) -> Option<f64> {
        self.at(size, BASELINE, rate).read(utilisation(BASELINE)).map(|estimate| estimate.value)
    }

    fn saturation(&self, size: Size) -> Row {
        let busy = |&rate: &f64| Some((rate, self.busy(size, rate)?));
        let points: Vec<(f64, f64)> = self.proactive.iter().filter_map(busy).collect();
        let setting = format!("{size}, {REACTIVE} reactive a minute, {BASELINE}");
        let quantity = "proactive requests a minute at which it is busy for 95 % of the time";
        let of = self.at(size, BASELINE, self.proactive[0]);
        let row = Row::new("§6.2", setting, quantity, Unit::PerMinute);
        match crossing(&points, SATURATED) {
            Some(rate) => row.predicted(Some(Estimate::exact(rate)), of),
            None => row.predicted(None, of).note("not reached"),
        }
    }

    fn reduction(&self, size: Size, policy: PolicyName, rate: f64) -> Row {
        let cell = Cell { size, policy, load: Load::mixed(REACTIVE, rate) };
        let baseline = self.at(size, BASELINE, rate);
        let ours = self.results.get(&cell);
        Row::new("§6.2", cell.to_string(), format!("reactive mean against {BASELINE}"), Unit::Percent)
            .predicted(ours.beside(baseline, reactive_mean, change), ours)
            .against(BASELINE, baseline)
    }

    fn plot(&self, size: Size) -> Option<Plot> {
        let mut series = vec![self.series(format!("{BASELINE}, busy"), size, |rate| self.busy(size, rate))];
        let classes: [(&str, Read); 2] = [("reactive", reactive_mean), ("proactive", proactive_mean)];
        for (class, read) in classes {
            for policy in OURS {
                series.push(self.series(format!("{policy}, {class}"), size, |rate| {
                    let ours = self.at(size, policy, rate);
                    ours.beside(self.at(size, BASELINE, rate), read, change).map(|estimate| -estimate.value)
                }));
            }
        }
        let x = Axis::Linear { label: "proactive requests a minute beside 3 reactive ones" };
        let svg = lines(&x, &Axis::Linear { label: "less than the baseline, or busy, %" }, &series);
        let caption = format!(
            "{size}: by how much mean latency is below that of {BASELINE}, and how busy that is; rings where it is saturated. \
             Points below zero, where a policy is slower, are not drawn: see the table"
        );
        Plot::of(caption, svg)
    }

    fn series(&self, name: String, size: Size, value: impl Fn(f64) -> Option<f64>) -> Series {
        let point = |&rate: &f64| {
            let saturated = self.busy(size, rate).is_some_and(|busy| busy >= SATURATED);
            let mark = if saturated { Mark::Ring } else { Mark::Dot };
            value(rate).filter(|&y| y >= 0.0).map(|y| Point { x: rate, y, mark })
        };
        Series { name, points: self.proactive.iter().filter_map(point).collect() }
    }
}
