//! Unix sockets that are only ever their owner's.

use rustix::fs::{Mode, fchmod};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use stonefold_types::{Error, Kind, Result};

/// Binds a Unix socket and listens, without blocking; `backlog` clients may wait to be accepted. It has mode 0600 from its first
/// instant, takes the place of a socket that nobody listens on, and leaves any other file alone.
///
/// Fails with `AlreadyExists` where there is a file that is no socket, and with what `cannot` makes of the system's error, which is
/// `AddrInUse` also for a socket of somebody else that cannot be looked at.
pub fn bind_unix(
    path: &Path,
    backlog: i32,
    cannot: impl Fn(io::Error) -> Error,
) -> Result<(UnixListener, SocketFile)> {
    make_way(path, &cannot)?;
    listen_unix(path, backlog).map_err(cannot)
}

/// Removes a socket that nobody listens on any more.
fn make_way(path: &Path, cannot: impl Fn(io::Error) -> Error) -> Result<()> {
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !metadata.file_type().is_socket() {
        return Err(Error::new(Kind::AlreadyExists, format!("{} is there and is no socket", path.display()))
            .remedy("move it away, or choose another path"));
    }
    match probe(path) {
        Err(rustix::io::Errno::CONNREFUSED) => std::fs::remove_file(path).map_err(|error| {
            Error::io(format!("cannot remove the stale socket {}", path.display()), error)
                .remedy("remove it, or choose another path")
        }),
        // A full backlog, or a socket we may not reach, is a socket somebody has.
        Ok(()) | Err(_) => Err(cannot(io::ErrorKind::AddrInUse.into())),
    }
}

fn probe(path: &Path) -> rustix::io::Result<()> {
    connect(&unix_socket()?, &SocketAddrUnix::new(path)?)
}

fn unix_socket() -> rustix::io::Result<std::os::fd::OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
}

fn listen_unix(path: &Path, backlog: i32) -> io::Result<(UnixListener, SocketFile)> {
    let socket = unix_socket()?;
    // The file gets the mode of the socket that is bound to it, so it is never open to others, not even for an instant.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    let file = SocketFile::new(path)?;
    listen(&socket, backlog)?;
    Ok((socket.into(), file))
}

/// The file of a bound Unix socket: removed when this is dropped, unless the path is another's by then.
pub struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketFile {
    fn new(path: &Path) -> io::Result<Self> {
        Ok(SocketFile { path: path.to_owned(), identity: identity(path)? })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = std::fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // A successor may have bound the path already.
        if identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            if let Err(error) = std::fs::remove_file(&self.path) {
                tracing::warn!(path = %self.path.display(), %error, "cannot remove the socket");
            }
        }
    }
}
