//! Where a door listens: `tcp://HOST:PORT` or `unix:///PATH`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use stonefold_types::{Error, Kind};

/// An address of the NBD door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A host name or address, and a port; port 0 lets the system choose.
    Tcp {
        /// Without brackets.
        host: String,
        /// 10809 by custom.
        port: u16,
    },
    /// A socket in the file system.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || {
            Error::new(Kind::Invalid, format!("'{}' is not an NBD address", text.escape_debug()))
                .remedy("write tcp://HOST:PORT or unix:///PATH")
        };
        if let Some(path) = text.strip_prefix("unix://") {
            return if path.starts_with('/') && !path.ends_with('/') {
                Ok(Address::Unix(PathBuf::from(path)))
            } else {
                Err(wrong())
            };
        }
        let (host, port) = text.strip_prefix("tcp://").and_then(|t| t.rsplit_once(':')).ok_or_else(wrong)?;
        let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        if bare.is_empty() || bare.contains(['[', ']', '/', '@']) || (bare == host && host.contains(':')) {
            return Err(wrong());
        }
        Ok(Address::Tcp { host: bare.to_owned(), port: port.parse().map_err(|_| wrong())? })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } if host.contains(':') => write!(f, "tcp://[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "tcp://{host}:{port}"),
            Address::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_prints() {
        for text in ["tcp://127.0.0.1:10809", "tcp://[::1]:0", "tcp://host.example:1", "unix:///run/s.sock"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for bad in [
            "",
            "127.0.0.1:10809",
            "tcp://127.0.0.1",
            "tcp://:1",
            "tcp://::1:1",
            "tcp://a:65536",
            "unix://s",
            "unix:///",
            "nbd://x:1",
        ] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }
}
