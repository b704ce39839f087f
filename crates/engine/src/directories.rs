//! Directories of a place that come and go while it is used.
//!
//! *Promises*: what [`Directories`] says of each command; every one of them is begun and durable when it returns, and is
//! done by [`Directories::step`], again and again, for whoever decides how much of the machine that may take. A process
//! that dies in the midst of it goes on where it was once the pool is open again. *Never*: moves anything by itself.

use async_trait::async_trait;
use std::path::{Path, PathBuf};
use stonefold_types::Result;

/// What a directory is to its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectoryState {
    /// It holds what it shall.
    Sound,
    /// What shall lie on it is being brought there.
    Filling,
    /// What lies on it is being brought elsewhere, after which it leaves.
    Draining,
    /// It belongs to the pool and is not there.
    Missing,
    /// It belongs to the pool, has failed, and is not used.
    Damaged,
    /// Nothing of the pool's objects lies on it any more, and it is being emptied.
    Emptying,
}

/// A directory of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    /// Where it is.
    pub dir: PathBuf,
    /// What it is to the pool.
    pub state: DirectoryState,
    /// Bytes that the pool occupies in it.
    pub used_bytes: u64,
    /// Bytes free on its file system, which other directories may share.
    pub free_bytes: u64,
    /// Bytes that its file system has in all.
    pub total_bytes: u64,
    /// Its file system and what that lies on, for people ("ext4 on /dev/sdb1"); empty where that is not known.
    pub medium: String,
    /// Whether the pool can take no more than this one leaves room for, although others have more.
    pub bounds: bool,
}

/// How far a change of directories is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moving {
    /// Bytes brought to where they shall lie.
    pub done_bytes: u64,
    /// Bytes that there were to bring, as far as is known; 0 while that is being found out.
    pub total_bytes: u64,
    /// Why it does not get on, if so.
    pub waits: Option<String>,
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing is left to be done.
    Idle,
    /// It went on; so many bytes were read or written for it.
    Went {
        /// Bytes.
        bytes: u64,
    },
    /// It can only go on once something else has happened; `moving` says what.
    Waits {
        /// That journals are trimmed or removed.
        for_journals: bool,
    },
}

/// The directories of a pool, and their coming and going. One change at a time: another is refused with
/// [`Kind::Busy`](stonefold_types::Kind) until it is done or taken back.
#[async_trait]
pub trait Directories: Send + Sync {
    /// Every directory that belongs to the pool, or is being emptied.
    async fn states(&self) -> Result<Vec<Directory>>;

    /// The URL that names them all.
    fn url(&self) -> String;

    /// How far the change under way is; `None` without one.
    fn moving(&self) -> Option<Moving>;

    /// Begins to use an empty directory, or one that has left a pool, this or another. One that is being drained stays instead.
    async fn add(&self, dir: &Path) -> Result<()>;

    /// Begins to bring everything elsewhere that lies in a directory; then it leaves the pool, and has nothing of it but
    /// a tombstone that says where the pool is. Refused
    /// with `NoSpace` when the others have no room for it, with `Invalid` when they are fewer than the copies. One that
    /// is not used is forgotten once the others have all copies. One that is being added is not.
    async fn drain(&self, dir: &Path) -> Result<()>;

    /// Both at once: what shall lie in the one lies in the other afterwards. It is read where it is as long as that
    /// answers, else from other copies.
    async fn replace(&self, old: &Path, new: &Path) -> Result<()>;

    /// Takes the change under way back: what was brought elsewhere comes home.
    async fn cancel(&self) -> Result<()>;

    /// Goes on a little with what was begun: a few objects, some MiB.
    async fn step(&self) -> Result<Step>;
}
