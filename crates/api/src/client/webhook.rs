//! Posting to somebody else's server.
//!
//! *Promises*: a post ends after [`SECONDS_MAX`], whatever the other side does; nothing is followed elsewhere, and of an answer only the status is looked at. *Never*:
//! shows the part of a URL that may be a secret.

use super::access::{certificates, trusting};
use crate::PolicyEvent;
use std::path::{Path, PathBuf};
use std::time::Duration;
use stonefold_types::{Error, Kind, Result};
use ureq::{Agent, http};

/// For all of it: to find the other side, to connect, to send and to hear.
const SECONDS_MAX: Duration = Duration::from_secs(10);
/// Where systems keep the authorities that their users trust.
const AUTHORITIES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];
/// The variable that names another file, as OpenSSL's programs read it.
const AUTHORITIES_VARIABLE: &str = "SSL_CERT_FILE";

/// A URL that wants to be told.
#[derive(Clone, Debug)]
pub struct Webhook {
    url: String,
    /// What of it is no secret.
    place: String,
    is_tls: bool,
}

impl Webhook {
    /// Reads a URL; connects to nobody.
    pub fn new(url: &str) -> Result<Webhook> {
        let wrong = |why: &str| {
            Error::new(Kind::Invalid, format!("this is not the URL of a webhook: {why}"))
                .remedy("write it as https://host/path")
        };
        let parsed: http::Uri = url.parse().map_err(|e| wrong(&format!("{e}")))?;
        let (scheme, is_tls) = match parsed.scheme_str() {
            Some("http") => ("http", false),
            Some("https") => ("https", true),
            _ => return Err(wrong("it does not begin with http:// or https://")),
        };
        let host = parsed.host().filter(|host| !host.is_empty()).ok_or_else(|| wrong("it names no host"))?;
        if parsed.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(wrong("it has a user's name in it"));
        }
        let port = parsed.port_u16().map_or_else(String::new, |port| format!(":{port}"));
        Ok(Webhook { url: url.to_owned(), place: format!("{scheme}://{host}{port}/…"), is_tls })
    }

    /// The URL without what may be a secret: its path.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Posts an event.
    pub fn post(&self, event: &PolicyEvent) -> Result<()> {
        let failed = |why: String| Error::new(Kind::Io, format!("{}: {why}", self.place));
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_global(Some(SECONDS_MAX))
            .proxy(None)
            .user_agent(concat!("stonefold/", env!("CARGO_PKG_VERSION")));
        if self.is_tls {
            let authorities = authorities()?;
            let what = format!("the file of authorities '{}'", authorities.display());
            config = config.https_only(true).tls_config(trusting(&certificates(&authorities, &what)?));
        }
        let sent = config.build().new_agent().post(&self.url).send_json(event);
        let status = sent.map_err(|e| failed(e.to_string()))?.status();
        if status.is_success() { Ok(()) } else { Err(failed(format!("it answered {}", status.as_u16()))) }
    }
}

/// The file with whom this machine trusts.
fn authorities() -> Result<PathBuf> {
    let named = std::env::var_os(AUTHORITIES_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    let usual = || AUTHORITIES.iter().map(Path::new).find(|path| path.is_file()).map(Path::to_owned);
    named.or_else(usual).ok_or_else(|| {
        Error::new(Kind::Invalid, "this machine has no file of authorities for https://")
            .remedy(format!("install ca-certificates, or name one by {AUTHORITIES_VARIABLE}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_their_secrets_kept() {
        let read = |url: &str| Webhook::new(url).map(|hook| hook.place().to_owned());
        assert_eq!(read("https://hooks.example/T0/B1?token=x").unwrap(), "https://hooks.example/…");
        assert_eq!(read("http://127.0.0.1:8080").unwrap(), "http://127.0.0.1:8080/…");
        for wrong in
            ["hooks.example/x", "ftp://x/y", "http://", "https://user:secret@host/", "", "http://a b"]
        {
            let error = read(wrong).unwrap_err();
            assert!(error.kind() == Kind::Invalid && !error.to_string().contains("secret"), "{error}");
        }
    }
}
