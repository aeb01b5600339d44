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

use duet_driver::Observer;
use duet_model::Model;
use duet_model::kv::KvFormat;
use duet_scheduler::End;
use duet_sim::{Client, Scenario};
use duet_types::{RequestId, TokenId, Tokens};
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

/// What came of a scenario.
#[derive(Clone, Debug)]
pub struct Functional<O> {
    /// One for each client.
    pub answers: Vec<Answer>,
    /// What saw it happen, in virtual time.
    pub observer: O,
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
    let scenario = fitted(real.model, &prompts, scenario)?;
    let outputs = scenario.clients.iter().map(|client| client.output);
    let answers = RealAnswers::new(real, prompts.into_iter().zip(outputs));
    let observed = scenario.run_with(answers, observer);
    let world = observed.world;
    let answer = |index: usize| {
        let tokens = world.answers().generated(index).to_vec();
        let text = real.model.tokenizer().decode(&tokens);
        // A world runs until every client has its end.
        Answer { tokens, text, end: world.ends()[&RequestId(index as u64)] }
    };
    Ok(Functional { answers: (0..world.clients().len()).map(answer).collect(), observer: observed.observer })
}

/// The scenario with the prompts' lengths, and answers that the context has room for.
fn fitted(model: &Model, prompts: &[Vec<TokenId>], scenario: &Scenario) -> Result<Scenario, FunctionalError> {
    let (machine, layers) = (scenario.config.heg.layers, model.config().layers);
    if machine != layers {
        return Err(FunctionalError::Layers { machine, model: layers });
    }
    if prompts.len() != scenario.clients.len() {
        return Err(FunctionalError::Prompts { prompts: prompts.len(), clients: scenario.clients.len() });
    }
    let clients = scenario.clients.iter().zip(prompts).enumerate();
    let clients: Result<Vec<Client>, _> = clients
        .map(|(index, (client, prompt))| {
            let prompt = check(model, index, prompt)?;
            let room = model.config().context - prompt;
            Ok(Client { prompt, output: client.output.clamp(Tokens(1), room), ..client.clone() })
        })
        .collect();
    Ok(Scenario { clients: clients?, ..scenario.clone() })
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
