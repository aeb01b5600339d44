//! Texts through the encoder: some at a time in a request to the engine, and a few of these requests at once.
//!
//! A request's texts are read in one pass, between whose kernels a person's answer goes. So they are as many as fill the
//! products of matrices well, and no more.

use super::read::{AT_ONCE, TOKENS_MAX, turn_of};
use crate::arrived::Arrived;
use crate::error::ApiError;
use crate::running::{Running, Step};
use crate::serve::{App, Phase};
use duet_engine::{EncodeRequest, EngineError};
use duet_model::encoder::{Text, TextError};
use duet_types::{Class, TenantId, Tokens};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

/// What texts came to, in their order, and their tokens together.
pub(crate) struct Encoded {
    pub(crate) results: Vec<Vec<f32>>,
    pub(crate) tokens: u64,
}

/// Who asks, and in which field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asking {
    pub(crate) tenant: TenantId,
    pub(crate) class: Class,
    /// The field that texts come in, for errors about them.
    pub(crate) name: &'static str,
}

/// Has texts made one after the other, where no stream has to wait for it, and encodes them. None is made once they are too
/// long together, or the client is gone.
pub(crate) async fn encode(
    app: &Arc<App>,
    asking: Asking,
    arrived: Arrived,
    making: impl Iterator<Item = Result<Text, ApiError>> + Send + 'static,
) -> Result<Encoded, ApiError> {
    if *app.phase.borrow() != Phase::Serving {
        return Err(ApiError::ShuttingDown);
    }
    let Asking { class, name, .. } = asking;
    app.backend.has_room(class).map_err(|error| ApiError::Engine { error, prompt: name })?;
    // Dropped with this future, when the client is gone.
    let awaited = Arc::new(());
    let awaiting = Arc::downgrade(&awaited);
    let is_awaited = move || awaiting.strong_count() > 0;
    let (texts, tokens) = turn_of(app, class, arrived.bytes, move |_| made(making, name, is_awaited)).await?;
    drop(awaited);
    let encoder = Sender { app, asking, open: AtomicUsize::new(0), ended: Notify::new() };
    let texts_max = app.backend.encoder().and_then(|encoder| encoder.texts_max()).unwrap_or(usize::MAX);
    let sending = stream::iter(batches(texts, texts_max)).map(|texts| encoder.encode(texts)).buffered(AT_ONCE);
    let results: Vec<Vec<Vec<f32>>> = sending.try_collect().await?;
    // Its share of memory is held as long as its tokens are: until the last one is read.
    drop(arrived);
    Ok(Encoded { results: results.into_iter().flatten().collect(), tokens })
}

/// The texts, and their tokens together.
fn made(
    making: impl Iterator<Item = Result<Text, ApiError>>,
    name: &str,
    is_awaited: impl Fn() -> bool,
) -> Result<(Vec<Text>, u64), ApiError> {
    let (mut texts, mut tokens) = (Vec::new(), 0);
    for text in making {
        let text = text?;
        tokens += u64::from(text.len().0);
        if tokens > TOKENS_MAX as u64 {
            let expected = format!("of at most {TOKENS_MAX} tokens in all");
            return Err(ApiError::OutOfRange { param: name.to_owned(), expected, got: "more".to_owned() });
        }
        if !is_awaited() {
            return Err(ApiError::Internal("nobody waits for these texts"));
        }
        texts.push(text);
    }
    Ok((texts, tokens))
}

/// What is wrong with the text in a field.
pub(crate) fn refused(param: String, error: TextError) -> ApiError {
    match error {
        TextError::TooLong(error) => ApiError::TextTooLong { param, most: error.most },
        TextError::Empty => ApiError::OutOfRange { param, expected: "not empty".to_owned(), got: "nothing".to_owned() },
        TextError::Token(token) => {
            ApiError::OutOfRange { param, expected: "tokens of the model".to_owned(), got: token.to_string() }
        }
    }
}

/// In their order, as many together as have so many rows, and no more than `texts_max`.
fn batches(texts: Vec<Text>, texts_max: usize) -> Vec<Vec<Text>> {
    let mut batches: Vec<Vec<Text>> = Vec::new();
    let mut room = Tokens::ZERO;
    for text in texts {
        match batches.last_mut().filter(|batch| text.len() <= room && batch.len() < texts_max) {
            Some(batch) => {
                room -= text.len();
                batch.push(text);
            }
            None => {
                room = BATCH_ROWS.saturating_sub(text.len());
                batches.push(vec![text]);
            }
        }
    }
    batches
}

struct Sender<'a> {
    app: &'a Arc<App>,
    asking: Asking,
    /// How many requests the engine has.
    open: AtomicUsize,
    /// One has ended.
    ended: Notify,
}

impl Sender<'_> {
    async fn encode(&self, texts: Vec<Text>) -> Result<Vec<Vec<f32>>, ApiError> {
        let count = texts.len();
        let mut running = self.submit(texts.into()).await?;
        let mut results = Vec::with_capacity(count);
        loop {
            match running.next().await? {
                Step::Embedding(values) => results.push(values),
                Step::Reading { .. } | Step::Prompt(_) | Step::Piece { .. } => {}
                Step::End { .. } => break,
            }
        }
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.ended.notify_one();
        if results.len() == count { Ok(results) } else { Err(ApiError::Internal("a text came to nothing")) }
    }

    /// Where the engine has no room for it, it waits for another one of its own request, if there is one.
    async fn submit(&self, texts: Arc<[Text]>) -> Result<Running, ApiError> {
        let Asking { tenant, class, name } = self.asking;
        let request = EncodeRequest { texts, class, tenant };
        loop {
            match self.app.backend.encode(request.clone()) {
                Ok(events) => {
                    self.open.fetch_add(1, Ordering::Relaxed);
                    let id = self.app.ids.next("enc-");
                    return Ok(Running::new(events, self.app.phase.subscribe(), name, id, request.rows()));
                }
                Err(EngineError::Busy { .. }) if self.open.load(Ordering::Relaxed) > 0 => self.ended.notified().await,
                Err(error) => return Err(ApiError::Engine { error, prompt: name }),
            }
        }
    }
}

/// Enough that products are as fast as they get.
const BATCH_ROWS: Tokens = Tokens(512);

#[cfg(test)]
mod tests {
    use super::*;
    use duet_types::TokenId;

    #[test]
    fn texts_stay_in_order_and_a_long_one_is_alone() {
        let text = |len: usize| Text::of_tokens(vec![TokenId(1); len], len);
        let lengths = [100, 400, 12, 1, 512, 5, 600, 7];
        let found = |texts_max| -> Vec<Vec<u32>> {
            let batches = batches(lengths.map(text).to_vec(), texts_max);
            batches.iter().map(|batch| batch.iter().map(|text| text.len().0).collect()).collect()
        };
        assert_eq!(found(usize::MAX), [vec![100, 400, 12], vec![1], vec![512], vec![5], vec![600], vec![7]]);
        assert_eq!(found(2), [vec![100, 400], vec![12, 1], vec![512], vec![5], vec![600], vec![7]]);
    }
}
