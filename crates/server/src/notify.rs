//! Telling whoever supervises the process how far it is: systemd's `Type=notify`.
//!
//! A unit that is to start after this one is started when a datagram `READY=1` comes to the socket that the environment
//! names (`sd_notify(3)`); drawn here rather than linked, because it is one datagram.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Where the supervisor listens: a path, or a name behind `@` that is in no file system.
const VARIABLE: &str = "NOTIFY_SOCKET";

/// All doors are open.
pub(crate) const READY: &str = "READY=1";
/// It has begun to stop.
pub(crate) const STOPPING: &str = "STOPPING=1";

/// Tells the supervisor, where there is one. A server that nobody hears goes on all the same.
pub(crate) fn tell(state: &str) {
    let Some(socket) = std::env::var_os(VARIABLE).filter(|socket| !socket.is_empty()) else { return };
    if let Err(error) = send(&socket, state) {
        tracing::warn!(%error, ?socket, "whoever supervises this server was not told {state}");
    }
}

fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_sockets_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("stonefold-test-{}", std::process::id());
        let by_name = SocketAddr::from_abstract_name(&name).unwrap();
        for (listening, written) in [
            (UnixDatagram::bind(&path).unwrap(), path.as_os_str().to_owned()),
            (UnixDatagram::bind_addr(&by_name).unwrap(), format!("@{name}").into()),
        ] {
            send(&written, READY).unwrap();
            let mut said = [0; 64];
            let length = listening.recv(&mut said).unwrap();
            assert_eq!(&said[..length], b"READY=1");
        }
        assert!(send(OsStr::new("/nowhere/notify"), READY).is_err());
    }
}
