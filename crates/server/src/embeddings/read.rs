//! Reading the inputs of one request: a few at the engine at a time, in order.
//!
//! The engine bounds how many requests may wait, so a request of a thousand inputs must not bring them all at once. Those
//! that are there end when this is dropped, which is when the client goes away.

use super::Via;
use super::encoding::{self, Asking, Encoded};
use crate::arrived::Arrived;
use crate::error::ApiError;
use crate::raw_prompt::RawPrompt;
use crate::running::{Running, Step};
use crate::serve::{App, Phase};
use duet_engine::{EngineError, GenerateRequest, Output, Remember};
use duet_model::encoder::{Encoder, TextError};
use duet_types::{Class, TenantId, TokenId, Tokens};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// What is to be read.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) via: Via,
    pub(crate) inputs: Vec<RawPrompt>,
    pub(crate) overlong: Overlong,
    /// Floats of a vector.
    pub(crate) width: usize,
    pub(crate) class: Class,
    /// The field that inputs come in, for errors about them.
    pub(crate) name: &'static str,
}

/// What becomes of inputs that the context has no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overlong {
    Refused,
    /// They are read up to there.
    Cut,
}

impl Overlong {
    /// What `truncate` says.
    pub(crate) fn cut_if(cut: bool) -> Self {
        if cut { Self::Cut } else { Self::Refused }
    }

    pub(crate) fn of_encoders(self) -> duet_model::encoder::Overlong {
        match self {
            Self::Refused => duet_model::encoder::Overlong::Refused,
            Self::Cut => duet_model::encoder::Overlong::Cut,
        }
    }
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Embedded {
    /// One for each input.
    pub(crate) vectors: Vec<Vec<f32>>,
    /// Of all inputs together.
    pub(crate) tokens: u64,
    pub(crate) took: Duration,
}

pub(crate) async fn read(
    app: &Arc<App>,
    tenant: TenantId,
    wanted: Wanted,
    arrived: Arrived,
) -> Result<Embedded, ApiError> {
    let begun = Instant::now();
    if let Via::Encoder(encoder) = &wanted.via {
        let encoder = Arc::clone(encoder);
        return encoded_by(app, tenant, encoder, wanted, arrived, begun).await;
    }
    if *app.phase.borrow() != Phase::Serving {
        return Err(ApiError::ShuttingDown);
    }
    let Wanted { inputs, overlong, width, class, name, via: _ } = wanted;
    app.backend.has_room(class).map_err(|error| ApiError::Engine { error, prompt: name })?;
    let inputs = turn_of(app, class, arrived.bytes, move |app| encoded(app, inputs, overlong, name)).await?;
    let tokens = inputs.iter().map(|input| input.len() as u64).sum();
    let reader = Reader { app, tenant, class, width, name, open: AtomicUsize::new(0), ended: Notify::new() };
    let reading = stream::iter(inputs).map(|input| reader.read(input)).buffered(AT_ONCE);
    let vectors = reading.try_collect().await?;
    // Its share of memory is held as long as its tokens are: until the last one is read.
    drop(arrived);
    Ok(Embedded { vectors, tokens, took: begun.elapsed() })
}

/// The same through the encoder.
async fn encoded_by(
    app: &Arc<App>,
    tenant: TenantId,
    encoder: Arc<Encoder>,
    wanted: Wanted,
    arrived: Arrived,
    begun: Instant,
) -> Result<Embedded, ApiError> {
    let Wanted { inputs, overlong, width, class, name, via: _ } = wanted;
    let many = inputs.len() > 1;
    let text = move |(index, input): (usize, RawPrompt)| {
        let made = match input {
            RawPrompt::Text(text) if text.is_empty() => Err(TextError::Empty),
            RawPrompt::Text(text) => encoder.text(&text, overlong.of_encoders()),
            RawPrompt::Tokens(tokens) => encoder.tokens(tokens, overlong.of_encoders()),
        };
        let param = || if many { format!("{name}[{index}]") } else { name.to_owned() };
        made.map_err(|error| encoding::refused(param(), error))
    };
    let making = inputs.into_iter().enumerate().map(text);
    let Encoded { results, tokens } = encoding::encode(app, Asking { tenant, class, name }, arrived, making).await?;
    let vectors = results.into_iter().map(|values| shortened(values, width)).collect();
    Ok(Embedded { vectors, tokens, took: begun.elapsed() })
}

/// Takes a turn among those that take requests in, and works where no stream has to wait for it.
pub(super) async fn turn_of<T: Send + 'static>(
    app: &Arc<App>,
    class: Class,
    bytes: usize,
    work: impl FnOnce(&App) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let turn = app.intake.turn(class, bytes).await;
    let app = Arc::clone(app);
    let working = tokio::task::spawn_blocking(move || {
        let done = work(&app);
        drop(turn);
        done
    });
    working.await.map_err(|_| ApiError::Internal("the input could not be encoded"))?
}

