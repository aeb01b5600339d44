//! `POST /v1/systemone`: typed questions about one text, answered by what the model finds likely, not by what it writes.
//!
//! Each question is put to the model with its possible answers, and one step tells how likely each of them begins the
//! model's turn; answers that begin alike are told apart by a step at each place where they part (`weigh`). So a question
//! costs reading it, and the text is read once for all of them: it stands before them, and its keys and values are kept.
//!
//! The convention is young (it came with TypeSafe's API, and Ollama has it since 0.35); this is our reading
//! of it. Models made for it are trained to be asked so; any other model answers as well as it follows instructions, and its probabilities are its own,
//! not calibrated.
//!
//! **Invariant:** nothing is cut: what does not fit is refused. **Invariant:** probabilities of a question add up to 1.

mod answer;
mod question;
mod weigh;

use crate::arrived::{Arrived, taken_apart};
use crate::auth::Caller;
use crate::body;
use crate::class::{MANY, Service};
use crate::error::ApiError;
use crate::fields::{Fields, Known};
use crate::intake::SMALL_BYTES;
use crate::messages::{self, ChatMessage, Role};
use crate::reply::tell_ignored;
use crate::serve::{App, Phase};
use crate::thinking::Reasoning;
use crate::turn::{Asked, Prepared};
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use duet_types::{Class, TokenId, Tokens};
use question::Question;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use weigh::{Cost, Scales};

pub(crate) async fn create(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let received = body::read(&app, request).await?;
    let (wanted, arrived) = taken_apart(&app, received, KNOWN, take).await?;
    if arrived.bytes > SMALL_BYTES {
        // It is kept until the last question is answered.
        return Err(ApiError::BodyTooLarge { limit: SMALL_BYTES });
    }
    if *app.phase.borrow() != Phase::Serving {
        return Err(ApiError::ShuttingDown);
    }
    let Wanted { subject, questions, class, ignored } = wanted;
    let subject = Arc::new(subject);
    let mut cost = Cost::default();
    let mut answers = Map::new();
    for question in questions {
        let prepared = prepare(&app, class, &arrived, Arc::clone(&subject), question).await?;
        let (question, prompt, labels) = prepared;
        let mut scales = Scales::new(&app, caller.tenant, class, prompt);
        let probabilities = scales.weigh(&labels).await?;
        cost += scales.cost();
        answers.insert(question.name.clone(), answer::of(&question, &probabilities));
    }
    let usage = json!({"input_tokens": cost.read.0, "output_tokens": cost.generated.0});
    let body = json!({"model": app.backend.model_name(), "answers": answers, "usage": usage});
    let mut response = Json(body).into_response();
    tell_ignored(&mut response, &ignored);
    Ok(response)
}

/// What a body asks for.
struct Wanted {
    subject: Subject,
    questions: Vec<Question>,
    class: Class,
    ignored: Vec<String>,
}

/// What the questions are about.
enum Subject {
    Text(String),
    Conversation(Vec<ChatMessage>),
}

impl Subject {
    fn take(fields: &mut Fields, ignored: &mut Vec<String>) -> Result<Self, ApiError> {
        let text = fields.take("state").or(fields.take("prompt"));
        match (text, fields.take("messages")) {
            (Some(_), Some(_)) => Err(ApiError::Contradiction { param: "messages", with: "state" }),
            (None, None) => Err(ApiError::Missing { param: "state".to_owned() }),
            (Some(text), None) => Ok(Self::Text(question::text_of(text))),
            (None, Some(Value::Array(listed))) => {
                let read = |(index, message)| messages::message_from(format!("messages[{index}]"), message, ignored);
                listed.into_iter().enumerate().map(read).collect::<Result<_, _>>().map(Self::Conversation)
            }
            (None, Some(other)) => Err(fields.wrong_type("messages", "an array", &other)),
        }
    }

    /// The conversation whose next turn answers the question. What all questions share comes first.
    fn asked(&self, question: &Question) -> Asked {
        let asked = question.text();
        let messages = match self {
            Self::Text(text) => vec![
                ChatMessage::said(Role::System, INSTRUCTIONS.to_owned()),
                ChatMessage::said(Role::User, format!("Input:\n{text}\n\n{asked}")),
            ],
            Self::Conversation(said) => said.iter().cloned().chain([ChatMessage::said(Role::User, asked)]).collect(),
        };
        let told = [("enable_thinking".to_owned(), Value::Bool(false))].into_iter().collect();
        Asked { messages, reasoning: Reasoning { told, max: None }, ..Asked::default() }
    }
}

const INSTRUCTIONS: &str =
    "You answer questions about an input. Reply with one of the possible answers and nothing else.";

fn take(mut fields: Fields, headers: &HeaderMap, app: &App) -> Result<Wanted, ApiError> {
    let mut ignored = Vec::new();
    app.check_model(fields.string("model")?.map(|name| untagged(&name).to_owned()).as_deref())?;
    let subject = Subject::take(&mut fields, &mut ignored)?;
    let questions = question::take_all(&mut fields, &mut ignored)?;
    // Nobody waits for a sorted pile; whoever does says so.
    let default = if questions.len() >= MANY { Class::Proactive } else { app.config.class_default };
    let class = Service::take(&mut fields, headers, default)?.class;
    ignored.extend(fields.rest());
    Ok(Wanted { subject, questions, class, ignored })
}

pub(crate) const KNOWN: Known =
    Known(&[&["background", "messages", "model", "priority", "prompt", "questions", "service_tier", "state"]]);

/// Ollama's clients may add a tag.
fn untagged(name: &str) -> &str {
    name.strip_suffix(":latest").unwrap_or(name)
}

/// The question as a prompt, and the tokens of its possible answers.
async fn prepare(
    app: &Arc<App>,
    class: Class,
    arrived: &Arrived,
    subject: Arc<Subject>,
    question: Question,
) -> Result<(Question, Vec<TokenId>, Vec<Vec<TokenId>>), ApiError> {
    let turn = app.intake.turn(class, arrived.bytes).await;
    let app = Arc::clone(app);
    let working = tokio::task::spawn_blocking(move || {
        let backend = &*app.backend;
        // The longest answer must fit behind the prompt.
        let most = Tokens(backend.context().0.saturating_sub(question::LABEL_BYTES_MAX as u32 + 1));
        let Prepared { prompt, .. } = subject.asked(&question).prepare(backend, most, "state")?;
        let encode = |label: &str| {
            let tokens = backend.encode_answer(label, Tokens(question::LABEL_BYTES_MAX as u32));
            tokens.map_err(|_| ApiError::Internal("a label has more tokens than bytes"))
        };
        let labels = question.options.iter().map(|option| encode(&option.label)).collect::<Result<_, _>>()?;
        drop(turn);
        Ok((question, prompt, labels))
    });
    working.await.map_err(|_| ApiError::Internal("the question could not be encoded"))?
}
