//! Who is let in: no web pages of other people, and, once there are tokens, nobody without one.
//!
//! The API listens on loopback, and so does every browser of this machine. A page from elsewhere may make one send
//! requests here; the browser then says in `Origin` where that page came from. Only a page that this server itself
//! sent may ask; and as a name can be made to point here after the page was loaded (DNS rebinding), such a page
//! must have been loaded by address, or as localhost. Programs send no `Origin`, and pass.

use super::answer::Failure;
use super::{App, Life};
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use stonefold_types::{Error, Kind};

/// How much of the body of a request that is refused is read, and for how long, so that its sender hears why.
const UNREAD_MAX: usize = 64 << 10;
const UNREAD_WAIT: Duration = Duration::from_secs(1);

/// Lets in whoever has a token whose role allows what is asked, or anybody while there is none.
pub(super) async fn known(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    match app.access.check(request.method(), request.uri().path(), secret(request.headers())) {
        Ok(()) => next.run(request).await,
        Err(error) => refuse(request, error).await,
    }
}

/// What a request shows of a token.
pub(super) fn secret(headers: &HeaderMap) -> Option<&str> {
    let header = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    // Whatever is not of this form is not a token of ours.
    header.map(|value| match value.split_once(' ') {
        Some((scheme, secret)) if scheme.eq_ignore_ascii_case("bearer") => secret.trim(),
        _ => "",
    })
}

pub(super) async fn same_origin(request: Request, next: Next) -> Response {
    match stranger(request.headers()) {
        Some(error) => refuse(request, error).await,
        None => next.run(request).await,
    }
}

/// Answers with an error once the body is read. A connection that is closed with bytes unread is reset, and whoever is still sending
/// then may lose the answer that lies ready for him.
pub(super) async fn refuse(request: Request, error: Error) -> Response {
    let (parts, body) = request.into_parts();
    let life =
        parts.extensions.get::<Life>().expect("every request has one, from the router's outermost layer");
    tokio::select! {
        // Whether it could be read does not matter: it is not looked at.
        _ = axum::body::to_bytes(body, UNREAD_MAX) => {}
        () = life.env.sleep(UNREAD_WAIT) => {}
    }
    Failure(error).into_response()
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
