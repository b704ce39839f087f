//! One directory of a pool: opening it, and the room in it.

use super::durable::{lacks_descriptors, sync_folder};
use super::handles::{self, Handles};
use super::layout::Layout;
use super::lock::{self, Lock};
use super::options::{Direct, Options};
use super::planted;
use super::private;
use super::spares::Spares;
use crate::io::Io;
use crate::{JournalId, Key, Room};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::fs::{self, File, OpenOptions};
use std::hash::BuildHasher;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use stonefold_env::Env;
use stonefold_types::{AlignedBuf, Error, Kind, Result};

/// Locks that keys share: enough that two puts rarely meet, 64 KiB of memory.
const KEY_LOCKS: usize = 1024;

/// One directory of a pool. Everything in it is reached through here.
pub(super) struct Member {
    pub(super) layout: Layout,
    pub(super) io: Io,
    pub(super) env: Env,
    pub(super) handles: Handles,
    pub(super) spares: Spares,
    /// Where files are opened for direct I/O, at multiples of how many bytes reads may begin and end; if not, why.
    direct: std::result::Result<usize, String>,
    /// Held by whatever changes a key or opens its file, so that no open file outlives its object unnoticed.
    keys: Box<[tokio::sync::Mutex<()>]>,
    hasher: RandomState,
    /// Folders known to be there and durable.
    pub(super) folders: tokio::sync::Mutex<HashSet<PathBuf>>,
    /// Bytes that our files occupy. Signed, because a file may be counted before and removed after.
    used_bytes: AtomicI64,
    temporaries: AtomicU64,
    /// Reads on their way, so that the next goes where fewer are.
    pub(super) reads: AtomicUsize,
    /// Objects of it that were damaged or missing, and were made sound again.
    pub(super) healed: AtomicU64,
    /// Why no change is accepted any more: a folder could not be made durable.
    failed: Mutex<Option<Error>>,
    _lock: Lock,
}

impl Member {
    pub(super) async fn open(env: &Env, dir: &Path, options: &Options) -> Result<Member> {
        let io = Io::new();
        let layout = Layout { root: dir.to_path_buf() };
        let (env, options) = (env.clone(), options.clone());
        io.clone().blocking(move || Self::open_now(env, io, layout, &options)).await
    }