fn encoded(
    app: &App,
    inputs: Vec<RawPrompt>,
    overlong: Overlong,
    name: &'static str,
) -> Result<Vec<Vec<TokenId>>, ApiError> {
    let backend = &*app.backend;
    // The engine leaves room for a token behind every prompt.
    let most = Tokens(backend.context().0.saturating_sub(1));
    let mut left = TOKENS_MAX.max(most.as_usize());
    let mut all = Vec::with_capacity(inputs.len());
    for input in inputs {
        let tokens = match overlong {
            Overlong::Refused => input.encode(backend, most, name)?,
            Overlong::Cut => input.encode_beginning(backend, most),
        };
        if tokens.is_empty() {
            return Err(ApiError::Engine { error: EngineError::EmptyPrompt, prompt: name });
        }
        left = left.checked_sub(tokens.len()).ok_or_else(|| ApiError::OutOfRange {
            param: name.to_owned(),
            expected: format!("of at most {} tokens in all", TOKENS_MAX.max(most.as_usize())),
            got: "more".to_owned(),
        })?;
        all.push(tokens);
    }
    Ok(all)
}

/// Reads the inputs of one request.
struct Reader<'a> {
    app: &'a Arc<App>,
    tenant: TenantId,
    class: Class,
    width: usize,
    name: &'static str,
    /// How many of them the engine has.
    open: AtomicUsize,
    /// One has ended.
    ended: Notify,
}

impl Reader<'_> {
    async fn read(&self, input: Vec<TokenId>) -> Result<Vec<f32>, ApiError> {
        let mut running = self.submit(input).await?;
        let mut vector = Err(ApiError::Internal("an embedding did not come"));
        loop {
            match running.next().await? {
                Step::Embedding(values) => vector = Ok(values),
                Step::Reading { .. } | Step::Prompt(_) | Step::Piece { .. } => {}
                Step::End { .. } => break,
            }
        }
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.ended.notify_one();
        vector.map(|values| shortened(values, self.width))
    }

    /// Where the engine has no room for it, it waits for another one of its own request, if there is one.
    async fn submit(&self, input: Vec<TokenId>) -> Result<Running, ApiError> {
        let length = Tokens(u32::try_from(input.len()).unwrap_or(u32::MAX));
        let request = GenerateRequest {
            prompt: input,
            class: self.class,
            tenant: self.tenant,
            user: self.app.config.keys.user(self.tenant),
            remember: Remember::Nothing,
            output: Output::Embedding,
            ..GenerateRequest::default()
        };
        loop {
            match self.app.backend.submit(request.clone()) {
                Ok(events) => {
                    self.open.fetch_add(1, Ordering::Relaxed);
                    let id = self.app.ids.next("embd-");
                    return Ok(Running::new(events, self.app.phase.subscribe(), self.name, id, length));
                }
                Err(EngineError::Busy { .. }) if self.open.load(Ordering::Relaxed) > 0 => self.ended.notified().await,
                Err(error) => return Err(ApiError::Engine { error, prompt: self.name }),
            }
        }
    }
}

/// The first floats of a vector, at a length of 1 again.
fn shortened(mut values: Vec<f32>, width: usize) -> Vec<f32> {
    if width < values.len() {
        values.truncate(width);
        let length = values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
        if length > 0.0 {
            values.iter_mut().for_each(|value| *value = (f64::from(*value) / length) as f32);
        }
    }
    values
}

/// Enough that the engine always has one to go on with; each more would stand in a queue.
pub(super) const AT_ONCE: usize = 4;
/// OpenAI's, in all inputs of a request: a megabyte of token ids.
pub(super) const TOKENS_MAX: usize = 300_000;
