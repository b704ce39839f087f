//! What is imported: a file or an NBD URI; and which of a server's URIs can be used from here.

use std::convert::Infallible;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use stonefold_types::{Error, Kind, Result};

/// Where an image is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Source {
    /// A file or a block device.
    File(PathBuf),
    /// An export of an NBD server.
    Nbd(String),
}

impl FromStr for Source {
    type Err = Infallible;

    fn from_str(text: &str) -> std::result::Result<Self, Infallible> {
        let is_nbd = ["nbd://", "nbds://", "nbd+unix://", "nbds+unix://"]
            .iter()
            .any(|scheme| text.starts_with(scheme));
        Ok(if is_nbd { Source::Nbd(text.to_owned()) } else { Source::File(text.into()) })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::File(path) => write!(f, "{}", path.display()),
            Source::Nbd(uri) => f.write_str(uri),
        }
    }
}

impl Source {
    /// As qemu-img takes it: a file's name is marked as one, whatever it looks like.
    pub(super) fn argument(&self) -> String {
        match self {
            Source::File(path) => file_argument(path),
            Source::Nbd(uri) => uri.clone(),
        }
    }
}

/// A path as qemu-img takes it.
pub(super) fn file_argument(path: &Path) -> String {
    format!("file:{}", path.display())
}

/// Of an export's URIs the one to use from here: a Unix socket where the server is on this machine, else TCP.
pub(crate) fn reachable(uris: &[String], api: &str) -> Result<String> {
    let host = host_of(api);
    let is_here =
        matches!(host, "localhost" | "[::1]") || host.starts_with("127.") || api.starts_with("unix:");
    let by_socket =
        uris.iter().filter(|_| is_here).find(|uri| socket_of(uri).is_some_and(|path| path.exists()));
    let by_tcp = || uris.iter().find(|uri| uri.starts_with("nbd://")).map(|uri| from_here(uri, host));
    by_socket.cloned().or_else(by_tcp).ok_or_else(|| {
        let (what, remedy) = if uris.iter().any(|uri| uri.starts_with("nbds://")) {
            (
                "only an NBD door with TLS, which this command does not speak yet",
                "start it with --nbd unix:///PATH as well, and run this command on the server's machine",
            )
        } else {
            (
                "no NBD door that can be reached from here",
                "start it with --nbd tcp://HOST:PORT, or run this command on the server's machine",
            )
        };
        Error::new(Kind::Io, format!("the server at {api} has {what}")).remedy(remedy)
    })
}

fn host_of(api: &str) -> &str {
    let authority = api.split_once("://").map_or(api, |(_, rest)| rest).trim_end_matches('/');
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => authority,
    }
}

fn socket_of(uri: &str) -> Option<PathBuf> {
    let escaped = uri.strip_prefix("nbd+unix://")?.split_once("?socket=")?.1;
    let mut path = Vec::new();
    let mut rest = escaped.bytes();
    while let Some(byte) = rest.next() {
        path.push(match byte {
            b'%' => {
                let hex = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&hex).ok()?, 16).ok()?
            }
            plain => plain,
        });
    }
    String::from_utf8(path).ok().map(PathBuf::from)
}

/// A door that listens on every address is reached at the address the API has.
fn from_here(uri: &str, host: &str) -> String {
    let host = if host.is_empty() { "127.0.0.1" } else { host };
    uri.replacen("//0.0.0.0:", &format!("//{host}:"), 1).replacen("//[::]:", &format!("//{host}:"), 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_a_file_whatever_it_is_called() {
        let source: Source = "nbd:odd.img".parse().unwrap();
        assert_eq!(source.argument(), "file:nbd:odd.img");
        assert_eq!("nbd://h/x".parse::<Source>().unwrap().argument(), "nbd://h/x");
    }

    #[test]
    fn the_socket_is_taken_here_and_tcp_from_afar() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("a b");
        std::fs::write(&socket, "").unwrap();
        let uris = [
            "nbd://0.0.0.0:10809/web".to_owned(),
            format!("nbd+unix:///web?socket={}/a%20b", folder.path().display()),
        ];
        assert_eq!(reachable(&uris, "http://127.0.0.1:7770").unwrap(), uris[1]);
        assert_eq!(reachable(&uris, "http://store:7770").unwrap(), "nbd://store:10809/web");
        assert_eq!(reachable(&uris[..1], "http://localhost:7770").unwrap(), "nbd://localhost:10809/web");
        assert_eq!(reachable(&uris[1..], "http://store:7770").unwrap_err().kind(), Kind::Io);
        let secret = ["nbds://0.0.0.0:10809/web".to_owned()];
        assert!(reachable(&secret, "http://store:7770").unwrap_err().to_string().contains("--nbd unix:"));
    }
}
