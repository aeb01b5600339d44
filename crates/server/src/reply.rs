//! From a request to its response, whole or streamed; what differs between the routes is a [`Shape`].

use crate::arrived::Arrived;
use crate::backend::Backend;
use crate::error::ApiError;
use crate::ids::unix_seconds;
use crate::logprobs::{ScoredToken, Scores};
use crate::options::{Delivery, Options};
use crate::prediction;
use crate::running::{Running, Step};
use crate::serve::{App, Phase};
use axum::Json;
use axum::http::HeaderValue;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use duet_engine::{Drafts, GenerateRequest, Usage, answer_max};
use duet_model::forward::FateCounts;
use duet_types::{FinishReason, TenantId, TokenId, Tokens};
use futures_util::stream::{Stream, unfold};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

/// How a route writes the one choice of its responses.
pub(crate) trait Shape: Send + 'static {
    /// Begins the ids.
    const ID_PREFIX: &'static str;
    /// `object` of a whole response.
    const OBJECT: &'static str;
    /// `object` of a chunk.
    const CHUNK_OBJECT: &'static str;
    /// What the route calls its prompt.
    const PROMPT: &'static str;

    /// The choice of a whole response. `scored` is absent if no log probabilities were asked for.
    fn whole(&mut self, backend: &dyn Backend, text: String, scored: Option<&[ScoredToken]>, reason: &str) -> Value;
    /// The choice of the first chunk, if the route has one before there is text.
    fn opening(&mut self) -> Option<Value>;
    /// The choice of a chunk with text.
    fn piece(&mut self, backend: &dyn Backend, text: String, scored: Option<&[ScoredToken]>) -> Value;
    /// The choice of the chunk that says why there is no more.
    fn end(&mut self, reason: &str) -> Value;
}

/// A request, read and checked.
pub(crate) struct Job<S> {
    pub(crate) options: Options,
    /// How many alternatives to report with each token; absent: no log probabilities.
    pub(crate) logprobs: Option<u8>,
    /// What the client expects as an answer.
    pub(crate) predicted: Option<String>,
    pub(crate) shape: S,
    /// Paths of fields that have no effect.
    pub(crate) ignored: Vec<String>,
}

/// Submits the job and answers it. `encode` makes the prompt, of at most so many tokens; it may take long, and runs off the
/// async threads when its turn comes.
pub(crate) async fn reply<S, E>(
    app: Arc<App>,
    tenant: TenantId,
    job: Job<S>,
    arrived: Arrived,
    encode: E,
) -> Result<Response, ApiError>
where
    S: Shape,
    E: FnOnce(&dyn Backend, Tokens) -> Result<Vec<TokenId>, ApiError> + Send + 'static,
{
    app.check_model(job.options.model.as_deref())?;
    if *app.phase.borrow() != Phase::Serving {
        return Err(ApiError::ShuttingDown);
    }
    let Job { options, logprobs, predicted, shape, ignored } = job;
    let Options { sampling, stop, service, flow, task, remember, delivery, .. } = options;
    let class = service.class;
    let engine = |error| ApiError::Engine { error, prompt: S::PROMPT };
    // Before its prompt costs anything; the engine has the last word when it is submitted.
    app.backend.has_room(class).map_err(engine)?;
    let (user, task) = (app.config.keys.user(tenant), task.unwrap_or_default());
    let turn = app.intake.turn(class, arrived.bytes).await;
    let backend = Arc::clone(&app.backend);
    let submit = move || {
        // At least one token must fit behind the prompt.
        let most = Tokens(backend.context().0.saturating_sub(1));
        let prompt = encode(&*backend, most)?;
        let prompt_tokens = Tokens(u32::try_from(prompt.len()).unwrap_or(u32::MAX));
        let predicted = predicted.map(|text| {
            prediction::encode(&*backend, &text, answer_max(prompt_tokens, stop.max_tokens, backend.context()))
        });
        let predicted = predicted.transpose()?.unwrap_or_default();
        drop((turn, arrived));
        let request = GenerateRequest {
            prompt,
            sampling,
            stop,
            class,
            logprobs,
            flow,
            tenant,
            predicted,
            user,
            task,
            remember,
            drafts: Drafts::ByMethod,
        };
        let submitted = backend.submit(request).map_err(engine)?;
        Ok::<_, ApiError>((submitted, prompt_tokens))
    };
    let submitted = tokio::task::spawn_blocking(submit).await;
    let (events, prompt_tokens) = submitted.map_err(|_| ApiError::Internal("the prompt could not be encoded"))??;
    let id = app.ids.next(S::ID_PREFIX);
    let answer = Answer {
        running: Some(Running::new(events, app.phase.subscribe(), S::PROMPT, id.clone(), prompt_tokens)),
        id,
        created: unix_seconds(),
        service_tier: service.tier,
        shape,
        scores: logprobs.map(|_| Scores::default()),
        app,
    };
    let mut response = match delivery {
        Delivery::Whole => answer.whole().await?.into_response(),
        Delivery::Streamed { usage } => Sse::new(answer.streamed(usage)).keep_alive(KeepAlive::new()).into_response(),
    };
    if let Some(value) = ignored_header(&ignored) {
        response.headers_mut().insert("x-duet-ignored-fields", value);
    }
    Ok(response)
}

