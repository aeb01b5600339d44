//! The parameters that chat and completion requests share.

use crate::class::Service;
use crate::error::ApiError;
use crate::fields::{Fields, whole};
use crate::serve::App;
use crate::task;
use crate::turn::CallsCome;
use axum::http::HeaderMap;
use duet_engine::{FlowKey, Progress, Remember, STOP_BYTES_MAX, SamplingParams, StopConditions, TaskName};
use duet_types::{TokenId, Tokens};
use serde_json::Value;

/// How to generate and how to answer.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) model: Option<String>,
    pub(crate) sampling: SamplingParams,
    pub(crate) stop: StopConditions,
    pub(crate) service: Service,
    pub(crate) flow: Option<FlowKey>,
    /// What the client says it is for.
    pub(crate) task: Option<TaskName>,
    /// Whether later answers may be drafted from this one: not if the client says `store: false`.
    pub(crate) remember: Remember,
    pub(crate) delivery: Delivery,
    /// Whether the client hears how far its prompt was read.
    pub(crate) progress: Progress,
}

/// How the answer is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    Whole,
    Streamed { usage: bool },
}

impl Delivery {
    /// How calls come in events. (Lines have calls whole.)
    pub(crate) fn calls(self) -> CallsCome {
        match self {
            Self::Whole => CallsCome::Whole,
            Self::Streamed { .. } => CallsCome::ByPieces,
        }
    }
}

impl Options {
    /// Takes all shared parameters. Paths of fields without effect are appended to `ignored`.
    pub(crate) fn take(
        fields: &mut Fields,
        headers: &HeaderMap,
        app: &App,
        ignored: &mut Vec<String>,
    ) -> Result<Self, ApiError> {
        Self::take_with(fields, headers, app, Tokens(1), ignored)
    }

    /// The same where an answer may be limited to so few tokens.
    pub(crate) fn take_with(
        fields: &mut Fields,
        headers: &HeaderMap,
        app: &App,
        least: Tokens,
        ignored: &mut Vec<String>,
    ) -> Result<Self, ApiError> {
        refuse_unsupported(fields)?;
        let options = Self {
            model: fields.string("model")?,
            sampling: sampling(fields, app.backend.vocabulary())?,
            stop: stop_conditions(fields, least)?,
            service: Service::take(fields, headers, app.config.class_default)?,
            flow: flow_key(fields)?,
            task: task::take(fields, ignored)?,
            remember: remember(fields)?,
            delivery: delivery(fields, ignored)?,
            progress: progress(fields)?,
        };
        Ok(options)
    }
}

/// How tokens are chosen.
pub(crate) fn sampling(fields: &mut Fields, vocabulary: usize) -> Result<SamplingParams, ApiError> {
    let repetition = fields.number("repetition_penalty", PENALTY_FACTOR_MIN..=PENALTY_FACTOR_MAX)?;
    let repeat = fields.number("repeat_penalty", PENALTY_FACTOR_MIN..=PENALTY_FACTOR_MAX)?;
    let repetition = one_of(("repetition_penalty", repetition), ("repeat_penalty", repeat))?;
    // -1 is vLLM's way to keep all, 0 llama.cpp's and ours.
    let top_k = fields.integer("top_k", -1..=i64::from(u32::MAX))?.unwrap_or(0);
    Ok(SamplingParams {
        temperature: fields.number("temperature", 0.0..=2.0)?.unwrap_or(1.0),
        top_k: u32::try_from(top_k).unwrap_or(0),
        top_p: fields.number("top_p", 0.0..=1.0)?.unwrap_or(1.0),
        min_p: fields.number("min_p", 0.0..=1.0)?.unwrap_or(0.0),
        repetition_penalty: repetition.unwrap_or(1.0),
        presence_penalty: fields.number("presence_penalty", -2.0..=2.0)?.unwrap_or(0.0),
        frequency_penalty: fields.number("frequency_penalty", -2.0..=2.0)?.unwrap_or(0.0),
        logit_bias: logit_bias(fields, vocabulary)?,
        seed: seed(fields)?,
    })
}

/// `store`: nothing can be fetched later, so it cannot be promised, but it can be declined.
fn remember(fields: &mut Fields) -> Result<Remember, ApiError> {
    match fields.boolean("store")? {
        None => Ok(Remember::Answer),
        Some(false) => Ok(Remember::Nothing),
        Some(true) => Err(unsupported("store", "no response can be fetched later; leave it out or say false")),
    }
}

