//! How far the plans that exchange graphs are from the optimum: the report's section. (CoordGen appendix A)

use crate::optimality::{PLANNERS, PROBLEMS, ratios};
use crate::report::outcome::Estimate;
use crate::report::row::{Row, Unit};
use crate::report::section::Section;
use duet_sim::percentile;

pub(super) fn section() -> Section {
    // Of each problem how many times the optimum each planner takes.
    let ratios: Vec<[f64; PLANNERS.len()]> = (0..PROBLEMS).filter_map(ratios).collect();
    let rows = PLANNERS.iter().enumerate().flat_map(|(at, (name, _))| rows(name, &ratios, at)).collect();
    Section {
        id: "optimality",
        title: "How far plans are from the optimum (appendix A)",
        prose: PROSE.map(str::to_owned).into(),
        rows,
        ..Section::default()
    }
}

const PROSE: [&str; 2] = [
    "Time until decoding may begin, over that of the best plan, which a dynamic program over chunks and blocks finds. Graphs are \
     exchanged in place, each once. A median stands with the 10th and the 90th percentile, and the worst by itself.",
    "The problems are random: two to five blocks and one to four chunks; a block's chunk takes 5 to 15 ms on its graph of 256 \
     rows and 0.9 to 2 times as long on eight passes of its graph of 32; all loads together take 0.2 to 1.2 times as long as \
     the prompt, shared unevenly. They are easier than the proof's, whose loads are all different, and as hard as devices are.",
];

fn rows(name: &str, ratios: &[[f64; PLANNERS.len()]], at: usize) -> [Row; 2] {
    let mut each: Vec<f64> = ratios.iter().map(|ratios| ratios[at]).collect();
    each.sort_by(f64::total_cmp);
    let at = |share| percentile(&each, share).unwrap_or(f64::NAN);
    let median = (!each.is_empty()).then(|| Estimate { value: at(0.5), low: at(0.1), high: at(0.9) });
    let worst = each.last().copied().map(Estimate::exact);
    let row = |quantity: &str| {
        Row::new("appendix A", "random problems", format!("time over the best plan's, {name}, {quantity}"), Unit::Times)
    };
    [row("median").computed(median, each.len()), row("worst").computed(worst, each.len())]
}
