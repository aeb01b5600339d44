//! Shrinking: what can be left out of a scenario so that it still breaks the same rule.
//!
//! One thing at a time is left out (a client, a fault, an option), for as long as anything can be. The result is a
//! scenario from which nothing more can go, not the smallest that there is.

use super::check;
use crate::checkers::Broken;
use crate::client::{Client, Failing, Graphs};
use crate::scenario::Scenario;
use duet_scheduler::Mechanisms;

/// The smallest scenario that was found, and how it breaks the rule.
pub(super) fn smallest(mut scenario: Scenario, mut broken: Broken) -> (Scenario, Broken) {
    while let Some((smaller, how)) = candidates(&scenario).into_iter().find_map(|smaller| {
        let how = check(&smaller, smaller.policy.policy()).err().filter(|how| how.rule == broken.rule)?;
        Some((smaller, how))
    }) {
        (scenario, broken) = (smaller, how);
    }
    (scenario, broken)
}

/// Scenarios with one thing less.
fn candidates(scenario: &Scenario) -> Vec<Scenario> {
    let mut all: Vec<Scenario> = (0..scenario.clients.len()).map(|index| without_client(scenario, index)).collect();
    for index in 0..scenario.clients.len() {
        let client = |change: fn(&mut Client)| changed(scenario, |smaller| change(&mut smaller.clients[index]));
        all.extend(client(|client| client.cancelled = None));
        all.extend(client(|client| client.continues = None));
        all.extend(client(|client| client.failing = Failing::Never));
        all.extend(client(|client| client.hanging = Failing::Never));
        all.extend(client(|client| client.graph = Graphs::Compile));
    }
    let faults = &scenario.truth.faults;
    all.extend((0..faults.lost.len()).filter_map(|index| {
        changed(scenario, |smaller| {
            smaller.truth.faults.lost.remove(index);
        })
    }));
    all.extend((0..faults.slow.len()).filter_map(|index| {
        changed(scenario, |smaller| {
            smaller.truth.faults.slow.remove(index);
        })
    }));
    all.extend((0..faults.works_again.len()).filter_map(|index| {
        changed(scenario, |smaller| {
            smaller.truth.faults.works_again.remove(index);
        })
    }));
    all.extend((0..faults.spills.len()).filter_map(|index| {
        changed(scenario, |smaller| {
            smaller.truth.faults.spills.remove(index);
        })
    }));
    all.extend((0..faults.graph_loads.len()).filter_map(|index| {
        changed(scenario, |smaller| {
            smaller.truth.faults.graph_loads.remove(index);
        })
    }));
    all.extend(changed(scenario, |smaller| smaller.truth.jitter = 0.0));
    all.extend(changed(scenario, |smaller| smaller.truth.seed = 0));
    all.extend(changed(scenario, |smaller| smaller.config.mechanisms = Mechanisms::ALL));
    all
}

fn changed(scenario: &Scenario, change: impl FnOnce(&mut Scenario)) -> Option<Scenario> {
    let mut smaller = scenario.clone();
    change(&mut smaller);
    let differs = smaller.clients != scenario.clients
        || smaller.truth != scenario.truth
        || smaller.config.mechanisms != scenario.config.mechanisms;
    differs.then_some(smaller)
}

/// Who continued it begins without anything; later clients move up.
fn without_client(scenario: &Scenario, index: usize) -> Scenario {
    let mut smaller = scenario.clone();
    smaller.clients.remove(index);
    for client in &mut smaller.clients {
        client.continues = client.continues.filter(|continues| continues.client != index);
        if let Some(continues) = client.continues.as_mut().filter(|continues| continues.client > index) {
            continues.client -= 1;
        }
    }
    smaller
}
