//! Exports in memory: what the door is tested and measured against. A byte array with snapshots, whose
//! reads can be made to wait, to fail, or to panic.

use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::time::Duration;
use stonefold_nbd::{Exports, Target};
use stonefold_store::Extent;
use stonefold_types::{BLOCK_BYTES, Error, ExportName, Kind, Name, Result, SnapshotName};

/// Disks by name.
#[derive(Clone, Default)]
pub(crate) struct MemoryExports(Arc<RwLock<BTreeMap<Name, Arc<MemoryDisk>>>>);

/// One disk.
pub(crate) struct MemoryDisk {
    now: RwLock<Image>,
    snapshots: RwLock<BTreeMap<Name, Arc<MemoryDisk>>>,
    read_only: bool,
    pub(crate) flushes: AtomicU64,
    /// Nothing is cached, and everything waits this many polls.
    pub(crate) polls_to_wait: AtomicU64,
    /// While this is set nothing ends that waits.
    held: AtomicBool,
    /// Requests that wait.
    waiting: AtomicU64,
    /// Requests that touch this offset fail.
    pub(crate) bad_offset: AtomicU64,
    /// Whatever comes next panics.
    pub(crate) panics: AtomicBool,
    prefetching: AtomicU64,
    /// Ranges that were being brought into the cache at one time, at most.
    pub(crate) prefetching_most: AtomicU64,
}

#[derive(Clone)]
struct Image {
    bytes: Vec<u8>,
    stored: Vec<bool>,
}

impl MemoryExports {
    pub(crate) fn create(&self, name: &str, size_bytes: usize) -> Arc<MemoryDisk> {
        let image =
            Image { bytes: vec![0; size_bytes], stored: vec![false; size_bytes.div_ceil(BLOCK_BYTES)] };
        let disk = Arc::new(MemoryDisk::new(image, false));
        self.0.write().insert(Name::new(name).unwrap(), disk.clone());
        disk
    }
}

impl MemoryDisk {
    fn new(now: Image, read_only: bool) -> Self {
        MemoryDisk {
            now: RwLock::new(now),
            snapshots: RwLock::default(),
            read_only,
            flushes: AtomicU64::new(0),
            polls_to_wait: AtomicU64::new(0),
            held: AtomicBool::new(false),
            waiting: AtomicU64::new(0),
            bad_offset: AtomicU64::new(u64::MAX),
            panics: AtomicBool::new(false),
            prefetching: AtomicU64::new(0),
            prefetching_most: AtomicU64::new(0),
        }
    }

    pub(crate) fn snapshot(&self, name: &str) {
        let frozen = MemoryDisk::new(self.now.read().clone(), true);
        self.snapshots.write().insert(Name::new(name).unwrap(), Arc::new(frozen));
    }

    /// Fills it with bytes that are nowhere zero.
    pub(crate) fn fill(&self) {
        let mut now = self.now.write();
        now.bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at / 512 * 7 + at % 509) as u8 | 1);
        now.stored.fill(true);
    }

    pub(crate) fn contents(&self) -> Vec<u8> {
        self.now.read().bytes.clone()
    }

    /// Whatever comes from now on is in flight until `release`.
    pub(crate) fn hold(&self) {
        self.polls_to_wait.store(1, SeqCst);
        self.held.store(true, SeqCst);
    }

    pub(crate) fn release(&self) {
        self.held.store(false, SeqCst);
    }

    /// Waits until as many requests are in flight.
    pub(crate) fn wait_for_requests(&self, number: u64) {
        while self.waiting.load(SeqCst) != number {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn check(&self, offset: u64, len: usize) -> Result<()> {
        assert!(!self.panics.load(SeqCst), "the test asked for a panic");
        let bad = self.bad_offset.load(SeqCst);
        if (offset..offset + len as u64).contains(&bad) {
            return Err(Error::new(Kind::Corrupt, format!("offset {bad} of 'test' is damaged")));
        }
        Ok(())
    }

    fn wait(&self) -> Wait<'_> {
        self.waiting.fetch_add(1, SeqCst);
        Wait { disk: self, polls: self.polls_to_wait.load(SeqCst) }
    }

    fn copy_out(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.check(offset, buf.len())?;
        buf.copy_from_slice(&self.now.read().bytes[offset as usize..][..buf.len()]);
        Ok(())
    }

    fn runs(&self, offset: u64, len: u64, hole: impl Fn(usize) -> bool) -> Vec<Extent> {
        let mut extents: Vec<Extent> = Vec::new();
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let block = at as usize / BLOCK_BYTES;
            let next = end.min((block as u64 + 1) * BLOCK_BYTES as u64);
            match extents.last_mut() {
                Some(last) if last.hole == hole(block) => last.bytes += next - at,
                _ => extents.push(Extent { bytes: next - at, hole: hole(block) }),
            }
            at = next;
        }
        extents
    }
}

/// Is pending for a number of polls, and while the disk is held.
struct Wait<'a> {
    disk: &'a MemoryDisk,
    polls: u64,
}

