//! What a body of Anthropic's asks for.

use super::conversation;
use super::tools;
use super::writer::Messages;
use crate::answer_form::{AnswerForm, named_schema};
use crate::class::Service;
use crate::error::ApiError;
use crate::fields::{Fields, Known};
use crate::options::{self, Delivery, Options};
use crate::reply::Job;
use crate::serve::App;
use crate::thinking::{Reasoning, Told, bound, tell_effort};
use crate::turn::{Asked, CallsCome};
use crate::{behind, task, volatile};
use axum::http::HeaderMap;
use duet_engine::{Progress, Remember, SamplingParams, StopConditions};
use duet_types::{Class, Tokens};
use serde_json::Value;

/// The fields of both routes.
pub(crate) const KNOWN: Known = Known(&[&conversation::KNOWN, &tools::KNOWN, &SHARED, &SAMPLING]);

const SHARED: [&str; 9] = [
    "model",
    "thinking",
    "output_config",
    "output_format",
    "cache_control",
    "metadata",
    "service_tier",
    "background",
    "priority",
];
const SAMPLING: [&str; 6] = ["max_tokens", "temperature", "top_p", "top_k", "stop_sequences", "stream"];

/// A conversation to be counted.
pub(super) struct Counted {
    pub(super) model: Option<String>,
    pub(super) class: Class,
    pub(super) asked: Asked,
}

/// What is to be generated.
pub(super) fn take(mut fields: Fields, headers: &HeaderMap, app: &App) -> Result<(Job<Messages>, Asked), ApiError> {
    let mut ignored = Vec::new();
    let max_tokens = fields.integer("max_tokens", 1..=i64::MAX)?;
    let Some(max_tokens) = max_tokens else { return Err(ApiError::Missing { param: "max_tokens".to_owned() }) };
    let stop = options::stop_strings(&mut fields, "stop_sequences")?;
    let sampling = sampling(&mut fields)?;
    let stream = fields.boolean("stream")?.unwrap_or(false);
    let mut service = service(&mut fields, headers, app)?;
    let named = task::take(&mut fields, &mut ignored)?;
    let model = fields.string("model")?;
    let delivery = if stream { Delivery::Streamed { usage: true } } else { Delivery::Whole };
    let asked = Asked { calls: delivery.calls(), ..asked(&mut fields, app, &mut ignored)? };
    behind::demote(&mut service, &asked.messages, app.config.behind_answers);
    ignored.extend(fields.rest());
    let options = Options {
        model,
        sampling,
        service,
        flow: None,
        task: Some(named.unwrap_or_else(|| task::of_messages(&asked.messages))),
        remember: Remember::Answer,
        delivery,
        progress: Progress::Untold,
        stop: StopConditions {
            max_tokens: Some(Tokens(u32::try_from(max_tokens).unwrap_or(u32::MAX))),
            stop: stop.clone(),
            ignore_eos: false,
        },
    };
    let writer = Messages::new(stop);
    Ok((Job { options, logprobs: None, prompt_logprobs: None, predicted: None, choices: 1, writer, ignored }, asked))
}

/// What is to be counted; fields that only matter to an answer are not looked at.
pub(super) fn take_to_count(mut fields: Fields, headers: &HeaderMap, app: &App) -> Result<Counted, ApiError> {
    let model = fields.string("model")?;
    let class = service(&mut fields, headers, app)?.class;
    let asked = asked(&mut fields, app, &mut Vec::new())?;
    Ok(Counted { model, class, asked })
}

fn asked(fields: &mut Fields, app: &App, ignored: &mut Vec<String>) -> Result<Asked, ApiError> {
    // What a prompt begins with is found again without marks.
    drop(fields.take("cache_control"));
    let tools = tools::take(fields, ignored)?;
    let mut reasoning = thinking(fields, app, ignored)?;
    let form = form(fields, &mut reasoning.told, ignored)?;
    let mut messages = conversation::take(fields, ignored)?;
    volatile::settle(&mut messages, app.config.prefix);
    Ok(Asked { messages, tools, form, reasoning, calls: CallsCome::Whole })
}

