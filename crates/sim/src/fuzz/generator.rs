//! The scenario of a seed: any policy, any machine, memory for all or for few, and whatever can go wrong.
//!
//! Ranges are chosen so that everything happens often: answers are short, since a fault in the hundredth token is like
//! one in the tenth, and half of the scenarios have pages for two or three requests only. A request always fits into
//! memory alone, but for a few that cannot, and the last lane that takes any shape is never lost.
//!
//! Invariant: the same seed is the same scenario, on every machine. A change here gives every seed another meaning.

use crate::client::{Client, Continues, Failing, Graphs};
use crate::machines;
use crate::random::Random;
use crate::scenario::Scenario;
use crate::truth::Truth;
use duet_scheduler::machine::Joins;
use duet_scheduler::policy::PolicyName;
use duet_scheduler::{Chance, HeadRows, Limits, Mechanism, MemoryLimits, SchedulerConfig, WindowPages};
use duet_types::{Bytes, Class, Instant, LaneId, Nanos, Net, Tokens};

/// The machines that scenarios are of. One more is a line here.
const MACHINES: [fn() -> SchedulerConfig; 7] = [
    machines::npu_igpu,
    machines::cpu,
    machines::single,
    || machines::exchanging(Bytes::ZERO),
    machines::launching,
    machines::half_on_igpu,
    machines::npu_igpu_cpu,
];

/// The scenario of a seed.
#[must_use]
pub fn scenario(seed: u64) -> Scenario {
    let mut random = Random::new(seed);
    let policy = one_of(&mut random, &PolicyName::ALL);
    let mut config = one_of(&mut random, &MACHINES)();
    limits(&mut random, &mut config.limits);
    // Drawn from what was drawn, so that everything else of a seed stays what it was.
    if config.heg == machines::cpu().heg
        && config.machine == machines::cpu().machine
        && config.limits.chunk.0.is_multiple_of(2)
    {
        config.heg = machines::mixture().heg;
    }
    if config.heg == machines::cpu().heg && config.machine == machines::cpu().machine && config.limits.chunk.0 % 4 == 1
    {
        config.heg = machines::for_head().heg;
    }
    if config.machine == machines::half_on_igpu().machine && config.limits.chunk.0.is_multiple_of(2) {
        config.machine = machines::discrete_gpu().machine;
    }
    if chance(&mut random, 0.1) {
        config.machine.cap_decode_lane(one_of(&mut random, &[0.3, 0.5, 0.9]));
    }
    memory(&mut random, &mut config.memory);
    if chance(&mut random, 0.3) {
        config.machine.contention.memory_beside_memory = f64::from(random.between(10, 25)) / 10.0;
    }
    if chance(&mut random, 0.25) {
        config.mechanisms = config.mechanisms.without(one_of(&mut random, &Mechanism::ALL));
    }
    let truth = truth(&mut random, &config);
    // Everybody within a moment, or one after another.
    let period = one_of(&mut random, &[2_000, 60_000, 400_000]);
    let count = random.between(1, 16);
    let mut clients: Vec<_> = (0..count as usize).map(|index| client(&mut random, index, period)).collect();
    if keeps_cores(&config, &truth, &clients) {
        // Drawn from what was drawn.
        clients.iter_mut().filter(|client| client.prompt.0 % 16 == 3).for_each(encodes);
    }
    Scenario { policy, config, truth, clients }
}

fn limits(random: &mut Random, limits: &mut Limits) {
    limits.chunk = Tokens(random.between(20, 130));
    limits.batch = random.between(1, 9) as usize;
    limits.batch_cap = random.between(1, 4) as usize;
    limits.prefill_rows = limits.prefill_rows.max(limits.chunk + Tokens(limits.batch as u32));
    limits.preempt = millis(random.between(4, 13));
    limits.decode_stall = millis(random.between(0, 80));
    limits.age = millis(random.between(0, 200));
    limits.overtaking = millis(random.between(0, 200));
    limits.overdue_share = one_of(random, &[0.02, 0.05, 0.2]);
    limits.graphs = random.between(0, 5) as usize;
    limits.graph_expiry = millis(random.between(1, 60));
}

/// Pages for the longest request alone at least, most of the time; a page is ten positions.
fn memory(random: &mut Random, memory: &mut MemoryLimits) {
    if chance(random, 0.5) {
        let least = if chance(random, 0.1) { 30 } else { 45 };
        memory.pages = random.between(least, 120) as usize;
        memory.disk_pages = if chance(random, 0.3) { 0 } else { random.between(0, 200) as usize };
        // Drawn from what was drawn, so that everything else of a seed stays what it was.
        if memory.pages.is_multiple_of(3) {
            memory.pages /= 1 + memory.pages % 4;
            let lasting = Bytes(memory.disk_pages as u64 % 100);
            memory.windows =
                WindowPages { tail: Tokens(20 + memory.pages as u32 % 7 * 20), lasting, whole: Bytes(100) };
        }
    }
}