impl Future for Wait<'_> {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.polls == 0 && !self.disk.held.load(SeqCst) {
            return Poll::Ready(());
        }
        self.polls = self.polls.saturating_sub(1);
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.disk.waiting.fetch_sub(1, SeqCst);
    }
}

/// A client's hold on a disk.
#[derive(Clone)]
pub(crate) struct MemoryTarget(Arc<MemoryDisk>);

impl Target for MemoryTarget {
    fn size_bytes(&self) -> u64 {
        self.0.now.read().bytes.len() as u64
    }
    fn read_only(&self) -> bool {
        self.0.read_only
    }
    fn description(&self) -> String {
        "bytes in memory".to_owned()
    }
    fn read_cached(&self, offset: u64, buf: &mut [u8]) -> Option<Result<()>> {
        (self.0.polls_to_wait.load(SeqCst) == 0).then(|| self.0.copy_out(offset, buf))
    }
    async fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.wait().await;
        self.0.copy_out(offset, buf)
    }
    async fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<()> {
        self.0.wait().await;
        self.0.check(offset, data.len())?;
        {
            let mut now = self.0.now.write();
            let start = offset as usize;
            now.bytes[start..start + data.len()].copy_from_slice(data);
            now.stored[start / BLOCK_BYTES..(start + data.len()).div_ceil(BLOCK_BYTES)].fill(true);
        }
        if fua {
            self.0.flushes.fetch_add(1, SeqCst);
        }
        Ok(())
    }
    async fn trim(&self, offset: u64, len: u64, fua: bool) -> Result<()> {
        self.zero(offset, len, fua).await
    }
    async fn zero(&self, offset: u64, len: u64, fua: bool) -> Result<()> {
        self.0.wait().await;
        self.0.check(offset, len as usize)?;
        let mut now = self.0.now.write();
        let range = offset as usize..(offset + len) as usize;
        let whole = range.start.div_ceil(BLOCK_BYTES)..range.end / BLOCK_BYTES;
        if whole.start < whole.end {
            now.stored[whole].fill(false);
        }
        now.bytes[range].fill(0);
        if fua {
            self.0.flushes.fetch_add(1, SeqCst);
        }
        Ok(())
    }
    async fn flush(&self) -> Result<()> {
        self.0.wait().await;
        self.0.flushes.fetch_add(1, SeqCst);
        Ok(())
    }
    async fn extents(&self, offset: u64, len: u64) -> Result<Vec<Extent>> {
        self.0.wait().await;
        self.0.check(offset, len as usize)?;
        let now = self.0.now.read();
        Ok(self.0.runs(offset, len, |block| !now.stored[block]))
    }
    async fn changed_since(&self, snapshot: &Name, offset: u64, len: u64) -> Result<Vec<Extent>> {
        let snapshots = self.0.snapshots.read();
        let then = snapshots.get(snapshot).ok_or_else(|| Error::new(Kind::NotFound, "no such snapshot"))?;
        let (then, now) = (then.now.read(), self.0.now.read());
        let block = |image: &Image, index: usize| {
            let start = index * BLOCK_BYTES;
            image.bytes[start..(start + BLOCK_BYTES).min(image.bytes.len())].to_vec()
        };
        Ok(self.0.runs(offset, len, |index| block(&then, index) == block(&now, index)))
    }
    async fn prefetch(&self, _offset: u64, _len: u64) -> Result<()> {
        let now = self.0.prefetching.fetch_add(1, SeqCst) + 1;
        self.0.prefetching_most.fetch_max(now, SeqCst);
        self.0.wait().await;
        self.0.prefetching.fetch_sub(1, SeqCst);
        Ok(())
    }
}

impl Exports for MemoryExports {
    type Target = MemoryTarget;

    fn attach(&self, name: &ExportName, _peer: &Arc<str>) -> Result<MemoryTarget> {
        let missing =
            || Error::new(Kind::NotFound, format!("'{name}' does not exist")).remedy("choose another");
        let disk = self.0.read().get(name.disk()).cloned().ok_or_else(missing)?;
        match name {
            ExportName::Disk(_) => Ok(MemoryTarget(disk)),
            ExportName::Snapshot(name) => {
                let snapshot = disk.snapshots.read().get(&name.snapshot).cloned();
                snapshot.map(MemoryTarget).ok_or_else(missing)
            }
        }
    }

    fn list(&self, limit: usize) -> Vec<(ExportName, String)> {
        let disks = self.0.read();
        let names = disks.iter().flat_map(|(name, disk)| {
            let snapshots = disk.snapshots.read().keys().cloned().collect::<Vec<_>>();
            let of_disk = move |snapshot| ExportName::Snapshot(SnapshotName { disk: name.clone(), snapshot });
            std::iter::once(ExportName::Disk(name.clone())).chain(snapshots.into_iter().map(of_disk))
        });
        names.map(|name| (name, "bytes in memory".to_owned())).take(limit).collect()
    }

    fn snapshots(&self, disk: &Name) -> Result<Vec<Name>> {
        let disks = self.0.read();
        let disk = disks.get(disk).ok_or_else(|| Error::new(Kind::NotFound, "no such disk"))?;
        Ok(disk.snapshots.read().keys().cloned().collect())
    }
}
