//! `POST /v1/completions`.

use crate::arrived::taken_apart;
use crate::auth::Caller;
use crate::backend::Backend;
use crate::chat::{ShowsUsage, envelope};
use crate::class::MANY;
use crate::echo::Echo;
use crate::error::ApiError;
use crate::fields::{Fields, Known};
use crate::logprobs::{self, ScoredToken};
use crate::options::{self, Delivery, Options, unsupported};
use crate::raw_prompt::RawPrompt;
use crate::reply::{About, Choice, Ended, Frame, Job, Said, Writer, reply, usage_json};
use crate::serve::App;
use crate::turn::{Prepared, constraint_of};
use crate::{answer_form, body, prediction};
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use duet_engine::{PromptToken, Usage};
use duet_types::Tokens;
use serde_json::{Value, json};
use std::sync::Arc;

pub(crate) async fn create(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let received = body::read(&app, request).await?;
    let ((job, prompts, form), arrived) = taken_apart(&app, received, KNOWN, take).await?;
    let scored = job.prompt_logprobs.map(|_| job.choices);
    reply(app, caller.tenant, job, arrived, move |backend, most| {
        let constraint = constraint_of(backend, &form)?;
        let prepare = |prompt: RawPrompt| {
            Ok(Prepared::text(prompt.encode(backend, most, Completion::PROMPT)?, constraint.clone()))
        };
        let prepared = prompts.into_iter().map(prepare).collect::<Result<Vec<_>, ApiError>>()?;
        if let Some(choices) = scored {
            check_scored(&prepared, choices, most)?;
        }
        Ok(prepared)
    })
    .await
}

/// Of every token of a prompt that is scored there is more to tell than of the prompt.
fn check_scored(prepared: &[Prepared], choices: usize, context: Tokens) -> Result<(), ApiError> {
    let most = SCORED_TOKENS_MAX.max(context).as_usize();
    let tokens = choices * prepared.iter().map(|prepared| prepared.prompt.len()).sum::<usize>();
    if tokens <= most {
        return Ok(());
    }
    Err(ApiError::OutOfRange {
        param: Completion::PROMPT.to_owned(),
        expected: format!("of at most {most} tokens in all where their log probabilities are asked for"),
        got: tokens.to_string(),
    })
}

/// What a body asks for.
fn take(
    mut fields: Fields,
    headers: &HeaderMap,
    app: &App,
) -> Result<(Job<Completion>, Vec<RawPrompt>, answer_form::AnswerForm), ApiError> {
    let mut ignored = Vec::new();
    if fields.string("suffix")?.is_some_and(|suffix| !suffix.is_empty()) {
        return Err(unsupported("suffix", "filling in the middle is not implemented"));
    }
    let form = answer_form::take(&mut fields, &mut ignored)?;
    let logprobs = fields.integer("logprobs", 0..=LOGPROBS_MAX)?.map(|top| u8::try_from(top).unwrap_or(u8::MAX));
    let echoing = Echoing::take(&mut fields, logprobs)?;
    // An answer without a token says something of the prompt only.
    let least = if echoing == Echoing::Scored { Tokens::ZERO } else { Tokens(1) };
    // -1 says that there is no bound, which is not the same as to say nothing.
    let is_said = |name: &&str| fields.peek(name).is_some_and(|most| !most.is_null());
    let bound = if options::MOST_TOKENS.iter().any(is_said) { None } else { Some(MAX_TOKENS_DEFAULT) };
    let mut options = Options::take_with(&mut fields, headers, app, least, &mut ignored)?;
    options.stop.max_tokens = options.stop.max_tokens.or(bound);
    let prompts = RawPrompt::take_all(&mut fields, "prompt", app.backend.vocabulary())?;
    let choices = options::choices(&mut fields)?;
    let count = prompts.len().saturating_mul(choices);
    if count > ANSWERS_MAX {
        let expected = format!("at most {ANSWERS_MAX} answers, of all prompts together");
        return Err(fields.out_of_range("prompt", expected, &count.into()));
    }
    if prompts.len() >= MANY {
        options.service.demote();
    }
    let echo: Vec<Echo> =
        prompts.iter().flat_map(|prompt| vec![echoing.echo(prompt, &*app.backend); choices]).collect();
    let predicted = prediction::take(&mut fields, &mut ignored)?;
    ignored.extend(fields.rest());
    let usage = options.delivery == Delivery::Streamed { usage: true };
    let writer = Completion {
        usage: if usage { ShowsUsage::AtEnd } else { ShowsUsage::No },
        text_offset: echo.iter().map(|echo| echo.text().chars().count()).collect(),
        echo,
        echoing,
    };
    let prompt_logprobs = logprobs.filter(|_| echoing == Echoing::Scored);
    Ok((Job { options, logprobs, prompt_logprobs, predicted, choices, writer, ignored }, prompts, form))
}

