//! How far the plans that exchange graphs are from the optimum, over random problems that are small enough to know it.
//! (CoordGen appendix A)
//!
//! Two to five blocks and one to four chunks; a block's chunk takes 5 to 15 ms on its graph of 256 rows and 0.9 to 2 times
//! as long on eight passes of its graph of 32; all loads together take 0.2 to 1.2 times as long as the prompt, shared
//! unevenly.

use duet_scheduler::progressive::{
    Block, Blocks, GraphCost, Pair, PassTime, Plan, Problem, Prompt, Timeline, asynchronous, exact, greedy,
    just_in_time, synchronous,
};
use duet_sim::Random;
use duet_types::{Bytes, Nanos, Tokens};

/// How many problems. In a test fewer do, as each takes milliseconds unoptimised.
pub(crate) const PROBLEMS: u64 = if cfg!(test) { 24 } else { 1000 };

/// A planner and its name.
pub(crate) type Planner = (&'static str, fn(&Problem<'_>) -> Plan);
/// Planners, by name.
pub(crate) const PLANNERS: [Planner; 4] = [
    ("synchronous", synchronous),
    ("asynchronous", asynchronous),
    ("the paper's rule", greedy),
    ("latest start", just_in_time),
];

/// How many times the optimum each planner takes.
pub(crate) fn ratios(seed: u64) -> Option<[f64; PLANNERS.len()]> {
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
