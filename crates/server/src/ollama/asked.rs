//! What requests for a chat and for a text have in common.
//!
//! `options` is honoured field by field; what steers how Ollama loads and computes (`num_gpu`, `num_batch`, …), and samplers
//! that duet has not (`mirostat`, …), are listed as ignored. Defaults that are not Ollama's: `repeat_penalty` is 1, since
//! another one makes JSON and code worse, and nothing but the context bounds an answer.

use super::names;
use super::probe::KeepAlive;
use crate::answer_form::AnswerForm;
use crate::class::Service;
use crate::error::ApiError;
use crate::fields::{Fields, whole};
use crate::logprobs;
use crate::options::{self, Delivery, Options};
use crate::serve::App;
use crate::thinking::{Reasoning, Told, tell_effort};
use axum::http::HeaderMap;
use duet_agents::{ResponseFormat, Strictness};
use duet_engine::{Progress, Remember, SamplingParams, StopConditions};
use duet_types::Tokens;
use serde_json::{Map, Value};

/// Fields of both routes.
pub(super) struct Shared {
    /// The name by which the client knows the model; answers repeat it.
    pub(super) model: String,
    pub(super) options: Options,
    pub(super) keep_alive: KeepAlive,
    pub(super) form: AnswerForm,
    pub(super) reasoning: Reasoning,
    /// How many alternatives to report with each token; absent: no log probabilities.
    pub(super) logprobs: Option<u8>,
}

pub(super) const KNOWN: [&str; 12] = [
    "background",
    "format",
    "keep_alive",
    "logprobs",
    "model",
    "name",
    "options",
    "priority",
    "service_tier",
    "stream",
    "think",
    "top_logprobs",
];

impl Shared {
    pub(super) fn take(
        fields: &mut Fields,
        headers: &HeaderMap,
        app: &App,
        ignored: &mut Vec<String>,
    ) -> Result<Self, ApiError> {
        let model = names::take(fields, app)?;
        let streams = fields.boolean("stream")?.unwrap_or(true);
        let (sampling, stop) = options_of(fields, app, ignored)?;
        let options = Options {
            // It was checked.
            model: None,
            sampling,
            stop,
            service: Service::take(fields, headers, app.config.class_default)?,
            flow: None,
            task: None,
            remember: Remember::Answer,
            delivery: if streams { Delivery::Streamed { usage: true } } else { Delivery::Whole },
            progress: Progress::Untold,
        };
        let form = AnswerForm { format: form(fields)?, field: "format" };
        let reasoning = Reasoning { told: told(fields, app, ignored)?, max: None };
        let keep_alive = KeepAlive::take(fields, ignored);
        Ok(Self { model, options, keep_alive, form, reasoning, logprobs: logprobs::wanted(fields)? })
    }
}

fn options_of(
    fields: &mut Fields,
    app: &App,
    ignored: &mut Vec<String>,
) -> Result<(SamplingParams, StopConditions), ApiError> {
    let mut given = match fields.take("options") {
        None => Map::new(),
        Some(Value::Object(given)) => given,
        Some(other) => return Err(fields.wrong_type("options", "an object", &other)),
    };
    given.retain(|_, value| !value.is_null());
    // Ollama's way to say that any seed will do.
    if given.get("seed").and_then(whole) == Some(-1) {
        given.remove("seed");
    }
    for (name, value) in DEFAULTS {
        given.entry(name).or_insert_with(|| value.into());
    }
    let mut given = Fields::nested(fields.path_of("options"), Value::Object(given))?;
    let sampling = options::sampling(&mut given, app.backend.vocabulary())?;
    // -1: to the model's end; -2: to the context's end. Both are bounded by the context.
    let most = given.integer("num_predict", -2..=i64::MAX)?.filter(|most| *most >= 0);
    if most == Some(0) {
        return Err(given.out_of_range("num_predict", "at least 1, or -1", &0.into()));
    }
    let stop = StopConditions {
        max_tokens: most.map(|most| Tokens(u32::try_from(most).unwrap_or(u32::MAX))),
        stop: options::stop_strings(&mut given, "stop")?,
        ignore_eos: false,
    };
    // A longer context than is served cannot be promised; a prompt that needs it is refused, never cut.
    if let Some(context) = given.integer("num_ctx", 0..=i64::MAX)?
        && context > i64::from(app.backend.context().0)
    {
        ignored.push(given.path_of("num_ctx"));
    }
    ignored.extend(given.rest());
    Ok((sampling, stop))
}

/// `format`: the word `json`, or a schema.
fn form(fields: &mut Fields) -> Result<ResponseFormat, ApiError> {
    match fields.take("format") {
        None => Ok(ResponseFormat::Text),
        Some(Value::String(word)) if word.is_empty() => Ok(ResponseFormat::Text),
        Some(Value::String(word)) if word == "json" => Ok(ResponseFormat::JsonObject),
        Some(schema @ Value::Object(_)) => Ok(ResponseFormat::JsonSchema { schema, strict: Strictness::Loose }),
        Some(other) => Err(fields.out_of_range("format", "json or a JSON schema", &other)),
    }
}

/// `think`: yes, no, or how much.
fn told(fields: &mut Fields, app: &App, ignored: &mut Vec<String>) -> Result<Told, ApiError> {
    let mut told = Told::new();
    let Some(think) = fields.take("think") else { return Ok(told) };
    match &think {
        Value::Bool(think) => {
            told.insert("enable_thinking".to_owned(), (*think).into());
        }
        Value::String(effort) if LEVELS.contains(&effort.as_str()) => {
            tell_effort(&mut told, effort).map_err(|expected| fields.out_of_range("think", expected, &think))?;
        }
        _ => return Err(fields.out_of_range("think", "true, false, low, medium or high", &think)),
    }
    if app.backend.families().reasoning.is_none() && think != Value::Bool(false) {
        ignored.push(fields.path_of("think"));
    }
    Ok(told)
}

/// Ollama's.
const DEFAULTS: [(&str, f64); 2] = [("temperature", 0.8), ("top_p", 0.9)];
const LEVELS: [&str; 3] = ["low", "medium", "high"];
