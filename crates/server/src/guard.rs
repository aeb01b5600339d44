//! By which names clients may address the server, so that no web page reaches it through a browser.
//!
//! Any page can make a browser send requests to 127.0.0.1 or to a machine of the browser's network. Two headers give it
//! away, and a page cannot forge either: `Host` names the page's own domain when that was rebound to the server's
//! address, and `Origin` names the page. An address or `localhost` cannot be rebound, so these are let in on every
//! address that the server listens on, and other names if they were allowed ([`Hosts`]). Pages of such names may read the
//! answers (CORS), and so may programs of this machine that are made of pages, which come from no site. Other programs send
//! no `Origin`.

use crate::error::ApiError;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;
use std::sync::Arc;

/// The names that a server answers to. Addresses of machines and `localhost` are among them always.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Hosts {
    /// No other.
    #[default]
    Addresses,
    /// And these, whatever the port.
    Named(Vec<String>),
    /// Any name: something before the server sees to it, such as a proxy.
    Any,
}

/// Middleware: refuses requests that a foreign page makes.
pub(crate) async fn known_hosts(State(hosts): State<Arc<Hosts>>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let host = headers.get(header::HOST).map(HeaderValue::as_bytes);
    let authority = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    for name in [host, authority].into_iter().flatten() {
        if !hosts.allow(name) {
            return refusal(name);
        }
    }
    let Some(origin) = headers.get(header::ORIGIN).cloned() else { return next.run(request).await };
    if !hosts.allow_page(origin.as_bytes()) {
        return refusal(origin.as_bytes());
    }
    let is_preflight =
        request.method() == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = if is_preflight { preflight(headers) } else { next.run(request).await };
    response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    response.headers_mut().append(header::VARY, HeaderValue::from_static("origin"));
    response
}

impl Hosts {
    /// The names that a person gives: hosts, with or without a port, or what pages send as `Origin`; `*` is any.
    #[must_use]
    pub fn named(names: &[String]) -> Self {
        if names.iter().any(|name| name == "*") {
            return Self::Any;
        }
        let bare = |name: &String| String::from_utf8_lossy(allowable(name.as_bytes())).into_owned();
        if names.is_empty() { Self::Addresses } else { Self::Named(names.iter().map(bare).collect()) }
    }

    /// Whether `host`, with or without a port, is a name of the server.
    fn allow(&self, host: &[u8]) -> bool {
        let Some(name) = name_of(host) else { return *self == Self::Any };
        let is_address = name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok();
        is_address || self.has(name)
    }

    /// Whether a page of this origin may ask: one of this machine, or of a name that was allowed.
    fn allow_page(&self, origin: &[u8]) -> bool {
        let Some(name) = site(origin).and_then(name_of) else {
            let origin = std::str::from_utf8(origin).unwrap_or_default();
            return PROGRAMS.iter().any(|scheme| origin.starts_with(scheme)) || self.has(origin);
        };
        let address = name.parse::<IpAddr>();
        // What ends like this is this machine to every browser; some programs name their own pages so.
        let ends_locally = name.to_ascii_lowercase().ends_with(LOCAL);
        let is_local = name.eq_ignore_ascii_case("localhost")
            || ends_locally
            || address.is_ok_and(|address| address.to_canonical().is_loopback());
        is_local || self.has(name)
    }

    fn has(&self, name: &str) -> bool {
        match self {
            Self::Addresses => false,
            Self::Named(names) => names.iter().any(|allowed| allowed.eq_ignore_ascii_case(name)),
            Self::Any => true,
        }
    }
}

/// Programs whose windows are pages of their own: no site can have such an origin.
const PROGRAMS: [&str; 4] = ["app://", "tauri://", "vscode-webview://", "vscode-file://"];

const LOCAL: &str = ".localhost";

/// The host of a site that is named as pages name it.
fn site(origin: &[u8]) -> Option<&[u8]> {
    origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"))
}

/// The name as `--allow-host` takes it: of a site or a host its bare name, of a program what it sends.
fn allowable(named: &[u8]) -> &[u8] {
    let host = site(named).unwrap_or(named);
    match name_of(host) {
        Some(name) if !host.windows(3).any(|bytes| bytes == b"://") => name.trim_end_matches('/').as_bytes(),
        _ => named,
    }
}

