//! The pool.

use crate::{Damage, Salvage, Time};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The state of the pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pool {
    /// Its URL and how the engine reaches it, for people.
    #[schema(examples("file:///srv/pool, direct I/O through io_uring"))]
    pub engine: String,
    /// Directories of the pool that are not used, because they failed or are not there: what is kept has fewer copies.
    #[serde(default)]
    pub missing: Vec<String>,
    /// Its directories, where it has any.
    #[serde(default)]
    pub directories: Vec<Directory>,
    /// Why a change of directories under way does not get on; absent where it does, and without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directories_wait: Option<String>,
    /// The URL that names all of its directories, for the next start; absent where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("file:///disk1/pool?also=/disk2/pool&copies=2"))]
    pub url: Option<String>,
    /// Whether writes are refused because there is too little room left.
    #[serde(default)]
    pub full: bool,
    /// Disks whose heads cannot be read: nobody can use them, and until each of them is restored or given up no space is given back.
    #[serde(default)]
    pub damaged: Vec<Damage>,
    /// How many disks it holds, those that are damaged left out.
    pub disks: u64,
    /// How many snapshots it holds.
    pub snapshots: u64,
    /// The disks' sizes, together.
    pub provisioned_bytes: u64,
    /// The same of those that reserve their size.
    #[serde(default)]
    pub reserved_bytes: u64,
    /// Bytes the place can hold in all.
    pub total_bytes: u64,
    /// Bytes still free there.
    pub free_bytes: u64,
    /// Bytes this pool occupies there.
    pub used_bytes: u64,
    /// Bytes acknowledged and not yet folded.
    pub journal_bytes: u64,
    /// The disks' sizes against what the place can hold.
    pub provisioned_percent: u64,
    /// Bytes of the place itself: its file systems, each once, whatever else lies there.
    pub raw_bytes: u64,
    /// Bytes that the pool could hold as it stores them, one copy counted: what it occupies and what is free to it.
    pub usable_bytes: u64,
    /// Bytes of the blocks that disks hold now, each for itself, before anything is saved.
    pub logical_bytes: u64,
    /// How many bytes of disks a byte of the pool holds, times 100, snapshots and what is not given back yet included. Absent
    /// while less than 1 GiB is held, which tells nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reduction_percent: Option<u64>,
    /// Bytes of disks that the pool could hold at this reduction; absent like it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_bytes: Option<u64>,
    /// The disks' sizes against `effective_bytes`: more than 100 is overcommitted. Absent like it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overcommitted_percent: Option<u64>,
    /// By how many bytes a day the pool grows, as seen in the last two weeks; less than 0 when it shrinks. Absent until a day has been
    /// watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growth_bytes_per_day: Option<i64>,
    /// In how many days the pool is full at this growth. Absent when that is not known, and when it does not grow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub days_to_full: Option<u64>,
    /// How far the scrub in the background is.
    pub scrub: Scrub,
    /// What the last check or scrub on command found; absent when there was none since the server was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked: Option<LastCheck>,
    /// What clients met since then that could not be read for damage, by disk or snapshot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged_reads: Vec<DamagedReads>,
    /// Bytes of blocks that something refers to, before compression; what was folded since reclaim last counted is left out.
    pub live_bytes: u64,
    /// Bytes of blocks, before compression, that nothing refers to and that still lie in segments with others.
    pub dead_bytes: u64,
    /// Long work under way.
    #[serde(default)]
    pub work: Vec<Work>,
    /// What locks are judged by.
    pub time: PoolTime,
}

/// The scrub in the background, which reads every copy of everything in turn and heals it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Scrub {
    /// When the pass under way began; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<Time>,
    /// When the last pass was finished; absent before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<Time>,
    /// Segments with damage that no copy is free of, as the pass under way has found, or the last. 'stonefold pool check' tells what
    /// is affected.
    pub damaged_segments: u64,
}

/// What the last check or scrub on command found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LastCheck {
    /// When it ended.
    pub finished: Time,
    /// How many problems it found.
    pub problems: u64,
    /// One of them, in words; absent where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<String>,
}