/// Any 64-bit integer; a negative one is as good a seed as another.
fn seed(fields: &mut Fields) -> Result<Option<u64>, ApiError> {
    let Some(value) = fields.take("seed") else { return Ok(None) };
    let seed = value.as_u64().or_else(|| value.as_i64().or_else(|| whole(&value)).map(i64::cast_unsigned));
    seed.map(Some).ok_or_else(|| fields.wrong_type("seed", "a 64-bit integer", &value))
}

fn logit_bias(fields: &mut Fields, vocabulary: usize) -> Result<Vec<(TokenId, f32)>, ApiError> {
    let Some(value) = fields.take("logit_bias") else { return Ok(Vec::new()) };
    let Value::Object(map) = value else {
        return Err(fields.wrong_type("logit_bias", "a map from token ids to numbers", &value));
    };
    let mut biases = Vec::with_capacity(map.len());
    for (name, bias) in map {
        let token = name.parse().ok().filter(|token| usize::try_from(*token).is_ok_and(|token| token < vocabulary));
        let Some(token) = token else {
            let expected = format!("keyed by token ids below {vocabulary}");
            return Err(fields.out_of_range("logit_bias", expected, &Value::String(name)));
        };
        let path = format!("logit_bias[{token}]");
        match bias.as_f64() {
            Some(number) if (-100.0..=100.0).contains(&number) => biases.push((TokenId(token), number as f32)),
            Some(_) => return Err(fields.out_of_range(&path, "from -100 to 100", &bias)),
            None => return Err(fields.wrong_type(&path, "a number", &bias)),
        }
    }
    Ok(biases)
}

fn stop_conditions(fields: &mut Fields, least: Tokens) -> Result<StopConditions, ApiError> {
    let [tokens, completion_tokens] = MOST_TOKENS;
    let given = most_tokens(fields, tokens, least)?;
    let max_tokens = one_of((tokens, given), (completion_tokens, most_tokens(fields, completion_tokens, least)?))?;
    Ok(StopConditions {
        max_tokens: max_tokens.map(|tokens| Tokens(u32::try_from(tokens).unwrap_or(u32::MAX))),
        stop: stop_strings(fields, "stop")?,
        ignore_eos: fields.boolean("ignore_eos")?.unwrap_or(false),
    })
}

/// How many tokens an answer has at most: OpenAI's first name for it, and the newer one.
pub(crate) const MOST_TOKENS: [&str; 2] = ["max_tokens", "max_completion_tokens"];

/// Takes the most tokens of an answer; -1 is as many as there is room for, as other servers have it.
fn most_tokens(fields: &mut Fields, name: &str, least: Tokens) -> Result<Option<i64>, ApiError> {
    if fields.peek(name).and_then(Value::as_i64) == Some(-1) {
        fields.take(name);
        return Ok(None);
    }
    fields.integer(name, i64::from(least.0)..=i64::MAX)
}

/// Takes stop strings, which the route calls so.
pub(crate) fn stop_strings(fields: &mut Fields, name: &str) -> Result<Vec<String>, ApiError> {
    const EXPECTED: &str = "a string or an array of strings";
    let values = match fields.take(name) {
        None => return Ok(Vec::new()),
        Some(Value::Array(values)) => values,
        Some(value) => vec![value],
    };
    if values.len() > STOP_STRINGS_MAX {
        let expected = format!("at most {STOP_STRINGS_MAX} strings");
        return Err(fields.out_of_range(name, expected, &Value::Array(values)));
    }
    let text = |value: Value| match value {
        Value::String(text) if text.is_empty() || text.len() > STOP_BYTES_MAX => {
            let expected = format!("of 1 to {STOP_BYTES_MAX} bytes");
            Err(fields.out_of_range(name, expected, &Value::String(text)))
        }
        Value::String(text) => Ok(text),
        other => Err(fields.wrong_type(name, EXPECTED, &other)),
    };
    values.into_iter().map(text).collect()
}

/// The client's name for the flow, OpenAI's `prompt_cache_key`.
fn flow_key(fields: &mut Fields) -> Result<Option<FlowKey>, ApiError> {
    let Some(key) = fields.string("prompt_cache_key")? else { return Ok(None) };
    if key.is_empty() || key.len() > FLOW_KEY_BYTES_MAX {
        let expected = format!("of 1 to {FLOW_KEY_BYTES_MAX} bytes");
        return Err(fields.out_of_range("prompt_cache_key", expected, &Value::String(key)));
    }
    Ok(Some(FlowKey(key.into())))
}

