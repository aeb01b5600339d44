//! The engine: drives the scheduler on real lanes, real time and real tokens.
//!
//! A request's way: [`Engine::submit`] checks it and hands it to the scheduler; the scheduler launches kernels, which
//! the lanes run on the model; the lane that led a kernel chooses the token, turns it into text, sends it to the client
//! and runs the scheduler for what comes next. When the request ends, its KV is kept for the next turn of its flow.
//!
//! Invariants: every submitted request's events end with exactly one `Finished` or `Failed`, also if a kernel panics, the
//! scheduler fails or the engine stops; a request's text depends on its parameters, seed and prompt, not on what else runs, nor on what
//! was cached. (Agent.xpu §4.1)

mod backend;
mod by_class;
mod calibration;
#[cfg(test)]
mod chi_squared;
mod clock;
mod config;
mod constraint;
mod draft_counts;
mod draft_model;
mod drafting;
mod encoding;
mod exact;
mod exchange;
mod executors;
#[cfg(test)]
mod fake_model;
mod fingerprint;
mod handle;
mod kept;
mod lane_watch;
mod learned;
mod machine_memory;
mod memory;
mod model_backend;
mod model_pass;
mod observe;
mod outbox;
mod parameters;
mod pass;
mod past;
mod people;
mod pooled;
mod preparer;
mod prober;
pub mod profile;
mod prompt_scores;
mod recycled;
mod request;
mod runtime;
mod sampling;
mod sequence;
mod speculation;
mod speed_probe;
mod spill;
mod start;
mod stats;
mod stop;
#[cfg(test)]
mod tests;
mod thought;
mod timer;
mod world;

pub use calibration::Calibrate;
pub use config::EngineConfig;
pub use constraint::Constraint;
pub use draft_counts::DraftCounts;
pub use duet_driver::{ReplayError, Replayed, replay};
pub use duet_history::{HistoryStore, TaskName, UserName};
pub use duet_scheduler::policy::{PolicyName, UnknownPolicy};
pub use duet_scheduler::{Mechanism, Mechanisms, Verify};
pub use duet_speculate::{Method, UnknownMethod};
pub use encoding::EncodeRequest;
pub use exact::ExactCounts;
pub use exchange::{ExchangesGraphs, GraphExchange};
pub use executors::{Device, DeviceWork, Fallback, LinearWork};
pub use fingerprint::model_fingerprint;
pub use handle::{Engine, Generation};
pub use kept::KvPlace;
pub use machine_memory::MachineMemory;
pub use observe::{EngineSamples, PredictionErrors};
pub use parameters::{STOP_BYTES_MAX, answer_max, predicted_max};
pub use request::{
    Drafts, EngineError, FlowKey, GenerateRequest, GenerationEvent, Output, Progress, PromptToken, Remember,
    SamplingParams, StopConditions, TokenLogprobs, Usage,
};
pub use sampling::{Candidate, likeliest};
pub use stats::{EngineStats, FlowView, KeptView, RequestView};
pub use thought::ThoughtBound;
