//! The store: disks, journal, fold, map, segments, cache, snapshots.

#![expect(
    clippy::unimplemented,
    unused_variables,
    reason = "signatures first; bodies follow in the same step"
)]

use bytes::Bytes;
use std::sync::Arc;
use stonefold_engine::Engine;
use stonefold_env::{Env, WallNanos};
use stonefold_types::{DiskSettings, ExportName, Name, Result, SnapshotName};

/// How a store is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Memory for the block and node caches, in bytes.
    pub cache_bytes: u64,
    /// Memory for acknowledged data not yet folded, in bytes.
    pub journal_bytes_max: u64,
    /// What new disks get where nothing else is said.
    pub disk_defaults: DiskSettings,
}

/// An open pool.
pub struct Store(());

/// What is known of a disk.
#[derive(Clone, Debug)]
pub struct DiskInfo {
    pub name: Name,
    pub size_bytes: u64,
    pub settings: DiskSettings,
    pub created: WallNanos,
    /// Attached clients.
    pub clients: usize,
    /// The snapshot it was cloned from, for people; that may be gone.
    pub origin: Option<SnapshotName>,
    pub snapshots: usize,
    /// Blocks mapped, in bytes.
    pub mapped_bytes: u64,
}

/// What is known of a snapshot.
#[derive(Clone, Debug)]
pub struct SnapshotInfo {
    pub name: SnapshotName,
    pub size_bytes: u64,
    pub created: WallNanos,
}

/// The state of the pool.
#[derive(Clone, Debug)]
pub struct PoolStatus {
    pub engine: String,
    pub disks: usize,
    pub snapshots: usize,
    /// Sum of the disks' sizes.
    pub provisioned_bytes: u64,
    pub total_bytes: u64,
    pub free_bytes: u64,
    pub used_bytes: u64,
    /// Acknowledged, not yet folded.
    pub journal_bytes: u64,
    pub cache_bytes: u64,
    pub cache_bytes_max: u64,
    /// Counters since the start, for metrics: (name, help, value).
    pub counters: Vec<(&'static str, &'static str, u64)>,
}

impl Store {
    /// Opens the pool, or makes it when the place is empty, and replays its journals.
    pub async fn open(env: Env, engine: Arc<dyn Engine>, options: Options) -> Result<Arc<Store>> {
        unimplemented!()
    }
    /// Folds everything, writes the heads, closes. Afterwards every call fails with `Closed`.
    pub async fn close(&self) -> Result<()> {
        unimplemented!()
    }
    pub async fn create_disk(
        &self,
        name: &Name,
        size_bytes: u64,
        settings: DiskSettings,
    ) -> Result<DiskInfo> {
        unimplemented!()
    }
    pub fn disks(&self) -> Vec<DiskInfo> {
        unimplemented!()
    }
    pub fn disk(&self, name: &Name) -> Result<DiskInfo> {
        unimplemented!()
    }
    /// Only settings that are `Some` change.
    pub async fn set_disk(&self, name: &Name, settings: DiskSettings) -> Result<DiskInfo> {
        unimplemented!()
    }
    pub async fn resize_disk(&self, name: &Name, size_bytes: u64) -> Result<DiskInfo> {
        unimplemented!()
    }
    pub async fn remove_disk(&self, name: &Name) -> Result<()> {
        unimplemented!()
    }
    /// Snapshots all the disks at one instant under one name (made from the time when left out).
    pub async fn snapshot(&self, disks: &[Name], name: Option<Name>) -> Result<Vec<SnapshotInfo>> {
        unimplemented!()
    }
    /// All snapshots of one disk, or of all.
    pub fn snapshots(&self, disk: Option<&Name>) -> Result<Vec<SnapshotInfo>> {
        unimplemented!()
    }
    pub async fn remove_snapshot(&self, name: &SnapshotName) -> Result<()> {
        unimplemented!()
    }
    pub async fn clone_snapshot(&self, from: &SnapshotName, new: &Name) -> Result<DiskInfo> {
        unimplemented!()
    }
    /// Keeps the present as a snapshot, whose name is returned.
    pub async fn rollback(&self, to: &SnapshotName) -> Result<SnapshotInfo> {
        unimplemented!()
    }
    /// Ranges (offset, len in bytes) that differ between two snapshots, or a snapshot and now.
    pub async fn diff(&self, from: &SnapshotName, to: Option<&Name>) -> Result<Vec<(u64, u64)>> {
        unimplemented!()
    }
    pub async fn status(&self) -> Result<PoolStatus> {
        unimplemented!()
    }
    pub fn drop_cache(&self) {
        unimplemented!()
    }
    pub fn resize_cache(&self, bytes: u64) {
        unimplemented!()
    }
    /// Attaches a client to a disk (writable) or a snapshot (read-only).
    pub fn attach(self: &Arc<Self>, export: &ExportName) -> Result<Attachment> {
        unimplemented!()
    }
}

/// A client's hold on a disk or a snapshot; what a door reads and writes through. Clones share the hold, which
/// ends with the last of them.
#[derive(Clone)]
pub struct Attachment(());

/// Proof that a flush happened: everything acknowledged before it is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Flushed(());

/// One run of an answer to [`Attachment::extents`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub bytes: u64,
    /// Nothing is stored: reads as zeros and costs no space.
    pub hole: bool,
}

impl Attachment {
    /// The size when attached, in bytes.
    pub fn size_bytes(&self) -> u64 {
        unimplemented!()
    }
    pub fn read_only(&self) -> bool {
        unimplemented!()
    }
    /// For people: shown in export lists.
    pub fn description(&self) -> String {
        unimplemented!()
    }
    /// Fills `buf` from `offset`. Any alignment. Fails with `Invalid` beyond the end.
    pub async fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        unimplemented!()
    }
    /// As [`read`](Self::read) when everything is in memory; `None` when it would have to wait, and `buf` is then undefined.
    pub fn read_cached(&self, offset: u64, buf: &mut [u8]) -> Option<Result<()>> {
        unimplemented!()
    }
    /// Writes; with `fua` durable on return. The data is taken when the future is first polled.
    pub async fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<()> {
        unimplemented!()
    }
    /// Makes a range read as zeros. Zeros cost nothing, so trim and write-zeroes are the same, and always fast.
    pub async fn zero(&self, offset: u64, len: u64, fua: bool) -> Result<()> {
        unimplemented!()
    }
    /// Makes everything acknowledged before this call durable, on whichever connection it was written.
    pub async fn flush(&self) -> Result<Flushed> {
        unimplemented!()
    }
    /// Which parts of a range are stored; covers exactly the range, in order.
    pub async fn extents(&self, offset: u64, len: u64) -> Result<Vec<Extent>> {
        unimplemented!()
    }
    /// Which parts of a range differ from a snapshot of the same disk: `hole` means unchanged here.
    pub async fn changed_since(&self, snapshot: &Name, offset: u64, len: u64) -> Result<Vec<Extent>> {
        unimplemented!()
    }
    /// Brings a range into the cache.
    pub async fn prefetch(&self, offset: u64, len: u64) -> Result<()> {
        unimplemented!()
    }
}