fn delivery(fields: &mut Fields, ignored: &mut Vec<String>) -> Result<Delivery, ApiError> {
    let stream = fields.boolean("stream")?.unwrap_or(false);
    let Some(options) = fields.take("stream_options") else {
        return Ok(if stream { Delivery::Streamed { usage: false } } else { Delivery::Whole });
    };
    if !stream {
        return Err(ApiError::Needs { param: "stream_options", needs: "stream" });
    }
    let mut options = Fields::nested(fields.path_of("stream_options"), options)?;
    let usage = options.boolean("include_usage")?.unwrap_or(false);
    ignored.extend(options.rest());
    Ok(Delivery::Streamed { usage })
}

/// `return_progress`, as llama.cpp calls it.
fn progress(fields: &mut Fields) -> Result<Progress, ApiError> {
    let told = fields.boolean("return_progress")?.unwrap_or(false);
    Ok(if told { Progress::Told } else { Progress::Untold })
}

/// `n`: answers to each prompt.
pub(crate) fn choices(fields: &mut Fields) -> Result<usize, ApiError> {
    Ok(fields.integer("n", 1..=CHOICES_MAX)?.map_or(1, |count| usize::try_from(count).unwrap_or(1)))
}

/// Each is a request of its own.
const CHOICES_MAX: i64 = 16;

/// Fields that would change the answer and that this server cannot honour. Harmless values of them pass.
fn refuse_unsupported(fields: &mut Fields) -> Result<(), ApiError> {
    if fields.integer("best_of", 1..=i64::MAX)?.is_some_and(|count| count != 1) {
        return Err(unsupported("best_of", "answers are not compared; `n` gives several"));
    }
    for (name, why) in UNSUPPORTED {
        if fields.take(name).is_some_and(|value| !is_harmless(name, &value)) {
            return Err(unsupported(name, why));
        }
    }
    Ok(())
}

/// Whether a value asks for nothing: clients that send all that they know send such.
fn is_harmless(name: &str, value: &Value) -> bool {
    match name {
        "functions" => value.as_array().is_some_and(Vec::is_empty),
        // Without functions there is nothing that it could choose.
        "function_call" => ["auto", "none"].iter().any(|choice| value == choice),
        "min_tokens" => whole(value) == Some(0),
        _ => false,
    }
}

/// One of two names for the same thing.
fn one_of<T: PartialEq>(a: (&'static str, Option<T>), b: (&'static str, Option<T>)) -> Result<Option<T>, ApiError> {
    match (a.1, b.1) {
        (Some(first), Some(second)) if first != second => Err(ApiError::Contradiction { param: b.0, with: a.0 }),
        (first, second) => Ok(first.or(second)),
    }
}

pub(crate) fn unsupported(param: &str, why: &'static str) -> ApiError {
    ApiError::Unsupported { param: param.to_owned(), why }
}

/// Of OpenAI, llama.cpp and vLLM: each would constrain or replace the output, so an answer without it would be wrong.
const UNSUPPORTED: [(&str, &str); 6] = [
    ("functions", "functions are called as `tools`"),
    ("function_call", "functions are called as `tools`"),
    ("audio", "this server answers with text only"),
    ("web_search_options", "this server does not search the web"),
    ("prompt_logprobs", "log probabilities of a prompt come from /v1/completions with `echo` and `logprobs`"),
    ("min_tokens", "a minimum length is not implemented"),
];

/// All fields that both routes look at.
pub(crate) const KNOWN: [&str; 34] = [
    "background",
    "best_of",
    "frequency_penalty",
    "ignore_eos",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "metadata",
    "min_p",
    "model",
    "n",
    "prediction",
    "presence_penalty",
    "priority",
    "prompt_cache_key",
    "repeat_penalty",
    "repetition_penalty",
    "return_progress",
    "seed",
    "service_tier",
    "stop",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "top_k",
    "top_p",
    // Refused, by name.
    "functions",
    "function_call",
    "audio",
    "web_search_options",
    "prompt_logprobs",
    "min_tokens",
];

/// Every stop string is searched for at every token, so their number is bounded; OpenAI allows 4.
const STOP_STRINGS_MAX: usize = 16;
/// A flow's name is kept with its cache. OpenAI's are up to 64 characters.
const FLOW_KEY_BYTES_MAX: usize = 256;
/// Zero would divide by zero.
const PENALTY_FACTOR_MIN: f64 = 0.01;
/// Far beyond use: 1.3 already distorts.
const PENALTY_FACTOR_MAX: f64 = 10.0;
