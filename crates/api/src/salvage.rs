//! What a salvage found.

use crate::ErrorBody;
use serde::{Deserialize, Serialize};
use stonefold_types::Name;
use utoipa::ToSchema;

/// What was made of disks and snapshots whose maps are damaged in every copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Salvage {
    /// All of them; empty when no map is damaged.
    pub disks: Vec<Salvaged>,
    /// Segments that could not be looked into, in words: blocks that lie there may have been missed.
    pub unseen: Vec<String>,
}

/// A disk or snapshot whose map is damaged. It stays as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Salvaged {
    /// `DISK` or `DISK@SNAPSHOT`.
    #[schema(examples("web@monday"))]
    pub of: String,
    /// The new disk that was made of it; absent when none could be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, examples("web.monday.salvaged"))]
    pub disk: Option<Name>,
    /// Why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
    /// What the damage covered, in the order of addresses; at most a thousand ranges.
    pub ranges: Vec<SalvagedRange>,
    /// Bytes of further ranges.
    pub untold_bytes: u64,
    /// Bytes of which nothing was found. Reading them from the new disk is an I/O error until they are written or trimmed.
    pub lost_bytes: u64,
}

/// Consecutive bytes that the damage covered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SalvagedRange {
    /// Bytes from the disk's beginning.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// What they were rebuilt from.
    pub from: SalvagedFrom,
}

/// What a range was rebuilt from, the surest first. Only the first is certain: a block that was overwritten by one found by
/// deduplication, or trimmed, after the last version of its map that can be read may be as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SalvagedFrom {
    /// The map itself, which was still in the server's memory.
    Memory,
    /// The newest parts of the map below the damaged one.
    Nodes,
    /// An older version of that part of the map, and blocks written there since.
    OlderVersion,
    /// Blocks written there, without any version of that part of the map.
    Blocks,
    /// Nothing was found.
    Nothing,
}
