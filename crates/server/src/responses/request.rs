//! What a body asks for.

use super::echo::Echo;
use super::items::{self, Before, Item, What};
use super::writer::Responses;
use crate::answer_form::{AnswerForm, named_schema};
use crate::behind;
use crate::error::ApiError;
use crate::fields::{Fields, Known};
use crate::logprobs;
use crate::messages::Role;
use crate::options::{self, Options, unsupported};
use crate::reply::Job;
use crate::serve::App;
use crate::thinking;
use crate::tools::{self, Nesting, Tools};
use crate::turn::Asked;
use axum::http::HeaderMap;
use duet_agents::ResponseFormat;
use duet_engine::{Remember, TaskName};
use duet_types::Tokens;
use serde_json::Value;

/// A request that was taken apart.
pub(crate) struct Taken {
    pub(crate) job: Job<Responses>,
    pub(crate) items: Vec<Item>,
    /// The response that it goes on from.
    pub(crate) previous: Option<String>,
    pub(crate) stays: Stays,
    pub(crate) instructions: Option<String>,
    /// Without its messages, which need what was before.
    pub(crate) asked: Asked,
}

/// Where the response can be found later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stays {
    Nowhere,
    Stored,
    /// There, and worked on there.
    Background,
}

pub(crate) const KNOWN: Known = Known(&[
    &options::KNOWN,
    &tools::KNOWN,
    &thinking::KNOWN,
    &[
        "conversation",
        "include",
        "input",
        "instructions",
        "max_output_tokens",
        "max_tool_calls",
        "previous_response_id",
        "prompt",
        "safety_identifier",
        "text",
        "top_logprobs",
        "truncation",
        "user",
    ],
]);

pub(crate) fn take(mut fields: Fields, headers: &HeaderMap, app: &App) -> Result<Taken, ApiError> {
    let mut ignored = Vec::new();
    refuse_unsupported(&mut fields)?;
    let mut echo = Echo::of(&fields)?;
    let stays = stays(&mut fields)?;
    let mut options = Options::take(&mut fields, headers, app, &mut ignored)?;
    // It comes back with the response.
    ignored.retain(|path| !path.starts_with("metadata."));
    if stays == Stays::Nowhere {
        options.remember = Remember::Nothing;
    }
    let most = fields.integer("max_output_tokens", 1..=i64::MAX)?;
    if most.is_some() && options.stop.max_tokens.is_some() {
        return Err(ApiError::Contradiction { param: "max_output_tokens", with: "max_tokens" });
    }
    let most = most.map(|most| Tokens(u32::try_from(most).unwrap_or(u32::MAX)));
    options.stop.max_tokens = options.stop.max_tokens.or(most);
    echo.add(&options);
    let logprobs = logprobs_wanted(&mut fields, &mut ignored)?;
    let tools = Tools::take(&mut fields, Nesting::Flat, &mut ignored)?;
    let form = AnswerForm { format: form(&mut fields, &mut ignored)?, field: "text.format" };
    let reasoning = thinking::take(&mut fields, app, &mut ignored)?;
    let previous = fields.string("previous_response_id")?;
    let instructions = fields.string("instructions")?;
    // Told of in the response, and nothing else: the tools of which there may be so many calls are OpenAI's own.
    fields.integer("max_tool_calls", 1..=i64::MAX)?;
    fields.string("safety_identifier")?;
    fields.string("user")?;
    let before = if previous.is_some() { Before::Response } else { Before::Nothing };
    let items = items::take(&mut fields, before, &app.ids, &mut ignored)?;
    demote(&mut options, instructions.as_deref(), &items, app);
    options.task.get_or_insert_with(|| task(instructions.as_deref(), &items));
    ignored.extend(fields.rest());
    let writer = Responses::new(echo);
    let job = Job { options, logprobs, prompt_logprobs: None, predicted: None, choices: 1, writer, ignored };
    let calls = job.options.delivery.calls();
    let asked = Asked { messages: Vec::new(), tools, form, reasoning, calls };
    Ok(Taken { job, items, previous, stays, instructions, asked })
}

