//! What the tools are, as clients are told, and what a call asks for.

use super::arguments::{Arguments, Refusal};
use super::classify;
use super::work::{Answer, Question, Worker};
use duet_agents::{ResponseFormat, Strictness};
use duet_types::{FinishReason, Tokens};
use rmcp::model::{CallToolResult, ContentBlock, MetaObject, Tool, ToolAnnotations};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The tools, in the order in which they are listed.
pub(super) const NAMES: [&str; 3] = ["generate", "classify", "summarise"];

/// A call, with arguments that are right as far as they can be without a model.
#[derive(Debug)]
pub(super) enum Call {
    /// One question, whose answer is the result.
    Ask(Question),
    /// A question for each label.
    Classify { question: Question, labels: Vec<String> },
}

/// Reads a call; absent if there is no such tool.
pub(super) fn read(tool: &str, arguments: Map<String, Value>) -> Option<Result<Call, Refusal>> {
    let mut arguments = Arguments::new(arguments);
    let call = match tool {
        "generate" => generate(&mut arguments),
        "classify" => classify(&mut arguments),
        "summarise" => summarise(&mut arguments),
        _ => return None,
    };
    Some(call.and_then(|call| arguments.finish(tool).map(|()| call)))
}

impl Call {
    /// The tool's result.
    pub(super) async fn answer(self, worker: &Worker) -> Result<CallToolResult, Refusal> {
        match self {
            Self::Ask(question) => {
                let ((field, max), is_held) = (question.answer_max, question.form != ResponseFormat::Text);
                let answer = worker.answer(question).await?;
                // A part of a JSON value is none.
                if is_held && answer.reason == FinishReason::Length {
                    return Err(Refusal(format!(
                        "{field}: after {max} tokens the answer was not yet what the schema asks for"
                    )));
                }
                Ok(told(answer))
            }
            Self::Classify { question, labels } => classify::classify(worker, &question, labels).await,
        }
    }
}

/// A text, and why it ended where it did.
fn told(answer: Answer) -> CallToolResult {
    let reason = if answer.reason == FinishReason::Length { "length" } else { "stop" };
    let mut meta = Map::new();
    meta.insert("duet/finish_reason".to_owned(), reason.into());
    CallToolResult::success(vec![ContentBlock::text(answer.text)]).with_meta(Some(MetaObject(meta)))
}

fn generate(arguments: &mut Arguments) -> Result<Call, Refusal> {
    let form = match arguments.optional_object("schema")? {
        None => ResponseFormat::Text,
        Some(schema) => ResponseFormat::JsonSchema { schema, strict: Strictness::Strict },
    };
    Ok(Call::Ask(Question {
        text: ("prompt", arguments.text("prompt")?),
        instructions: arguments.optional_text("system")?,
        form,
        answer_max: ("max_tokens", Tokens(arguments.integer("max_tokens", 1..=ANSWER_MAX, ANSWER_DEFAULT)?)),
        temperature: arguments.number("temperature", 0.0..=2.0, 0.0)? as f32,
    }))
}

fn classify(arguments: &mut Arguments) -> Result<Call, Refusal> {
    let text = arguments.text("text")?;
    let labels = arguments.texts("labels", 2..=LABELS_MAX)?;
    let question = arguments.optional_text("question")?;
    let question = question.as_deref().unwrap_or("Which of the labels fits the text best?");
    let listed = labels.iter().map(|label| classify::quoted(label)).collect::<Vec<_>>().join(", ");
    let instructions = format!("{question} Answer with one of these labels and nothing else: {listed}");
    let question = Question {
        text: ("text", text),
        instructions: Some(instructions),
        form: ResponseFormat::Text,
        answer_max: ("labels", Tokens::ZERO),
        temperature: 0.0,
    };
    Ok(Call::Classify { question, labels })
}

