//! Where things lie in a directory of a pool. Drawn once, here; a pool on several directories has this in each.
//!
//! ```text
//! DIR/pool                          "stonefold pool, layout 4", so that a directory says what it is
//! DIR/member, DIR/member.second     which of the pool's members this is, and who the others are (roster.rs), twice
//! DIR/lock                          held (flock) by the one process that serves the pool; its number is in it
//! DIR/objects/KIND/XX/REST          an object: header, parity, its bytes (header.rs)
//! DIR/journals/INCARNATION/NNNNNNNN-SEQ a journal: files of chunks, numbered without a gap, each with its first chunk's
//!                                   sequence number (journal.rs)
//! DIR/spares/NNNNNNNN               files that journals are done with, for the next journal to overwrite
//! DIR/temporary/                    what is being written or removed; emptied when the pool is opened
//! DIR/left                          of a directory that has left its pool: which pool, and where that is (tombstone.rs)
//! ```
//! An object's key is `KIND/REST`: its first part, and what follows with `+` for `/`. `XX` is one of 64 folders
//! chosen by a hash of REST: a folder of some thousand names is quick to search, list and sync on every file system,
//! and 128k segments make 64 folders of 2k. A key of one part alone lies in KIND `+`.

use super::durable::{sync_folder, sync_way_to};
use super::private;
use crate::{JournalId, Key};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use stonefold_types::{Error, Kind, Result};
use xxhash_rust::xxh3::xxh3_64;

/// What the file `pool` says.
const POOL_MARK: &str = "stonefold pool, layout 4\n";
/// The number in it.
const LAYOUT: u32 = 4;
/// Longest file name made from a key, in bytes: file systems take 255.
const NAME_BYTES_MAX: usize = 255;
/// Folders that a kind's objects are spread over.
pub(super) const BUCKETS: u64 = 64;
/// What an empty or half-made pool directory may hold.
const KNOWN: [&str; 10] = [
    "pool",
    "member",
    "member.second",
    "lock",
    "objects",
    "journals",
    "spares",
    "temporary",
    "left",
    "lost+found",
];

/// The paths of one directory.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) root: PathBuf,
}

/// Where one object lies.
pub(super) struct Place {
    /// The folder of its kind.
    pub(super) kind: PathBuf,
    /// The bucket in it.
    pub(super) folder: PathBuf,
    /// The file in that.
    pub(super) file: PathBuf,
}

