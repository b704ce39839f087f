//! What the door serves: disks and snapshots of a store, or an array of bytes in a test.

use std::future::Future;
use std::sync::Arc;
use stonefold_store::trace::Op;
use stonefold_store::{Attachment, Extent, Store};
use stonefold_types::{ExportName, Name, Result, Size};

/// One export that a client has opened. The door checks ranges against [`size_bytes`](Target::size_bytes) before it asks.
pub trait Target: Clone + Send + Sync + Unpin + 'static {
    /// The size when opened, in bytes.
    fn size_bytes(&self) -> u64;
    /// Whether writes are refused.
    fn read_only(&self) -> bool;
    /// For people.
    fn description(&self) -> String;
    /// Fills `buf` from `offset` without waiting, or returns `None` and leaves anything in it.
    fn read_cached(&self, offset: u64, buf: &mut [u8]) -> Option<Result<()>>;
    /// Fills `buf` from `offset`.
    fn read(&self, offset: u64, buf: &mut [u8]) -> impl Future<Output = Result<()>> + Send;
    /// Writes; with `fua` durable on return.
    fn write(&self, offset: u64, data: &[u8], fua: bool) -> impl Future<Output = Result<()>> + Send;
    /// Makes a range read as zeros; with `fua` durable on return.
    fn zero(&self, offset: u64, len: u64, fua: bool) -> impl Future<Output = Result<()>> + Send;
    /// Gives back what of a range can be given back, which reads as zeros from then on; the rest stays as it is. With `fua` durable on
    /// return.
    fn trim(&self, offset: u64, len: u64, fua: bool) -> impl Future<Output = Result<()>> + Send;
    /// Makes durable what was acknowledged before, on any connection.
    fn flush(&self) -> impl Future<Output = Result<()>> + Send;
    /// Which parts of a range are stored, in order and covering it.
    fn extents(&self, offset: u64, len: u64) -> impl Future<Output = Result<Vec<Extent>>> + Send;
    /// Which parts of a range differ from a snapshot (`hole` means the same), in order and covering it.
    fn changed_since(
        &self,
        snapshot: &Name,
        offset: u64,
        len: u64,
    ) -> impl Future<Output = Result<Vec<Extent>>> + Send;
    /// Brings a range into the cache.
    fn prefetch(&self, offset: u64, len: u64) -> impl Future<Output = Result<()>> + Send;
    /// A client has made this request, which is carried out by one of the calls above or by several. For traces; without them nothing to do.
    fn note(&self, _op: Op, _offset: u64, _len: u64, _fua: bool) {}
}

/// Where exports are found by name.
pub trait Exports: Send + Sync + 'static {
    /// An opened export.
    type Target: Target;
    /// Opens an export; it stays open until the last clone of the target is gone. `peer` says who opens it, for people.
    fn attach(&self, name: &ExportName, peer: &Arc<str>) -> Result<Self::Target>;
    /// Names and descriptions, disks first, at most `limit`.
    fn list(&self, limit: usize) -> Vec<(ExportName, String)>;
    /// The snapshots of a disk.
    fn snapshots(&self, disk: &Name) -> Result<Vec<Name>>;
}

impl Target for Attachment {
    fn size_bytes(&self) -> u64 {
        Attachment::size_bytes(self)
    }
    fn read_only(&self) -> bool {
        Attachment::read_only(self)
    }
    fn description(&self) -> String {
        Attachment::description(self)
    }
    #[inline]
    fn read_cached(&self, offset: u64, buf: &mut [u8]) -> Option<Result<()>> {
        Attachment::read_cached(self, offset, buf)
    }
    async fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        Attachment::read(self, offset, buf).await
    }
    async fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<()> {
        Attachment::write(self, offset, data, fua).await
    }
    async fn zero(&self, offset: u64, len: u64, fua: bool) -> Result<()> {
        Attachment::zero(self, offset, len, fua).await
    }
    async fn trim(&self, offset: u64, len: u64, fua: bool) -> Result<()> {
        Attachment::trim(self, offset, len, fua).await
    }
    async fn flush(&self) -> Result<()> {
        Attachment::flush(self).await.map(|_durable| ())
    }
    async fn extents(&self, offset: u64, len: u64) -> Result<Vec<Extent>> {
        Attachment::extents(self, offset, len).await
    }
    async fn changed_since(&self, snapshot: &Name, offset: u64, len: u64) -> Result<Vec<Extent>> {
        Attachment::changed_since(self, snapshot, offset, len).await
    }
    async fn prefetch(&self, offset: u64, len: u64) -> Result<()> {
        Attachment::prefetch(self, offset, len).await
    }
    #[inline]
    fn note(&self, op: Op, offset: u64, len: u64, fua: bool) {
        Attachment::note(self, op, offset, len, fua);
    }
}

impl Exports for Arc<Store> {
    type Target = Attachment;

    fn attach(&self, name: &ExportName, peer: &Arc<str>) -> Result<Attachment> {
        Store::attach_for(self, name, peer.clone())
    }

    fn list(&self, limit: usize) -> Vec<(ExportName, String)> {
        let disks = self.disks().into_iter().map(|disk| {
            let size = Size(disk.size_bytes);
            let text = match disk.origin {
                Some(origin) => format!("disk of {size}, a clone of {origin}"),
                None => format!("disk of {size}"),
            };
            (ExportName::Disk(disk.name), text)
        });
        let snapshots = Store::snapshots(self, None).unwrap_or_default().into_iter().map(|snapshot| {
            let text = format!("snapshot of {}, read-only", Size(snapshot.size_bytes));
            (ExportName::Snapshot(snapshot.name), text)
        });
        disks.chain(snapshots).take(limit).collect()
    }

    fn snapshots(&self, disk: &Name) -> Result<Vec<Name>> {
        let all = Store::snapshots(self, Some(disk))?;
        Ok(all.into_iter().map(|snapshot| snapshot.name.snapshot).collect())
    }
}
