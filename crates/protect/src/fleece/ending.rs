//! Takes out of a QEMU what a run has put into it: with the run's end, or where that was cut off.

use super::qemu::{self, OURS};
use super::{AGAIN, Fleece, Fleeced, FleecedDisk, GREET_MAX, Marks, RELEASES_MAX};
use crate::catalog;
use crate::qmp::{Qmp, is_left};
use crate::{Protection, Source};
use std::path::Path;
use stonefold_types::{Kind, Result};

impl Protection {
    /// Takes out of a QEMU what was put into it. What cannot be taken out now is so with a later round; the bitmaps stay.
    pub(crate) async fn unfleece(&self, fleeced: Fleeced) -> Marks {
        let Fleeced { disks, marks, fleece, folder, .. } = fleeced;
        drop(disks);
        self.release_or_tell(&marks.qmp, &fleece).await;
        // QEMU has its socket there until then.
        drop(folder);
        marks
    }

    async fn release_or_tell(&self, qmp: &Qmp, fleece: &Fleece) {
        // As it is kept: it may have gone on since.
        let kept = catalog::find::<Fleece>(&self.store, fleece.source.as_str()).await;
        let kept = kept.ok().flatten().unwrap_or_else(|| fleece.clone());
        if let Err(error) = self.release(Some(qmp), &kept).await {
            tracing::warn!("source '{}': its guest still has parts of a backup: {error}", fleece.source);
        }
    }

    /// Takes everything out, and forgets it; without a QEMU, which took all with it when it ended, but the scratch disks.
    pub(super) async fn release(&self, qmp: Option<&Qmp>, fleece: &Fleece) -> Result<()> {
        if let Some(qmp) = qmp {
            self.take_out(qmp, fleece).await?;
        }
        for disk in &fleece.disks {
            self.remove_scratch(disk).await?;
        }
        self.change(async {
            // A run that has begun since, of a QEMU that was started anew, has one of its own.
            match catalog::find::<Fleece>(&self.store, fleece.source.as_str()).await? {
                Some(now) if now.disks == fleece.disks => {
                    catalog::remove::<Fleece>(&self.store, fleece.source.as_str()).await
                }
                _ => Ok(()),
            }
        })
        .await
    }

    async fn take_out(&self, qmp: &Qmp, fleece: &Fleece) -> Result<()> {
        for _ in 1..RELEASES_MAX {
            match qemu::release(qmp, fleece).await {
                Err(error) if error.kind() == Kind::Conflict => self.env.sleep(AGAIN).await,
                // It ended meanwhile.
                Err(error) if error.kind() == Kind::Closed => return Ok(()),
                released => return released,
            }
        }
        qemu::release(qmp, fleece).await
    }

    /// Its QEMU may not have hung up yet.
    async fn remove_scratch(&self, disk: &FleecedDisk) -> Result<()> {
        for _ in 1..RELEASES_MAX {
            if !disk.number.is_there(&self.store, &disk.scratch)? {
                return Ok(());
            }
            match self.store.remove_disk_numbered(&disk.scratch, disk.number.0).await {
                Err(error) if error.kind() == Kind::Busy => self.env.sleep(AGAIN).await,
                removed => return removed,
            }
        }
        self.store.remove_disk_numbered(&disk.scratch, disk.number.0).await
    }

    /// Takes out what runs have left that were cut off, each in a task of its own: a QEMU that does not answer keeps nothing else waiting.
    pub(crate) async fn release_left(&self) -> Result<()> {
        for key in catalog::keys::<Fleece>(&self.store, None).await? {
            let Some(left) = self.readable::<Fleece>(&key).await? else { continue };
            let Some(me) = self.me.upgrade().filter(|me| !me.copies.is_copied(&left.source)) else {
                continue;
            };
            self.env.spawn("release a guest", async move { me.release_one(&left).await });
        }
        Ok(())
    }

    async fn release_one(&self, left: &Fleece) {
        let qmp = match Qmp::connect(&self.env, &left.socket, GREET_MAX).await {
            Ok(qmp) => Some(qmp),
            // It has ended.
            Err(_) if is_left(&self.env, &left.socket, GREET_MAX).await => None,
            // Most likely a run of this very source, which sees to it; or too many knock.
            Err(_) => return,
        };
        match self.release(qmp.as_ref(), left).await {
            Ok(()) => {
                tracing::warn!("source '{}': what a backup left in its guest is taken out", left.source)
            }
            Err(error) => {
                tracing::warn!("source '{}': its guest still has parts of a backup: {error}", left.source)
            }
        }
    }

    /// Takes the bitmaps of a source out of its QEMU, as far as that can be reached.
    pub(crate) async fn forget_marks(&self, source: &Source, socket: &Path) -> Result<()> {
        let qmp = Qmp::connect(&self.env, socket, GREET_MAX).await?;
        qemu::unmark(&qmp, &format!("{OURS}{:x}-", source.added), None).await
    }
}
