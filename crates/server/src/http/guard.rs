//! Keeps other people's web pages out.
//!
//! The API listens on loopback, and so does every browser of this machine. A page from elsewhere may make one send
//! requests here; the browser then says in `Origin` where that page came from. Only a page that this server itself
//! sent may ask; and as a name can be made to point here after the page was loaded (DNS rebinding), such a page
//! must have been loaded by address, or as localhost. Programs send no `Origin`, and pass.

use super::answer::Failure;
use axum::extract::Request;
use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::{IpAddr, SocketAddr};
use stonefold_types::{Error, Kind};

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
    by_address && origin.strip_prefix("http://") == Some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_this_server_loaded_by_address_may_ask() {
        assert!(is_own("http://127.0.0.1:7770", "127.0.0.1:7770"));
        assert!(is_own("http://localhost:7770", "localhost:7770"));
        assert!(is_own("http://[::1]:7770", "[::1]:7770"));
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
