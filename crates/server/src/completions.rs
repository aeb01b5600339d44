//! `POST /v1/completions`.

use crate::arrived::taken_apart;
use crate::auth::Caller;
use crate::chat::{ShowsUsage, envelope};
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
use duet_engine::Usage;
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
    reply(app, caller.tenant, job, arrived, move |backend, most| {
        let constraint = constraint_of(backend, &form)?;
        let prepare = |prompt: RawPrompt| {
            Ok(Prepared::text(prompt.encode(backend, most, Completion::PROMPT)?, constraint.clone()))
        };
        prompts.into_iter().map(prepare).collect()
    })
    .await
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
    let mut options = Options::take(&mut fields, headers, app, &mut ignored)?;
    options.stop.max_tokens.get_or_insert(MAX_TOKENS_DEFAULT);
    let logprobs = fields.integer("logprobs", 0..=LOGPROBS_MAX)?.map(|top| u8::try_from(top).unwrap_or(u8::MAX));
    let prompts = RawPrompt::take_all(&mut fields, "prompt", app.backend.vocabulary())?;
    let choices = options::choices(&mut fields)?;
    let count = prompts.len().saturating_mul(choices);
    if count > ANSWERS_MAX {
        let expected = format!("at most {ANSWERS_MAX} answers, of all prompts together");
        return Err(fields.out_of_range("prompt", expected, &count.into()));
    }
    let echo = match fields.boolean("echo")?.unwrap_or(false) {
        true if logprobs.is_some() => {
            return Err(unsupported("echo", "log probabilities of the prompt are not implemented"));
        }
        true => prompts.iter().map(|prompt| prompt.text(&*app.backend)).collect(),
        false => vec![String::new(); prompts.len()],
    };
    let predicted = prediction::take(&mut fields, &mut ignored)?;
    ignored.extend(fields.rest());
    let usage = options.delivery == Delivery::Streamed { usage: true };
    let writer = Completion {
        usage: if usage { ShowsUsage::AtEnd } else { ShowsUsage::No },
        echo: echo.into_iter().flat_map(|echo| vec![echo; choices]).collect(),
        text_offset: vec![0; count],
    };
    Ok((Job { options, logprobs, predicted, choices, writer, ignored }, prompts, form))
}

pub(crate) const KNOWN: Known = Known(&[&options::KNOWN, &answer_form::KNOWN, &["echo", "prompt", "suffix"]]);

struct Completion {
    usage: ShowsUsage,
    /// Of each choice, what goes before the generated text.
    echo: Vec<String>,
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
        let choices = choices.into_iter().enumerate().map(|(index, choice)| {
            let offset = &mut text_offset[index];
            let logprobs = choice.scored.map(|tokens| logprobs::completion(&*about.app.backend, &tokens, offset));
            json!({
                "text": std::mem::take(&mut echo[index]) + &choice.text,
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
        let echo = std::mem::take(&mut self.echo[index]);
        if echo.is_empty() {
            return Vec::new();
        }
        let choice = json!({"text": echo, "index": index, "logprobs": null, "finish_reason": null});
        vec![self.chunk(about, choice)]
    }

    fn piece(&mut self, about: &About, index: usize, said: Said, scored: Option<&[ScoredToken]>) -> Vec<Frame> {
        let Said::Text(text) = said else { return Vec::new() };
        let offset = &mut self.text_offset[index];
        let logprobs = scored.map(|tokens| logprobs::completion(&*about.app.backend, tokens, offset));
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
/// OpenAI's bound for this route.
const LOGPROBS_MAX: i64 = 5;
