//! Requests that ask for no answer: to load the model before it is needed, or to have it unloaded.
//!
//! Both are answered as Ollama answers them. The model is loaded as long as the server runs: other clients may need it.

use super::writer;
use crate::fields::Fields;
use crate::reply::tell_ignored;
use axum::Json;
use axum::response::{IntoResponse, Response};
use serde_json::Value;

/// How long the client would have the model kept, as far as it makes a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeepAlive {
    /// As it is.
    Loaded,
    /// Not any longer.
    Unloaded,
}

impl KeepAlive {
    /// Takes `keep_alive`: seconds, or a text like `5m`. Any time but none is kept; that the model is kept for longer than
    /// a client asked for is listed.
    pub(super) fn take(fields: &mut Fields, ignored: &mut Vec<String>) -> Self {
        let Some(value) = fields.take("keep_alive") else { return Self::Loaded };
        let text = value.as_str().map(|text| text.trim_end_matches(|c: char| c.is_ascii_alphabetic()));
        let number = value.as_f64().or_else(|| text?.parse().ok());
        match number {
            Some(0.0) => Self::Unloaded,
            // For ever.
            Some(number) if number < 0.0 => Self::Loaded,
            _ => {
                ignored.push(fields.path_of("keep_alive"));
                Self::Loaded
            }
        }
    }
}

/// A request without a prompt.
pub(super) struct Probe {
    pub(super) keep_alive: KeepAlive,
    pub(super) model: String,
    /// Paths of fields that have no effect.
    pub(super) ignored: Vec<String>,
}

impl Probe {
    /// Its answer; `name` and `empty` are where the text of an answer would stand, and what without one.
    pub(super) fn answer(self, name: &str, empty: Value) -> Response {
        let reason = match self.keep_alive {
            KeepAlive::Loaded => "load",
            KeepAlive::Unloaded => "unload",
        };
        let mut answer = writer::part(&self.model);
        answer[name] = empty;
        answer["done"] = true.into();
        answer["done_reason"] = reason.into();
        // One object is a stream of one line as well.
        let mut response = Json(answer).into_response();
        tell_ignored(&mut response, &self.ignored);
        response
    }
}
