//! How far the plans that exchange graphs are from the optimum, over random problems that are small enough to know it.
//! (CoordGen appendix A)

use crate::report::outcome::Estimate;
use crate::report::row::{Row, Unit};
use crate::report::section::Section;
use duet_scheduler::progressive::{
    Block, Blocks, GraphCost, Pair, PassTime, Plan, Problem, Prompt, Timeline, asynchronous, exact, greedy,
    just_in_time, synchronous,
};
use duet_sim::{Random, percentile};
use duet_types::{Bytes, Nanos, Tokens};

/// How many problems. In a test fewer do, as each takes milliseconds unoptimised.
const PROBLEMS: u64 = if cfg!(test) { 24 } else { 1000 };

type Planner = (&'static str, fn(&Problem<'_>) -> Plan);
const PLANNERS: [Planner; 4] = [
    ("synchronous", synchronous),
    ("asynchronous", asynchronous),
    ("the paper's rule", greedy),
    ("latest start", just_in_time),
];

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

/// How many times the optimum each planner takes.
fn ratios(seed: u64) -> Option<[f64; PLANNERS.len()]> {
    let (blocks, prompt) = random(&mut Random::new(seed));
    let problem = Problem::in_place(&blocks, prompt).ok()?;
    let ready = |plan: &Plan| Timeline::of(plan, &blocks).ready().0 as f64;
    let best = ready(&exact(&problem)?);
    Some(PLANNERS.map(|(_, planner)| ready(&planner(&problem)) / best))
}

fn random(random: &mut Random) -> (Blocks, Prompt) {
    let (count, chunks) = (random.between(2, 6), random.between(1, 5));
    let prefill_ms: Vec<f64> = (0..count).map(|_| 5.0 + 10.0 * random.share()).collect();
    let slower = 0.9 + 1.1 * random.share();
    let loads_ms = (0.2 + random.share()) * prefill_ms.iter().sum::<f64>() * f64::from(chunks);
    let weights: Vec<f64> = (0..count).map(|_| 0.5 + random.share()).collect();
    let block = |(prefill_ms, weight): (f64, f64)| {
        let cost = |ms: f64| GraphCost {
            pass: PassTime { empty: millis(ms), per_position: Nanos::ZERO },
            load: millis(loads_ms * weight / weights.iter().sum::<f64>()),
            bytes: Bytes(1),
        };
        Block { prefill: cost(prefill_ms), decode: cost(prefill_ms * slower / 8.0) }
    };
    let rows = Pair { prefill: Tokens(256), decode: Tokens(32) };
    let blocks = prefill_ms.into_iter().zip(weights.iter().copied()).map(block).collect();
    let prompt = Prompt { context: Tokens::ZERO, rows: Tokens(chunks * 256) };
    (Blocks::new(rows, blocks).expect("milliseconds are possible"), prompt)
}

fn millis(ms: f64) -> Nanos {
    Nanos((ms * 1e6) as u64)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_better_than_the_best_and_the_latest_start_is_nearest() {
        for seed in 0..PROBLEMS {
            let [synchronous, asynchronous, greedy, just_in_time] = ratios(seed).unwrap();
            assert!([synchronous, asynchronous, greedy, just_in_time].into_iter().all(|ratio| ratio >= 1.0));
            assert!(just_in_time <= greedy.min(asynchronous), "{just_in_time}, {greedy}, {asynchronous} of {seed}");
        }
    }
}