/// Reads that met damage, of one disk or snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DamagedReads {
    /// The disk or the snapshot.
    #[schema(examples("web@monday"))]
    pub export: String,
    /// How many there were.
    pub times: u64,
    /// When the last was.
    pub last: Time,
    /// What that one met: place and segment.
    pub what: String,
}

/// A directory of the pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Directory {
    /// Where it is, on the machine that serves the pool.
    #[schema(examples("/disk1/pool"))]
    pub dir: String,
    /// What it is to the pool.
    pub state: DirectoryState,
    /// Bytes that the pool occupies in it.
    pub used_bytes: u64,
    /// Bytes free on its file system, which other directories may share.
    pub free_bytes: u64,
    /// Bytes that its file system has in all.
    pub total_bytes: u64,
    /// Its file system, and what that lies on; empty where that is not known.
    #[schema(examples("ext4 on /dev/sdb1"))]
    pub medium: String,
    /// Whether the pool can take no more than this one leaves room for, although others have more.
    pub bounds: bool,
}

/// What a directory is to the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DirectoryState {
    /// It holds what it shall.
    Ok,
    /// What shall lie on it is being brought there.
    Filling,
    /// What lies on it is being brought elsewhere; then it leaves.
    Draining,
    /// It belongs to the pool and is not there.
    Missing,
    /// It belongs to the pool, has failed, and is not used.
    Damaged,
    /// It has left, and is being emptied.
    Emptying,
}

/// Which directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DirectoryChange {
    /// An absolute path on the machine that serves the pool.
    #[schema(examples("/disk2/pool"))]
    pub dir: String,
}

/// Which directory takes the place of which.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DirectoryReplace {
    /// A directory of the pool.
    pub old: String,
    /// An empty one.
    pub new: String,
}

/// The time that locks are judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolTime {
    /// What the pool believes.
    pub trusted: Time,
    /// What the server's clock says.
    pub clock: Time,
    /// The clock is ahead by more than can be explained: no lock ends by it until it is confirmed.
    pub in_doubt: bool,
}

/// Long work under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Work {
    /// What is being done.
    #[schema(examples("scrub"))]
    pub what: String,
    /// Bytes dealt with.
    pub done_bytes: u64,
    /// Bytes in all, as far as is known; 0 while that is being found out.
    pub total_bytes: u64,
}

/// What reclaim did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reclaimed {
    /// Bytes of blocks, before compression, found to be referred to by nothing.
    pub dead_bytes: u64,
    /// Segments deleted.
    pub deleted_segments: u64,
    /// Segments written anew without what was dead.
    pub rewritten_segments: u64,
    /// Bytes of the place given back.
    pub freed_bytes: u64,
}

/// What a check or a scrub found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Checked {
    /// Disks whose maps were walked.
    pub disks: u64,
    /// Snapshots whose maps were walked.
    pub snapshots: u64,
    /// Map nodes in use.
    pub nodes: u64,
    /// Blocks in use; one that several refer to counts once.
    pub blocks: u64,
    /// Segments read.
    pub segments: u64,
    /// Bytes of segments read.
    pub bytes: u64,
    /// Copies that were damaged or missing and have been made sound, by whoever met them first, since the check or scrub
    /// before or since the server was started.
    pub healed: u64,
    /// Bytes that reclaim takes to be in use, although nothing refers to them, and nothing that was removed is about to give them
    /// back: space that does not come back by itself. Exact on a busy pool, too.
    pub lost_bytes: u64,
    /// Bytes acknowledged that could not be folded, and were not looked at.
    #[serde(default)]
    pub unfolded_bytes: u64,
    /// What should be known although it is no damage, in words: data that nobody has the key of.
    #[serde(default)]
    pub notes: Vec<String>,
    /// What is wrong, in words; empty when all is sound.
    pub problems: Vec<String>,
    /// What was salvaged of it, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub salvage: Option<Salvage>,
}
