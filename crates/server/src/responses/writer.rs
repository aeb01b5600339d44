//! Writes responses, whole and as events, and keeps them when they have ended.

use super::echo::Echo;
use super::items::KeptItem;
use super::output::{ItemStatus, Output};
use super::store::{self, Finished, Items};
use crate::error::ApiError;
use crate::intake::Hold;
use crate::logprobs::{self, ScoredToken};
use crate::reply::{About, Choice, Ended, Frame, Said, Whole, Writer};
use duet_engine::Usage;
use duet_types::{TenantId, Tokens};
use serde_json::{Value, json};

/// Writes one response.
pub(crate) struct Responses {
    echo: Echo,
    keeping: Keeping,
    output: Output,
    status: Status,
    /// Room for the request, while it is answered.
    hold: Option<Hold>,
}

/// What becomes of the response.
#[derive(Debug)]
pub(crate) enum Keeping {
    Nothing,
    /// It is kept when it has ended.
    Kept(Kept),
    /// It is in the store from the beginning.
    Background(Kept),
}

/// What is kept with it.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) tenant: TenantId,
    pub(crate) before: Vec<Items>,
    pub(crate) input: Items,
}

/// How a response stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Queued,
    InProgress,
    Completed,
    Incomplete,
    Failed,
}

impl Responses {
    pub(crate) fn new(echo: Echo) -> Self {
        Self { echo, keeping: Keeping::Nothing, output: Output::default(), status: Status::InProgress, hold: None }
    }

    /// Says what is to become of the response.
    pub(crate) fn keep(&mut self, keeping: Keeping, hold: Hold) {
        self.hold = Some(hold);
        if let Keeping::Background(_) = keeping {
            self.status = Status::Queued;
        }
        self.keeping = keeping;
    }

    /// What is kept of it, and in whose name.
    pub(crate) fn kept(&self) -> Option<&Kept> {
        match &self.keeping {
            Keeping::Nothing => None,
            Keeping::Kept(kept) | Keeping::Background(kept) => Some(kept),
        }
    }

    /// The response as it stands.
    pub(crate) fn response(&self, about: &About) -> Value {
        let reason = (self.status == Status::Incomplete).then(|| json!({"reason": "max_output_tokens"}));
        let mut response = json!({
            "id": about.id,
            "object": "response",
            "created_at": about.created,
            "completed_at": null,
            "status": self.status.name(),
            "error": null,
            "incomplete_details": reason,
            "model": about.app.backend.model_name(),
            "output": self.output.items(),
            "service_tier": about.service_tier,
            "usage": null,
        });
        if let Value::Object(map) = &mut response {
            map.extend(self.echo.fields());
        }
        response
    }

    fn event(&mut self, about: &About, name: &'static str) -> Frame {
        let response = self.response(about);
        self.output.event(name, json!({"response": response}))
    }

    /// What is said when work begins that was queued.
    fn begins(&mut self, about: &About) -> Vec<Frame> {
        if self.status != Status::Queued {
            return Vec::new();
        }
        self.status = Status::InProgress;
        if let Some(kept) = self.kept() {
            about.app.responses.update(kept.tenant, &about.id, &self.response(about));
        }
        vec![self.event(about, "response.in_progress")]
    }

    /// The response at its end; kept, if it is to be.
    fn concluded(&mut self, about: &About, usage: Option<Usage>, error: Option<&ApiError>) -> Value {
        let mut response = self.response(about);
        response["usage"] = usage.map(|usage| self.usage(about, usage)).into();
        response["completed_at"] = (self.status == Status::Completed).then(crate::ids::unix_seconds).into();
        if let Some(error) = error {
            response["error"] = json!({"code": code(error), "message": error.to_string()});
        }
        let state = if error.is_none() { store::Ended::Answered } else { store::Ended::Failed };
        let output: Items = self.output.items().iter().map(KeptItem::of).collect();
        let finished = |kept: Kept, response: &Value| {
            let Kept { mut before, input, .. } = kept;
            before.extend([std::sync::Arc::clone(&input), output]);
            Finished { response: response.clone(), input, conversation: before, state }
        };
        let store = &about.app.responses;
        match std::mem::replace(&mut self.keeping, Keeping::Nothing) {
            Keeping::Nothing => {}
            Keeping::Kept(kept) => store.keep(kept.tenant, &about.id, finished(kept, &response)),
            Keeping::Background(kept) => store.finish(kept.tenant, &about.id, finished(kept, &response)),
        }
        self.hold = None;
        response
    }

