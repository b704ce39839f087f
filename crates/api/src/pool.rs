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
}
