//! An export of an NBD server as qemu-img is told of it: by its URI in clear, by options where TLS is spoken.

use std::path::{Path, PathBuf};
use std::process::Command;
use stonefold_types::{Error, Kind, Result};

/// NBD's port where a URI names none.
const PORT: &str = "10809";
/// The name of the credentials among qemu-img's objects.
const CREDENTIALS: &str = "tls";

/// An export and how it is reached.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Door {
    /// By this URI, in clear.
    Clear(String),
    /// Over TLS.
    Tls(Secret),
}

/// An export that is reached over TLS.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Secret {
    host: String,
    port: String,
    export: String,
    /// QEMU's: `ca-cert.pem`, and `client-cert.pem` and `client-key.pem` where the server asks for a client's certificate.
    folder: PathBuf,
}

impl Door {
    /// Over TLS, by a URI that begins with `nbd://` or `nbds://`.
    pub(crate) fn tls(uri: &str, folder: &Path) -> Result<Self> {
        let authority = folder.join("ca-cert.pem");
        if !authority.is_file() {
            let what = format!("'{}' has no ca-cert.pem", folder.display());
            return Err(Error::new(Kind::NotFound, what).remedy(
                "name a folder with the authority's certificate under that name, and client-cert.pem and client-key.pem where the server \
                 wants to know its clients",
            ));
        }
        let wrong = || {
            Error::new(Kind::Invalid, format!("'{uri}' is no nbds:// URI"))
                .remedy("write nbds://HOST:PORT/EXPORT")
        };
        let rest = uri.split_once("://").ok_or_else(wrong)?.1;
        let (at, export) = rest.split_once('/').ok_or_else(wrong)?;
        let (host, port) = match at.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => (host, port),
            _ => (at, PORT),
        };
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        if bare.is_empty() || export.contains('?') {
            return Err(wrong());
        }
        Ok(Door::Tls(Secret {
            host: bare.into(),
            port: port.into(),
            export: export.into(),
            folder: folder.into(),
        }))
    }

    /// Adds it as what is read.
    pub(super) fn read_by(&self, command: &mut Command, format: Option<&str>) {
        match self {
            Door::Clear(uri) => {
                if let Some(format) = format {
                    command.args(["-f", format]);
                }
                command.arg(uri);
            }
            Door::Tls(secret) => {
                command.args(["--object", &secret.credentials(), "--image-opts", &secret.options(format)]);
            }
        }
    }

    /// What comes before the names of images when it is what is written, and its own name.
    pub(super) fn written_by(&self, command: &mut Command, has_credentials: bool) -> String {
        match self {
            Door::Clear(uri) => {
                command.args(["-O", "raw"]);
                uri.clone()
            }
            Door::Tls(secret) => {
                if !has_credentials {
                    command.args(["--object", &secret.credentials()]);
                }
                command.arg("--target-image-opts");
                secret.options(None)
            }
        }
    }
}

impl Secret {
    fn credentials(&self) -> String {
        let folder = escaped(&self.folder.display().to_string());
        format!("tls-creds-x509,id={CREDENTIALS},endpoint=client,dir={folder}")
    }

    fn options(&self, format: Option<&str>) -> String {
        let (host, port, export) = (escaped(&self.host), &self.port, escaped(&self.export));
        let format = format.unwrap_or("raw");
        format!(
            "driver={format},file.driver=nbd,file.server.type=inet,file.server.host={host},file.server.port={port},\
             file.export={export},file.tls-creds={CREDENTIALS}"
        )
    }
}

/// QEMU's options are separated by commas; one within a value is written twice.
fn escaped(value: &str) -> String {
    value.replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_becomes_options_and_no_value_becomes_another_option() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Door::tls("nbds://h/web", folder.path()).unwrap_err().to_string().contains("ca-cert.pem"));
        std::fs::write(folder.path().join("ca-cert.pem"), "").unwrap();
        let options = |uri| match Door::tls(uri, folder.path()).unwrap() {
            Door::Tls(secret) => secret.options(None),
            Door::Clear(uri) => panic!("{uri}"),
        };
        assert!(
            options("nbds://store:7/web")
                .contains("file.server.host=store,file.server.port=7,file.export=web,")
        );
        assert!(
            options("nbds://[::1]/web@mon").contains("host=::1,file.server.port=10809,file.export=web@mon,")
        );
        assert!(options("nbds://h/a,driver=b").contains("file.export=a,,driver=b,"));
        assert!(Door::tls("nbds://h", folder.path()).is_err());
        assert!(Door::tls("nbds://h/a?socket=x", folder.path()).is_err());
    }
}
