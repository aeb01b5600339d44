//! Timelines: a scenario in, what the scheduler did out. One file for each of its mechanisms, named after its file.
//!
//! A mechanism that can be switched off has the same scenario twice, with it and without it.

mod ageing;
mod annotation;
mod apart;
mod arbitration;
mod batching;
mod contention;
mod disk_wait;
mod drift;
mod elastic;
mod faults;
mod launches;
mod layers;
mod memory;
mod mirrors;
mod order;
mod piggyback;
mod pipelines;
mod policies;
mod preemption;
mod queues;
mod request_table;
mod residency;
mod span;
mod teams;
mod warm_up;

use duet_sim::{Scenario, Timeline};
use expect_test::Expect;

/// Runs a scenario and compares its timeline.
fn check(scenario: &str, timeline: Expect) {
    let scenario: Scenario = scenario.parse().unwrap_or_else(|error| panic!("{error}"));
    timeline.assert_eq(scenario.run(Timeline::new(&scenario)).observer.text());
}
