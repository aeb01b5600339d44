//! `POST /v1/responses`: conversations of items, which the server may keep.
//!
//! A request's items (`items`) and those of the response that it goes on from become the messages of a chat
//! (`conversation`); the answer becomes items again (`output`), which a `writer` sends and puts into the `store`. Work in the
//! `background` is owned by the store, all other by the response it feeds.

mod background;
mod call;
mod conversation;
mod echo;
mod items;
mod output;
pub(crate) mod request;
mod store;
mod stored;
mod writer;

pub(crate) use store::Store;

use crate::arrived::taken_apart;
use crate::auth::Caller;
use crate::backend::Backend;
use crate::body;
use crate::error::ApiError;
use crate::reply::{self, ignored_header};
use crate::serve::{App, no_route};
use crate::volatile;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{any, get, post};
use axum::{Extension, Router};
use conversation::Conversation;
use duet_types::TenantId;
use items::{Item, What};
use request::{Stays, Taken};
use std::collections::HashSet;
use std::sync::Arc;
use store::Items;
use writer::{Keeping, Kept, Responses};

pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/v1/responses", post(create))
        // No response's name: clients that find nothing here compact by themselves.
        .route("/v1/responses/compact", any(no_route))
        .route("/v1/responses/{id}", get(stored::get).delete(stored::delete))
        .route("/v1/responses/{id}/cancel", post(stored::cancel))
        .route("/v1/responses/{id}/input_items", get(stored::input_items))
}

async fn create(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let received = body::read(&app, request).await?;
    let (taken, arrived) = taken_apart(&app, received, request::KNOWN, request::take).await?;
    let Taken { mut job, mut items, previous, stays, instructions, asked } = taken;
    let tenant = caller.tenant;
    let before = previous.map_or(Ok(Vec::new()), |id| app.responses.conversation(tenant, &id))?;
    dereference(&app, tenant, &mut items)?;
    let kept = || {
        let known = items.iter().map(|item| item.kept.clone()).collect();
        Kept { tenant, before: before.clone(), input: known }
    };
    let keeping = match stays {
        Stays::Nowhere => Keeping::Nothing,
        Stays::Stored => Keeping::Kept(kept()),
        Stays::Background => Keeping::Background(kept()),
    };
    job.writer.keep(keeping, app.responses.hold(arrived.bytes)?);
    let prefix = app.config.prefix;
    let prepare = move |backend: &dyn Backend, most| {
        let mut asked = asked;
        asked.messages = joined(instructions, &before, items)?.into_messages();
        volatile::settle(&mut asked.messages, prefix);
        let prompt = <Responses as crate::reply::Writer>::PROMPT;
        Ok(vec![asked.prepare(backend, most, prompt).map_err(named)?])
    };
    if stays != Stays::Background {
        return reply::reply(app, tenant, job, arrived, prepare).await;
    }
    let (answer, delivery, ignored) = reply::begin(Arc::clone(&app), tenant, job, arrived, prepare).await?;
    let mut response = background::begin(&app, answer, delivery)?;
    if let Some(value) = ignored_header(&ignored) {
        response.headers_mut().insert("x-duet-ignored-fields", value);
    }
    Ok(response)
}

/// Puts what references mean in their place.
fn dereference(app: &App, tenant: TenantId, items: &mut [Item]) -> Result<(), ApiError> {
    let is_reference = |item: &&mut Item| matches!(item.what, What::Reference);
    let wanted: HashSet<String> = items.iter_mut().filter(is_reference).map(|item| item.kept.id.to_string()).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let found = app.responses.items(tenant, &wanted.iter().map(String::as_str).collect());
    for item in items.iter_mut().filter(is_reference) {
        let Some(meant) = found.get(&item.kept.id) else {
            let id = item.kept.id.chars().take(64).collect();
            return Err(ApiError::ItemNotFound { id, param: format!("{}.id", item.path) });
        };
        item.kept = meant.clone();
        item.what = meant.what(&item.path)?;
    }
    Ok(())
}

/// All that was said, as messages.
fn joined(instructions: Option<String>, before: &[Items], items: Vec<Item>) -> Result<Conversation, ApiError> {
    let mut conversation = Conversation::with_instructions(instructions);
    for item in before.iter().flat_map(|items| items.iter()) {
        conversation.add("previous_response_id", item.what("previous_response_id")?)?;
    }
    for Item { path, what, .. } in items {
        conversation.add(&path, what)?;
    }
    Ok(conversation)
}

/// The error with the names that fields have here.
fn named(error: ApiError) -> ApiError {
    match error {
        ApiError::Prompt(error) => ApiError::PromptOf { param: "input", error },
        error => error,
    }
}
