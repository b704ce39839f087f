//! Disks of ours that a source's are copied to.

use super::{CLASS, Copying, Reading};
use crate::catalog;
use crate::clones::check_no_disk;
use crate::copy::Copy;
use crate::machines::MachineDisk;
use crate::points::{Point, PointDisk};
use crate::sources::Source;
use crate::{Protection, SourceOf};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stonefold_store::{Attachment, OWN};
use stonefold_types::{
    BLOCK_BYTES, DISK_BYTES_MAX, DiskSettings, Error, ExportName, Kind, Name, Result, Size,
};

/// Where the bytes written stand among a disk's counts.
const WRITTEN: usize = 3;

/// A disk that is copied to. Nobody else writes to it meanwhile.
pub(super) struct Target {
    disk: Name,
    attached: Attachment,
    /// Who has it attached, as is told.
    peer: Arc<str>,
    /// Bytes that had been written to it before, by whomever, and those that were since, by this.
    before: u64,
    written: u64,
    /// Whether all is read, also what reads as zeros.
    full: bool,
    /// See [`Copy::since`].
    since: Option<Vec<Range<u64>>>,
}

impl Target {
    /// What is read from now on tells by its bitmap what differs from what was.
    pub(super) fn is_what_was_read(&mut self) {
        (self.full, self.since) = (false, Some(Vec::new()));
    }
}

impl Protection {
    /// Has the disk be there that one of the source's is copied to, and attached.
    pub(super) async fn begin_target(
        &self,
        copying: &Copying,
        reading: &Reading,
        disk: &MachineDisk,
        last: Option<&Point>,
    ) -> Result<Target> {
        let bytes = reading.from.bytes();
        if bytes == 0 || bytes > DISK_BYTES_MAX {
            let what = format!("the source has {bytes} bytes, and a disk 4K to {}", Size(DISK_BYTES_MAX));
            return Err(Error::new(Kind::Invalid, what).remedy("look whether it is the right one"));
        }
        let size_bytes = bytes.next_multiple_of(BLOCK_BYTES as u64);
        self.change(self.prepare_disk(copying, disk, size_bytes)).await?;
        let since = self.changed_since(copying, reading, size_bytes, last).await?;
        let peer: Arc<str> = format!("backup run '{}'", copying.run.name).into();
        let attached = self.store.attach_for(&ExportName::Disk(disk.disk.clone()), peer.clone())?;
        let before = self.store.disk(&disk.disk)?.traffic[WRITTEN];
        let full = copying.live.full;
        Ok(Target { disk: disk.disk.clone(), attached, peer, before, written: 0, full, since })
    }

    /// Makes it what is read.
    pub(super) async fn copy_to(
        &self,
        copying: &Copying,
        reading: &Reading,
        target: &mut Target,
    ) -> Result<()> {
        let live = &copying.live;
        let of_run = || live.figures.written.load(Ordering::Relaxed);
        let before = of_run();
        let Target { disk, attached, peer, full, since, .. } = target;
        let copy = Copy {
            env: &self.env,
            from: &reading.from,
            to: attached,
            live,
            full: *full,
            since: since.clone(),
        };
        copy.run(|| self.check_alone(disk, Some(&**peer))).await?;
        target.written += of_run() - before;
        Ok(())
    }

    /// Fails where anybody else has written to it; has it be durable.
    pub(super) async fn end_target(
        &self,
        copying: &Copying,
        reading: &Reading,
        target: Target,
    ) -> Result<Attachment> {
        let Target { disk, attached, peer, before, written, since, .. } = target;
        self.check_alone(&disk, Some(&*peer))?;
        // One that came and went between two looks. What such a one only trimmed is not counted; the next run finds it.
        if self.store.disk(&disk)?.traffic[WRITTEN].saturating_sub(before) != written {
            let what = format!("something else wrote to disk '{disk}' while the source was copied to it");
            return Err(Error::new(Kind::Conflict, what).remedy("keep others away from it, and run it again"));
        }
        let _durable = attached.flush().await?;
        if copying.sent.is_some() {
            self.check_arrived(&copying.live, &reading.from, &attached, since.as_deref()).await?;
        }
        Ok(attached)
    }

