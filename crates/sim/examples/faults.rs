//! Random scenarios with faults, under all checkers.
//!
//! `cargo run --release -p duet-sim --example faults -- 0..1000` runs the seeds of a range on all cores, says how often
//! everything happened, and ends with status 1 at a broken rule; `-- 17` runs one seed and shows its timeline.

mod printed;

use duet_sim::fuzz::{self, Report, Violation};
use printed::Printed;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

/// What was asked for.
enum Seeds {
    One(u64),
    Range(Range<u64>),
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // A panic is a finding, and is told as one.
    set_hook(Box::new(|_| {}));
    match seeds(&arguments) {
        Ok(Seeds::One(seed)) => replay(seed),
        Ok(Seeds::Range(seeds)) => run(seeds),
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

fn seeds(arguments: &[String]) -> Result<Seeds, String> {
    let [argument] = arguments else {
        return Err(format!(
            "one argument is wanted, and there are {}: a seed (17) or a range of them (0..1000)",
            arguments.len()
        ));
    };
    let number = |text: &str| {
        text.parse::<u64>()
            .map_err(|_| format!("`{text}` in `{argument}` is no seed: give a number (17) or a range (0..1000)"))
    };
    match argument.split_once("..") {
        None => number(argument).map(Seeds::One),
        Some((first, end)) => {
            let (first, end) = (number(first)?, number(end)?);
            if first < end {
                Ok(Seeds::Range(first..end))
            } else {
                Err(format!("`{argument}` holds no seed: its end must be above its first"))
            }
        }
    }
}

/// Runs one seed, with its timeline as far as it goes.
fn replay(seed: u64) -> ExitCode {
    let scenario = fuzz::scenario(seed);
    println!("{scenario}\n");
    // A panic ends the timeline; what was broken is told below.
    let _ = catch_unwind(AssertUnwindSafe(|| scenario.run(Printed::new(&scenario))));
    match fuzz::run(seed) {
        Ok(report) => {
            println!("\n{report}");
            ExitCode::SUCCESS
        }
        Err(violation) => {
            println!("\n{violation}");
            ExitCode::FAILURE
        }
    }
}

/// Runs many seeds, each core the next one.
fn run(seeds: Range<u64>) -> ExitCode {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicU64::new(seeds.start);
    let worker = || {
        let (mut total, mut violations) = (Report::default(), Vec::new());
        for result in std::iter::from_fn(|| take(&next, &seeds)).map(fuzz::run) {
            match result {
                Ok(report) => total += &report,
                Err(violation) => violations.push(violation),
            }
        }
        (total, violations)
    };
    let workers: Vec<(Report, Vec<Violation>)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().map(|worker| worker.join().expect("what a seed breaks is caught")).collect()
    });
    let (mut total, mut violations) = (Report::default(), Vec::new());
    for (report, broken) in workers {
        total += &report;
        violations.extend(broken);
    }
    violations.sort_by_key(|violation| violation.seed);
    println!("{total}");
    violations.iter().take(SHOWN_MAX).for_each(|violation| println!("{violation}\n"));
    println!("{} seeds, {} break a rule", seeds.end - seeds.start, violations.len());
    if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The next seed of a range, and a word on stderr after each tenth of them.
fn take(next: &AtomicU64, seeds: &Range<u64>) -> Option<u64> {
    let seed = next.fetch_add(1, Ordering::Relaxed);
    if !seeds.contains(&seed) {
        return None;
    }
    let (done, all) = (seed - seeds.start, seeds.end - seeds.start);
    if done > 0 && done.is_multiple_of(all.div_ceil(10)) {
        eprintln!("{done} of {all} seeds");
    }
    Some(seed)
}

/// One bug breaks many seeds; more than these tell nothing new.
const SHOWN_MAX: usize = 5;
