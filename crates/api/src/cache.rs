//! The cache in the server's memory.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Cache {
    /// Bytes in it.
    pub used_bytes: u64,
    /// Bytes it may grow to.
    pub max_bytes: u64,
}

/// A new size for the cache, until the server stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CacheResize {
    /// Bytes it may grow to.
    pub max_bytes: u64,
}

/// A range to be brought into the cache. Whoever warms a whole disk asks for one range after the other, so that
/// it can show how far it is and stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CacheWarm {
    /// The disk, or the snapshot as `DISK@SNAP`.
    #[schema(examples("web@monday"))]
    pub export: String,
    /// Where to begin, in bytes.
    pub offset: u64,
    /// How much of the export to look at, in bytes.
    pub bytes: u64,
}

/// What warming did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CacheWarmed {
    /// Bytes that hold data and are now in the cache; holes need no cache.
    pub warmed_bytes: u64,
    /// Where the next range begins; the export's size when all is done.
    pub next_offset: u64,
    /// The export's size in bytes.
    pub size_bytes: u64,
}
