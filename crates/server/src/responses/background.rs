//! Work in the background: the store owns it, and whoever wants to may watch.
//!
//! **Invariant:** it goes on whether anybody watches or not, until its response has ended, is cancelled or deleted.

use super::store::Store;
use super::writer::Responses;
use crate::error::ApiError;
use crate::options::Delivery;
use crate::reply::{Answer, Frame, events};
use crate::serve::App;
use axum::Json;
use axum::response::{IntoResponse, Response};
use duet_types::TenantId;
use futures_util::StreamExt;
use futures_util::stream::unfold;
use std::pin::pin;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Lets the work go on by itself. The response: what is known now, or all events.
pub(crate) fn begin(app: &Arc<App>, answer: Answer<Responses>, delivery: Delivery) -> Result<Response, ApiError> {
    let (about, writer) = answer.parts();
    let kept = writer.kept().ok_or(ApiError::Internal("work in the background has nobody"))?;
    let (queued, id, tenant) = (writer.response(about), about.id.clone(), kept.tenant);
    let stopped = app.responses.open(tenant, &id, queued.clone(), Arc::clone(&kept.input));
    let (sender, watched) = mpsc::channel(FRAMES_MAX);
    let working = Working { app: Arc::clone(app), id, tenant };
    let watcher = match delivery {
        Delivery::Streamed { .. } => Some(sender),
        Delivery::Whole => None,
    };
    tokio::spawn(async move {
        tokio::select! {
            biased;
            _ = stopped => {}
            () = work(answer, watcher) => {}
        }
        drop(working);
    });
    Ok(match delivery {
        Delivery::Streamed { .. } => {
            let frames = unfold(watched, |mut watched| async { Some((watched.recv().await?, watched)) });
            events(frames)
        }
        Delivery::Whole => Json(queued).into_response(),
    })
}

/// Works to the end, for as long as this is polled. A watcher that reads slowly delays it; one that goes away does not end it.
async fn work(answer: Answer<Responses>, mut watcher: Option<mpsc::Sender<Frame>>) {
    let mut frames = pin!(answer.streamed());
    while let Some(frame) = frames.next().await {
        if let Some(sender) = &watcher
            && sender.send(frame).await.is_err()
        {
            watcher = None;
        }
    }
}

/// Whoever waits for a response is told if the work on it ends without an end.
struct Working {
    app: Arc<App>,
    id: String,
    tenant: TenantId,
}

impl Drop for Working {
    fn drop(&mut self) {
        let store: &Store = &self.app.responses;
        store.give_up(self.tenant, &self.id, "failed");
    }
}

/// Events that a watcher may be behind.
const FRAMES_MAX: usize = 64;
