//! The HTTP server, compatible with OpenAI's and Anthropic's.
//!
//! **Invariant:** a field of a request is honoured, refused with its name, or listed in the response header
//! `x-duet-ignored-fields`; none is dropped silently.
//! **Invariant:** a generation is owned by the response it feeds. When the client goes away the response is dropped,
//! and with it the work; nothing else holds it. (But `responses` in the background, which the store of responses owns.)
//! **Invariant:** only this crate knows JSON and HTTP status codes, and it knows nothing of models, devices or threads:
//! all of that is behind [`Backend`].
//! **Invariant:** where there are keys (`keys`), nothing is done or told without one of them (`auth`).
//!
//! Defaults are OpenAI's, since that is what clients are written for: `temperature` 1, `top_p` 1, and in
//! `/v1/completions` `max_tokens` 16. Text parts of one message are joined by a newline, as vLLM and llama.cpp do.
//!
//! **Invariant:** what a client may make the server hold or wait for is bounded before it is held or waited for:
//! connections and their silence (`connections`, `patience`), bytes of bodies and turns at work on them (`intake`), values
//! of a body (`values`), tokens of a prompt ([`Backend::encode_chat`]).
//!
//! One request: its route (`chat`, `completions`, `responses`, `anthropic`, `ollama`, `embeddings`) reads the bounded body (`body`), takes it apart field by field (`arrived`,
//! `fields`, `messages`, `tools`, `answer_form`, `thinking`, `options`, `class`, `volatile`, `behind`), makes a prompt and what the answer is held
//! to of it (`turn`), submits it, and answers whole or streamed (`reply`): what the model says is read into text, reasoning
//! and calls (`reply::said`), and each route writes these in its own shape (`reply::writer`).

// Unit tests share the fake backend of the API's tests, which name this crate.
#[cfg(test)]
extern crate self as duet_server;

mod answer_form;
mod anthropic;
mod arrived;
mod auth;
mod backend;
mod behind;
mod body;
mod chat;
mod class;
mod completions;
mod config;
mod connections;
mod echo;
mod embeddings;
mod engine_backend;
mod error;
#[cfg(test)]
#[path = "../tests/api/fake.rs"]
#[expect(dead_code, reason = "the tests of the API use the rest")]
mod fake;
mod fields;
mod flows;
mod for_template;
mod guard;
mod ids;
mod intake;
mod keys;
mod logprobs;
mod messages;
mod models;
mod ollama;
mod openapi;
mod options;
mod patience;
mod prediction;
mod raw_prompt;
mod reply;
mod rerank;
mod responses;
mod running;
mod serve;
mod systemone;
mod task;
mod thinking;
mod tokenize;
mod tools;
mod turn;
mod values;
mod volatile;

pub use backend::{About, Backend, Chat, ChatPrompt, EventFuture, Events, Families, PromptError};
pub use config::{BehindAnswers, KeepPrefix, ServerConfig, Times};
pub use engine_backend::EngineBackend;
pub use guard::Hosts;
pub use keys::{ApiKeys, KeyError, KeyListError};
pub use messages::{ChatMessage, Role};
pub use openapi::openapi;
pub use serve::serve;
