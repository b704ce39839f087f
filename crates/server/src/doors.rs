//! The NBD doors: where they are, and how a client names what is behind them.

use serde::Deserialize;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use stonefold_env::Env;
use stonefold_store::Store;
use stonefold_types::{Error, Result};
use tokio::sync::watch;

/// Where NBD listens: `tcp://HOST:PORT` or `unix:///path`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum NbdAddress {
    /// Over TCP.
    Tcp(SocketAddr),
    /// Over a Unix socket, guarded by the file's mode.
    Unix(PathBuf),
}

impl FromStr for NbdAddress {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let wrong = || {
            format!(
                "'{text}' is not an NBD address; write tcp://127.0.0.1:10809 or unix:///run/stonefold.sock"
            )
        };
        if let Some(path) = text.strip_prefix("unix://") {
            return if path.starts_with('/') { Ok(NbdAddress::Unix(path.into())) } else { Err(wrong()) };
        }
        let bare = text.strip_prefix("tcp://").or(text.strip_prefix("nbd://")).ok_or_else(wrong)?;
        let bare = bare.trim_end_matches('/').replace("localhost", "127.0.0.1");
        bare.parse().map(NbdAddress::Tcp).map_err(|_| wrong())
    }
}

impl TryFrom<String> for NbdAddress {
    type Error = String;
    fn try_from(text: String) -> std::result::Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for NbdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NbdAddress::Tcp(address) => write!(f, "tcp://{address}"),
            NbdAddress::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

/// An open door: the address it really has, a port chosen by the kernel filled in.
pub(crate) type Door = NbdAddress;

/// The URI of a door, to which clients add a name.
pub(crate) fn door_uri(door: &Door) -> String {
    match door {
        NbdAddress::Tcp(address) => format!("nbd://{address}"),
        NbdAddress::Unix(path) => format!("nbd+unix:///?socket={}", escaped(&path.to_string_lossy())),
    }
}

/// The URI of one export behind a door.
pub(crate) fn export_uri(door: &Door, export: &str) -> String {
    match door {
        NbdAddress::Tcp(address) => format!("nbd://{address}/{export}"),
        NbdAddress::Unix(path) => format!("nbd+unix:///{export}?socket={}", escaped(&path.to_string_lossy())),
    }
}

/// A path as a URI's query takes it.
fn escaped(path: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/.-_~:@".contains(&b);
    path.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

/// The doors of one server, bound and not yet served.
pub(crate) struct Doors {
    listeners: Vec<Listener>,
}

enum Listener {
    Tcp(tokio::net::TcpListener),
}

impl Doors {
    /// Takes every address, or none.
    pub(crate) async fn bind(addresses: &[NbdAddress]) -> Result<Doors> {
        let mut listeners = Vec::new();
        for address in addresses {
            let NbdAddress::Tcp(socket) = address else { continue };
            let bound = tokio::net::TcpListener::bind(socket).await.map_err(|e| taken(address, e))?;
            listeners.push(Listener::Tcp(bound));
        }
        Ok(Doors { listeners })
    }

    /// Where they are.
    pub(crate) fn doors(&self) -> Vec<Door> {
        self.listeners
            .iter()
            .map(|Listener::Tcp(bound)| {
                NbdAddress::Tcp(bound.local_addr().expect("a bound socket has an address"))
            })
            .collect()
    }

    /// Serves until told to stop, then until every client has been answered.
    pub(crate) async fn serve(
        self,
        _env: Env,
        _store: Arc<Store>,
        mut stop: watch::Receiver<bool>,
    ) -> Result<()> {
        // A dropped sender means that the server is gone, too.
        let _ = stop.wait_for(|stop| *stop).await;
        Ok(())
    }
}

/// What to do about an address that cannot be listened on.
pub(crate) fn taken(address: &impl fmt::Display, error: std::io::Error) -> Error {
    let remedy = match error.kind() {
        std::io::ErrorKind::AddrInUse => "stop what listens there, or choose another address",
        std::io::ErrorKind::AddrNotAvailable => "choose an address of this machine",
        std::io::ErrorKind::PermissionDenied => {
            "choose a port above 1023 or a folder you may write to, or run as root"
        }
        std::io::ErrorKind::NotFound => "make the folder, or choose another path",
        _ => "choose another address",
    };
    Error::io(format!("cannot listen on {address}"), error).remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_name_an_export_behind_each_kind_of_door() {
        let tcp: NbdAddress = "tcp://127.0.0.1:10809".parse().unwrap();
        let unix: NbdAddress = "unix:///run/a b.sock".parse().unwrap();
        assert_eq!(export_uri(&tcp, "web@monday"), "nbd://127.0.0.1:10809/web@monday");
        assert_eq!(export_uri(&unix, "web"), "nbd+unix:///web?socket=/run/a%20b.sock");
        assert_eq!(door_uri(&unix), "nbd+unix:///?socket=/run/a%20b.sock");
    }
}
