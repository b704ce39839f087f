//! How a door speaks TLS, and how far a handshake has come with it.

use std::fmt;
use std::str::FromStr;
use stonefold_tls::Acceptor;
use stonefold_types::{Error, Kind};

/// Whether a client of a door that has TLS must use it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// Clients that ask for TLS get it; others are served in clear. Whoever sits between can make a client not ask.
    Allow,
    /// Nothing is told and nothing served before TLS.
    #[default]
    Require,
}

impl FromStr for TlsMode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "allow" => Ok(TlsMode::Allow),
            "require" => Ok(TlsMode::Require),
            _ => Err(Error::new(Kind::Invalid, format!("'{}' is not a mode of TLS", text.escape_debug()))
                .remedy("write allow or require")),
        }
    }
}

impl fmt::Display for TlsMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TlsMode::Allow => "allow",
            TlsMode::Require => "require",
        })
    }
}

/// A door's TLS.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Wraps the streams.
    pub acceptor: Acceptor,
    /// Who must use it.
    pub mode: TlsMode,
}

/// What TLS means at some point of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Secrecy {
    /// There is none.
    Unavailable,
    /// The client may begin it.
    Offered,
    /// The client must begin it before anything else.
    Required,
    /// Everything said is under it.
    Established,
}

impl Secrecy {
    /// Of a connection that has just come in.
    pub(crate) fn at_first(tls: Option<&Tls>) -> Self {
        match tls.map(|tls| tls.mode) {
            None => Secrecy::Unavailable,
            Some(TlsMode::Allow) => Secrecy::Offered,
            Some(TlsMode::Require) => Secrecy::Required,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_read_and_print() {
        for mode in [TlsMode::Allow, TlsMode::Require] {
            assert_eq!(mode.to_string().parse::<TlsMode>().unwrap(), mode);
        }
        assert!("off".parse::<TlsMode>().is_err());
    }
}