impl Layout {
    pub(super) fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }
    pub(super) fn objects(&self) -> PathBuf {
        self.root.join("objects")
    }
    pub(super) fn journals(&self) -> PathBuf {
        self.root.join("journals")
    }
    pub(super) fn journal(&self, id: JournalId) -> PathBuf {
        self.journals().join(id.to_string())
    }
    pub(super) fn spares(&self) -> PathBuf {
        self.root.join("spares")
    }
    pub(super) fn temporary(&self) -> PathBuf {
        self.root.join("temporary")
    }
    pub(super) fn pool(&self) -> PathBuf {
        self.root.join("pool")
    }
    pub(super) fn tombstone(&self) -> PathBuf {
        self.root.join("left")
    }
    pub(super) fn rosters(&self) -> [PathBuf; 2] {
        [self.root.join("member"), self.root.join("member.second")]
    }

    /// Where an object lies; a key too long for a file name is refused.
    pub(super) fn place(&self, key: &Key) -> Result<Place> {
        let (kind, rest) = key.as_str().split_once('/').unwrap_or(("+", key.as_str()));
        if kind.len().max(rest.len()) > NAME_BYTES_MAX {
            let why = format!("key '{key}' is longer than a file system's names ({NAME_BYTES_MAX} bytes)");
            return Err(Error::new(Kind::Invalid, why));
        }
        let name = rest.replace('/', "+");
        let kind = self.objects().join(kind);
        let folder = kind.join(format!("{:02x}", xxh3_64(name.as_bytes()) % BUCKETS));
        let file = folder.join(name);
        Ok(Place { kind, folder, file })
    }

    /// The key of a file found in the folder of a kind; `None` for a stranger.
    pub(super) fn key(kind: &str, name: &str) -> Option<Key> {
        let rest = name.replace('+', "/");
        let text = if kind == "+" { rest } else { format!("{kind}/{rest}") };
        Key::is_valid(&text).then(|| Key::new(text))
    }

    /// Whether this is a pool's directory (`true`) or one that can become it (`false`); touches nothing.
    pub(super) fn inspect(&self, create: bool) -> Result<bool> {
        let path = self.pool();
        match fs::read_to_string(&path) {
            Ok(mark) if mark == POOL_MARK => return Ok(true),
            Ok(mark) if mark.starts_with("stonefold pool, layout ") => {
                let why = format!("pool '{}' has another layout ({})", self.root.display(), mark.trim_end());
                let number = mark.trim_end().rsplit(' ').next().and_then(|number| number.parse::<u32>().ok());
                let remedy = match number {
                    Some(number) if number < LAYOUT => "export its disks with the stonefold that made it",
                    _ => "open it with a newer stonefold",
                };
                return Err(Error::new(Kind::Unsupported, why).remedy(remedy));
            }
            Ok(_) => return Err(self.stranger("its file 'pool' is not ours")),
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) if e.kind() == ErrorKind::NotADirectory => {
                let what = format!("'{}' is not a directory, or lies below a file", self.root.display());
                return Err(Error::new(Kind::Invalid, what).remedy("name a directory"));
            }
            Err(e) => {
                let remedy = "run this as the user whose pool it is, or with sudo";
                return Err(Error::io(format!("reading '{}'", path.display()), e).remedy(remedy));
            }
        }
        if !create {
            let why = format!("'{}' holds no pool", self.root.display());
            return Err(Error::new(Kind::NotFound, why).remedy("correct the path"));
        }
        let entries = match fs::read_dir(&self.root) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(false),
            other => other.and_then(Iterator::collect::<std::io::Result<Vec<_>>>),
        };
        for entry in entries.map_err(|e| Error::io(format!("looking into '{}'", self.root.display()), e))? {
            let name = entry.file_name();
            if !KNOWN.iter().any(|known| name == *known) {
                return Err(self.stranger(&format!("it holds '{}'", name.to_string_lossy())));
            }
        }
        Ok(false)
    }

    fn stranger(&self, why: &str) -> Error {
        let what = format!("'{}' is no pool, nor empty: {why}", self.root.display());
        Error::new(Kind::Invalid, what).remedy("name an empty directory, or one that does not exist yet")
    }

    /// Makes it a pool's directory.
    pub(super) fn make(&self) -> Result<()> {
        let failed = |path: &Path, e| Error::io(format!("making a pool at '{}'", path.display()), e);
        for path in [self.objects(), self.journals(), self.spares(), self.temporary()] {
            private::make_folders(&path).map_err(|e| failed(&path, e))?;
        }
        // The mark comes last and whole, so that a directory without it is still to be made: with it all else is durable, the way
        // to the directory among it.
        let fresh = self.temporary().join("pool");
        let write = || {
            private::write(&fresh, POOL_MARK.as_ref())?;
            sync_folder(&self.root)?;
            sync_way_to(&self.root)?;
            fs::rename(&fresh, self.pool())?;
            sync_folder(&self.root)
        };
        write().map_err(|e| failed(&self.root, e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_tells_its_key() {
        let layout = Layout { root: "/p".into() };
        for text in ["head/a", "head/a/b.c", "alone"] {
            let place = layout.place(&Key::new(text)).unwrap();
            let kind = place.kind.file_name().unwrap().to_str().unwrap();
            let name = place.file.file_name().unwrap().to_str().unwrap();
            assert_eq!(Layout::key(kind, name), Some(Key::new(text)));
        }
        let long = Key::new(format!("a/{}", "x".repeat(300)));
        assert_eq!(layout.place(&long).err().unwrap().kind(), Kind::Invalid);
    }
}