fn truth(random: &mut Random, config: &SchedulerConfig) -> Truth {
    let mut truth = Truth::of(config);
    truth.page_io = micros(random.between(1, 400));
    truth.hang_timeout = f64::from(random.between(5, 30));
    if chance(random, 0.5) {
        truth.jitter = f64::from(random.between(1, 50)) / 100.0;
        truth.seed = u64::from(random.between(0, 1_000_000));
    }
    truth.faults.spills = (0..8).filter(|_| chance(random, 0.1)).collect();
    if config.graphs.is_some() {
        truth.faults.graph_loads = (0..8).filter(|_| chance(random, 0.1)).collect();
    }
    if config.machine.lanes.len() > 1 && chance(random, 0.2) {
        let lane = LaneId(random.between(0, config.machine.lanes.len() as u32) as u8);
        let at = moment(random, 80_000);
        truth.faults.lost = vec![(at, lane)];
        // Drawn from what was drawn, so that everything else of a seed stays what it was.
        if (at.0 / 1_000).is_multiple_of(2) {
            truth.faults.works_again = vec![(Instant(at.0 + 1_500_000_000), lane)];
        }
    }
    if config.machine.lanes.len() > 1 && truth.faults.lost.is_empty() && chance(random, 0.2) {
        // The last lane stays: one that takes any rows must be left.
        let lane = LaneId(random.between(0, config.machine.lanes.len() as u32 - 1) as u8);
        let from = moment(random, 80_000);
        truth.faults.slow = vec![(from, from + micros(random.between(100, 40_000)), lane)];
    }
    truth
}

/// A client that comes within `period` microseconds.
fn client(random: &mut Random, index: usize, period: u32) -> Client {
    let class = if chance(random, 0.5) { Class::Reactive } else { Class::Proactive };
    let mut client = Client {
        name: name(index),
        arrives: moment(random, period),
        continues: if index > 0 && chance(random, 0.4) { Some(continues(random, index)) } else { None },
        // Also before it arrives, and after it ended.
        cancelled: if chance(random, 0.25) { Some(moment(random, period + 40_000)) } else { None },
        failing: which(random, 0.15),
        hanging: which(random, 0.06),
        graph: graph(random),
        drafts: if chance(random, 0.5) { Some(Chance::new(one_of(random, &[0.0, 0.3, 0.8, 1.0]))) } else { None },
        ..Client::new(class, random.between(1, 420), random.between(1, 14))
    };
    // Drawn from what was drawn, so that everything else of a seed stays what it was.
    if client.prompt.0.is_multiple_of(8) {
        client.head = HeadRows::All;
    }
    if client.output.0.is_multiple_of(5) {
        client.masks = Nanos(u64::from(client.prompt.0) * 10_000);
    }
    client
}

/// Whether a lane of cores, which alone compute what an encoder wants, is always left.
fn keeps_cores(config: &SchedulerConfig, truth: &Truth, clients: &[Client]) -> bool {
    let is_core = |lane: LaneId| config.machine.lane(lane).capabilities.joins == Joins::Crew;
    let faults = &truth.faults;
    let troubled = || faults.lost.iter().map(|(_, lane)| *lane).chain(faults.slow.iter().map(|(_, _, lane)| *lane));
    let lanes = || config.machine.all().iter();
    // A lane on which a kernel hangs is given up.
    let never_hang = || clients.iter().all(|client| client.hanging == Failing::Never);
    let stay = || lanes().any(is_core) && !troubled().any(is_core) && never_hang();
    config.graphs.is_none() && (lanes().all(is_core) || stay())
}

fn encodes(client: &mut Client) {
    (client.net, client.output, client.continues) = (Net::Encoder, Tokens(1), None);
}

/// `A` to `Z`, then `A1` and so on.
fn name(index: usize) -> String {
    let letter = char::from(b'A' + (index % 26) as u8);
    if index < 26 { letter.to_string() } else { format!("{letter}{}", index / 26) }
}

fn continues(random: &mut Random, index: usize) -> Continues {
    let shared = if chance(random, 0.5) { Tokens(u32::MAX) } else { Tokens(random.between(1, 200)) };
    Continues { client: random.between(0, index as u32) as usize, shared }
}

fn which(random: &mut Random, share: f64) -> Failing {
    if !chance(random, share) {
        return Failing::Never;
    }
    let kernel = random.between(0, 12);
    if chance(random, 0.5) { Failing::Once(kernel) } else { Failing::From(kernel) }
}

fn graph(random: &mut Random) -> Graphs {
    match random.between(0, 10) {
        0 | 1 => Graphs::Fail,
        2 | 3 => Graphs::Slow(random.between(2, 20)),
        _ => Graphs::Compile,
    }
}

fn chance(random: &mut Random, share: f64) -> bool {
    random.share() < share
}

fn one_of<T: Copy>(random: &mut Random, all: &[T]) -> T {
    all[random.between(0, all.len() as u32) as usize]
}

/// Whole microseconds, so that a scenario is easy to read.
fn moment(random: &mut Random, within: u32) -> Instant {
    Instant::default() + micros(random.between(0, within))
}

fn micros(micros: u32) -> Nanos {
    Nanos(u64::from(micros) * 1_000)
}

fn millis(millis: u32) -> Nanos {
    micros(millis * 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_survives_being_written_and_read() {
        for seed in 0..200 {
            let text = scenario(seed).to_string();
            let read: Scenario = text.parse().unwrap_or_else(|error| panic!("{error} in\n{text}"));
            let original = scenario(seed);
            assert_eq!(read.config, original.config, "{text}");
            assert_eq!(read.truth, original.truth, "{text}");
            assert_eq!(read.clients, original.clients, "{text}");
            assert_eq!(read.policy, original.policy, "{text}");
        }
    }
}
