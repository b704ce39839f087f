//! TLS for whatever listens, and for what it asks of others: certificates and keys from files, and streams wrapped with them.
//!
//! *Promises*: TLS 1.2 and 1.3 only; a client certificate, where one is asked for, and a server's always, is verified against the given
//! authority on every connection, by the clock of `Env`, a server's also against its name; files that cannot be used are told with their name and what to
//! do about them. *Never*: knows a protocol, keeps a session to be resumed, or writes a file. *Owns*: the private key, in
//! memory. *May be used by*: the doors, the server, and what reads other people's storage.
//!
//! The one thing here that does not come from `Env` is chance: session keys come from the cryptographic library's own
//! source, because what a simulation can replay must never guard anything.

mod pem;
#[cfg(test)]
mod tests;

use rustls::client::Resumption;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, InconsistentKeys, RootCertStore, ServerConfig};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Result};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, TlsConnector, client};

/// A stream wrapped in TLS.
pub use tokio_rustls::server::TlsStream;

/// What a connection may hold of our replies in ciphertext: enough for a few large parts with one call to the kernel,
/// and for 4096 clients that do not read 512 MiB at most.
const OUTPUT_BYTES_MAX: usize = 128 << 10;

/// Where certificates and keys are: PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The server's certificate, and behind it those that lead to its authority.
    pub certificate: PathBuf,
    /// The private key of the first certificate.
    pub key: PathBuf,
}

/// Wraps streams of clients that come in. Cheap to clone.
#[derive(Clone)]
pub struct Acceptor(Arc<ServerConfig>);

impl Acceptor {
    /// Reads the files. With `client_ca` only clients are let in that show a certificate which an authority in that file
    /// has signed.
    pub fn new(files: &Files, client_ca: Option<&Path>, env: &Env) -> Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = identity(files, &provider)?;
        let builder = ServerConfig::builder_with_details(provider.clone(), Arc::new(Clock(env.clone())))
            .with_safe_default_protocol_versions()
            .expect("the provider has a cipher for every version");
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(
                    authorities(path, "client authority")?,
                    provider,
                );
                builder.with_client_cert_verifier(verifier.build().map_err(|e| {
                    Error::new(
                        Kind::Invalid,
                        format!("the authority '{}' cannot be used: {e}", path.display()),
                    )
                })?)
            }
        };
        let mut config = builder.with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(key)));
        // Connections live for days, so resuming saves nothing; and a resumed one would not verify its client anew.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Acceptor(Arc::new(config)))
    }

    /// Shakes hands with a client. How long that may take is for the caller to say.
    pub async fn accept<S>(&self, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let bound = |connection: &mut rustls::ServerConnection| {
            connection.set_buffer_limit(Some(OUTPUT_BYTES_MAX));
        };
        TlsAcceptor::from(self.0.clone()).accept_with(stream, bound).await
    }
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Acceptor")
    }
}

/// Wraps streams to servers. Cheap to clone.
#[derive(Clone)]
pub struct Connector(Arc<ClientConfig>);

impl Connector {
    /// Reads the files: of the authority that has signed for the servers, and of what is shown to those that ask who comes.
    pub fn new(authority: &Path, own: Option<&Files>, env: &Env) -> Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = own.map(|files| identity(files, &provider)).transpose()?;
        let builder = ClientConfig::builder_with_details(provider, Arc::new(Clock(env.clone())))
            .with_safe_default_protocol_versions()
            .expect("the provider has a cipher for every version")
            .with_root_certificates(authorities(authority, "authority")?);
        let mut config = match key {
            None => builder.with_no_client_auth(),
            Some(key) => {
                builder.with_client_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(key)))
            }
        };
        config.resumption = Resumption::disabled();
        Ok(Connector(Arc::new(config)))
    }

    /// Shakes hands with the server of that name, or address. How long that may take is for the caller to say.
    pub async fn connect<S>(&self, stream: S, host: &str) -> io::Result<client::TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        TlsConnector::from(self.0.clone()).connect(name, stream).await
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

/// The certificate with its key, which must belong together.
fn identity(files: &Files, provider: &rustls::crypto::CryptoProvider) -> Result<CertifiedKey> {
    let (certificate, key) = (files.certificate.display(), files.key.display());
    let chain = pem::certificates(&files.certificate, "certificate")?;
    let signing = provider.key_provider.load_private_key(pem::private_key(&files.key)?).map_err(|e| {
        Error::new(Kind::Invalid, format!("the key in '{key}' cannot be used: {e}"))
            .remedy("make one that is ECDSA (P-256 or P-384), Ed25519, or RSA of at least 2048 bits")
    })?;
    let identity = CertifiedKey::new(chain, signing);
    match identity.keys_match() {
        // A key that does not know its public half is tried by the first client.
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(identity),
        Err(rustls::Error::InconsistentKeys(_)) => Err(Error::new(
            Kind::Invalid,
            format!("the key in '{key}' does not belong to the first certificate in '{certificate}'"),
        )
        .remedy(
            "give the key that this certificate was made with; the server's own certificate comes first",
        )),
        Err(e) => Err(Error::new(
            Kind::Invalid,
            format!("the first certificate in '{certificate}' cannot be used: {e}"),
        )
        .remedy("make an X.509 certificate of version 3")),
    }
}

/// Those whose signature on a certificate counts; `what` says on whose.
fn authorities(path: &Path, what: &str) -> Result<Arc<RootCertStore>> {
    let mut roots = RootCertStore::empty();
    for certificate in pem::certificates(path, what)? {
        roots.add(certificate).map_err(|e| {
            Error::new(Kind::Invalid, format!("a certificate in '{}' cannot be used: {e}", path.display()))
                .remedy("give the authority's own certificate, X.509 version 3")
        })?;
    }
    Ok(Arc::new(roots))
}

/// The clock by which certificates are too old.
struct Clock(Env);

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_nanos(self.0.wall())))
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
