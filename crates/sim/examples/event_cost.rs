//! What an event costs, however many requests there are: `cargo run --release -p duet-sim --example event_cost [POLICY]`.
//!
//! Two kinds of many: requests that come one after another for a long time, and requests that all wait at once. The time
//! is that of the whole simulation, world and observers included, over the events that it took.
#![expect(clippy::disallowed_types, reason = "it measures real time")]

use duet_driver::World;
use duet_scheduler::Scheduler;
use duet_scheduler::policy::PolicyName;
use duet_sim::lengths::{proactive_mix, reactive_mix};
use duet_sim::traffic::{Stream, Traffic};
use duet_sim::{Client, ModelShape, Simulation, VirtualWorld, soc};
use duet_types::{Instant, Nanos, Tokens};

fn main() {
    let soc = soc::built_in().next().expect("there is one");
    let heg = ModelShape::named("llama-3.2-3b").expect("there is one").heg();
    println!("{:10} {:14} {:>9} {:>11} {:>9}", "requests", "policy", "number", "events", "ns/event");
    let only = std::env::args().nth(1).map(|name| name.parse().unwrap_or_else(|error| panic!("{error}")));
    let policies =
        only.map_or(vec![PolicyName::Duet, PolicyName::AgentXpu, PolicyName::IgpuBatching], |name| vec![name]);
    for policy in policies {
        let simulation = Simulation::on_soc(&soc, &heg, policy);
        for number in [100, 1_000, 10_000, 100_000] {
            report("in turn", &simulation, in_turn(number), u64::MAX);
        }
        for number in [100, 1_000, 10_000, 100_000] {
            // Some of the time, since they would take days.
            report("at once", &simulation, at_once(number), 100_000);
        }
    }
}

fn report(kind: &str, simulation: &Simulation, clients: Vec<Client>, events_max: u64) {
    let number = clients.len();
    let mut world = VirtualWorld::new(clients, &simulation.config, &simulation.truth);
    let mut scheduler = Scheduler::new(simulation.config.clone(), simulation.policy.policy());
    let submitted = number as u64;
    // Submissions of requests that come at once are all at the beginning: they are events of their own.
    let (mut events, mut begun) = (0_u64, std::time::Instant::now());
    let skipped = if kind == "at once" { submitted } else { 0 };
    while let Some((now, event)) = world.next() {
        duet_driver::step(&mut scheduler, &mut world, now, event);
        events += 1;
        if events == skipped {
            begun = std::time::Instant::now();
        }
        if events >= events_max.saturating_add(skipped) {
            break;
        }
    }
    let counted = events - skipped;
    let nanos = begun.elapsed().as_nanos() as f64 / counted.max(1) as f64;
    println!("{kind:10} {:14} {number:9} {counted:11} {nanos:9.0}", simulation.policy.to_string());
}

/// Twelve a minute, for as long as it takes.
fn in_turn(number: usize) -> Vec<Client> {
    let minutes = number as f64 / 12.0;
    let traffic = Traffic {
        seed: 1,
        window: Nanos((minutes * 1.1 * 60e9) as u64),
        context: Tokens(4096),
        reactive: Stream { per_minute: 4.0, mix: reactive_mix() },
        proactive: Stream { per_minute: 8.0, mix: proactive_mix() },
    };
    let mut clients = traffic.clients();
    clients.truncate(number);
    clients
}

fn at_once(number: usize) -> Vec<Client> {
    let clients = in_turn(number).into_iter();
    clients.map(|client| Client { arrives: Instant(0), ..client }).collect()
}
