//! Traffic: two independent streams of requests with lengths from data sets, as in the paper's evaluation.
//!
//! Each class arrives by itself (Poisson) and has its own source of numbers, so that the reactive requests of a seed are
//! the same with any background, and with none. (Agent.xpu §4.1, §6.1)

use crate::client::Client;
use crate::lengths::Mix;
use crate::random::Random;
use duet_types::{Class, Instant, Nanos, Tokens};

/// Requests of both classes for some time.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    /// Of everything random in it.
    pub seed: u64,
    /// For how long requests come; those under way then are served to their end.
    pub window: Nanos,
    /// Longest context: what does not fit is cut at the prompt's beginning, then at the answer's end.
    pub context: Tokens,
    /// What persons ask.
    pub reactive: Stream,
    /// What agents ask.
    pub proactive: Stream,
}

/// Requests of one class.
#[derive(Clone, Debug, PartialEq)]
pub struct Stream {
    /// How many a minute, on average.
    pub per_minute: f64,
    /// How long they are.
    pub mix: Mix,
}

impl Traffic {
    /// Its clients, in the order of their arrival.
    #[must_use]
    pub fn clients(&self) -> Vec<Client> {
        let mut clients: Vec<Client> = [&self.reactive, &self.proactive].into_iter().flat_map(|s| self.of(s)).collect();
        clients.sort_by_key(|client| client.arrives);
        for (index, client) in clients.iter_mut().enumerate() {
            client.name = index.to_string();
        }
        clients
    }

    fn of(&self, stream: &Stream) -> Vec<Client> {
        let class = stream.mix.class();
        // Neighbouring seeds must not share numbers: the generator's states are a step apart.
        let mut random = Random::new(Random::new(2 * self.seed + u64::from(class == Class::Proactive)).number());
        let mut clients = Vec::new();
        if stream.per_minute <= 0.0 {
            return clients;
        }
        let (mut at, gap) = (0.0, 60.0 / stream.per_minute);
        loop {
            at += random.gap(gap);
            let arrives = Instant((at * 1e9) as u64);
            if arrives.0 >= self.window.0 {
                return clients;
            }
            let sample = stream.mix.draw(&mut random);
            let prompt = sample.input.min(self.context.saturating_sub(Tokens(1))).max(Tokens(1));
            let output = sample.output.min(self.context.saturating_sub(prompt)).max(Tokens(1));
            clients.push(Client { arrives, ..Client::new(class, prompt.0, output.0) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lengths::{proactive_mix, reactive_mix};

    fn traffic(seed: u64, proactive: f64) -> Traffic {
        Traffic {
            seed,
            window: Nanos(900_000_000_000),
            context: Tokens(4096),
            reactive: Stream { per_minute: 3.0, mix: reactive_mix() },
            proactive: Stream { per_minute: proactive, mix: proactive_mix() },
        }
    }

    #[test]
    fn the_reactive_trace_does_not_depend_on_the_background() {
        let reactive = |proactive: f64| {
            let clients = traffic(7, proactive).clients().into_iter();
            let clients = clients.filter(|client| client.class == Class::Reactive);
            clients.map(|client| (client.arrives, client.prompt, client.output)).collect::<Vec<_>>()
        };
        assert_eq!(reactive(0.0), reactive(10.0));
        assert!(!reactive(0.0).is_empty());
    }

    #[test]
    fn as_many_come_as_were_asked_for() {
        let counts: Vec<usize> = (0..200).map(|seed| traffic(seed, 6.0).clients().len()).collect();
        let mean = counts.iter().sum::<usize>() as f64 / 200.0;
        // 135 expected; the mean of 200 has a deviation of 0.8.
        assert!((mean - 135.0).abs() < 4.0, "{mean}");
    }
}