pub(crate) const KNOWN: Known = Known(&[&options::KNOWN, &answer_form::KNOWN, &["echo", "prompt", "suffix"]]);

/// What of its prompt an answer begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Echoing {
    Nothing,
    Text,
    /// The text, and how likely each token of it is.
    Scored,
}

impl Echoing {
    fn take(fields: &mut Fields, logprobs: Option<u8>) -> Result<Self, ApiError> {
        Ok(match (fields.boolean("echo")?.unwrap_or(false), logprobs) {
            (false, _) => Self::Nothing,
            (true, None) => Self::Text,
            (true, Some(_)) => Self::Scored,
        })
    }

    fn echo(self, prompt: &RawPrompt, backend: &dyn Backend) -> Echo {
        match self {
            Self::Nothing => Echo::default(),
            Self::Text | Self::Scored => prompt.echo(backend),
        }
    }
}

struct Completion {
    usage: ShowsUsage,
    echoing: Echoing,
    /// Of each choice, what goes before the generated text.
    echo: Vec<Echo>,
    /// Of each choice, where the next token begins in the text, in characters.
    text_offset: Vec<usize>,
}

impl Completion {
    fn chunk(&self, about: &About, choice: Value) -> Frame {
        let mut chunk = envelope(about, OBJECT, json!([choice]));
        if self.usage == ShowsUsage::AtEnd {
            chunk["usage"] = Value::Null;
        }
        Frame::data(&chunk)
    }
}

impl Writer for Completion {
    const ID_PREFIX: &'static str = "cmpl-";
    const PROMPT: &'static str = "prompt";

    fn whole(&mut self, about: &About, choices: Vec<Choice>, usage: Usage) -> Value {
        let Self { echo, text_offset, .. } = self;
        let backend = &*about.app.backend;
        let choices = choices.into_iter().enumerate().map(|(index, choice)| {
            let (echo, offset) = (&mut echo[index], &mut text_offset[index]);
            let prompt = logprobs::Completion::default().prompt(backend, &choice.prompt, echo);
            let logprobs = choice.scored.map(|tokens| prompt.answer(backend, &tokens, offset).json());
            json!({
                "text": echo.text() + &choice.text,
                "index": index,
                "logprobs": logprobs,
                "finish_reason": choice.ended.map(Ended::name),
            })
        });
        let mut response = envelope(about, OBJECT, choices.collect());
        response["usage"] = usage_json(usage);
        response
    }

    fn opening(&mut self, about: &About, index: usize) -> Vec<Frame> {
        if self.echoing != Echoing::Text {
            return Vec::new();
        }
        let choice = json!({"text": self.echo[index].text(), "index": index, "logprobs": null, "finish_reason": null});
        vec![self.chunk(about, choice)]
    }

    fn prompt(&mut self, about: &About, index: usize, tokens: &[PromptToken]) -> Vec<Frame> {
        let echo = &mut self.echo[index];
        // The text goes with the first token, of which alone there is nothing to say.
        let is_first = tokens.first().is_some_and(|token| token.logprobs.is_none());
        let text = if is_first { echo.text() } else { String::new() };
        let logprobs = logprobs::Completion::default().prompt(&*about.app.backend, tokens, echo).json();
        let choice = json!({"text": text, "index": index, "logprobs": logprobs, "finish_reason": null});
        vec![self.chunk(about, choice)]
    }

    fn piece(&mut self, about: &About, index: usize, said: Said, scored: Option<&[ScoredToken]>) -> Vec<Frame> {
        let Said::Text(text) = said else { return Vec::new() };
        let offset = &mut self.text_offset[index];
        let backend = &*about.app.backend;
        let logprobs = scored.map(|tokens| logprobs::Completion::default().answer(backend, tokens, offset).json());
        let choice = json!({"text": text, "index": index, "logprobs": logprobs, "finish_reason": null});
        vec![self.chunk(about, choice)]
    }

    fn ended(&mut self, about: &About, index: usize, ended: Ended, _: Usage) -> Vec<Frame> {
        let choice = json!({"text": "", "index": index, "logprobs": null, "finish_reason": ended.name()});
        vec![self.chunk(about, choice)]
    }

    fn last(&mut self, about: &About, usage: Usage) -> Vec<Frame> {
        let mut frames = Vec::new();
        if self.usage == ShowsUsage::AtEnd {
            let mut last = envelope(about, OBJECT, json!([]));
            last["usage"] = usage_json(usage);
            frames.push(Frame::data(&last));
        }
        frames.push(Frame::done());
        frames
    }
}

const OBJECT: &str = "text_completion";
/// Each is a request of its own.
const ANSWERS_MAX: usize = 128;
/// OpenAI's default for this route.
const MAX_TOKENS_DEFAULT: Tokens = Tokens(16);
/// What is told of one is a kilobyte, while it is written.
const SCORED_TOKENS_MAX: Tokens = Tokens(65_536);
/// OpenAI's bound for this route.
const LOGPROBS_MAX: i64 = 5;
