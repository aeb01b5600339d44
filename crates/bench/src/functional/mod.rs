//! Functional simulation: a scenario in virtual time whose tokens a real model makes.
//!
//! The world is the simulator's: lanes take as long as their annotations say, and the scheduler is the one that serves.
//! But every kernel also runs, when it ends, on the model in memory (`real_answers.rs`): the same spans of nodes on the
//! same rows, on keys and values that are kept, taken over, forked and discarded as the scheduler says. So tokens, the
//! ends of answers and what a prompt finds in the cache are real on machines that are not here.
//!
//! **Invariant:** the tokens of a request are those that the engine gives to it alone, greedily, whatever the policy,
//! the machine, and what runs beside it (`tests/functional.rs`).
//!
//! It is here, and not in the simulator, because that depends on no model and stays quick to build and to run; and here
//! both may meet the engine, with which the tests compare.

mod error;
mod real_answers;
mod sequence;

pub use error::FunctionalError;

use crate::load::Plan;
use duet_driver::{Observed, Observer};
use duet_model::Model;
use duet_model::kv::KvFormat;
use duet_scheduler::{End, SchedulerConfig};
use duet_sim::{Client, Figures, Scenario, Simulation, VirtualWorld};
use duet_types::{Nanos, TokenId, Tokens};
use real_answers::RealAnswers;

/// What makes the tokens.
#[derive(Clone, Copy, Debug)]
pub struct RealModel<'a> {
    /// The model.
    pub model: &'a Model,
    /// How its keys and values are stored.
    pub kv_format: KvFormat,
    /// Threads that run a kernel of many rows. They change how long the simulation takes, and nothing else.
    pub threads: usize,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Functional<T> {
    /// One for each client.
    pub answers: Vec<Answer>,
    /// What was seen of it in virtual time.
    pub seen: T,
}

/// What a client got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The tokens, the end of the turn among them.
    pub tokens: Vec<TokenId>,
    /// What they say.
    pub text: String,
    /// How it ended.
    pub end: End,
}

/// Runs `scenario` with real tokens: its client `i` asks `prompts[i]`, and its answer ends when the model says so, or
/// after the client's `output`, or where the model's context ends. What prompts have in common is found by their tokens.
///
/// # Errors
/// If there is not one prompt for each client, a prompt is nothing for this model, or the scenario's machine was
/// described for a model with another number of layers.
pub fn run<O: Observer>(
    real: RealModel<'_>,
    prompts: Vec<Vec<TokenId>>,
    scenario: &Scenario,
    observer: O,
) -> Result<Functional<O>, FunctionalError> {
    let clients = fitted(real.model, &scenario.config, &scenario.clients, &prompts)?;
    let answers = RealAnswers::new(real, &clients, prompts);
    let Observed { world, observer } = Scenario { clients, ..scenario.clone() }.run_with(answers, observer);
    Ok(Functional { answers: answered(real.model, &world), seen: observer })
}

/// Runs a simulation with real tokens, for requests that come for `window`, as [`run`] does.
///
/// # Errors
/// As [`run`]'s.
pub fn simulate(
    real: RealModel<'_>,
    plan: Plan,
    simulation: &Simulation,
    window: Nanos,
) -> Result<Functional<Figures>, FunctionalError> {
    let clients = fitted(real.model, &simulation.config, &plan.clients, &plan.prompts)?;
    let answers = RealAnswers::new(real, &clients, plan.prompts);
    let (figures, world) = simulation.run_with(clients, window, answers);
    Ok(Functional { answers: answered(real.model, &world), seen: figures })
}

fn answered(model: &Model, world: &VirtualWorld<RealAnswers<'_>>) -> Vec<Answer> {
    let answer = |(index, end): (usize, &End)| {
        let tokens = world.answers().generated(index).to_vec();
        Answer { text: model.tokenizer().decode(&tokens), tokens, end: *end }
    };
    // A world runs until every client has its end, and they are in the order of the clients.
    world.ends().values().enumerate().map(answer).collect()
}

/// The clients with the lengths of their prompts, and answers that the context has room for.
fn fitted(
    model: &Model,
    config: &SchedulerConfig,
    clients: &[Client],
    prompts: &[Vec<TokenId>],
) -> Result<Vec<Client>, FunctionalError> {
    let (machine, layers) = (config.heg.layers, model.config().layers);
    if machine != layers {
        return Err(FunctionalError::Layers { machine, model: layers });
    }
    if prompts.len() != clients.len() {
        return Err(FunctionalError::Prompts { prompts: prompts.len(), clients: clients.len() });
    }
    let fitted = clients.iter().zip(prompts).enumerate().map(|(index, (client, prompt))| {
        let prompt = check(model, index, prompt)?;
        let room = model.config().context - prompt;
        Ok(Client { prompt, output: client.output.clamp(Tokens(1), room), ..client.clone() })
    });
    fitted.collect()
}

/// The length of a prompt that the model can read.
fn check(model: &Model, client: usize, prompt: &[TokenId]) -> Result<Tokens, FunctionalError> {
    let context = model.config().context;
    if prompt.is_empty() {
        return Err(FunctionalError::EmptyPrompt { client });
    }
    if prompt.len() >= context.as_usize() {
        return Err(FunctionalError::PromptTooLong { client, prompt: prompt.len(), context });
    }
    if let Some(&token) = prompt.iter().find(|token| token.0 as usize >= model.config().vocabulary) {
        return Err(FunctionalError::Token { client, token });
    }
    Ok(Tokens(prompt.len() as u32))
}
