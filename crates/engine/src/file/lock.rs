//! One process at a time: the lock on a pool's directory.

use super::private;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::path::Path;
use stonefold_types::{Error, Kind, Result};

/// Held as long as it lives; the kernel lets go of it when the process dies.
pub(super) struct Lock(File);

impl Drop for Lock {
    /// By name: closing alone leaves the lock to a child that was forked just now and has not begun its own program yet.
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Takes the lock, or says which process has it.
pub(super) fn take(path: &Path, pool: &Path) -> Result<Lock> {
    let failed = |e| Error::io(format!("locking pool '{}'", pool.display()), e);
    let open = private::options().read(true).write(true).create(true).truncate(false).open(path);
    let mut file = open.map_err(|e| {
        let remedy = match e.kind() {
            std::io::ErrorKind::ReadOnlyFilesystem => {
                "mount its file system writable: even a check takes the lock and replays the journal"
            }
            std::io::ErrorKind::PermissionDenied => "run this as the user whose pool it is, or with sudo",
            _ => "make sure that the directory can be written to",
        };
        failed(e).remedy(remedy)
    })?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Err(busy(file, pool)),
        Err(e) => return Err(failed(e.into())),
    }
    let note = |file: &mut File| {
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())
    };
    // The number only helps people: a full disk must not keep a pool from being opened.
    if let Err(error) = note(&mut file) {
        tracing::warn!(%error, "the lock of pool '{}' cannot say who holds it", pool.display());
    }
    Ok(Lock(file))
}

fn busy(mut file: File, pool: &Path) -> Error {
    let mut text = String::new();
    let _ = file.read_to_string(&mut text);
    let holder = match text.trim().parse::<u32>() {
        Ok(pid) => {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            let name = name.trim();
            if name.is_empty() { format!("process {pid}") } else { format!("process {pid} ({name})") }
        }
        Err(_) => "another process".into(),
    };
    Error::new(Kind::Busy, format!("pool '{}' is in use by {holder}", pool.display()))
        .remedy("stop that process, or ask it through its API instead")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_just_forked_does_not_keep_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let lock = take(&path, dir.path()).unwrap();
        // What a fork makes of it.
        let _childs = lock.0.try_clone().unwrap();
        assert_eq!(take(&path, dir.path()).err().unwrap().kind(), Kind::Busy);
        drop(lock);
        take(&path, dir.path()).unwrap();
    }
}