    #[expect(clippy::disallowed_methods, reason = "only spreads keys over locks")]
    fn open_now(env: Env, io: Io, layout: Layout, options: &Options) -> Result<Member> {
        // Looked at before anything is made in it, and again under the lock.
        if !layout.inspect(options.create)? {
            let made = private::make_folders(&layout.root);
            made.map_err(|e| {
                Error::io(format!("making the directory '{}'", layout.root.display()), e)
                    .remedy("name a directory whose place exists and that this user may make or write to")
            })?;
        }
        let lock = lock::take(&layout.lock(), &layout.root)?;
        if !layout.inspect(options.create)? {
            layout.make()?;
        }
        let failed = |e: std::io::Error| Error::io(format!("opening pool '{}'", layout.root.display()), e);
        clear(&layout.temporary()).map_err(failed)?;
        // A name that the last process gave and did not live to make durable must not be served before it is. What
        // files hold was durable before they were named; a journal's files are seen to when it is opened. Not
        // syncfs: that would wait for whatever else is written on the same file system.
        if !planted::is("found-not-synced") {
            sync_folders(&layout.root).map_err(failed)?;
        }
        let total_bytes = statvfs(&layout)?.1.total_bytes;
        let spares = Spares::open(&layout.spares(), total_bytes, options).map_err(failed)?;
        let direct = match options.direct {
            Direct::Auto => probe(&layout.temporary().join("probe")),
            Direct::Never => Err("switched off".into()),
        };
        let used_bytes = occupied(&layout.root).map_err(failed)?;
        Ok(Member {
            layout,
            io,
            env,
            handles: Handles::new(
                options.handles_max.unwrap_or_else(|| handles::default_max() / options.dirs.len()),
            ),
            spares,
            direct,
            keys: (0..KEY_LOCKS).map(|_| tokio::sync::Mutex::default()).collect(),
            hasher: RandomState::new(),
            folders: tokio::sync::Mutex::default(),
            used_bytes: AtomicI64::new(used_bytes as i64),
            temporaries: AtomicU64::new(0),
            reads: AtomicUsize::new(0),
            healed: AtomicU64::new(0),
            failed: Mutex::new(None),
            _lock: lock,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.layout.root
    }

    pub(super) fn is_direct(&self) -> bool {
        self.direct.is_ok()
    }

    /// Reads begin and end at multiples of this, in bytes.
    pub(super) fn read_align(&self) -> usize {
        *self.direct.as_ref().unwrap_or(&AlignedBuf::ALIGN)
    }

    /// How files are reached, for people.
    pub(super) fn access(&self) -> String {
        match &self.direct {
            Ok(_) => "direct I/O".into(),
            Err(why) => format!("I/O through the page cache (direct I/O: {why})"),
        }
    }

    /// The lock of one key.
    pub(super) async fn lock_key(&self, key: &Key) -> tokio::sync::MutexGuard<'_, ()> {
        let index = self.hasher.hash_one(key) as usize % self.keys.len();
        self.keys[index].lock().await
    }

    /// A path for something that is being written or removed.
    pub(super) fn temporary_path(&self) -> PathBuf {
        self.layout.temporary().join(self.temporaries.fetch_add(1, Ordering::Relaxed).to_string())
    }

    /// Opens a file around the page cache where that works.
    pub(super) fn open_options(&self) -> OpenOptions {
        let mut options = private::options();
        if self.is_direct() {
            options.custom_flags(libc::O_DIRECT);
        }
        options
    }

    pub(super) fn count_bytes(&self, before: u64, after: u64) {
        self.used_bytes.fetch_add(after as i64 - before as i64, Ordering::Relaxed);
    }

    /// Refuses changes once a folder could not be made durable.
    pub(super) fn check_sound(&self) -> Result<()> {
        self.failed.lock().clone().map_or(Ok(()), Err)
    }

    /// Every write fails from now on, as when the disk has gone.
    #[cfg(test)]
    pub(super) fn break_for_test(&self) {
        let gone = std::io::Error::from_raw_os_error(libc::EIO);
        *self.failed.lock() = Some(Error::io(format!("writing to '{}'", self.path().display()), gone));
    }

    /// Makes the names in a folder durable. A failure is final, because the kernel may have dropped the names and
    /// would answer a second attempt with success.
    pub(super) fn sync_folder_now(&self, folder: &Path) -> Result<()> {
        self.check_sound()?;
        sync_folder(folder).map_err(|e| {
            let error = Error::io(format!("making folder '{}' durable", folder.display()), e)
                .remedy("look at the disk and the kernel's log, then restart");
            self.failed.lock().get_or_insert(error).clone()
        })
    }

    /// Room on the file system, and what this pool takes of it.
    /// Members on one file system tell the same device.
    pub(super) async fn room(&self) -> Result<(u64, Room)> {
        let layout = self.layout.clone();
        let (device, mut room) = self.io.blocking(move || statvfs(&layout)).await?;
        // Spare journal files are ours to give back.
        room.free_bytes = room.free_bytes.saturating_add(self.spares.bytes());
        room.used_bytes = self.used_bytes.load(Ordering::Relaxed).max(0) as u64;
        Ok((device, room))
    }

    pub(super) async fn journal_list(&self) -> Result<Vec<JournalId>> {
        let folder = self.layout.journals();
        let names = self.io.blocking(move || {
            let names = fs::read_dir(&folder).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
            names.map_err(|e| Error::io(format!("listing '{}'", folder.display()), e))
        });
        let mut ids: Vec<_> = names.await?.iter().filter_map(|e| parse_id(e.file_name().to_str()?)).collect();
        ids.sort_unstable();
        Ok(ids)
    }
}

fn parse_id(name: &str) -> Option<JournalId> {
    let id = u128::from_str_radix(name, 16).ok().filter(|_| name.len() == 32)?;
    Some(JournalId(id.to_be_bytes()))
}

fn statvfs(layout: &Layout) -> Result<(u64, Room)> {
    let stat = rustix::fs::statvfs(&layout.root).map_err(|e| {
        Error::io(format!("asking for the room at '{}'", layout.root.display()), e.into())
            .remedy("look whether the directory and its disk are there; the kernel's log says what failed")
    })?;
    let bytes = stat.f_blocks * stat.f_frsize;
    let room = Room {
        raw_bytes: bytes,
        total_bytes: bytes,
        free_bytes: stat.f_bavail * stat.f_frsize,
        used_bytes: 0,
    };
    let device = fs::metadata(&layout.root).map_or(0, |root| root.dev());
    Ok((device, room))
}

/// Empties a folder.
fn clear(folder: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Makes the names in a folder, and in those below it, durable.
fn sync_folders(folder: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_folders(&entry.path())?;
        }
    }
    sync_folder(folder)
}

