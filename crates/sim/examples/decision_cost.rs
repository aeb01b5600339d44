//! How long the scheduler takes for a kernel, with a few and with many requests waiting:
//! `cargo run --release -p duet-sim --example decision_cost`.
//!
//! A kernel costs `handle` and `poll` of all events since the last one. It is the scheduler's own time: the world is
//! virtual and outside the measurement.
#![expect(clippy::disallowed_types, reason = "it measures real time")]

use duet_driver::World;
use duet_scheduler::policy::PolicyName;
use duet_scheduler::{Command, Scheduler};
use duet_sim::{Client, Scenario, VirtualWorld, machines};
use duet_types::{Class, Instant};
use std::time::Duration;

fn main() {
    println!("{:14} {:>8} {:>10} {:>10}", "policy", "queued", "median us", "p99 us");
    for policy in PolicyName::ALL {
        for queued in [1, 100, 10_000] {
            let mut times = measure(policy, queued);
            times.sort();
            let micros = |share: f64| times[(times.len() as f64 * share) as usize].as_secs_f64() * 1e6;
            println!("{:14} {queued:8} {:10.2} {:10.2}", policy.to_string(), micros(0.5), micros(0.99));
        }
    }
}

/// The scheduler's time for each of some kernels, while about `queued` requests wait.
fn measure(policy: PolicyName, queued: usize) -> Vec<Duration> {
    let client = |index: usize| {
        let class = if index.is_multiple_of(4) { Class::Reactive } else { Class::Proactive };
        Client { arrives: Instant(index as u64 / 100), ..Client::new(class, 50 + index as u32 % 200, 20) }
    };
    let mut scenario =
        Scenario { clients: (0..queued).map(client).collect(), ..Scenario::new(policy, machines::cpu()) };
    scenario.config.limits.batch = 32;
    let mut world = VirtualWorld::new(scenario.clients.clone(), &scenario.config, &scenario.truth);
    let mut scheduler = Scheduler::new(scenario.config.clone(), policy.policy());
    let (mut times, mut since_kernel) = (Vec::new(), Duration::ZERO);
    // Requests arrive in the first 100 ns; kernels are counted when all have.
    let all_in = Instant(queued as u64 / 100 + 1);
    while let Some((now, event)) = world.next() {
        let begun = std::time::Instant::now();
        scheduler.handle(now, event);
        let commands: Vec<Command> = std::iter::from_fn(|| scheduler.poll()).collect();
        since_kernel += begun.elapsed();
        for command in commands {
            let launched = matches!(command, Command::Launch { .. });
            world.apply(now, command);
            if launched && now > all_in {
                times.push(std::mem::take(&mut since_kernel));
            }
        }
        if now <= all_in {
            since_kernel = Duration::ZERO;
        }
        if times.len() >= 2000 {
            break;
        }
    }
    times
}