    /// Usage in OpenAI's newer names. Reasoning is counted as its text would be encoded, which may differ by a few tokens
    /// from what was generated.
    fn usage(&self, about: &About, usage: Usage) -> Value {
        let reasoning = match self.output.reasoning.as_str() {
            "" => Tokens::ZERO,
            text => match about.app.backend.encode_answer(text, usage.generated) {
                Ok(tokens) => Tokens(u32::try_from(tokens.len()).unwrap_or(u32::MAX)),
                Err(_) => usage.generated,
            },
        };
        json!({
            "input_tokens": usage.prompt.0,
            "input_tokens_details": {"cached_tokens": usage.cached.0, "cache_write_tokens": 0},
            "output_tokens": usage.generated.0,
            "output_tokens_details": {"reasoning_tokens": reasoning.0},
            "total_tokens": u64::from(usage.prompt.0) + u64::from(usage.generated.0),
        })
    }

    fn end(&mut self, about: &About, ended: Ended) -> Vec<Frame> {
        let (status, item) = match ended {
            Ended::Stop | Ended::Calls => (Status::Completed, ItemStatus::Completed),
            Ended::Length => (Status::Incomplete, ItemStatus::Incomplete),
        };
        self.status = status;
        self.output.end(&about.app.ids, item)
    }
}

impl Writer for Responses {
    const ID_PREFIX: &'static str = "resp_";
    const PROMPT: &'static str = "input";

    fn whole(&mut self, about: &About, choices: Vec<Choice>, usage: Usage) -> Value {
        for choice in choices {
            let ids = &about.app.ids;
            if !choice.reasoning.is_empty() {
                self.output.add(ids, Said::Reasoning(choice.reasoning), Vec::new());
            }
            if !choice.text.is_empty() {
                self.output.add(ids, Said::Text(choice.text), probabilities(about, choice.scored.as_deref()));
            }
            for call in choice.calls {
                let ended = Said::CallEnded { index: call.index, whole: Whole::Yes };
                self.output.add(ids, Said::CallBegun(call), Vec::new());
                self.output.add(ids, ended, Vec::new());
            }
            self.end(about, choice.ended.unwrap_or(Ended::Stop));
        }
        self.concluded(about, Some(usage), None)
    }

    fn opening(&mut self, about: &About, _: usize) -> Vec<Frame> {
        let next = match self.status {
            Status::Queued => "response.queued",
            _ => "response.in_progress",
        };
        vec![self.event(about, "response.created"), self.event(about, next)]
    }

    fn piece(&mut self, about: &About, _: usize, said: Said, scored: Option<&[ScoredToken]>) -> Vec<Frame> {
        let mut frames = self.begins(about);
        frames.extend(self.output.add(&about.app.ids, said, probabilities(about, scored)));
        frames
    }

    fn ended(&mut self, about: &About, _: usize, ended: Ended, _: Usage) -> Vec<Frame> {
        let mut frames = self.begins(about);
        frames.extend(self.end(about, ended));
        frames
    }

    fn last(&mut self, about: &About, usage: Usage) -> Vec<Frame> {
        let name = match self.status {
            Status::Incomplete => "response.incomplete",
            _ => "response.completed",
        };
        let response = self.concluded(about, Some(usage), None);
        vec![self.output.event(name, json!({"response": response}))]
    }

    fn failed(&mut self, about: &About, error: &ApiError) -> Vec<Frame> {
        let mut frames = self.begins(about);
        let body = error.body();
        let told = json!({
            "code": code(error),
            "message": body["error"]["message"],
            "param": body["error"]["param"],
        });
        frames.push(self.output.event("error", told));
        self.status = Status::Failed;
        let response = self.concluded(about, None, Some(error));
        frames.push(self.output.event("response.failed", json!({"response": response})));
        frames
    }
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Incomplete => "incomplete",
            Self::Failed => "failed",
        }
    }
}

fn probabilities(about: &About, scored: Option<&[ScoredToken]>) -> Vec<Value> {
    let mut listed = scored.map(|tokens| logprobs::chat(&*about.app.backend, tokens)).unwrap_or_default();
    match listed.get_mut("content").map(Value::take) {
        Some(Value::Array(tokens)) => tokens,
        _ => Vec::new(),
    }
}

/// OpenAI's word for it, of the two that fit.
fn code(error: &ApiError) -> &'static str {
    match error.body()["error"]["type"].as_str() {
        Some("rate_limit_error") => "rate_limit_exceeded",
        _ => "server_error",
    }
}
