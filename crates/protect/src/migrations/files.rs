//! The files that a machine's disks go to.
//!
//! *Order*: a file is made, which must not be there; the document says so; only then is anything copied to it. So whoever finds a file that the
//! document does not know has one that is somebody else's, or an empty image. *Never*: a file that was there is written to; one that anybody has
//! stored a byte in is taken away, but what was copied to it.

use super::home::{Home, HomeFormat};
use super::{Migration, MovedDisk};
use crate::catalog;
use crate::hypervisor::ANSWER_MAX;
use crate::qmp::within;
use parking_lot::Mutex;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use stonefold_env::Env;
use stonefold_store::Store;
use stonefold_types::{Error, Kind, Name, Result};
use tokio::process::Command;

/// A new image holds no more than its own tables, in bytes.
const NEW_IMAGE_BYTES_MAX: u64 = 16 << 20;
/// What qemu-img makes is no longer than this, of any size, and nothing of a disk's fits in.
const NEW_QCOW2_BYTES_MAX: u64 = 1 << 20;

/// See the module. Those of one migration.
pub(super) struct Files {
    env: Env,
    store: Arc<Store>,
    migration: Name,
    format: HomeFormat,
    /// Whether an earlier server may have begun.
    pub(super) again: bool,
    /// Of each disk whether its file was made for it.
    made: Mutex<Vec<bool>>,
}

impl Files {
    /// Those of a migration.
    pub(super) fn of(env: &Env, store: &Arc<Store>, migration: &Migration, again: bool) -> Files {
        // An older server did not say so; but what it had copied went somewhere. A disk that went before has a file that is in use.
        let is_made = |disk: &MovedDisk| !disk.moved && (disk.made || again && disk.done_bytes > 0);
        Files {
            env: env.clone(),
            store: store.clone(),
            migration: migration.name.clone(),
            format: migration.format,
            again,
            made: Mutex::new(migration.disks.iter().map(is_made).collect()),
        }
    }

    /// Whether an earlier server had copied to a disk's new place.
    pub(super) fn was_copied_to(&self, number: usize, disk: &MovedDisk) -> bool {
        let holds_more = |path: &Path| path.metadata().is_ok_and(|found| !is_new(&found));
        let is_filled = |home: &Home| matches!(home, Home::File(path) if holds_more(path));
        self.again && (disk.done_bytes > 0 || self.made.lock()[number] && is_filled(&disk.home))
    }

    /// Makes a disk's file, where it goes to one. One that an earlier server has made is made anew, unless it holds anything.
    pub(super) async fn make(&self, number: usize, disk: &MovedDisk) -> Result<()> {
        let Home::File(path) = &disk.home else { return Ok(()) };
        // It may have been killed before it said so.
        let is_its = |found: &Metadata| match self.made.lock()[number] {
            true => is_new(found),
            false => is_empty(path, found, self.format, disk.total_bytes),
        };
        if self.again && path.symlink_metadata().is_ok_and(|found| is_its(&found)) {
            std::fs::remove_file(path)
                .map_err(|e| Error::io(format!("making '{}' anew", path.display()), e))?;
        }
        make(&self.env, path, self.format, disk.total_bytes).await?;
        self.say_made(number).await
    }

    /// Says of a file that is copied to already that it was made for its disk: a server of before did not.
    pub(super) async fn claim(&self, number: usize, disk: &MovedDisk) -> Result<()> {
        match &disk.home {
            Home::File(_) if !self.made.lock()[number] => self.say_made(number).await,
            _ => Ok(()),
        }
    }

    async fn say_made(&self, number: usize) -> Result<()> {
        self.made.lock()[number] = true;
        let say = |migration: &mut Migration| {
            migration.disks[number].made = true;
            Ok(())
        };
        catalog::change::<Migration>(&self.store, self.migration.as_str(), say).await.map(drop)
    }

    /// Takes a disk's file away again, where one was made.
    pub(super) fn take_away(&self, number: usize, disk: &MovedDisk) -> Result<()> {
        let Home::File(path) = &disk.home else { return Ok(()) };
        if !self.made.lock()[number] {
            return Ok(());
        }
        match std::fs::remove_file(path) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                Err(Error::io(format!("removing '{}'", path.display()), e))
            }
            _ => Ok(()),
        }
    }
}

fn is_new(found: &Metadata) -> bool {
    found.blocks() * 512 < NEW_IMAGE_BYTES_MAX
}

/// Whether a file is as [`make`] leaves it, in whichever of its steps: nothing was ever stored in it.
fn is_empty(path: &Path, found: &Metadata, format: HomeFormat, size_bytes: u64) -> bool {
    let is_of_size = || match format {
        HomeFormat::Raw => found.len() == size_bytes && found.blocks() == 0,
        HomeFormat::Qcow2 => found.len() < NEW_QCOW2_BYTES_MAX && size_of_qcow2(path) == Some(size_bytes),
    };
    found.is_file() && (found.len() == 0 || is_of_size())
}

/// What a qcow2's header says of how large its disk is: a magic number, and 8 bytes from the 24th (QEMU, `docs/interop/qcow2.txt`).
fn size_of_qcow2(path: &Path) -> Option<u64> {
    let mut header = [0; 32];
    File::open(path).ok()?.read_exact(&mut header).ok()?;
    let size = header[24..].try_into().expect("eight bytes");
    header.starts_with(b"QFI\xfb").then_some(u64::from_be_bytes(size))
}

/// Makes a new image, which must not be there; nothing is left where it cannot be made.
async fn make(env: &Env, path: &Path, format: HomeFormat, size_bytes: u64) -> Result<()> {
    let failed = |e| Error::io(format!("making '{}'", path.display()), e);
    // A guest's disk is nobody else's on that machine.
    let file = OpenOptions::new().write(true).create_new(true).mode(0o640).open(path);
    let file = file.map_err(|e| failed(e).remedy("name another file; none is written over"))?;
    let made = match format {
        HomeFormat::Raw => file.set_len(size_bytes).map_err(failed),
        HomeFormat::Qcow2 => make_qcow2(env, path, size_bytes).await,
    };
    if made.is_err() {
        let _ = std::fs::remove_file(path);
    }
    made
}

async fn make_qcow2(env: &Env, path: &Path, size_bytes: u64) -> Result<()> {
    let mut command = Command::new("qemu-img");
    command
        .args(["create", "-q", "-f", HomeFormat::Qcow2.name()])
        .arg(path)
        .arg(size_bytes.to_string())
        .kill_on_drop(true);
    let output = within(env, ANSWER_MAX, command.output()).await;
    let output = output.ok_or_else(|| Error::new(Kind::Io, "qemu-img does not end"))?;
    let missing = |e| Error::io("running qemu-img", e).remedy("install qemu-utils where the server runs");
    let output = output.map_err(missing)?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let says = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(Error::new(Kind::Io, format!("qemu-img cannot make '{}': {says}", path.display())))
        }
    }
}

#[cfg(test)]
mod tests;
