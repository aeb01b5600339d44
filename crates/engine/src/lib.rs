//! The engine: drives the scheduler on real lanes, real time and real tokens.

mod handle;
mod request;

pub use handle::{Engine, EngineConfig, Generation};
pub use request::{
    EngineError, GenerateRequest, GenerationEvent, SamplingParams, StopConditions, TokenLogprobs, Usage,
};
