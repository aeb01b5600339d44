//! The OpenAI-compatible HTTP server.
//!
//! **Invariant:** a field of a request is honoured, refused with its name, or listed in the response header
//! `x-duet-ignored-fields`; none is dropped silently.
//! **Invariant:** a generation is owned by the response it feeds. When the client goes away the response is dropped,
//! and with it the work; nothing else holds it.
//! **Invariant:** only this crate knows JSON and HTTP status codes, and it knows nothing of models, devices or threads:
//! all of that is behind [`Backend`].
//! **Invariant:** where there are keys (`keys`), nothing is done or told without one of them (`auth`).
//!
//! Defaults are OpenAI's, since that is what clients are written for: `temperature` 1, `top_p` 1, and in
//! `/v1/completions` `max_tokens` 16. Text parts of one message are joined by a newline, as vLLM and llama.cpp do.
//!
//! One request: `serve` routes it and reads the bounded body (`body`), takes it apart field by field (`fields`, `messages`,
//! `options`, `class`), submits it (`running`) and answers whole or streamed (`reply`) in the shape of its route (`chat`,
//! `completions`).

mod auth;
mod backend;
mod body;
mod chat;
mod class;
mod completions;
mod config;
mod engine_backend;
mod error;
mod fields;
mod flows;
mod guard;
mod ids;
mod keys;
mod logprobs;
mod messages;
mod models;
mod options;
mod prediction;
mod reply;
mod running;
mod serve;
mod task;

pub use backend::{Backend, EventFuture, Events, PromptError};
pub use config::ServerConfig;
pub use engine_backend::EngineBackend;
pub use keys::{ApiKeys, KeyError, KeyListError};
pub use messages::{ChatMessage, Role};
pub use serve::serve;
