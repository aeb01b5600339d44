//! The engine: drives the scheduler on real lanes, real time and real tokens.
//!
//! A request's way: [`Engine::submit`] checks it and hands it to the scheduler; the scheduler launches kernels, which
//! the lanes run on the model; the lane that led a kernel chooses the token, turns it into text, sends it to the client
//! and runs the scheduler for what comes next. When the request ends, its KV is kept for the next turn of its flow.
//!
//! Invariants: every submitted request's events end with exactly one `Finished` or `Failed`, also if a kernel panics or
//! the engine stops; a request's text depends on its parameters, seed and prompt, not on what else runs, nor on what
//! was cached. (Agent.xpu §4.1)

mod backend;
mod clock;
#[cfg(test)]
mod fake_model;
mod flow;
mod handle;
mod memory;
mod model_backend;
mod outbox;
mod parameters;
mod request;
mod runtime;
mod sampling;
mod sequence;
mod stop;
#[cfg(test)]
mod tests;
mod world;

pub use handle::{Engine, EngineConfig, EngineStats, Generation};
pub use request::{
    EngineError, GenerateRequest, GenerationEvent, SamplingParams, StopConditions, TokenLogprobs, Usage,
};
