//! Who may talk to a server that is bound to loopback.
//!
//! Any web page can make the user's browser send requests to 127.0.0.1. Two headers give it away, and a page cannot
//! forge either: `Host` names the page's own domain when that was rebound to 127.0.0.1, and `Origin` names the page.
//! Local pages (`http://localhost:3000`) are let in and may read the answers (CORS). Programs other than browsers send
//! no `Origin` and are not affected.

use crate::error::ApiError;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;

/// Middleware: refuses requests that a foreign page makes.
pub(crate) async fn local_only(request: Request, next: Next) -> Response {
    let headers = request.headers();
    let host = headers.get(header::HOST).map(HeaderValue::as_bytes);
    let authority = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    for name in [host, authority].into_iter().flatten() {
        if !is_local(name) {
            return refusal(name);
        }
    }
    let Some(origin) = headers.get(header::ORIGIN).cloned() else { return next.run(request).await };
    if !origin_host(origin.as_bytes()).is_some_and(is_local) {
        return refusal(origin.as_bytes());
    }
    let is_preflight =
        request.method() == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = if is_preflight { preflight(headers) } else { next.run(request).await };
    response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    response.headers_mut().append(header::VARY, HeaderValue::from_static("origin"));
    response
}

/// A browser asks before it sends JSON.
fn preflight(request: &HeaderMap) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
    if let Some(names) = request.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    response
}

fn refusal(name: &[u8]) -> Response {
    ApiError::NotLocal { name: String::from_utf8_lossy(name).into_owned() }.into_response()
}

/// `http://localhost:3000` → `localhost:3000`.
fn origin_host(origin: &[u8]) -> Option<&[u8]> {
    origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"))
}

/// Whether `name`, a host with or without a port, can only be this machine.
fn is_local(name: &[u8]) -> bool {
    let Ok(name) = std::str::from_utf8(name) else { return false };
    let host = match name.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) if port.is_empty() || port.starts_with(':') => address,
        Some(_) => return false,
        None => name.split_once(':').map_or(name, |(host, _)| host),
    };
    host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_cannot_be_rebound_are_local() {
        for local in ["localhost", "LOCALHOST:8080", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:8080"] {
            assert!(is_local(local.as_bytes()), "{local}");
        }
        for foreign in ["example.com", "localhost.example.com", "127.0.0.1.example.com", "192.168.0.2", "[::2]", ""] {
            assert!(!is_local(foreign.as_bytes()), "{foreign}");
        }
        assert!(!is_local(b"[::1]example.com"));
        assert!(!is_local(b"[::1"));
    }
}
