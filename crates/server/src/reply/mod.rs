//! From a request to its response, whole or streamed. What an answer says comes from [`said`]; how a route writes it is a
//! [`Writer`].

mod calling;
mod said;
mod sending;
mod shared_prompt;
mod writer;

pub(crate) use said::{Said, Whole};
pub(crate) use sending::{Answer, events};
pub(crate) use writer::{About, Call, Choice, Ended, Frame, Framing, Reading, Writer};

use crate::arrived::Arrived;
use crate::backend::Backend;
use crate::error::ApiError;
use crate::ids::unix_seconds;
use crate::logprobs::Scores;
use crate::options::Options;
use crate::prediction;
use crate::running::Running;
use crate::serve::{App, Phase};
use crate::turn::Prepared;
use axum::http::HeaderValue;
use axum::response::Response;
use duet_engine::{Drafts, GenerateRequest, Output, Usage, answer_max};
use duet_model::ExpertReads;
use duet_model::forward::FateCounts;
use duet_types::{TenantId, Tokens};
use said::Saying;
use serde_json::{Value, json};
use std::sync::Arc;

/// A request, read and checked.
pub(crate) struct Job<W> {
    pub(crate) options: Options,
    /// How many alternatives to report with each token; absent: no log probabilities.
    pub(crate) logprobs: Option<u8>,
    /// The same of each token of the prompt.
    pub(crate) prompt_logprobs: Option<u8>,
    /// What the client expects as an answer.
    pub(crate) predicted: Option<String>,
    /// Answers to each prompt.
    pub(crate) choices: usize,
    pub(crate) writer: W,
    /// Paths of fields that have no effect.
    pub(crate) ignored: Vec<String>,
}

/// Submits the job and answers it. `prepare` makes the prompts, each of at most so many tokens; it may take long, and runs
/// off the async threads when its turn comes.
pub(crate) async fn reply<W, P>(
    app: Arc<App>,
    tenant: TenantId,
    job: Job<W>,
    arrived: Arrived,
    prepare: P,
) -> Result<Response, ApiError>
where
    W: Writer,
    P: FnOnce(&dyn Backend, Tokens) -> Result<Vec<Prepared>, ApiError> + Send + 'static,
{
    let (answer, delivery, ignored) = begin(app, tenant, job, arrived, prepare).await?;
    let mut response = answer.send(delivery).await?;
    tell_ignored(&mut response, &ignored);
    Ok(response)
}

/// Lists the fields that have no effect.
pub(crate) fn tell_ignored(response: &mut Response, paths: &[String]) {
    if let Some(value) = ignored_header(paths) {
        response.headers_mut().insert("x-duet-ignored-fields", value);
    }
}

