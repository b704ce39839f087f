//! One error type for the whole house: what failed, on which object, what the reader can do.

use std::fmt;
use std::sync::Arc;

/// The result of anything that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// What a caller's code should do about an error; the words for people are in the error itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The named object does not exist: correct the name.
    NotFound,
    /// The name is taken: choose another.
    AlreadyExists,
    /// The request makes no sense as asked: correct it.
    Invalid,
    /// Somebody is using the object: disconnect them and try again.
    Busy,
    /// A compare-and-swap lost: read again and retry.
    Conflict,
    /// No space is left: give some back, then try again; nothing was lost.
    NoSpace,
    /// What was read is not what was written: restore from another copy.
    Corrupt,
    /// The medium or the network failed: look at it; state is unknown until reopened.
    Io,
    /// The object or the pool is read-only to this caller.
    ReadOnly,
    /// The object is locked until a date: wait.
    Locked,
    /// Another owner has taken over: stop.
    Fenced,
    /// Written by a newer version, or by one this build cannot read: upgrade.
    Unsupported,
    /// The key does not open this pool.
    WrongKey,
    /// Nobody who is known asks: show a token that counts.
    NoToken,
    /// Who asks is known and may not: use a token of another role.
    Denied,
    /// This part has been closed and answers nothing more.
    Closed,
}

/// What failed, on which object, and what to do. Cheap to clone: one failure can have many waiters.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

struct Inner {
    kind: Kind,
    what: String,
    remedy: Option<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// `what` names the failure and its object, as in "disk 'web' does not exist".
    pub fn new(kind: Kind, what: impl Into<String>) -> Self {
        Error(Arc::new(Inner { kind, what: what.into(), remedy: None, source: None }))
    }

    /// Wraps an operating-system error; a full disk or a missing file keeps its own kind.
    pub fn io(what: impl Into<String>, source: std::io::Error) -> Self {
        let kind = match source.kind() {
            std::io::ErrorKind::NotFound => Kind::NotFound,
            std::io::ErrorKind::AlreadyExists => Kind::AlreadyExists,
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Kind::NoSpace,
            _ => Kind::Io,
        };
        Error(Arc::new(Inner { kind, what: what.into(), remedy: None, source: Some(Box::new(source)) }))
    }

    /// Adds what the reader can do about it, as an imperative: "choose another name".
    #[must_use]
    pub fn remedy(self, remedy: impl Into<String>) -> Self {
        self.rebuild(|inner| inner.remedy = Some(remedy.into()))
    }

    /// Puts the object or the action that failed in front: "import of 'web': …".
    #[must_use]
    pub fn context(self, context: impl fmt::Display) -> Self {
        self.rebuild(|inner| inner.what = format!("{context}: {}", inner.what))
    }

    /// The same failure, to be treated otherwise by code.
    #[must_use]
    pub fn with_kind(self, kind: Kind) -> Self {
        self.rebuild(|inner| inner.kind = kind)
    }

    fn rebuild(self, change: impl FnOnce(&mut Inner)) -> Self {
        let mut inner = Arc::try_unwrap(self.0).unwrap_or_else(|shared| Inner {
            kind: shared.kind,
            what: shared.what.clone(),
            remedy: shared.remedy.clone(),
            // A shared source cannot be moved out; its words are kept.
            source: shared.source.as_ref().map(|s| s.to_string().into()),
        });
        change(&mut inner);
        Error(Arc::new(inner))
    }

    /// What code should do about it.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// What failed and on what, with its cause.
    pub fn what(&self) -> String {
        match &self.0.source {
            Some(source) => format!("{}: {source}", self.0.what),
            None => self.0.what.clone(),
        }
    }

    /// What the reader can do, where something is known.
    pub fn remedy_text(&self) -> Option<&str> {
        self.0.remedy.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what())?;
        match &self.0.remedy {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({self})", self.0.kind)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_on_what_and_what_to_do() {
        let e = Error::new(Kind::AlreadyExists, "disk 'web' exists already").remedy("choose another name");
        assert_eq!(e.to_string(), "disk 'web' exists already; choose another name");
        let shared = e.clone();
        assert_eq!(e.context("clone").to_string(), "clone: disk 'web' exists already; choose another name");
        assert_eq!(shared.kind(), Kind::AlreadyExists);
    }

    #[test]
    fn a_full_disk_keeps_its_kind() {
        let e = Error::io("writing segment 7", std::io::Error::from_raw_os_error(28));
        assert_eq!(e.kind(), Kind::NoSpace);
    }
}
