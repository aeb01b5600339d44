//! What holds in every scenario. The fake world itself checks lanes, releases and launches at every step.

use super::fake_world::{Client, Entry, FakeWorld};
use duet_driver::{EventLog, Recorded, Replay, run};
use duet_scheduler::policy::Fcfs;
use duet_scheduler::{Command, End, Scheduler, SchedulerConfig};
use duet_types::{Class, FinishReason, Instant, LaneSet, RequestId, Stage, Tokens};
use proptest::prelude::*;

fn client() -> impl Strategy<Value = Client> {
    let times = (0..20_000_000_u64, prop::option::weighted(0.3, 0..40_000_000_u64));
    let sizes = (1..900_u32, 0..1000_u32, 1..12_u32);
    (times, sizes, any::<bool>(), prop::option::weighted(0.1, 0..20_u32)).prop_map(
        |((arrives, cancelled), (prompt, cached, output), reactive, fails)| Client {
            name: String::new(),
            arrives: Instant(arrives),
            class: if reactive { Class::Reactive } else { Class::Proactive },
            prompt,
            cached: cached % prompt,
            output,
            // Also before it arrives, and after it ended.
            cancelled: cancelled.map(Instant),
            fails,
        },
    )
}

fn config() -> impl Strategy<Value = SchedulerConfig> {
    (1..4_u8, 1..9_usize, 1..400_u32, prop::option::of(1..10_usize)).prop_map(|(lanes, nodes, chunk, span_nodes)| {
        SchedulerConfig { chunk: Tokens(chunk), span_nodes, ..SchedulerConfig::new(LaneSet::first(lanes), nodes) }
    })
}

fn play(config: &SchedulerConfig, clients: &[Client]) -> Recorded<FakeWorld> {
    let mut world = Recorded::new(FakeWorld::new(clients.to_vec(), config.nodes));
    run(&mut Scheduler::new(config.clone(), Box::new(Fcfs)), &mut world);
    world
}

fn replay(config: &SchedulerConfig, log: EventLog) -> Vec<(Instant, Command)> {
    let mut world = Replay::new(log);
    run(&mut Scheduler::new(config.clone(), Box::new(Fcfs)), &mut world);
    world.commands
}

proptest! {
    #[test]
    fn every_request_ends_exactly_once(config in config(), clients in prop::collection::vec(client(), 0..12)) {
        let world = play(&config, &clients).world;
        // That none ends twice is asserted by the world.
        prop_assert_eq!(world.ends().len(), clients.len());
        for (request, end) in world.ends() {
            let client = &clients[request.0 as usize];
            match end {
                End::Finished(FinishReason::Stop) => {}
                End::Finished(reason) => {
                    prop_assert_eq!(*reason, FinishReason::Cancelled);
                    prop_assert!(client.cancelled.is_some());
                }
                End::Failed => prop_assert!(client.fails.is_some()),
            }
        }
    }

    #[test]
    fn requests_begin_in_the_order_of_arrival(config in config(), clients in prop::collection::vec(client(), 0..12)) {
        let world = play(&config, &clients).world;
        let mut arrived: Vec<RequestId> = Vec::new();
        let mut begun: Vec<RequestId> = Vec::new();
        for (_, entry) in &world.timeline {
            match entry {
                Entry::Arrived(request) => arrived.push(*request),
                Entry::Launched { kernel, .. } if begun.last() != Some(&kernel.request) => begun.push(kernel.request),
                _ => {}
            }
        }
        // Those cancelled in the queue never begin; the others keep their order, and none is taken up twice.
        let mut order = arrived.iter();
        prop_assert!(begun.iter().all(|request| order.any(|arrival| arrival == request)));
    }

    #[test]
    fn every_position_is_computed_once_through_all_nodes(
        config in config(),
        clients in prop::collection::vec(client(), 1..8),
    ) {
        let world = play(&config, &clients).world;
        for (id, client) in clients.iter().enumerate() {
            let id = RequestId(id as u64);
            let mut position = Tokens(client.cached);
            let mut node = 0;
            let mut outputs = 0;
            for (_, entry) in &world.timeline {
                let Entry::Launched { kernel, .. } = entry else { continue };
                if kernel.request != id {
                    continue;
                }
                prop_assert_eq!(kernel.rows.start, position);
                prop_assert_eq!(kernel.nodes.start, node);
                prop_assert!(kernel.nodes.len() <= config.span_nodes.unwrap_or(config.nodes));
                prop_assert!(kernel.rows.end - kernel.rows.start <= config.chunk);
                let in_prompt = kernel.rows.end <= Tokens(client.prompt);
                prop_assert_eq!(kernel.stage, if in_prompt { Stage::Prefill } else { Stage::Decode });
                node = kernel.nodes.end;
                if node == config.nodes {
                    node = 0;
                    position = kernel.rows.end;
                    outputs += u32::from(kernel.rows.end >= Tokens(client.prompt));
                }
            }
            if world.ends()[&id] == End::Finished(FinishReason::Stop) {
                prop_assert_eq!(outputs, client.output);
            }
        }
    }

    #[test]
    fn nothing_is_launched_after_a_cancellation(
        config in config(),
        clients in prop::collection::vec(client(), 0..12),
    ) {
        let world = play(&config, &clients).world;
        let mut cancelled: Vec<RequestId> = Vec::new();
        let mut arrived: Vec<RequestId> = Vec::new();
        for (_, entry) in &world.timeline {
            match entry {
                Entry::Arrived(request) => arrived.push(*request),
                // A cancellation that comes before its request is one of nothing.
                Entry::Cancelled(request) if arrived.contains(request) => cancelled.push(*request),
                Entry::Launched { kernel, .. } => prop_assert!(!cancelled.contains(&kernel.request)),
                Entry::Cancelled(_) | Entry::Released { .. } => {}
            }
        }
    }

    #[test]
    fn a_replayed_log_gives_the_same_commands(config in config(), clients in prop::collection::vec(client(), 0..12)) {
        let first = play(&config, &clients);
        let second = play(&config, &clients);
        prop_assert_eq!(&first.log, &second.log);
        let commands = replay(&config, first.log);
        prop_assert_eq!(&commands, &replay(&config, second.log));
        let launched = |timeline: &[(Instant, Entry)]| {
            timeline.iter().filter(|(_, entry)| matches!(entry, Entry::Launched { .. })).count()
        };
        let relaunched = commands.iter().filter(|(_, command)| matches!(command, Command::Launch { .. })).count();
        prop_assert_eq!(launched(&first.world.timeline), relaunched);
    }
}
