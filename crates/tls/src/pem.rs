//! Certificates and keys from PEM files, and what to say when they are not there.

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::Path;
use stonefold_types::{Error, Kind, Result};

/// All certificates of a file, at least one; `what` says what they are for.
pub(crate) fn certificates(path: &Path, what: &str) -> Result<Vec<CertificateDer<'static>>> {
    let text = read(path, what)?;
    let found: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|e| damaged(path, what, &e))?;
    if found.is_empty() {
        return Err(Error::new(
            Kind::Invalid,
            format!("the TLS {what} file '{}' has no certificate", path.display()),
        )
        .remedy(
            "give a PEM file, with a line 'BEGIN CERTIFICATE'; \
             'openssl x509 -inform der -in FILE' makes one of a DER file",
        ));
    }
    Ok(found)
}

/// The first private key of a file.
pub(crate) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    let text = read(path, "key")?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|e| match e {
        pem::Error::NoItemsFound => {
            let contains = |word: &str| text.windows(word.len()).any(|window| window == word.as_bytes());
            let (why, remedy) = if contains("BEGIN ENCRYPTED PRIVATE KEY") {
                (
                    "has a key that is locked with a passphrase",
                    "unlock it: 'openssl pkey -in FILE -out NEW', with NEW readable by the server alone",
                )
            } else if contains("BEGIN CERTIFICATE") {
                ("has a certificate, and no key", "give the file with the line 'BEGIN PRIVATE KEY'")
            } else {
                ("has no private key", "give a PEM file, with a line 'BEGIN PRIVATE KEY'")
            };
            Error::new(Kind::Invalid, format!("the TLS key file '{}' {why}", path.display())).remedy(remedy)
        }
        e => damaged(path, "key", &e),
    })
}

fn read(path: &Path, what: &str) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|e| {
        Error::io(format!("the TLS {what} file '{}' cannot be read", path.display()), e)
            .remedy("name a PEM file that the server's user may read")
    })
}

fn damaged(path: &Path, what: &str, why: &pem::Error) -> Error {
    Error::new(Kind::Invalid, format!("the TLS {what} file '{}' is damaged: {why}", path.display()))
        .remedy("make the file anew; a PEM file is text and has not been edited")
}
