//! Who a client is, in words for whoever runs the server: where a TCP connection comes from, which process has a Unix socket.

use std::sync::Arc;

use crate::listener::Accepted;

/// Whoever brought a stream of his own.
pub(crate) const BROUGHT: &str = "a stream that was handed over";

/// Longest name of a process that is told, in bytes: the kernel's own bound.
const NAME_BYTES_MAX: usize = 16;

impl Accepted {
    /// An address, or a process and its user.
    pub(crate) fn peer(&self) -> Arc<str> {
        let told = match self {
            Accepted::Tcp(stream) => stream.peer_addr().map(|address| address.to_string()),
            Accepted::Unix(stream) => stream.peer_cred().map(|who| match who.pid() {
                Some(pid) => process(pid),
                None => format!("a process of user {}", who.uid()),
            }),
        };
        told.unwrap_or_else(|_| "a client that is gone".into()).into()
    }
}

/// A process by number and name. One of another namespace of process numbers is 0 here.
fn process(pid: i32) -> String {
    if pid == 0 {
        return "a process of another container".into();
    }
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = String::from_utf8_lossy(&name[..name.len().min(NAME_BYTES_MAX)]);
    match name.trim_end() {
        "" => format!("process {pid}"),
        name => format!("process {pid} ({})", name.escape_debug()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::{TcpListener, TcpStream, UnixStream};

    #[tokio::test]
    async fn a_client_is_told_by_address_or_process() {
        let (one, _other) = UnixStream::pair().unwrap();
        let peer = Accepted::Unix(one).peer();
        assert!(peer.starts_with(&format!("process {} (", std::process::id())), "{peer}");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        assert_eq!(*Accepted::Tcp(accepted).peer(), client.local_addr().unwrap().to_string());
        assert_eq!(process(i32::MAX), format!("process {}", i32::MAX), "one that has ended has no name");
    }
}