fn sampling(fields: &mut Fields) -> Result<SamplingParams, ApiError> {
    let top_k = fields.integer("top_k", 0..=i64::from(u32::MAX))?.unwrap_or(0);
    Ok(SamplingParams {
        temperature: fields.number("temperature", 0.0..=2.0)?.unwrap_or(1.0),
        top_k: u32::try_from(top_k).unwrap_or(0),
        top_p: fields.number("top_p", 0.0..=1.0)?.unwrap_or(1.0),
        min_p: 0.0,
        repetition_penalty: 1.0,
        presence_penalty: 0.0,
        frequency_penalty: 0.0,
        logit_bias: Vec::new(),
        seed: None,
    })
}

/// The class. Anthropic's `standard_only` leaves it open, as `auto` does; the other words are this server's.
fn service(fields: &mut Fields, headers: &HeaderMap, app: &App) -> Result<Service, ApiError> {
    if fields.is("service_tier", "standard_only") {
        drop(fields.take("service_tier"));
    }
    Service::take(fields, headers, app.config.class_default)
}

/// Whether the model is to reason, and for how long: not unless it is asked to, as with Anthropic.
fn thinking(fields: &mut Fields, app: &App, ignored: &mut Vec<String>) -> Result<Reasoning, ApiError> {
    let told = |enabled: bool| [("enable_thinking".to_owned(), enabled.into())].into_iter().collect();
    let Some(thinking) = fields.take("thinking") else { return Ok(Reasoning { told: told(false), max: None }) };
    let mut thinking = Fields::nested(fields.path_of("thinking"), thinking)?;
    let Some(kind) = thinking.string("type")? else {
        return Err(ApiError::Missing { param: thinking.path_of("type") });
    };
    let enabled = match kind.as_str() {
        "enabled" | "adaptive" | "between_tools" => true,
        "disabled" => false,
        _ => {
            return Err(thinking.out_of_range("type", "one of enabled, disabled, adaptive", &Value::String(kind)));
        }
    };
    let max = if enabled { bound(&mut thinking, "budget_tokens", 1, app, ignored)? } else { None };
    ignored.extend(thinking.rest());
    Ok(Reasoning { told: told(enabled), max })
}

/// `output_config` (`format` and `effort`), or `output_format`, which was its name before.
fn form(fields: &mut Fields, told: &mut Told, ignored: &mut Vec<String>) -> Result<AnswerForm, ApiError> {
    let mut asked = fields.take("output_format").map(|format| ("output_format", format));
    if let Some(config) = fields.take("output_config") {
        let mut config = Fields::nested(fields.path_of("output_config"), config)?;
        if let Some(given) = config.take("format") {
            if asked.is_some() {
                return Err(ApiError::Contradiction { param: "output_config", with: "output_format" });
            }
            asked = Some(("output_config.format", given));
        }
        if let Some(effort) = config.string("effort")? {
            let most = if effort == "max" { "xhigh" } else { effort.as_str() };
            tell_effort(told, most).map_err(|_| {
                let expected = "one of low, medium, high, xhigh, max";
                config.out_of_range("effort", expected, &Value::String(effort.clone()))
            })?;
        }
        ignored.extend(config.rest());
    }
    let Some((field, format)) = asked else { return Ok(AnswerForm::default()) };
    let mut format = Fields::nested(field.to_owned(), format)?;
    match format.string("type")?.as_deref() {
        Some("json_schema") => Ok(AnswerForm { format: named_schema(format, ignored)?, field }),
        Some(other) => Err(format.out_of_range("type", "json_schema", &Value::String(other.to_owned()))),
        None => Err(ApiError::Missing { param: format.path_of("type") }),
    }
}