/// Submits the job. What comes back is to be sent, or taken over.
pub(crate) async fn begin<W, P>(
    app: Arc<App>,
    tenant: TenantId,
    job: Job<W>,
    arrived: Arrived,
    prepare: P,
) -> Result<(Answer<W>, crate::options::Delivery, Vec<String>), ApiError>
where
    W: Writer,
    P: FnOnce(&dyn Backend, Tokens) -> Result<Vec<Prepared>, ApiError> + Send + 'static,
{
    app.check_model(job.options.model.as_deref())?;
    if *app.phase.borrow() != Phase::Serving {
        return Err(ApiError::ShuttingDown);
    }
    let Job { options, logprobs, prompt_logprobs, predicted, choices, writer, ignored } = job;
    let (class, tier, delivery) = (options.service.class, options.service.tier, options.delivery);
    let engine = |error| ApiError::Engine { error, prompt: W::PROMPT };
    // Before its prompt costs anything; the engine has the last word when it is submitted.
    app.backend.has_room(class).map_err(engine)?;
    let user = app.config.keys.user(tenant);
    let turn = app.intake.turn(class, arrived.bytes).await;
    let backend = Arc::clone(&app.backend);
    let submit = move || {
        // At least one token must fit behind the prompt.
        let most = Tokens(backend.context().0.saturating_sub(1));
        let prepared = prepare(&*backend, most)?;
        let longest = prepared.iter().map(|prepared| prepared.prompt.len()).max().unwrap_or(0);
        let longest = Tokens(u32::try_from(longest).unwrap_or(u32::MAX));
        let room = answer_max(longest, options.stop.max_tokens, backend.context());
        let predicted = predicted.map(|text| prediction::encode(&*backend, &text, room)).transpose()?;
        drop((turn, arrived));
        let Options { sampling, stop, flow, task, remember, progress, .. } = options;
        let mut submitted = Vec::with_capacity(prepared.len() * choices);
        for Prepared { prompt, constraint, thought, parser, marks } in prepared {
            let length = Tokens(prompt.len() as u32);
            let answer = GenerateRequest {
                prompt,
                sampling: sampling.clone(),
                stop: stop.clone(),
                class,
                logprobs,
                prompt_logprobs,
                flow: flow.clone(),
                tenant,
                predicted: predicted.clone().unwrap_or_default(),
                user: user.clone(),
                task: task.clone().unwrap_or_default(),
                remember,
                drafts: Drafts::ByMethod,
                constraint,
                marks: marks.clone(),
                thought,
                progress,
                output: Output::Answer,
            };
            let events = shared_prompt::submit(&backend, drawn_apart(answer, choices)).map_err(engine)?;
            submitted.extend(events.into_iter().map(|events| {
                let scores = logprobs.map(|_| Scores::new(marks.clone()));
                (events, parser.clone(), scores, length)
            }));
        }
        Ok::<_, ApiError>(submitted)
    };
    let submitted = tokio::task::spawn_blocking(submit).await;
    let submitted = submitted.map_err(|_| ApiError::Internal("the prompt could not be encoded"))??;
    let id = app.ids.next(W::ID_PREFIX);
    let prompt = submitted.iter().step_by(choices).map(|(.., length)| *length).fold(Tokens::ZERO, |all, one| all + one);
    let sayings = submitted.into_iter().map(|(events, parser, scores, length)| {
        let running = Running::new(events, app.phase.subscribe(), W::PROMPT, id.clone(), length);
        Saying::new(Arc::clone(&app), running, parser, scores)
    });
    let sayings = sayings.map(Some).collect();
    let about = About { id, created: unix_seconds(), service_tier: tier, prompt, app };
    Ok((Answer::new(about, writer, choices, sayings), delivery, ignored))
}

/// So many times the same request, each drawn by itself.
fn drawn_apart(request: GenerateRequest, choices: usize) -> Vec<GenerateRequest> {
    let mut requests = vec![request; choices];
    for (choice, request) in requests.iter_mut().enumerate() {
        request.sampling.seed = request.sampling.seed.map(|seed| seed.wrapping_add(choice as u64));
    }
    requests
}

/// OpenAI's `usage`.
pub(crate) fn usage_json(usage: Usage) -> Value {
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
    if usage.forced > Tokens::ZERO {
        json["completion_tokens_details"]["forced_tokens"] = usage.forced.0.into();
    }
    let FateCounts { launched, crew, spilled, dropped } = usage.experts;
    if usage.experts.all() > 0 {
        json["expert_details"] = json!({"device": launched, "cpu": crew, "spilled": spilled, "dropped": dropped});
    }
    let ExpertReads { experts, bytes } = usage.expert_reads;
    if experts > 0 {
        json["expert_details"]["read"] = experts.into();
        json["expert_details"]["read_bytes"] = bytes.0.into();
    }
    json
}

/// The paths as one header value: bounded, and with characters that headers do not allow replaced.
pub(crate) fn ignored_header(paths: &[String]) -> Option<HeaderValue> {
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
pub(crate) const FINGERPRINT: &str = concat!("duet-", env!("CARGO_PKG_VERSION"));
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
