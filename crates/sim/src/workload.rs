//! Workloads: two independent streams of requests, as persons and agents send them.

use crate::client::Client;
use crate::random::Random;
use duet_types::{Class, Instant};
use std::ops::Range;

/// Reactive and proactive requests that come independently of each other (Poisson).
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Seed of everything random in it.
    pub seed: u64,
    /// For how long requests come.
    pub seconds: f64,
    /// A person's.
    pub reactive: Stream,
    /// An agent's.
    pub proactive: Stream,
}

/// One stream of requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Stream {
    /// Seconds from one to the next, on average.
    pub every: f64,
    /// Length of prompts.
    pub prompt: Range<u32>,
    /// Length of answers.
    pub output: Range<u32>,
}

impl Workload {
    /// Its clients.
    #[must_use]
    pub fn clients(&self) -> Vec<Client> {
        let mut random = Random::new(self.seed);
        let mut clients = Vec::new();
        for (class, stream) in [(Class::Reactive, &self.reactive), (Class::Proactive, &self.proactive)] {
            let mut at = random.gap(stream.every);
            while at < self.seconds {
                let (prompt, output) = (&stream.prompt, &stream.output);
                let prompt = random.between(prompt.start, prompt.end);
                let client = Client::new(class, prompt, random.between(output.start, output.end));
                clients.push(Client { arrives: Instant((at * 1e9) as u64), ..client });
                at += random.gap(stream.every);
            }
        }
        clients.sort_by_key(|client| client.arrives);
        for (index, client) in clients.iter_mut().enumerate() {
            client.name = index.to_string();
        }
        clients
    }
}
