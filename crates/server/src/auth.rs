//! Who asks: the key in `Authorization: Bearer KEY` or in `x-api-key: KEY` (Anthropic's clients), where the server has keys.
//!
//! **Invariant:** with keys, nothing behind this is reached without one of them. What is before it (`/health`,
//! `/openapi.json`, and "there is nothing here") tells nothing of anybody.

use crate::body;
use crate::error::ApiError;
use crate::serve::App;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use duet_types::TenantId;
use std::sync::Arc;

/// Who sent a request. Every handler behind [`identify`] finds it among the request's extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) tenant: TenantId,
    pub(crate) sight: Sight,
}

/// Whose flows a caller may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    Everything,
    OwnTenant,
    Nothing,
}

/// Middleware: finds out who asks, and refuses strangers.
pub(crate) async fn identify(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    match caller(&app, request.headers()) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(error) => {
            let (head, unread) = request.into_parts();
            body::discard_unread(&app, &head.headers, unread);
            error.into_response()
        }
    }
}

fn caller(app: &App, headers: &HeaderMap) -> Result<Caller, ApiError> {
    let keys = &app.config.keys;
    if keys.is_empty() {
        // Nobody can be told apart. On loopback it is one person's machine; elsewhere anyone may have come.
        let sight = if app.config.loopback_only { Sight::Everything } else { Sight::Nothing };
        return Ok(Caller { tenant: TenantId::default(), sight });
    }
    // Some clients send both, and mean one.
    let sent: Vec<&[u8]> = bearer(headers).into_iter().chain(headers.get(API_KEY).map(HeaderValue::as_bytes)).collect();
    if sent.is_empty() {
        return Err(ApiError::KeyMissing);
    }
    sent.into_iter().find_map(|key| keys.holder(key)).ok_or(ApiError::KeyUnknown)
}

/// `Bearer KEY` → `KEY`. The scheme's case does not matter.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, key) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| key.trim_ascii())
}

const API_KEY: &str = "x-api-key";
