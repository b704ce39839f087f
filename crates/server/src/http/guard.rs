//! Who is let in: no web pages of other people, and, once there are tokens, nobody without one.
//!
//! The API listens on loopback, and so does every browser of this machine. A page from elsewhere may make one send
//! requests here; the browser then says in `Origin` where that page came from. Only a page that this server itself
//! sent may ask; and as a name can be made to point here after the page was loaded (DNS rebinding), such a page
//! must have been loaded by address, or as localhost. Programs send no `Origin`, and pass.

use super::App;
use super::answer::Failure;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use stonefold_types::{Error, Kind};

/// Lets in whoever has a token whose role allows what is asked, or anybody while there is none.
pub(super) async fn known(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    // Whatever is not of this form is not a token of ours.
    let secret = header.map(|value| match value.split_once(' ') {
        Some((scheme, secret)) if scheme.eq_ignore_ascii_case("bearer") => secret.trim(),
        _ => "",
    });
    match app.access.check(request.method(), request.uri().path(), secret) {
        Ok(()) => next.run(request).await,
        Err(error) => Failure(error).into_response(),
    }
}

pub(super) async fn same_origin(request: Request, next: Next) -> Response {
    match stranger(request.headers()) {
        Some(error) => Failure(error).into_response(),
        None => next.run(request).await,
    }
}

fn stranger(headers: &HeaderMap) -> Option<Error> {
    let header = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or(""));
    let (origin, host) = (header(ORIGIN)?, header(HOST).unwrap_or(""));
    let what = || format!("a page from '{}' may not use this API", origin.escape_debug());
    (!is_own(origin, host)).then(|| Error::new(Kind::ReadOnly, what()))
}

fn is_own(origin: &str, host: &str) -> bool {
    let by_address = host.parse::<SocketAddr>().is_ok()
        || host.parse::<IpAddr>().is_ok()
        || host.split(':').next() == Some("localhost");
    by_address && origin.strip_prefix("http://").or(origin.strip_prefix("https://")) == Some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_this_server_loaded_by_address_may_ask() {
        assert!(is_own("http://127.0.0.1:7770", "127.0.0.1:7770"));
        assert!(is_own("http://localhost:7770", "localhost:7770"));
        assert!(is_own("http://[::1]:7770", "[::1]:7770"));
        assert!(is_own("https://10.0.0.5:7770", "10.0.0.5:7770"));
        for (origin, host) in [
            ("https://evil.example", "127.0.0.1:7770"),
            ("http://evil.example:7770", "evil.example:7770"),
            ("http://127.0.0.1:8080", "127.0.0.1:7770"),
            ("null", "127.0.0.1:7770"),
        ] {
            assert!(!is_own(origin, host), "{origin} at {host}");
        }
    }
}
