//! Flows: requests of several turns, each of which begins with all that was said before it.
//!
//! A flow begins as a request of the [traffic](crate::traffic). When a turn is answered, its client reads or runs a tool for
//! a while, and comes again with the prompt, the answer and something new; lengths of what is new and of answers are drawn
//! as those of first turns are. A flow ends after two to six turns, evenly, or when its context is full. So what a turn
//! shares with the one before is known, and whether its keys and values are still there is for the scheduler to see to.

use crate::client::{Client, Continues, Follows};
use crate::random::Random;
use crate::traffic::Traffic;
use duet_types::{Class, Nanos, Tokens};

/// Flows of both classes for some time.
#[derive(Clone, Debug, PartialEq)]
pub struct Flows {
    /// Their first turns.
    pub first: Traffic,
    /// How long a client takes from an answer to its next turn, on average: reactive, and proactive.
    pub gaps: [Nanos; 2],
}

/// Turns of a flow, from the first number to before the second.
const TURNS: (u32, u32) = (2, 7);

impl Flows {
    /// Their clients: first turns in the order of their arrival, then those that follow.
    #[must_use]
    pub fn clients(&self) -> Vec<Client> {
        let mut clients = self.first.clients();
        let mut random = [Class::Reactive, Class::Proactive].map(|class| self.random(class));
        for flow in 0..clients.len() {
            let reactive = clients[flow].class == Class::Reactive;
            let random = &mut random[usize::from(!reactive)];
            let mut last = flow;
            for turn in 1..random.between(TURNS.0, TURNS.1) {
                let Some(client) = self.next(&clients[last], last, random) else { break };
                clients.push(Client { name: format!("{}.{turn}", clients[flow].name), ..client });
                last = clients.len() - 1;
            }
        }
        clients
    }

    /// The turn after a client's; nothing if the context has no room for it.
    fn next(&self, before: &Client, index: usize, random: &mut Random) -> Option<Client> {
        let (stream, gap) = match before.class {
            Class::Reactive => (&self.first.reactive, self.gaps[0]),
            Class::Proactive => (&self.first.proactive, self.gaps[1]),
        };
        let (sample, gap) = (stream.mix.draw(random), random.gap(gap.0 as f64));
        let said = before.prompt + before.output;
        let prompt = said + sample.input.max(Tokens(1));
        let output = sample.output.max(Tokens(1));
        (prompt + output <= self.first.context).then(|| Client {
            arrives: before.arrives,
            continues: Some(Continues { client: index, shared: said }),
            follows: Some(Follows { client: index, gap: Nanos(gap as u64) }),
            ..Client::new(before.class, prompt.0, output.0)
        })
    }

    /// Each class has its own numbers, as first turns have, and others than they.
    fn random(&self, class: Class) -> Random {
        let mut seeds = Random::new(2 * self.first.seed + u64::from(class == Class::Proactive));
        seeds.number();
        Random::new(seeds.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lengths::{proactive_mix, reactive_mix};
    use crate::traffic::Stream;
    use crate::{Figures, Latencies, ModelShape, Scenario, Simulation, soc};
    use duet_scheduler::MemoryLimits;
    use duet_scheduler::policy::PolicyName;
    use duet_types::RequestId;

    const MINUTES: Nanos = Nanos(300_000_000_000);

    fn flows() -> Flows {
        let stream = |per_minute, mix| Stream { per_minute, mix };
        let (reactive, proactive) = (stream(1.0, reactive_mix()), stream(2.0, proactive_mix()));
        let first = Traffic { seed: 3, window: MINUTES, context: Tokens(4096), reactive, proactive };
        Flows { first, gaps: [Nanos(10_000_000_000), Nanos(3_000_000_000)] }
    }

    fn simulation(policy: PolicyName, memory: MemoryLimits) -> Simulation {
        let soc = soc::built_in().next().unwrap();
        let mut simulation = Simulation::on_soc(&soc, &ModelShape::named("llama-3.2-3b").unwrap().heg(), policy);
        simulation.config.memory = memory;
        simulation
    }

    #[test]
    fn a_turn_comes_when_its_client_has_the_answer_before_it() {
        let clients = flows().clients();
        let Simulation { policy, config, truth, .. } = simulation(PolicyName::Duet, MemoryLimits::UNBOUNDED);
        let scenario = Scenario { truth, clients: clients.clone(), ..Scenario::new(policy, config) };
        let latencies = scenario.run(Latencies::default()).observer;
        let mut turns = 0;
        for (index, client) in clients.iter().enumerate() {
            let (Some(before), Some(Follows { gap, .. })) = (client.continues, client.follows) else { continue };
            let of = |index: usize| latencies.get(RequestId(index as u64)).unwrap();
            assert_eq!(of(index).arrived, of(before.client).ended.unwrap().0 + gap);
            assert!(client.prompt > before.shared && client.prompt + client.output <= Tokens(4096));
            turns += 1;
        }
        assert!(turns > 15, "{turns}");
    }

    #[test]
    fn little_memory_spills_and_what_was_said_is_still_reused() {
        for policy in PolicyName::ALL {
            let run = |memory| -> Figures { simulation(policy, memory).run(flows().clients(), MINUTES) };
            let ample = run(MemoryLimits::UNBOUNDED);
            let little = run(MemoryLimits { pages: 80, disk_pages: 10_000, ..MemoryLimits::UNBOUNDED });
            assert!(ample.kept.spilled == 0 && ample.kept.reused > 0, "{policy}: {:?}", ample.kept);
            assert!(little.kept.spilled > 0 && little.kept.reused > 0, "{policy}: {:?}", little.kept);
            assert!(little.kept.reused <= ample.kept.reused && ample.kept.reused < ample.prompts, "{policy}");
            assert_eq!(little.reactive.n + little.proactive.n, flows().clients().len(), "{policy}");
        }
    }
}
