//! Sockets to listen on.
//!
//! *Promises*: a Unix socket is only ever its owner's, see [`bind_unix`].

use rustix::net::sockopt;
use std::io;
use std::time::Duration;
use stonefold_types::{Error, Kind, Result};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::address::Address;
use crate::socket_file::{SocketFile, bind_unix};
use crate::tls::Tls;

/// Clients that may wait to be accepted: more than a host of machines that all reconnect at once.
const BACKLOG: i32 = 1024;
/// A peer that is silent for this long is probed.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// A peer that has acknowledged nothing for this long is gone.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(120);

/// What a Unix socket may hold of our replies: a few large parts, so that we need not wake for each. The kernel gives
/// less where it allows less.
const UNIX_SEND_BYTES: usize = 512 << 10;

/// A bound socket.
pub struct Listener {
    socket: Socket,
    address: Address,
    tls: Option<Tls>,
}

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, #[expect(dead_code, reason = "held for its Drop")] SocketFile),
}

/// A connection that has just come in.
pub(crate) enum Accepted {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Listener {
    /// Binds and listens. Must be called within a tokio runtime.
    pub async fn bind(address: &Address) -> Result<Listener> {
        let (socket, address) = match address {
            Address::Tcp { host, port } => {
                let listener = TcpListener::bind((host.as_str(), *port))
                    .await
                    .map_err(|error| cannot_listen(address, error))?;
                let port = listener.local_addr().map_err(|error| cannot_listen(address, error))?.port();
                (Socket::Tcp(listener), Address::Tcp { host: host.clone(), port })
            }
            Address::Unix(path) => {
                let cannot = |error| cannot_listen(address, error);
                let (listener, file) = bind_unix(path, BACKLOG, cannot)?;
                (Socket::Unix(UnixListener::from_std(listener).map_err(cannot)?, file), address.clone())
            }
        };
        Ok(Listener { socket, address, tls: None })
    }

    /// Speaks TLS with those who come in here.
    #[must_use]
    pub fn with_tls(self, tls: Tls) -> Listener {
        Listener { tls: Some(tls), ..self }
    }

    /// What it was given.
    pub fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    /// Where it listens, with the port the system chose.
    pub fn address(&self) -> &Address {
        &self.address
    }

    pub(crate) async fn accept(&self) -> io::Result<Accepted> {
        Ok(match &self.socket {
            Socket::Tcp(listener) => Accepted::Tcp(listener.accept().await?.0),
            Socket::Unix(listener, _) => Accepted::Unix(listener.accept().await?.0),
        })
    }
}

impl Accepted {
    /// Fails when the client is gone already.
    pub(crate) fn configure(&self) -> io::Result<()> {
        match self {
            Accepted::Tcp(stream) => {
                // Replies are gathered by us; waiting for more would only delay them.
                stream.set_nodelay(true)?;
                sockopt::set_socket_keepalive(stream, true)?;
                sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
                sockopt::set_tcp_user_timeout(stream, UNACKNOWLEDGED_MAX.as_millis() as u32)?;
            }
            Accepted::Unix(stream) => sockopt::set_socket_send_buffer_size(stream, UNIX_SEND_BYTES)?,
        }
        Ok(())
    }
}

fn cannot_listen(address: &Address, error: io::Error) -> Error {
    let remedy = match error.kind() {
        io::ErrorKind::AddrInUse => "stop what listens there, or choose another address",
        io::ErrorKind::AddrNotAvailable => "choose an address of this machine",
        io::ErrorKind::PermissionDenied => "choose a port above 1023, or a folder you may write to",
        io::ErrorKind::NotFound => "make the folder, or choose another one",
        _ => "choose another address",
    };
    let in_use = error.kind() == io::ErrorKind::AddrInUse;
    let what = format!("cannot listen on {address}");
    let error = if in_use {
        Error::new(Kind::Busy, format!("{what}: address in use"))
    } else {
        Error::io(what, error)
    };
    error.remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn a_unix_socket_is_private_replaced_when_stale_and_removed() {
        runtime().block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("s");
            let address = Address::Unix(path.clone());
            let first = Listener::bind(&address).await.unwrap();
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            let error = Listener::bind(&address).await.err().unwrap();
            assert_eq!(error.kind(), Kind::Busy);
            assert!(error.to_string().contains("address in use"), "{error}");
            drop(first);
            assert!(!path.exists());

            // What a killed server leaves behind.
            drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
            let second = Listener::bind(&address).await.unwrap();
            // A successor's socket is not ours to remove.
            std::fs::remove_file(&path).unwrap();
            let _successor = std::os::unix::net::UnixListener::bind(&path).unwrap();
            drop(second);
            assert!(path.exists());
        });
    }

    #[test]
    fn other_files_are_left_alone() {
        runtime().block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("precious");
            std::fs::write(&path, "data").unwrap();
            let error = Listener::bind(&Address::Unix(path.clone())).await.err().unwrap();
            assert_eq!(error.kind(), Kind::AlreadyExists);
            assert_eq!(std::fs::read(&path).unwrap(), b"data");
            let nowhere = Address::Unix(folder.path().join("no/such/folder"));
            assert_eq!(Listener::bind(&nowhere).await.err().unwrap().kind(), Kind::NotFound);
        });
    }

    #[test]
    fn a_port_in_use_is_said_to_be() {
        runtime().block_on(async {
            let first = Listener::bind(&"tcp://127.0.0.1:0".parse().unwrap()).await.unwrap();
            let error = Listener::bind(first.address()).await.err().unwrap();
            assert_eq!(error.kind(), Kind::Busy);
            assert!(error.to_string().contains("address in use"), "{error}");
        });
    }
}
