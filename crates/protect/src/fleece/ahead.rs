//! What is read of a guest's disks, and when: much of it ahead, while nothing is between the guest and its disks; and what is left after the cut.
//!
//! | | is read | of it |
//! |---|---|---|
//! | ahead, once or more | the disks as the guest has them | at first what the last point lacks, then what was written while that was read |
//! | after the cut | as they were at that instant | what was written while the last of it was read |
//!
//! *Why*: from the cut on each first write of the guest to a place waits for the copy of what was there, as long as the run reads. What is read ahead is of
//! no one instant, and need not be: a bitmap marks all that is written from before its first byte on, and that is read again. QEMU marks a write
//! when it is done, and before it tells the guest; what is under way at the cut is done before that. Once what is left is read in less than a tenth of a
//! second, or does not become less than half of the last, the cut is made, so that few of a run's writes
//! wait. Very little is not read ahead at all.

use super::qemu::{self, AHEAD, GuestDisk, LOOKED_UP};
use super::{AGAIN, Fleeced, GREET_MAX, RELEASES_MAX};
use crate::catalog;
use crate::copying::{Live, Reading};
use crate::nbd::{Address, Client, Place};
use crate::origin::Origin;
use crate::{Protection, fleece::Fleece};
use stonefold_types::{Kind, Result};

/// What is left to the cut at most, in bytes of all disks, where reading ahead makes it less: some hundred blocks, as scattered as they are.
const CUT_BYTES: u64 = 1 << 20;

/// What is read ahead, now.
pub(super) struct Ahead {
    /// Marks what is written since its first byte was read.
    bitmap: String,
    /// What was to be read at most, in bytes.
    bytes: u64,
    /// How many were before it.
    before: u32,
}

impl Protection {
    /// What is read first.
    pub(super) async fn begin_reading(&self, fleeced: &Fleeced, live: &Live) -> Result<Vec<Reading>> {
        let marks = &fleeced.marks;
        let whole: Vec<Option<String>> = fleeced.guest.iter().map(|disk| marks.wrong(disk)).collect();
        let since: Vec<Option<&str>> =
            whole.iter().map(|why| marks.last.as_deref().filter(|_| why.is_none() && !live.full)).collect();
        let bytes_of = |(disk, since): (&GuestDisk, &Option<&str>)| match since {
            Some(since) => disk.bitmaps.iter().filter(|is| is.name == *since).map(|is| is.bytes).sum(),
            None => disk.bytes,
        };
        let bytes: u64 = fleeced.guest.iter().zip(&since).map(bytes_of).sum();
        qemu::serve(&marks.qmp, &fleeced.socket()).await?;
        let mut disks = if bytes > CUT_BYTES {
            self.read_ahead(fleeced, &since, (bytes, 0)).await?
        } else {
            self.cut(fleeced, live, &since).await?
        };
        disks.iter_mut().zip(whole).for_each(|(disk, whole)| disk.whole = whole);
        Ok(disks)
    }

    /// What is to be read once all of the last is; nothing where it was the last. Of what is told, each disk's bitmap knows what differs from
    /// what was read.
    pub(crate) async fn read_on(&self, fleeced: &Fleeced, live: &Live) -> Result<Option<Vec<Reading>>> {
        let Some(ahead) = fleeced.ahead.lock().take() else { return Ok(None) };
        live.check()?;
        let qmp = &fleeced.marks.qmp;
        self.end_exports(fleeced).await?;
        let left = qemu::check_same(qmp, &fleeced.guest, Some(&ahead.bitmap)).await?;
        tracing::debug!(left, read = ahead.bytes, "a guest's disks were read ahead");
        let since = vec![Some(ahead.bitmap.as_str()); fleeced.guest.len()];
        if left > CUT_BYTES && left < ahead.bytes / 2 {
            return self.read_ahead(fleeced, &since, (left, ahead.before + 1)).await.map(Some);
        }
        self.cut(fleeced, live, &since).await.map(Some)
    }

    /// Exports the disks as the guest has them.
    async fn read_ahead(
        &self,
        fleeced: &Fleeced,
        since: &[Option<&str>],
        (bytes, before): (u64, u32),
    ) -> Result<Vec<Reading>> {
        let marks = &fleeced.marks;
        let bitmap = format!("{}{AHEAD}{before}", marks.ours.trim_end_matches('-'));
        // Before what the last one has marked is copied: what is written in between is in both.
        for disk in &fleeced.guest {
            qemu::mark(&marks.qmp, disk, &bitmap, false).await?;
        }
        let disks = self.exported(fleeced, false, since).await?;
        *fleeced.ahead.lock() = Some(Ahead { bitmap, bytes, before });
        Ok(disks)
    }

    /// Has the filters come between, and exports the disks as they were then.
    async fn cut(&self, fleeced: &Fleeced, live: &Live, since: &[Option<&str>]) -> Result<Vec<Reading>> {
        let (marks, mut fleece) = (&fleeced.marks, fleeced.fleece.clone());
        // Before the cut: what is marked that lies before it is only looked at once more.
        for disk in &fleeced.guest {
            qemu::mark(&marks.qmp, disk, &marks.own, true).await?;
        }
        qemu::prepare(&marks.qmp, &fleece, &fleeced.server).await?;
        // As it is now, and not as it was hours ago: it may have been started since, or somebody has it stand still.
        qemu::check_same(&marks.qmp, &fleeced.guest, None).await?;
        fleece.halts = fleece.disks.len() > 1 && qemu::is_running(&marks.qmp).await?;
        if fleece.halts {
            self.say_halts(&fleece, true).await?;
        }
        self.still_for(fleeced.still.as_ref(), live, qemu::cut(&marks.qmp, &fleece)).await?;
        live.was_cut(self.store.time().trusted);
        if fleece.halts {
            self.say_halts(&fleece, false).await?;
        }
        for at in 0..fleece.disks.len() {
            qemu::look_at(&marks.qmp, at).await?;
        }
        self.exported(fleeced, true, since).await
    }

    async fn say_halts(&self, fleece: &Fleece, halts: bool) -> Result<()> {
        let say = |fleece: &mut Fleece| {
            fleece.halts = halts;
            Ok(())
        };
        catalog::change(&self.store, fleece.source.as_str(), say).await.map(drop)
    }

    /// Exports the disks, each with what a bitmap has marked where one is named, and reaches them.
    async fn exported(
        &self,
        fleeced: &Fleeced,
        is_cut: bool,
        since: &[Option<&str>],
    ) -> Result<Vec<Reading>> {
        let mut disks = Vec::new();
        for ((at, disk), since) in fleeced.fleece.disks.iter().enumerate().zip(since) {
            qemu::export(&fleeced.marks.qmp, (at, disk), is_cut, *since).await?;
            let address = Address { place: Place::Unix(fleeced.socket()), export: disk.target.to_string() };
            let bitmap = since.map(|_| LOOKED_UP);
            let from = Client::connect(&self.env, &address, bitmap, GREET_MAX).await?.with_its_bitmap()?;
            disks.push(Reading { target: disk.target.clone(), from: Origin::Export(from), whole: None });
        }
        Ok(disks)
    }

    async fn end_exports(&self, fleeced: &Fleeced) -> Result<()> {
        let qmp = &fleeced.marks.qmp;
        for _ in 1..RELEASES_MAX {
            match qemu::end_exports(qmp, &fleeced.fleece).await {
                Err(error) if error.kind() == Kind::Conflict => self.env.sleep(AGAIN).await,
                ended => return ended,
            }
        }
        qemu::end_exports(qmp, &fleeced.fleece).await
    }
}