/// Bytes that the files below a folder occupy on disk.
fn occupied(folder: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            bytes += occupied(&entry.path())?;
        } else {
            bytes += occupied_by(&entry.metadata()?);
        }
    }
    Ok(bytes)
}

/// Bytes that a file occupies on disk: its blocks, which the kernel counts by 512.
pub(super) fn occupied_by(metadata: &fs::Metadata) -> u64 {
    metadata.blocks() * 512
}

/// A sector of most disks, in bytes. Where reads may begin at any, a small frame costs the disk hardly more than its own bytes.
const SECTOR_BYTES: usize = 512;

/// Tries direct I/O where the pool lies, and tells how reads must be aligned.
fn probe(path: &Path) -> std::result::Result<usize, String> {
    let try_it = || {
        let mut options = private::options();
        options.read(true).write(true).create(true).truncate(true).custom_flags(libc::O_DIRECT);
        let file = options.open(path)?;
        let mut page = AlignedBuf::zeroed(AlignedBuf::ALIGN);
        page.fill(0xa5);
        file.write_all_at(&page, 0)?;
        page.fill(0);
        file.read_exact_at(&mut page, 0)?;
        if page.iter().any(|b| *b != 0xa5) {
            return Err(std::io::Error::other("what was written did not come back"));
        }
        let sector = file.read_exact_at(&mut page[..SECTOR_BYTES], SECTOR_BYTES as u64);
        Ok(if sector.is_ok() { SECTOR_BYTES } else { AlignedBuf::ALIGN })
    };
    let result = try_it().map_err(|e: std::io::Error| match e.kind() {
        std::io::ErrorKind::InvalidInput => "the file system refuses it".into(),
        _ => e.to_string(),
    });
    let _ = fs::remove_file(path);
    result
}

/// An error about a file, in the words of what was being done.
pub(super) fn file_error(doing: &str, path: &Path, error: std::io::Error) -> Error {
    let error = Error::io(format!("{doing} '{}'", path.display()), error);
    if error.kind() == Kind::NoSpace {
        return error.remedy("give space back on that file system, or make it larger");
    }
    error
}

/// The same where a file was to be opened and nothing has been written yet: a lack of descriptors is a lack of room, and nothing
/// is lost by it.
pub(super) fn opening_error(doing: &str, path: &Path, error: std::io::Error) -> Error {
    if !lacks_descriptors(&error) {
        return file_error(doing, path, error);
    }
    Error::io(format!("{doing} '{}'", path.display()), error)
        .with_kind(Kind::NoSpace)
        .remedy("raise the limit of open files (ulimit -n, LimitNOFILE=), or disconnect clients")
}

/// A file that goes away unless it is given its name.
pub(super) struct Temporary {
    pub(super) path: PathBuf,
    pub(super) kept: bool,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.kept {
            // What cannot be removed now is removed when the pool is opened.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Shares a file's descriptor with the kernel's requests.
pub(super) type SharedFile = Arc<File>;
