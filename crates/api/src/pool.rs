//! The pool.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The state of the pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pool {
    /// Its URL and how the engine reaches it, for people.
    #[schema(examples("file:///srv/pool, direct I/O through io_uring"))]
    pub engine: String,
    /// How many disks it holds.
    pub disks: u64,
    /// How many snapshots it holds.
    pub snapshots: u64,
    /// The disks' sizes, together.
    pub provisioned_bytes: u64,
    /// Bytes the place can hold in all.
    pub total_bytes: u64,
    /// Bytes still free there.
    pub free_bytes: u64,
    /// Bytes this pool occupies there.
    pub used_bytes: u64,
    /// Bytes acknowledged and not yet folded.
    pub journal_bytes: u64,
    /// The disks' sizes against the place's: more than 100 is overcommitted.
    pub provisioned_percent: u64,
    /// Bytes of blocks that something refers to, before compression; what was folded since reclaim last counted is left out.
    pub live_bytes: u64,
    /// Bytes of blocks, before compression, that nothing refers to and that still lie in segments with others.
    pub dead_bytes: u64,
    /// Long work under way.
    #[serde(default)]
    pub work: Vec<Work>,
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
    /// Damaged copies that were replaced by a sound one; only a scrub does that.
    pub healed: u64,
    /// Bytes that reclaim takes to be in use, although nothing refers to them: space that does not come back by itself.
    pub lost_bytes: u64,
    /// What is wrong, in words; empty when all is sound.
    pub problems: Vec<String>,
}