fn summarise(arguments: &mut Arguments) -> Result<Call, Refusal> {
    let words = arguments.integer("words", 1..=WORDS_MAX, WORDS_DEFAULT)?;
    let instructions = format!(
        "Summarise the text that the user sends in at most {words} words, in its own language. Answer with the summary \
         and nothing else."
    );
    Ok(Call::Ask(Question {
        text: ("text", arguments.text("text")?),
        instructions: Some(instructions),
        form: ResponseFormat::Text,
        answer_max: ("words", Tokens(words * TOKENS_PER_WORD + TOKENS_BESIDE)),
        temperature: 0.0,
    }))
}

const ANSWER_DEFAULT: u32 = 512;
const ANSWER_MAX: u32 = 8192;
/// Each label is a question of its own, of which only the label is new.
const LABELS_MAX: usize = 64;
const WORDS_DEFAULT: u32 = 80;
const WORDS_MAX: u32 = 1000;
/// Enough for languages whose words are many tokens.
const TOKENS_PER_WORD: u32 = 3;
const TOKENS_BESIDE: u32 = 16;

/// The tools, as clients are told.
pub(super) fn all() -> Vec<Tool> {
    let hints = || ToolAnnotations::new().read_only(true).open_world(false);
    [generate_tool(), classify_tool(), summarise_tool()].map(|tool| tool.with_annotations(hints())).into()
}

fn generate_tool() -> Tool {
    let properties = json!({
        "prompt": {"type": "string", "description": "What to answer"},
        "system": {"type": "string", "description": "Instructions that come before the prompt"},
        "max_tokens": {"type": "integer", "minimum": 1, "maximum": ANSWER_MAX, "default": ANSWER_DEFAULT,
            "description": "Where the answer ends at the latest"},
        "temperature": {"type": "number", "minimum": 0, "maximum": 2, "default": 0,
            "description": "0 always takes the likeliest token; higher is more varied"},
        "schema": {"type": "object", "description": "A JSON schema that the answer is held to"},
    });
    let description = "Answers a prompt with a model on this machine, in the background. With a schema the answer is JSON \
        that fits it.";
    Tool::new("generate", description, input(properties, &["prompt"])).with_title("Generate text")
}

fn classify_tool() -> Tool {
    let properties = json!({
        "text": {"type": "string", "description": "What to classify"},
        "labels": {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 2, "maxItems": LABELS_MAX,
            "uniqueItems": true, "description": "The labels to choose from"},
        "question": {"type": "string", "description": "What the labels answer, such as: Is this message urgent?"},
    });
    let output = json!({
        "label": {"type": "string"},
        "probabilities": {"type": "object", "additionalProperties": {"type": "number"}},
    });
    let description =
        "Says which of some labels fits a text best, and how probable each is by the model on this machine.";
    Tool::new("classify", description, input(properties, &["text", "labels"]))
        .with_title("Classify a text")
        .with_raw_output_schema(object(output, &["label", "probabilities"]))
}

fn summarise_tool() -> Tool {
    let properties = json!({
        "text": {"type": "string", "description": "What to summarise"},
        "words": {"type": "integer", "minimum": 1, "maximum": WORDS_MAX, "default": WORDS_DEFAULT,
            "description": "About how long the summary may be"},
    });
    let description = "Summarises a text with a model on this machine, in the background.";
    Tool::new("summarise", description, input(properties, &["text"])).with_title("Summarise a text")
}

/// The schema of arguments, of which no others are taken.
fn input(properties: Value, required: &[&str]) -> Arc<Map<String, Value>> {
    let mut schema = Arc::unwrap_or_clone(object(properties, required));
    schema.insert("additionalProperties".to_owned(), false.into());
    Arc::new(schema)
}

fn object(properties: Value, required: &[&str]) -> Arc<Map<String, Value>> {
    let entries = [("type", "object".into()), ("properties", properties), ("required", json!(required))];
    Arc::new(entries.map(|(name, value)| (name.to_owned(), value)).into_iter().collect())
}
