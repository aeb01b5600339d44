//! Sending an answer: whole, as events, or as lines. Several choices come as they come.

use super::said::{Came, Saying};
use super::writer::{About, Choice, Frame, Framing, Writer};
use crate::error::ApiError;
use crate::options::Delivery;
use axum::Json;
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use duet_engine::Usage;
use duet_types::Tokens;
use futures_util::StreamExt;
use futures_util::future::select_all;
use futures_util::stream::{Stream, unfold};
use std::collections::VecDeque;
use std::convert::Infallible;

/// The choices of an answer and how to write them. It owns the work: dropping it cancels.
pub(crate) struct Answer<W> {
    about: About,
    writer: W,
    /// Answers to each prompt.
    choices: usize,
    /// Those that have ended are absent.
    sayings: Vec<Option<Saying>>,
    /// Of those that have ended.
    usage: Option<Usage>,
}

impl<W: Writer> Answer<W> {
    pub(super) fn new(about: About, writer: W, choices: usize, sayings: Vec<Option<Saying>>) -> Self {
        Self { about, writer, choices, sayings, usage: None }
    }

    /// What it says of itself, and how it is written.
    pub(crate) fn parts(&self) -> (&About, &W) {
        (&self.about, &self.writer)
    }

    pub(super) async fn send(self, delivery: Delivery) -> Result<Response, ApiError> {
        match (delivery, W::FRAMING) {
            (Delivery::Whole, _) => self.whole().await,
            (Delivery::Streamed { .. }, Framing::Events) => Ok(events(self.streamed())),
            (Delivery::Streamed { .. }, Framing::Lines) => {
                let lines = self.streamed().map(|frame| Ok::<_, Infallible>(frame.data + "\n"));
                let mut response = Body::from_stream(lines).into_response();
                response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
                Ok(response)
            }
        }
    }

    async fn whole(mut self) -> Result<Response, ApiError> {
        let mut choices: Vec<Choice> = self.sayings.iter().map(|_| Choice::default()).collect();
        while let Some((index, came)) = self.next().await {
            let Came { prompt, said, scored, end, reading: _ } = came?;
            let choice = &mut choices[index];
            choice.prompt.extend(prompt);
            said.into_iter().for_each(|said| choice.add(said));
            if let Some(scored) = scored {
                choice.scored.get_or_insert_default().extend(scored);
            }
            choice.ended = end.map(|(ended, _)| ended);
        }
        let usage = self.usage();
        Ok(Json(self.writer.whole(&self.about, choices, usage)).into_response())
    }

    /// Frames. After an error comes the writer's last word on it, and nothing else.
    pub(crate) fn streamed(mut self) -> impl Stream<Item = Frame> + Send {
        let Self { about, writer, sayings, .. } = &mut self;
        let opening: VecDeque<Frame> = (0..sayings.len()).flat_map(|index| writer.opening(about, index)).collect();
        unfold((Some(self), opening), |(mut answer, mut ready)| async move {
            loop {
                if let Some(frame) = ready.pop_front() {
                    return Some((frame, (answer, ready)));
                }
                let mut going = answer.take()?;
                match going.next().await {
                    Some((index, Ok(came))) => {
                        ready.extend(going.frames(index, came));
                        answer = Some(going);
                    }
                    Some((_, Err(error))) => ready.extend(going.writer.failed(&going.about, &error)),
                    None => {
                        let usage = going.usage();
                        ready.extend(going.writer.last(&going.about, usage));
                    }
                }
            }
        })
    }

    fn frames(&mut self, index: usize, came: Came) -> Vec<Frame> {
        let Self { about, writer, .. } = self;
        let Came { reading, prompt, said, mut scored, end } = came;
        let mut frames = Vec::new();
        frames.extend(reading.into_iter().flat_map(|reading| writer.reading(about, index, reading)));
        if !prompt.is_empty() {
            frames.extend(writer.prompt(about, index, &prompt));
        }
        if said.is_empty() && scored.as_ref().is_some_and(|scored| !scored.is_empty()) {
            let none = super::Said::Text(String::new());
            frames.extend(writer.piece(about, index, none, scored.take().as_deref()));
        }
        for said in said {
            // Tokens go with the first piece that they brought.
            let tokens = scored.as_mut().map(std::mem::take);
            frames.extend(writer.piece(about, index, said, tokens.as_deref()));
        }
        if let Some((ended, usage)) = end {
            frames.extend(writer.ended(about, index, ended, usage));
        }
        frames
    }

    /// Of all choices.
    fn usage(&self) -> Usage {
        Usage { prompt: self.about.prompt, ..self.usage.unwrap_or_default() }
    }

    /// What comes next, of whichever choice; nothing when all have ended.
    async fn next(&mut self) -> Option<(usize, Result<Came, ApiError>)> {
        let sayings = self.sayings.iter_mut().enumerate();
        let open = sayings.filter_map(|(index, saying)| Some((index, saying.as_mut()?)));
        let waiting: Vec<_> =
            open.map(|(index, saying)| Box::pin(async move { (index, saying.next().await) })).collect();
        if waiting.is_empty() {
            return None;
        }
        let ((index, came), _, others) = select_all(waiting).await;
        drop(others);
        match &came {
            Ok(Came { end: None, .. }) => {}
            Ok(Came { end: Some((_, usage)), .. }) => {
                self.sayings[index] = None;
                // A prompt is counted once, and so is what was there of it: the first answer tells that.
                let cached = if index.is_multiple_of(self.choices) { usage.cached } else { Tokens::ZERO };
                self.usage = Some(together(self.usage, Usage { cached, ..*usage }));
            }
            Err(_) => self.sayings.clear(),
        }
        Some((index, came))
    }
}

/// Frames as server-sent events.
pub(crate) fn events(frames: impl Stream<Item = Frame> + Send + 'static) -> Response {
    let events = frames.map(|frame| {
        let event = Event::default();
        let event = frame.event.map_or(event.clone(), |name| event.event(name));
        Ok::<_, Infallible>(event.data(frame.data))
    });
    Sse::new(events).keep_alive(KeepAlive::new()).into_response()
}

/// Usage of several choices. (OpenAI counts a prompt once for all its choices; where there are several prompts, [`About`]
/// has their tokens.)
fn together(before: Option<Usage>, one: Usage) -> Usage {
    let Some(mut all) = before else { return one };
    all.cached += one.cached;
    all.generated += one.generated;
    all.forced += one.forced;
    all.drafts.accepted += one.drafts.accepted;
    all.drafts.rejected += one.drafts.rejected;
    all.experts += one.experts;
    all.expert_reads += one.expert_reads;
    all
}
