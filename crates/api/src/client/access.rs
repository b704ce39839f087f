//! Who a client is, and whom it trusts.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use stonefold_types::{Error, Kind, Result};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, TlsProvider, parse_pem};

/// What a client brings along.
#[derive(Clone, Default)]
pub struct Access {
    /// What it shows to be let in.
    pub token: Option<String>,
    /// Who vouches for a server with `https://`: a PEM file.
    pub authority: Option<PathBuf>,
}

impl Access {
    /// TLS that trusts the authority and nobody else: a store is not vouched for by the world's authorities.
    pub(super) fn tls(&self, url: &str) -> Result<TlsConfig> {
        let Some(path) = &self.authority else {
            return Err(Error::new(Kind::Invalid, format!("who vouches for {url} is not known")).remedy(
                "name the file with the authority's certificate with --api-ca FILE or STONEFOLD_API_CA",
            ));
        };
        let what = format!("the authority's file '{}'", path.display());
        Ok(trusting(&certificates(path, &what)?))
    }
}

/// The certificates of a PEM file; `what` is what it is called.
pub(super) fn certificates(path: &Path, what: &str) -> Result<Vec<Certificate<'static>>> {
    let text = std::fs::read(path)
        .map_err(|e| Error::io(format!("{what} cannot be read"), e).remedy("name a readable PEM file"))?;
    let mut certificates = Vec::new();
    for item in parse_pem(&text) {
        let item = item.map_err(|e| Error::new(Kind::Invalid, format!("{what} is damaged: {e}")))?;
        if let PemItem::Certificate(certificate) = item {
            certificates.push(certificate);
        }
    }
    if certificates.is_empty() {
        return Err(Error::new(Kind::Invalid, format!("{what} has no certificate"))
            .remedy("give a PEM file, with a line 'BEGIN CERTIFICATE'"));
    }
    Ok(certificates)
}

/// TLS that trusts who is vouched for by these, and nobody else.
pub(super) fn trusting(certificates: &[Certificate<'static>]) -> TlsConfig {
    TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(RootCerts::new_with_certs(certificates))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build()
}
