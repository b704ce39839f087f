//! Why a connection ends before its client said so, and how the store's errors look on the wire.

use std::{fmt, io};
use stonefold_types::{Error, Kind};

use crate::wire::Errno;

/// What ends a connection, and only this one.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The client was gone in the middle of something.
    Hangup,
    /// The socket failed.
    Io(io::Error),
    /// The client broke the protocol, in the way told.
    Protocol(String),
    /// No TLS came about, for the reason told.
    Tls(io::Error),
    /// The client took or sent nothing for too long.
    Stalled,
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::UnexpectedEof => Fault::Hangup,
            _ => Fault::Io(error),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Hangup => f.write_str("the client hung up"),
            Fault::Io(error) => write!(f, "the socket failed: {error}"),
            Fault::Protocol(what) => write!(f, "the client broke the protocol: {what}"),
            Fault::Tls(error) => write!(f, "the TLS handshake failed: {error}"),
            Fault::Stalled => f.write_str("the client neither read nor wrote for too long"),
        }
    }
}

/// The number a client gets for an error of the store.
pub(crate) fn errno_of(error: &Error) -> Errno {
    match error.kind() {
        Kind::NoSpace => Errno::NoSpc,
        Kind::ReadOnly | Kind::Locked => Errno::Perm,
        Kind::Invalid => Errno::Inval,
        Kind::Closed | Kind::Fenced => Errno::Shutdown,
        Kind::Unsupported => Errno::NotSup,
        Kind::NotFound
        | Kind::AlreadyExists
        | Kind::Busy
        | Kind::Conflict
        | Kind::Corrupt
        | Kind::Io
        | Kind::WrongKey
        | Kind::NoToken
        | Kind::Denied => Errno::Io,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_keep_what_a_client_can_act_on() {
        let errno = |kind| errno_of(&Error::new(kind, "x"));
        assert_eq!(errno(Kind::NoSpace), Errno::NoSpc);
        assert_eq!(errno(Kind::ReadOnly), Errno::Perm);
        assert_eq!(errno(Kind::Invalid), Errno::Inval);
        assert_eq!(errno(Kind::Fenced), Errno::Shutdown);
        assert_eq!(errno(Kind::Closed), Errno::Shutdown);
        assert_eq!(errno(Kind::Corrupt), Errno::Io);
    }
}