    /// What of a disk has changed since the last point, where a bitmap says what of its source has; nothing where all is to be looked at.
    async fn changed_since(
        &self,
        copying: &Copying,
        reading: &Reading,
        size_bytes: u64,
        last: Option<&Point>,
    ) -> Result<Option<Vec<Range<u64>>>> {
        let target = &reading.target;
        let Some(point) = last else { return Ok(None) };
        let of_point = point.disks.iter().find(|disk| disk.target == *target);
        let whole = match (&reading.whole, of_point) {
            (Some(why), _) => why.clone(),
            // Of what knows no bitmaps nothing is to be told.
            (None, _) if !reading.from.tells_changes() => return Ok(None),
            (None, None) => "the last point does not have it".to_owned(),
            (None, Some(disk)) if disk.size_bytes != size_bytes => "its size is another".to_owned(),
            (None, Some(disk)) if !self.is_bitmap_believed(copying, reading, point, disk).await? => {
                "its server's bitmap had not marked all that has changed, or the last point is damaged"
                    .to_owned()
            }
            (None, Some(disk)) => {
                let changed = self.store.diff(&point.snapshot_of(disk), None).await?;
                return Ok(Some(changed.into_iter().map(|(at, bytes)| at..at + bytes).collect()));
            }
        };
        copying.live.note(format!("all of disk '{target}' was compared: {whole}"));
        Ok(None)
    }

    /// Whether what is told to have changed is believed: where our own bitmaps or maps tell it, always; and where all is read anyhow.
    async fn is_bitmap_believed(
        &self,
        copying: &Copying,
        reading: &Reading,
        last: &Point,
        disk: &PointDisk,
    ) -> Result<bool> {
        if copying.live.full || !matches!(copying.source.of, SourceOf::Nbd(_)) {
            return Ok(true);
        }
        let export = ExportName::Snapshot(last.snapshot_of(disk));
        let last = self.store.attach_for(&export, "backup".into())?;
        self.is_told(&copying.live, &reading.from, &last).await
    }

    /// Has the disk be there that one of the source's is copied to, as long as that; within a change.
    async fn prepare_disk(&self, copying: &Copying, disk: &MachineDisk, size_bytes: u64) -> Result<()> {
        let (target, disk) = (&disk.target, &disk.disk);
        let source: Source = catalog::get(&self.store, copying.source.name.as_str()).await?;
        let is_there = match source.number_of(target) {
            Some(number) => number.is_there(&self.store, disk)?,
            None => false,
        };
        if is_there {
            self.check_alone(disk, None)?;
            self.check_sealed(copying, target, disk)?;
            let before = self.store.disk(disk)?.size_bytes;
            if before != size_bytes {
                self.store.resize_disk(disk, size_bytes, true).await?;
                let what = if before < size_bytes { "grown" } else { "shrunk" };
                let (before, now) = (Size(before), Size(size_bytes));
                copying.live.note(format!("the source has {what} from {before} to {now}"));
            }
            return Ok(());
        }
        check_no_disk(&self.store, disk)
            .map_err(|e| e.context("the source is copied to a disk of its own"))?;
        let domain = self.domain_for(copying, target)?;
        // Before it is made: so it is known for ours whatever becomes of that.
        let number = self.draw_number();
        let name = |source: &mut Source| {
            source.numbers.insert(target.clone(), number);
            Ok(())
        };
        catalog::change(&self.store, source.name.as_str(), name).await?;
        let settings = DiskSettings { qos: Name::new(CLASS)?, ..DiskSettings::default() };
        self.store.create_disk_as(domain.as_ref(), disk, size_bytes, settings, number.0).await.map(drop)
    }

    /// Fails while somebody else can write to a disk.
    fn check_alone(&self, disk: &Name, own: Option<&str>) -> Result<()> {
        let connections = self.store.disk(disk)?.connections;
        let is_other = |peer: &str| peer != OWN && Some(peer) != own;
        let writes = |export: &ExportName| matches!(export, ExportName::Disk(_));
        match connections.iter().find(|client| writes(&client.export) && is_other(&client.peer)) {
            None => Ok(()),
            Some(client) => {
                let what =
                    format!("disk '{disk}', which the source is copied to, is in use: {}", client.peer);
                Err(Error::new(Kind::Busy, what).remedy("disconnect it, and run it again"))
            }
        }
    }
}