/// A generation and how to write it. It owns the work: dropping it cancels.
struct Answer<S> {
    app: Arc<App>,
    /// Absent after the end.
    running: Option<Running>,
    id: String,
    created: u64,
    service_tier: &'static str,
    shape: S,
    /// Absent if no log probabilities were asked for.
    scores: Option<Scores>,
}

impl<S: Shape> Answer<S> {
    async fn whole(mut self) -> Result<Json<Value>, ApiError> {
        let mut running = self.running.take().ok_or(ApiError::Internal("the generation has ended"))?;
        let (mut all, mut all_scored) = (String::new(), self.scores.as_ref().map(|_| Vec::new()));
        loop {
            let (text, end) = match running.next().await? {
                Step::Piece { text, scored } => {
                    self.keep(scored);
                    (text, None)
                }
                Step::End { text, reason, usage } => (text, Some((reason, usage))),
            };
            if let (Some(all), Some(new)) = (&mut all_scored, self.scored(&text, end.map(|(reason, _)| reason))) {
                all.extend(new);
            }
            all += &text;
            if let Some((reason, usage)) = end {
                let choice = self.shape.whole(&*self.app.backend, all, all_scored.as_deref(), name(reason));
                let mut response = self.envelope(S::OBJECT, json!([choice]));
                response["usage"] = usage_json(usage);
                return Ok(Json(response));
            }
        }
    }

    /// Server-sent events. An error after the first event becomes the last event, and no `[DONE]` follows.
    fn streamed(mut self, usage_wanted: bool) -> impl Stream<Item = Result<Event, Infallible>> + Send {
        let opening: VecDeque<String> =
            self.shape.opening().map(|choice| self.chunk(json!([choice]), usage_wanted)).into_iter().collect();
        unfold((self, opening), move |(mut answer, mut ready)| async move {
            loop {
                if let Some(data) = ready.pop_front() {
                    return Some((Ok(Event::default().data(data)), (answer, ready)));
                }
                match answer.running.as_mut()?.next().await {
                    Ok(Step::Piece { text, scored }) => {
                        answer.keep(scored);
                        ready.extend(answer.piece(text, None, usage_wanted));
                    }
                    Ok(Step::End { text, reason, usage }) => {
                        answer.running = None;
                        ready.extend(answer.piece(text, Some(reason), usage_wanted));
                        let end = answer.shape.end(name(reason));
                        ready.push_back(answer.chunk(json!([end]), usage_wanted));
                        if usage_wanted {
                            let mut last = answer.envelope(S::CHUNK_OBJECT, json!([]));
                            last["usage"] = usage_json(usage);
                            ready.push_back(last.to_string());
                        }
                        ready.push_back("[DONE]".to_owned());
                    }
                    Err(error) => {
                        answer.running = None;
                        ready.push_back(error.body().to_string());
                    }
                }
            }
        })
    }

