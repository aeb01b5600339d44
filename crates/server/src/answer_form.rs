//! The form that an answer is held to: OpenAI's `response_format`, and what llama.cpp and vLLM call the same.

use crate::error::ApiError;
use crate::fields::Fields;
use duet_agents::{ResponseFormat, Strictness};
use serde_json::Value;

/// The form of an answer.
#[derive(Debug)]
pub(crate) struct AnswerForm {
    pub(crate) format: ResponseFormat,
    /// The field that asked for it: a refusal names it.
    pub(crate) field: &'static str,
}

/// Text, for which no field asks.
impl Default for AnswerForm {
    fn default() -> Self {
        Self { format: ResponseFormat::Text, field: "response_format" }
    }
}

/// All names that a form can come by.
pub(crate) const KNOWN: [&str; 8] = [
    "response_format",
    "grammar",
    "json_schema",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "structured_outputs",
];

/// Takes the form of the answer; of several names, one may speak.
pub(crate) fn take(fields: &mut Fields, ignored: &mut Vec<String>) -> Result<AnswerForm, ApiError> {
    let mut found: Option<AnswerForm> = None;
    let mut says = |field: &'static str, format: Option<ResponseFormat>| match (&found, format) {
        (_, None) => Ok(()),
        (None, Some(format)) => {
            found = Some(AnswerForm { format, field });
            Ok(())
        }
        (Some(with), Some(_)) => Err(ApiError::Contradiction { param: field, with: with.field }),
    };
    says("response_format", response_format(fields, ignored)?)?;
    says("grammar", fields.string("grammar")?.map(grammar))?;
    says("json_schema", fields.take("json_schema").map(schema))?;
    says("guided_json", fields.take("guided_json").map(parsed).map(schema))?;
    says("guided_regex", fields.string("guided_regex")?.map(ResponseFormat::Regex))?;
    says("guided_choice", choice(fields, "guided_choice")?)?;
    says("guided_grammar", fields.string("guided_grammar")?.map(grammar))?;
    says("structured_outputs", structured(fields, ignored)?)?;
    Ok(found.unwrap_or_default())
}

fn response_format(fields: &mut Fields, ignored: &mut Vec<String>) -> Result<Option<ResponseFormat>, ApiError> {
    let Some(format) = fields.take("response_format") else { return Ok(None) };
    let mut format = Fields::nested(fields.path_of("response_format"), format)?;
    let Some(kind) = format.string("type")? else { return Err(ApiError::Missing { param: format.path_of("type") }) };
    let form = match kind.as_str() {
        "text" => ResponseFormat::Text,
        "json_object" => match format.take("schema") {
            Some(given) => schema(given),
            None => ResponseFormat::JsonObject,
        },
        "json_schema" => match format.take("json_schema") {
            Some(named) => named_schema(Fields::nested(format.path_of("json_schema"), named)?, ignored)?,
            None => return Err(ApiError::Missing { param: format.path_of("json_schema") }),
        },
        "regex" => ResponseFormat::Regex(needed(&mut format, "pattern")?),
        "grammar" | "lark" | "gbnf" => grammar(needed(&mut format, "grammar")?),
        _ => {
            let expected = "one of text, json_object, json_schema, regex, grammar";
            return Err(format.out_of_range("type", expected, &Value::String(kind)));
        }
    };
    ignored.extend(format.rest());
    Ok(Some(form))
}

/// `{"name": …, "schema": …, "strict": …}`
pub(crate) fn named_schema(mut fields: Fields, ignored: &mut Vec<String>) -> Result<ResponseFormat, ApiError> {
    let strict = fields.boolean("strict")?.unwrap_or(false);
    // Names and descriptions are for OpenAI's model, which is told of them.
    let (_, _, _) = (fields.take("name"), fields.take("description"), fields.take("type"));
    let form = match fields.take("schema") {
        None => ResponseFormat::JsonObject,
        Some(schema @ (Value::Object(_) | Value::Bool(_))) => {
            ResponseFormat::JsonSchema { schema, strict: if strict { Strictness::Strict } else { Strictness::Loose } }
        }
        Some(other) => return Err(fields.wrong_type("schema", "a JSON schema", &other)),
    };
    ignored.extend(fields.rest());
    Ok(form)
}

/// vLLM's: one of `json`, `regex`, `choice` and `grammar`.
fn structured(fields: &mut Fields, ignored: &mut Vec<String>) -> Result<Option<ResponseFormat>, ApiError> {
    let Some(outputs) = fields.take("structured_outputs") else { return Ok(None) };
    let mut outputs = Fields::nested(fields.path_of("structured_outputs"), outputs)?;
    let json = outputs.take("json").map(parsed).map(schema);
    let regex = outputs.string("regex")?.map(ResponseFormat::Regex);
    let form = json.or(regex).or(choice(&mut outputs, "choice")?).or(outputs.string("grammar")?.map(grammar));
    ignored.extend(outputs.rest());
    Ok(form)
}

fn choice(fields: &mut Fields, name: &str) -> Result<Option<ResponseFormat>, ApiError> {
    let Some(value) = fields.take(name) else { return Ok(None) };
    let texts = value.as_array().map(|texts| texts.iter().map(|text| text.as_str().map(str::to_owned)).collect());
    match texts {
        Some(Some(texts)) => Ok(Some(ResponseFormat::Choice(texts))),
        _ => Err(fields.wrong_type(name, "an array of strings", &value)),
    }
}

/// A schema that nobody said is strict.
fn schema(schema: Value) -> ResponseFormat {
    ResponseFormat::JsonSchema { schema, strict: Strictness::Loose }
}

/// vLLM takes schemas as texts, too.
fn parsed(value: Value) -> Value {
    match &value {
        Value::String(text) => serde_json::from_str(text).unwrap_or(value),
        _ => value,
    }
}

/// llama.cpp's grammars have a rule `root`, Lark's a rule `start`.
fn grammar(text: String) -> ResponseFormat {
    if text.contains("::=") { ResponseFormat::Gbnf(text) } else { ResponseFormat::Lark(text) }
}

fn needed(fields: &mut Fields, name: &str) -> Result<String, ApiError> {
    fields.string(name)?.ok_or_else(|| ApiError::Missing { param: fields.path_of(name) })
}