/// A browser asks before it sends JSON.
fn preflight(request: &HeaderMap) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, DELETE"));
    if let Some(names) = request.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    response
}

fn refusal(named: &[u8]) -> Response {
    // What `--allow-host` takes.
    let name: String = String::from_utf8_lossy(allowable(named)).chars().take(NAME_CHARS_MAX).collect();
    ApiError::HostUnknown { name }.into_response()
}

/// The name or address of a host: `[::1]:8080` → `::1`, `localhost:8080` → `localhost`.
fn name_of(host: &[u8]) -> Option<&str> {
    let host = std::str::from_utf8(host).ok()?;
    match host.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            (port.is_empty() || port.starts_with(':')).then_some(address)
        }
        None => Some(host.split_once(':').map_or(host, |(name, _)| name)),
    }
}

/// A header may hold kilobytes; the message repeats no more of it than names have.
const NAME_CHARS_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_can_be_rebound_are_refused_unless_they_were_allowed() {
        let named = Hosts::Named(vec!["duet.example".to_owned()]);
        for host in ["localhost", "LOCALHOST:8080", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:8080", "192.168.0.2:1"]
        {
            assert!(Hosts::Addresses.allow(host.as_bytes()), "{host}");
            assert!(named.allow(host.as_bytes()), "{host}");
        }
        for host in ["example.com", "localhost.example.com", "127.0.0.1.example.com", "", "[::1]example.com", "[::1"] {
            assert!(!Hosts::Addresses.allow(host.as_bytes()), "{host}");
            assert!(!named.allow(host.as_bytes()), "{host}");
            assert!(Hosts::Any.allow(host.as_bytes()), "{host}");
        }
        assert!(named.allow(b"DUET.example:8080"));
        assert!(!Hosts::Addresses.allow(b"duet.example"));
    }

    /// A page of another machine has an address that cannot be rebound, and is foreign all the same.
    #[test]
    fn pages_are_of_this_machine_or_of_an_allowed_name() {
        let named = Hosts::Named(vec!["duet.example".to_owned()]);
        for page in ["http://localhost:3000", "https://127.0.0.1", "http://[::1]:80", "http://[::ffff:127.0.0.1]"] {
            assert!(Hosts::Addresses.allow_page(page.as_bytes()), "{page}");
        }
        for page in ["http://192.168.0.2", "https://example.com", "null", "file://", "http://localhost.example.com"] {
            assert!(!Hosts::Addresses.allow_page(page.as_bytes()), "{page}");
            assert!(!named.allow_page(page.as_bytes()), "{page}");
        }
        assert!(named.allow_page(b"https://duet.example"));
    }

    #[test]
    fn windows_of_programs_may_ask_and_others_may_be_allowed() {
        for page in ["app://obsidian.md", "tauri://localhost", "http://tauri.localhost", "vscode-webview://1a2b"] {
            assert!(Hosts::Addresses.allow_page(page.as_bytes()), "{page}");
        }
        let extension = "chrome-extension://abcdef";
        assert!(!Hosts::Addresses.allow_page(extension.as_bytes()));
        assert!(Hosts::named(&[extension.to_owned()]).allow_page(extension.as_bytes()));
    }

    /// A refusal says what to allow, which is what came; so whoever gives that is let in.
    #[test]
    fn what_a_refusal_names_lets_in_who_was_refused() {
        for host in ["host.docker.internal:8080", "duet.example", "DUET.example:1"] {
            let said = String::from_utf8(allowable(host.as_bytes()).to_vec()).unwrap();
            for given in [host.to_owned(), said] {
                assert!(Hosts::named(&[given]).allow(host.as_bytes()), "{host}");
            }
        }
        for page in ["https://chat.example", "https://chat.example:8443", "chrome-extension://abcdef"] {
            let said = String::from_utf8(allowable(page.as_bytes()).to_vec()).unwrap();
            for given in [page.to_owned(), said] {
                assert!(Hosts::named(&[given]).allow_page(page.as_bytes()), "{page}");
            }
        }
        assert!(Hosts::named(&["https://chat.example/".to_owned()]).allow_page(b"https://chat.example"));
        assert_eq!((Hosts::named(&[]), Hosts::named(&["*".to_owned()])), (Hosts::Addresses, Hosts::Any));
    }
}
