//! Random scenarios with faults, run under all checkers.
//!
//! A seed is a scenario, and a scenario is a run: nothing else decides what happens. So a seed that breaks a rule is all
//! that a report needs, and one command replays it. What it broke is shrunk to the smallest scenario that still does.

mod generator;
mod report;
mod shrink;
mod violation;

pub use generator::scenario;
pub use report::{Happening, Report};
pub use violation::Violation;

use crate::checkers::{Books, Broken, Checkers, Rule};
use crate::scenario::Scenario;
use crate::world::VirtualWorld;
use duet_driver::{Observed, World, step};
use duet_scheduler::Scheduler;
use duet_scheduler::policy::Policy;
use duet_types::Instant;
use report::Tally;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the scenario of a seed to its end.
///
/// # Errors
/// The rule that was broken, with the smallest scenario that was found to break it.
pub fn run(seed: u64) -> Result<Report, Violation> {
    let scenario = scenario(seed);
    check(&scenario, scenario.policy.policy()).map_err(|broken| {
        let (scenario, broken) = shrink::smallest(scenario, broken);
        Violation { seed, broken, scenario: Box::new(scenario) }
    })
}

/// Runs a scenario under a policy, which may be another one than it names, to its end or to the first broken rule. A
/// panic of the scheduler or the world is one.
///
/// # Errors
/// The rule that was broken, when and how.
pub fn check(scenario: &Scenario, policy: Box<dyn Policy>) -> Result<Report, Broken> {
    let world = VirtualWorld::new(scenario.clients.clone(), &scenario.config, &scenario.truth);
    let mut observed = Observed { world, observer: (Tally::new(&scenario.clients), Checkers::new(scenario)) };
    let mut now = Instant::default();
    let all = AssertUnwindSafe(|| drive(scenario, policy, &mut observed, &mut now));
    let panicked = catch_unwind(all).err();
    let (tally, checkers) = observed.observer;
    match (checkers.broken(), panicked) {
        (Some(broken), _) => Err(broken.clone()),
        (None, Some(payload)) => Err(Broken { rule: Rule::Soundness, at: now, how: message(&*payload) }),
        (None, None) => Ok(tally.report(&observed.world)),
    }
}

/// The driver's loop, with a look at the books after every step.
fn drive(
    scenario: &Scenario,
    policy: Box<dyn Policy>,
    observed: &mut Observed<VirtualWorld, (Tally, Checkers)>,
    now: &mut Instant,
) {
    let mut scheduler = Scheduler::new(scenario.config.clone(), policy);
    while let Some((at, event)) = observed.next() {
        *now = at;
        step(&mut scheduler, observed, at, event);
        let books: Books = observed.world.books(scheduler.pages());
        let checkers = &mut observed.observer.1;
        checkers.settled(at, &books);
        if checkers.broken().is_some() {
            return;
        }
    }
    observed.observer.1.ended(*now);
}

fn message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or(payload.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message").to_owned()
}