    fn keep(&mut self, token: Option<ScoredToken>) {
        if let (Some(scores), Some(token)) = (&mut self.scores, token) {
            scores.push(token);
        }
    }

    /// The tokens to report with `text`, if any are to be reported; `end` is given with the last text.
    fn scored(&mut self, text: &str, end: Option<FinishReason>) -> Option<Vec<ScoredToken>> {
        let scores = self.scores.as_mut()?;
        let mut tokens = scores.take_for(&*self.app.backend, text);
        if end == Some(FinishReason::Length) {
            tokens.append(&mut scores.take_rest());
        }
        Some(tokens)
    }

    /// A chunk for `text` and its tokens, if there is any of either.
    fn piece(&mut self, text: String, end: Option<FinishReason>, usage_wanted: bool) -> Option<String> {
        let scored = self.scored(&text, end);
        if text.is_empty() && scored.as_ref().is_none_or(Vec::is_empty) {
            return None;
        }
        let choice = self.shape.piece(&*self.app.backend, text, scored.as_deref());
        Some(self.chunk(json!([choice]), usage_wanted))
    }

    fn chunk(&self, choices: Value, usage_wanted: bool) -> String {
        let mut chunk = self.envelope(S::CHUNK_OBJECT, choices);
        if usage_wanted {
            chunk["usage"] = Value::Null;
        }
        chunk.to_string()
    }

    fn envelope(&self, object: &str, choices: Value) -> Value {
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.app.backend.model_name(),
            "system_fingerprint": FINGERPRINT,
            "service_tier": self.service_tier,
            "choices": choices,
        })
    }
}

fn usage_json(usage: Usage) -> Value {
    let mut json = json!({
        "prompt_tokens": usage.prompt.0,
        "completion_tokens": usage.generated.0,
        "total_tokens": u64::from(usage.prompt.0) + u64::from(usage.generated.0),
        "prompt_tokens_details": {"cached_tokens": usage.cached.0},
        "completion_tokens_details": {
            "accepted_prediction_tokens": usage.drafts.accepted.0,
            "rejected_prediction_tokens": usage.drafts.rejected.0,
        },
    });
    let FateCounts { launched, crew, spilled, dropped } = usage.experts;
    if usage.experts.all() > 0 {
        json["expert_details"] = json!({"device": launched, "cpu": crew, "spilled": spilled, "dropped": dropped});
    }
    json
}

/// OpenAI's word. `Cancelled` does not get here: [`Running`] makes it an error.
fn name(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop | FinishReason::Cancelled => "stop",
        FinishReason::Length => "length",
    }
}

/// The paths as one header value: bounded, and with characters that headers do not allow replaced.
fn ignored_header(paths: &[String]) -> Option<HeaderValue> {
    if paths.is_empty() {
        return None;
    }
    let printable = |c: char| if c.is_ascii_graphic() && c != ',' { c } else { '?' };
    let listed = paths.iter().take(IGNORED_FIELDS_MAX);
    let mut names: Vec<String> =
        listed.map(|path| path.chars().take(IGNORED_CHARS_MAX).map(printable).collect()).collect();
    if paths.len() > IGNORED_FIELDS_MAX {
        names.push(format!("and-{}-more", paths.len() - IGNORED_FIELDS_MAX));
    }
    HeaderValue::from_str(&names.join(", ")).ok()
}

/// What the answer depends on besides the request.
const FINGERPRINT: &str = concat!("duet-", env!("CARGO_PKG_VERSION"));
/// With the next constant: clients refuse headers beyond 8 KiB or so.
const IGNORED_FIELDS_MAX: usize = 32;
/// Longer paths are cut.
const IGNORED_CHARS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_of_hostile_names_is_bounded_and_valid() {
        let paths: Vec<String> = (0..1000).map(|index| format!("{index}\r\n,é{}", "x".repeat(1000))).collect();
        let header = ignored_header(&paths).expect("there are paths");
        assert!(header.len() < 4096);
        assert!(header.to_str().expect("ASCII").ends_with(", and-968-more"));
        assert!(ignored_header(&[]).is_none());
    }
}
