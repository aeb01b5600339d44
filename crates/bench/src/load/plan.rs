//! A mixed load as a simulation has it: clients who arrive in virtual time, and the tokens that they send.
//!
//! The same seed gives the same arrivals and the same prompts as a load on an engine or a server, so what is predicted for
//! a machine and what is measured on one are of the same requests. Only the ends differ: a load on a server has every
//! answer at full length, so that all servers do the same work; here the model may end its turn.

use super::arrivals::{Arrival, poisson};
use super::subject::encode;
use super::{LoadError, Rates, Workload};
use duet_model::Model;
use duet_sim::Client;
use duet_types::{Class, Instant, Nanos, TokenId};
use std::time::Duration;

/// Clients, and what each of them asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// In the order in which they arrive.
    pub clients: Vec<Client>,
    /// One for each client.
    pub prompts: Vec<Vec<TokenId>>,
}

/// The requests of both streams that arrive within `window`, for `model`.
///
/// # Errors
/// If there is no prompt of a class that is to be played, or the model's template refuses one.
pub fn plan(model: &Model, workload: &Workload, rates: Rates, window: Duration, seed: u64) -> Result<Plan, LoadError> {
    let mut arrivals = Vec::new();
    for (class, rate) in [(Class::Reactive, rates.reactive), (Class::Proactive, rates.proactive)] {
        if rate > 0.0 {
            arrivals.extend(poisson(class, rate, window, workload.prompts(class)?, seed));
        }
    }
    arrivals.sort_by_key(|arrival| arrival.at);
    let mut plan = Plan::default();
    for (index, Arrival { at, job }) in arrivals.into_iter().enumerate() {
        let prompt = encode(model, &job.messages)?;
        let length = u32::try_from(prompt.len()).unwrap_or(u32::MAX);
        let client = Client::new(job.class, length, job.output.0);
        plan.clients.push(Client { name: index.to_string(), arrives: Instant(Nanos::from(at).0), ..client });
        plan.prompts.push(prompt);
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use duet_model::LoadOptions;
    use duet_types::Tokens;
    use std::path::Path;

    fn model() -> Model {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_llama.gguf");
        Model::load(Path::new(path), &LoadOptions::default(), &mut |_| {}).unwrap()
    }

    fn planned(rates: Rates) -> Plan {
        plan(&model(), &Workload::read(&[]).unwrap(), rates, Duration::from_secs(120), 3).unwrap()
    }

    #[test]
    fn clients_arrive_in_order_with_prompts_of_their_class() {
        let plan = planned(Rates { reactive: 10.0, proactive: 20.0 });
        assert!(plan.clients.is_sorted_by_key(|client| client.arrives));
        assert!(plan.clients.iter().all(|client| client.arrives < Instant(120_000_000_000)));
        let lengths: Vec<usize> = plan.prompts.iter().map(Vec::len).collect();
        assert_eq!(plan.clients.iter().map(|client| client.prompt.as_usize()).collect::<Vec<_>>(), lengths);
        for class in [Class::Reactive, Class::Proactive] {
            assert!(plan.clients.iter().filter(|client| client.class == class).count() > 5, "{class:?}");
        }
        assert!(plan.clients.iter().all(|client| client.output > Tokens::ZERO));
    }

    #[test]
    fn a_stream_is_the_same_whatever_the_other_does() {
        let of_people = |rates| {
            let Plan { clients, prompts } = planned(rates);
            let all = clients.into_iter().zip(prompts).filter(|(client, _)| client.class == Class::Reactive);
            all.map(|(client, prompt)| (client.arrives, client.output, prompt)).collect::<Vec<_>>()
        };
        let alone = of_people(Rates { reactive: 10.0, proactive: 0.0 });
        assert!(!alone.is_empty());
        assert_eq!(alone, of_people(Rates { reactive: 10.0, proactive: 30.0 }));
    }
}
