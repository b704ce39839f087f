//! A file that one run alone may use at a time.
//!
//! *Promise*: who gives it back has given it back, whoever holds a copy of the file: a lock is of the open file, of which a program that is
//! being started has a copy until it runs. *Past bug*: it went with the last copy, so that a file could be called busy just after its use, when
//! another thread was starting a program.

use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::path::Path;
use stonefold_types::{Error, Result};

/// Given back when it is dropped.
pub(crate) struct Lock(File);

impl Lock {
    /// Takes it of a file that lies at `path`.
    ///
    /// # Errors
    /// `busy` where somebody else has it.
    pub(crate) fn take(file: File, path: &Path, busy: impl FnOnce() -> Error) -> Result<Self> {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Lock(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(busy()),
            Err(other) => Err(Error::io(format!("locking '{}'", path.display()), other.into())),
        }
    }

    /// What is locked.
    pub(crate) fn file(&self) -> &File {
        &self.0
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stonefold_types::Kind;

    #[test]
    fn it_is_given_back_whoever_has_a_copy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let take = || {
            let file = File::create(&path).unwrap();
            Lock::take(file, &path, || Error::new(Kind::Busy, "somebody has it"))
        };
        let lock = take().unwrap();
        assert_eq!(take().err().unwrap().kind(), Kind::Busy);
        let copy = lock.file().try_clone().unwrap();
        drop(lock);
        drop(take().unwrap());
        drop(copy);
    }
}
