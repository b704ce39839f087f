//! Snapshots, what is made from them, and what differs between them.

use crate::Time;
use serde::{Deserialize, Serialize};
use stonefold_types::Name;
use utoipa::ToSchema;

/// A snapshot of one disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Snapshot {
    /// The disk.
    #[schema(value_type = String, examples("web"))]
    pub disk: Name,
    /// The snapshot's name, unique within its disk.
    #[schema(value_type = String, examples("monday"))]
    pub name: Name,
    /// Its number: unique within its disk, and growing.
    pub number: u64,
    /// The disk's size at that instant, in bytes.
    pub size_bytes: u64,
    /// The instant.
    pub created: Time,
    /// Nobody can remove it before. Absent when it is not locked, or no longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locked_until: Option<Time>,
    /// Where clients read it: NBD URIs.
    #[schema(examples(json!(["nbd://127.0.0.1:10809/web@monday"])))]
    pub uris: Vec<String>,
}

/// A snapshot to be taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotCreate {
    /// The disks, all at one instant.
    #[schema(value_type = Vec<String>, min_items = 1, examples(json!(["web", "web-data"])))]
    pub disks: Vec<Name>,
    /// The name it gets on each of them. Left out: made from the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, examples("before-upgrade"))]
    pub name: Option<Name>,
}

/// A lock, which ends at an instant or so long from now: one of the two is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotLock {
    /// The instant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// Seconds from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_seconds: Option<u64>,
}

/// A disk to be made from a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CloneCreate {
    /// The new disk's name.
    #[schema(value_type = String, examples("web-test"))]
    pub name: Name,
}

/// What a rollback did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Rollback {
    /// The snapshot that keeps what the disk held before.
    pub kept: Snapshot,
}

/// What differs between a snapshot and another snapshot, or a disk as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Diff {
    /// The snapshot compared from.
    #[schema(examples("web@monday"))]
    pub from: String,
    /// What it was compared to: a snapshot, or a disk as it is now.
    #[schema(examples("web@tuesday", "web"))]
    pub to: String,
    /// Bytes in the ranges, together.
    pub changed_bytes: u64,
    /// The ranges that differ, in order, up to the end of `to`; they do not touch.
    pub ranges: Vec<DiffRange>,
}

/// One range that differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiffRange {
    /// Where it begins, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
}
