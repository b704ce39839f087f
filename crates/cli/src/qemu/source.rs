//! What is imported: a file or an NBD URI; and which of a server's URIs can be used from here.

use super::Door;
use rustix::fs::{Access, AtFlags, CWD};
use std::convert::Infallible;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use stonefold_types::{Error, Kind, Result};

/// Where an image is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Source {
    /// A file or a block device.
    File(PathBuf),
    /// An export of an NBD server.
    Nbd(String),
    /// The same, to be read over TLS.
    Tls(String, Door),
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
            Source::Nbd(uri) | Source::Tls(uri, _) => f.write_str(uri),
        }
    }
}

impl Source {
    /// The same, with what is needed to read it over TLS if its URI says so.
    pub(crate) fn with_tls(self, folder: Option<&Path>) -> Result<Self> {
        match self {
            Source::Nbd(uri) if uri.starts_with("nbds://") => {
                let door = Door::tls(&uri, folder.ok_or_else(|| no_folder(&uri))?)?;
                Ok(Source::Tls(uri, door))
            }
            other => Ok(other),
        }
    }

    /// Whether it brings credentials for TLS.
    pub(super) fn has_credentials(&self) -> bool {
        matches!(self, Source::Tls(..))
    }

    /// Adds it as what qemu-img reads: a file's name is marked as one, whatever it looks like. What comes over TLS is raw unless the user
    /// knows better.
    pub(super) fn read_by(&self, command: &mut Command, format: Option<&str>) {
        match self {
            Source::File(path) if format == Some("vpc") => {
                Door::Clear(vhd_argument(path)).read_by(command, format)
            }
            Source::File(path) => Door::Clear(file_argument(path)).read_by(command, format),
            Source::Nbd(uri) => Door::Clear(uri.clone()).read_by(command, format),
            Source::Tls(_, door) => door.read_by(command, format),
        }
    }
}

/// A path as qemu-img takes it.
pub(super) fn file_argument(path: &Path) -> String {
    format!("file:{}", path.display())
}

/// A VHD. Left alone, QEMU believes the geometry in its footer rather than the size, and drops what lies beyond.
fn vhd_argument(path: &Path) -> String {
    let file = serde_json::json!({ "driver": "file", "filename": path.to_string_lossy() });
    let image = serde_json::json!({ "driver": "vpc", "force_size_calc": "current_size", "file": file });
    format!("json:{image}")
}

fn no_folder(uri: &str) -> Error {
    Error::new(Kind::Invalid, format!("'{uri}' is reached over TLS"))
        .remedy("name the folder with ca-cert.pem, and a client's certificate where one is wanted: --tls-certificates DIR")
}

/// Of an export's URIs the one to use from here: a Unix socket where the server is on this machine, else TCP, with TLS where `folder` has
/// what it needs.
pub(crate) fn reachable(uris: &[String], api: &str, folder: Option<&Path>) -> Result<Door> {
    let host = host_of(api);
    let is_here =
        matches!(host, "localhost" | "[::1]") || host.starts_with("127.") || api.starts_with("unix:");
    let by_socket =
        uris.iter().filter(|_| is_here).find(|uri| socket_of(uri).is_some_and(|path| may_connect(&path)));
    if let Some(uri) = by_socket {
        return Ok(Door::Clear(uri.clone()));
    }
    let of_scheme =
        |scheme: &str| uris.iter().find(|uri| uri.starts_with(scheme)).map(|uri| from_here(uri, host));
    match (of_scheme("nbds://"), of_scheme("nbd://"), folder) {
        // A door that allows both has the other scheme, and the user has asked for TLS.
        (Some(uri), _, Some(folder)) | (None, Some(uri), Some(folder)) => Door::tls(&uri, folder),
        (_, Some(uri), None) => Ok(Door::Clear(uri)),
        (Some(uri), None, None) => Err(no_folder(&uri)),
        (None, None, _) if uris.iter().filter(|_| is_here).any(|uri| socket_of(uri).is_some()) => {
            let what =
                format!("the server at {api} has only an NBD socket, which this user may not connect to");
            Err(Error::new(Kind::Io, what).remedy(
                "run this command as the server's user, or with sudo; or start the server with --nbd tcp://HOST:PORT, too",
            ))
        }
        (None, None, _) => {
            let what = format!("the server at {api} has no NBD door that can be reached from here");
            Err(Error::new(Kind::Io, what)
                .remedy("start it with --nbd tcp://HOST:PORT, or run this command on the server's machine"))
        }
    }
}

/// Connecting to a socket takes the right to write to it.
fn may_connect(socket: &Path) -> bool {
    rustix::fs::accessat(CWD, socket, Access::WRITE_OK, AtFlags::EACCESS).is_ok()
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
        let arguments = |source: &Source| {
            let mut command = Command::new("qemu-img");
            source.read_by(&mut command, Some("qcow2"));
            command.get_args().map(|argument| argument.to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(arguments(&source), ["-f", "qcow2", "file:nbd:odd.img"]);
        assert_eq!(arguments(&"nbd://h/x".parse().unwrap()), ["-f", "qcow2", "nbd://h/x"]);
        let secret: Source = "nbds://h/x".parse().unwrap();
        assert!(secret.with_tls(None).unwrap_err().to_string().contains("--tls-certificates"));
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
        let clear = |uri: &str| Door::Clear(uri.to_owned());
        assert_eq!(reachable(&uris, "http://127.0.0.1:7770", None).unwrap(), clear(&uris[1]));
        assert_eq!(reachable(&uris, "http://store:7770", None).unwrap(), clear("nbd://store:10809/web"));
        let here = reachable(&uris[..1], "http://localhost:7770", None).unwrap();
        assert_eq!(here, clear("nbd://localhost:10809/web"));
        assert_eq!(reachable(&uris[1..], "http://store:7770", None).unwrap_err().kind(), Kind::Io);
    }

    #[test]
    fn a_door_with_tls_is_spoken_to_with_tls_and_one_that_allows_it_when_asked() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca-cert.pem"), "").unwrap();
        let tls = |uri: &str| Door::tls(uri, folder.path()).unwrap();
        let (required, allowed) = (["nbds://0.0.0.0:1/web".to_owned()], ["nbd://0.0.0.0:1/web".to_owned()]);
        let refused = reachable(&required, "http://store:7770", None).unwrap_err();
        assert!(refused.to_string().contains("--tls-certificates"), "{refused}");
        for uris in [&required, &allowed] {
            let door = reachable(uris, "http://store:7770", Some(folder.path())).unwrap();
            assert_eq!(door, tls("nbds://store:1/web"));
        }
        assert_eq!(
            reachable(&allowed, "http://store:7770", None).unwrap(),
            Door::Clear("nbd://store:1/web".into())
        );
    }
}
