//! Errors as they cross the API.

use serde::{Deserialize, Serialize};
use stonefold_types::{Error, Kind};
use utoipa::ToSchema;

/// The body of every answer that is not a success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// What a program should do about it.
    pub kind: ErrorKind,
    /// What failed, on which object.
    #[schema(examples("disk 'web' exists already"))]
    pub what: String,
    /// What a person can do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("choose another name"))]
    pub remedy: Option<String>,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident => $status:literal,)*) => {
        /// What a program should do about an error. A kind that a client does not know counts as `io`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum ErrorKind {
            $($(#[$doc])* $kind,)*
            /// The medium or the network failed: look at it (HTTP 500).
            #[serde(other)]
            Io,
        }

        impl ErrorKind {
            /// The HTTP status it travels with.
            pub fn status(self) -> u16 {
                match self {
                    $(ErrorKind::$kind => $status,)*
                    ErrorKind::Io => 500,
                }
            }
        }

        impl From<Kind> for ErrorKind {
            fn from(kind: Kind) -> Self {
                match kind {
                    $(Kind::$kind => ErrorKind::$kind,)*
                    Kind::Io => ErrorKind::Io,
                }
            }
        }

        impl From<ErrorKind> for Kind {
            fn from(kind: ErrorKind) -> Self {
                match kind {
                    $(ErrorKind::$kind => Kind::$kind,)*
                    ErrorKind::Io => Kind::Io,
                }
            }
        }

        #[cfg(test)]
        const EVERY_KIND: &[ErrorKind] = &[$(ErrorKind::$kind,)* ErrorKind::Io];
    };
}

kinds! {
    /// The named object does not exist: correct the name (HTTP 404).
    NotFound => 404,
    /// The name is taken: choose another (HTTP 409).
    AlreadyExists => 409,
    /// The request makes no sense as asked: correct it (HTTP 400).
    Invalid => 400,
    /// Somebody is using the object: disconnect them and try again (HTTP 409).
    Busy => 409,
    /// Somebody else changed the object meanwhile: read again and retry (HTTP 409).
    Conflict => 409,
    /// No space is left: give some back, then try again (HTTP 507).
    NoSpace => 507,
    /// What was read is not what was written: restore from another copy (HTTP 500).
    Corrupt => 500,
    /// The object is read-only to this caller (HTTP 403).
    ReadOnly => 403,
    /// The object is locked until a date: wait (HTTP 423).
    Locked => 423,
    /// Another gateway has taken over: ask that one (HTTP 503).
    Fenced => 503,
    /// This build cannot do that: upgrade (HTTP 501).
    Unsupported => 501,
    /// The key does not open this pool (HTTP 403).
    WrongKey => 403,
    /// The request has no token, or one that does not count: show another (HTTP 401).
    NoToken => 401,
    /// The token's role does not allow this: use another (HTTP 403).
    Denied => 403,
    /// The server is stopping (HTTP 503).
    Closed => 503,
}

impl From<&Error> for ErrorBody {
    fn from(error: &Error) -> Self {
        ErrorBody {
            kind: error.kind().into(),
            what: error.what(),
            remedy: error.remedy_text().map(str::to_owned),
        }
    }
}

impl From<ErrorBody> for Error {
    fn from(body: ErrorBody) -> Self {
        let error = Error::new(body.kind.into(), body.what);
        match body.remedy {
            Some(remedy) => error.remedy(remedy),
            None => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_arrives_as_it_was_born() {
        for kind in EVERY_KIND {
            let born =
                Error::new((*kind).into(), "snapshot 'web@monday' is locked").remedy("wait until Friday");
            let sent = serde_json::to_string(&ErrorBody::from(&born)).unwrap();
            let arrived: Error = serde_json::from_str::<ErrorBody>(&sent).unwrap().into();
            assert_eq!(format!("{arrived:?}"), format!("{born:?}"));
            assert!(kind.status() >= 400);
        }
    }

    #[test]
    fn a_kind_of_a_newer_server_is_still_an_error() {
        let body: ErrorBody = serde_json::from_str(r#"{"kind":"eclipse","what":"the sun is gone"}"#).unwrap();
        assert_eq!(body.kind, ErrorKind::Io);
    }
}
