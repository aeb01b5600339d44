//! Random scenarios with faults, under all checkers: as many as are done in a few seconds. More of them:
//! `cargo run --release -p duet-sim --example faults -- 0..100000`.

use duet_sim::fuzz::{self, Happening, Report};
use duet_sim::{Scenario, Timeline};

/// No rule is broken, and everything that may go wrong does.
#[test]
fn random_faults_break_no_rule() {
    let mut total = Report::default();
    for seed in 0..600 {
        match fuzz::run(seed) {
            Ok(report) => total += &report,
            Err(violation) => panic!("{violation}"),
        }
    }
    for happening in Happening::ALL {
        assert!(total.count(happening) > 0, "{happening:?} never happened:\n{total}");
    }
}

/// Seeds further on that did: overdue work had ridden in a person's long kernel and was held to that for too long, or its kernels
/// took longer than they should on graphs that did not suit; and a prompt waited for one that waits for a core.
#[test]
fn seeds_that_broke_a_rule_break_none() {
    for seed in [18_459, 32_935, 127_547, 138_617, 143_419, 158_220] {
        if let Err(violation) = fuzz::run(seed) {
            panic!("{violation}");
        }
    }
}

/// A seed says all: the same one is the same run, to the byte.
#[test]
fn a_seed_is_a_run() {
    let timeline = |scenario: &Scenario| scenario.run(Timeline::new(scenario)).observer.text().to_owned();
    for seed in 0..50 {
        let text = timeline(&fuzz::scenario(seed));
        assert_eq!(text, timeline(&fuzz::scenario(seed)), "seed {seed} went two ways");
        assert_ne!(text, timeline(&fuzz::scenario(seed + 1)), "seeds {seed} and {} are the same", seed + 1);
    }
}
