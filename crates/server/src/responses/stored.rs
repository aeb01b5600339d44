//! Responses that were stored: fetched, listed, deleted, cancelled.

use super::items::KeptItem;
use crate::auth::Caller;
use crate::error::ApiError;
use crate::options::unsupported;
use crate::serve::App;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// What a request's address says beside its path.
type Asked = Result<Query<HashMap<String, String>>, QueryRejection>;

/// `GET /v1/responses/{id}`
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    asked: Asked,
) -> Result<Response, ApiError> {
    if query(asked)?.get("stream").is_some_and(|stream| stream != "false") {
        return Err(unsupported("stream", "events are sent only to whoever asked for the response; poll it instead"));
    }
    Ok(sent(&app.responses.response(caller.tenant, &id)?))
}

/// `DELETE /v1/responses/{id}`
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    app.responses.remove(caller.tenant, &id)?;
    Ok(Json(json!({"id": id, "object": "response", "deleted": true})))
}

/// `POST /v1/responses/{id}/cancel`
pub(crate) async fn cancel(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    Ok(sent(&app.responses.cancel(caller.tenant, &id)?))
}

/// `GET /v1/responses/{id}/input_items`: of the request itself, the last first unless asked otherwise.
pub(crate) async fn input_items(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    asked: Asked,
) -> Result<Json<Value>, ApiError> {
    let asked = query(asked)?;
    let items = app.responses.input(caller.tenant, &id)?;
    let limit = limit(asked.get("limit"))?;
    let mut items: Vec<&KeptItem> = items.iter().collect();
    match asked.get("order").map(String::as_str) {
        None | Some("desc") => items.reverse(),
        Some("asc") => {}
        Some(other) => return Err(bad("order", "asc or desc", other)),
    }
    if let Some(after) = asked.get("after") {
        let place = items.iter().position(|item| *item.id == **after);
        let place = place.ok_or_else(|| bad("after", "the id of an item of this response", after))?;
        items.drain(..=place);
    }
    let has_more = items.len() > limit;
    items.truncate(limit);
    let (first, last) = (items.first().map(|item| &*item.id), items.last().map(|item| &*item.id));
    let data: Value = items.iter().map(|item| serde_json::from_str::<Value>(&item.json).unwrap_or_default()).collect();
    Ok(Json(json!({"object": "list", "data": data, "first_id": first, "last_id": last, "has_more": has_more})))
}

fn limit(asked: Option<&String>) -> Result<usize, ApiError> {
    let Some(asked) = asked else { return Ok(LIMIT_DEFAULT) };
    let limit = asked.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
    limit.ok_or_else(|| bad("limit", "from 1 to 100", asked))
}

fn query(asked: Asked) -> Result<HashMap<String, String>, ApiError> {
    asked.map(|Query(map)| map).map_err(|_| bad("query", "of the form name=value&…", "something else"))
}

fn bad(param: &str, expected: &str, got: &str) -> ApiError {
    let got = crate::fields::brief(&Value::String(got.to_owned()));
    ApiError::OutOfRange { param: param.to_owned(), expected: expected.to_owned(), got }
}

fn sent(response: &str) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], response.to_owned()).into_response()
}

const LIMIT_DEFAULT: usize = 20;
const LIMIT_MAX: usize = 100;