fn refuse_unsupported(fields: &mut Fields) -> Result<(), ApiError> {
    for (name, why) in [
        ("conversation", "go on with previous_response_id"),
        ("prompt", "no prompts are stored here; send instructions and input"),
    ] {
        if fields.take(name).is_some() {
            return Err(unsupported(name, why));
        }
    }
    match fields.string("truncation")?.as_deref() {
        None | Some("disabled") => Ok(()),
        Some("auto") => Err(unsupported("truncation", "a conversation that is too long is refused, never cut")),
        Some(other) => Err(fields.out_of_range("truncation", "disabled", &other.into())),
    }
}

/// `store`, which is left out by most and then means yes, and `background`, which leaves its class to [`Options`].
fn stays(fields: &mut Fields) -> Result<Stays, ApiError> {
    let is_background = fields.peek("background").and_then(Value::as_bool).unwrap_or(false);
    match (fields.boolean("store")?.unwrap_or(true), is_background) {
        (true, true) => Ok(Stays::Background),
        (true, false) => Ok(Stays::Stored),
        (false, true) => Err(ApiError::Contradiction { param: "background", with: "store" }),
        (false, false) => Ok(Stays::Nowhere),
    }
}

/// `include` asks for more in the answer. Of what there is, log probabilities are.
fn logprobs_wanted(fields: &mut Fields, ignored: &mut Vec<String>) -> Result<Option<u8>, ApiError> {
    let listed = match fields.take("include") {
        None => Vec::new(),
        Some(Value::Array(listed)) => listed,
        Some(other) => return Err(fields.wrong_type("include", "an array of strings", &other)),
    };
    let top = fields.integer("top_logprobs", 0..=logprobs::TOP_MAX)?;
    let mut wanted = top.is_some_and(|top| top > 0);
    for (index, one) in listed.iter().enumerate() {
        let path = format!("include[{index}]");
        match one.as_str() {
            Some("message.output_text.logprobs") => wanted = true,
            Some(_) => ignored.push(path),
            None => return Err(fields.wrong_type(&path, "a string", one)),
        }
    }
    Ok(wanted.then(|| u8::try_from(top.unwrap_or(0)).unwrap_or(u8::MAX)))
}

/// `text.format`
fn form(fields: &mut Fields, ignored: &mut Vec<String>) -> Result<ResponseFormat, ApiError> {
    let Some(text) = fields.take("text") else { return Ok(ResponseFormat::Text) };
    let mut text = Fields::nested(fields.path_of("text"), text)?;
    let format = text.take("format");
    let path = text.path_of("format");
    ignored.extend(text.rest());
    let Some(format) = format else { return Ok(ResponseFormat::Text) };
    let mut format = Fields::nested(path, format)?;
    let Some(kind) = format.string("type")? else { return Err(ApiError::Missing { param: format.path_of("type") }) };
    let form = match kind.as_str() {
        "json_schema" if format.peek("schema").is_none() => {
            return Err(ApiError::Missing { param: format.path_of("schema") });
        }
        "json_schema" => return named_schema(format, ignored),
        "json_object" => ResponseFormat::JsonObject,
        "text" => ResponseFormat::Text,
        _ => return Err(format.out_of_range("type", "one of text, json_object, json_schema", &kind.into())),
    };
    ignored.extend(format.rest());
    Ok(form)
}

/// As other routes do, by what this request brings: it would not go on from a response for a title.
fn demote(options: &mut Options, instructions: Option<&str>, items: &[Item], app: &App) {
    let said = |role| {
        items.iter().filter_map(move |item| match &item.what {
            What::Said(message) if message.role == role => Some(message.content.as_str()),
            _ => None,
        })
    };
    let said = [instructions, said(Role::System).next(), said(Role::User).next_back()];
    behind::demote_instructed(&mut options.service, said.into_iter().flatten(), app.config.behind_answers);
}

/// The task of a request that does not name it.
fn task(instructions: Option<&str>, items: &[Item]) -> TaskName {
    let rules = items.iter().filter_map(|item| match &item.what {
        What::Said(message) if message.role == Role::System => Some(message.content.as_str()),
        _ => None,
    });
    TaskName::of_instructions(&instructions.into_iter().chain(rules).collect::<Vec<_>>().join("\n"))
}
