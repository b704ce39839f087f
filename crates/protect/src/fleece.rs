//! Disks of a running QEMU on other people's storage, read as they were at one instant while its guest writes on (fleecing).
//!
//! *Order*: a document names the scratch disks and what the guest's devices read and write; the scratch disks are made; what is written from
//! now on is marked; filters come between; what they keep is exported, and read. Then all of it is taken out again, the scratch
//! disks go, and the document. *Promises*: a guest's write waits for the copy of what it overwrites and for nothing else, and for
//! that no longer than some seconds; a guest that a run has stopped goes on, whatever came between: what is left in a QEMU is taken out with
//! each round, also of a later server. *Never*: takes out what is not ours; believes a bitmap that was not marking all the time since the point that it is named by.

mod qemu;

use crate::catalog::{self, Entry, Unknown};
use crate::clones::check_no_disk;
use crate::copying::{Guest, Live, Reading};
use crate::hypervisor::{nbd_server, running_arguments, socket_folder};
use crate::nbd::{Address, Client, Place};
use crate::number::DiskNumber;
use crate::origin::Origin;
use crate::qmp::Qmp;
use crate::sources::QemuGuest;
use crate::standstills::Standstill;
use crate::{Hardware, Point, Protection, Source};
use qemu::{GuestDisk, OURS};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;
use stonefold_env::WallNanos;
use stonefold_types::{BLOCK_BYTES, DiskSettings, Error, Kind, Name, Result};
use tempfile::TempDir;

/// How long a QEMU may take to greet: another client may have its socket for a moment.
const GREET_MAX: Duration = Duration::from_secs(10);
/// How often it is tried to take everything out, and how long after the last time: what was closed may take a moment to be so.
const RELEASES_MAX: u32 = 50;
const AGAIN: Duration = Duration::from_millis(100);

/// The document of what a run has put into a QEMU, `fleeces/SOURCE`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fleece {
    pub(crate) source: Name,
    /// Where its QEMU is spoken to.
    pub(crate) socket: PathBuf,
    pub(crate) disks: Vec<FleecedDisk>,
    /// The guest may stand still because of it.
    pub(crate) halts: bool,
    /// Trusted time, nanoseconds since 1970.
    pub(crate) begun: WallNanos,
    #[serde(flatten)]
    pub(crate) unknown: Unknown,
}

/// A disk of a guest that is fleeced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FleecedDisk {
    pub(crate) target: Name,
    /// The guest's device, as an object of QEMU's.
    pub(crate) device: String,
    /// What it reads and writes otherwise.
    pub(crate) node: String,
    pub(crate) bytes: u64,
    /// The disk of ours that what is overwritten is copied to.
    pub(crate) scratch: Name,
    pub(crate) number: DiskNumber,
}

impl Entry for Fleece {
    const FAMILY: &'static str = "fleeces";
    const NOUN: &'static str = "what a backup has put into the guest of source";
    const LISTED_BY: &'static str = "stonefold source ls";

    fn key(&self) -> String {
        self.source.to_string()
    }
}

/// A guest's disks as they were, to be read; what is put into its QEMU for that is to be taken out.
pub(crate) struct Fleeced {
    pub(crate) disks: Vec<Reading>,
    /// What it was started with, or why that is not known.
    pub(crate) hardware: Result<Hardware>,
    pub(crate) marks: Marks,
    fleece: Fleece,
    _folder: TempDir,
}

impl Fleeced {
    /// The guest, which uses them on.
    pub(crate) fn guest(&self) -> Guest {
        Guest::Qemu(self.marks.qmp.clone())
    }
}

/// Bitmaps of a run.
pub(crate) struct Marks {
    qmp: Qmp,
    /// What the source's are named with.
    ours: String,
    /// Since when they mark: its own run, and the last point.
    own: String,
    last: Option<String>,
}

impl Marks {
    /// Once it is known whether there is a point: of what has changed since that, or since the last one, is known the next time.
    pub(crate) async fn settle(&self, is_done: bool) {
        let kept = if is_done { Some(self.own.as_str()) } else { self.last.as_deref() };
        if let Err(error) = qemu::unmark(&self.qmp, &self.ours, kept).await {
            tracing::warn!("bitmaps '{}…' stay for now: {error}", self.ours);
        }
    }
}

impl Protection {
    /// Reads a guest's disks as they are now, for the run whose point is `stamp`. Whoever has it gives it back by
    /// [`unfleece`](Self::unfleece).
    pub(crate) async fn fleece(
        &self,
        source: &Source,
        of: &QemuGuest,
        (stamp, last): (&Name, Option<&Point>),
        live: &Live,
    ) -> Result<Fleeced> {
        let socket = of.socket.as_path();
        let still = live.has_it_stand.then(|| self.standstill_of_qemu(source, of)).transpose()?;
        let reach = self.reach.get().ok_or_else(|| {
            let what = "a guest could not copy what it overwrites: this server has no NBD door";
            Error::new(Kind::Invalid, what).remedy("start it with --nbd unix:///run/stonefold/nbd.sock")
        })?;
        let server = nbd_server(reach)?;
        let qmp = Qmp::connect(&self.env, socket, GREET_MAX).await?;
        qemu::check_version(&qmp).await?;
        if let Some(left) = catalog::find::<Fleece>(&self.store, source.name.as_str()).await? {
            self.release(Some(&qmp), &left).await?;
        }
        let guest = qemu::disks(&qmp).await?;
        let fleece = self.fleece_of(source, socket, &guest, qemu::is_running(&qmp).await?)?;
        let ours = format!("{OURS}{:x}-", source.added);
        let bitmap = |stamp: &Name| format!("{ours}{stamp}");
        let marks = Marks {
            qmp: qmp.clone(),
            own: bitmap(stamp),
            last: last.map(|point| bitmap(&point.name.stamp)),
            ours,
        };
        // Those of runs that were cut off tell nothing that is asked for.
        qemu::unmark(&qmp, &marks.ours, marks.last.as_deref()).await?;
        let folder = socket_folder(&self.hypervisors.folder, qmp.peer().map(|peer| peer.user))?;
        live.check()?;
        self.change(self.prepare_scratch(&fleece)).await?;
        let begun = async {
            // Before the cut: what is marked that lies before it is only looked at once more.
            for disk in &guest {
                qemu::mark(&qmp, disk, &marks.own).await?;
            }
            qemu::prepare(&qmp, &fleece, &server).await?;
            self.still_for(still.as_ref(), live, qemu::cut(&qmp, &fleece)).await?;
            self.read_fleece(&fleece, &guest, &marks, folder.path()).await
        };
        let disks = match begun.await {
            Ok(disks) => disks,
            Err(error) => {
                self.release_or_tell(&qmp, &fleece).await;
                marks.settle(false).await;
                return Err(error);
            }
        };
        let process = qmp.peer().map(|peer| peer.process);
        let hardware = process.map_or_else(
            || Err(Error::new(Kind::NotFound, "the kernel does not say which process it is")),
            |process| running_arguments(process).map(Hardware::QemuArgs),
        );
        Ok(Fleeced { disks, hardware, marks, fleece, _folder: folder })
    }

    /// What is to be put into a QEMU.
    fn fleece_of(&self, source: &Source, socket: &Path, guest: &[GuestDisk], runs: bool) -> Result<Fleece> {
        if guest.is_empty() {
            let what = "the guest has no disk that could be backed up";
            return Err(Error::new(Kind::Invalid, what).remedy("look whether it is the right one"));
        }
        let of = |disk: &GuestDisk| {
            let scratch = Name::new(&format!("{}.{}.scratch", source.name, disk.target));
            Ok(FleecedDisk {
                target: disk.target.clone(),
                device: disk.device.clone(),
                node: disk.node.clone(),
                bytes: disk.bytes,
                scratch: scratch.map_err(|e| e.context("the disk for what the guest overwrites"))?,
                number: self.draw_number(),
            })
        };
        let disks: Vec<FleecedDisk> = guest.iter().map(of).collect::<Result<_>>()?;
        Ok(Fleece {
            source: source.name.clone(),
            socket: socket.to_owned(),
            halts: runs && disks.len() > 1,
            disks,
            begun: self.store.time().trusted,
            unknown: Unknown::new(),
        })
    }

    /// Stores the document, and makes the scratch disks; within a change.
    async fn prepare_scratch(&self, fleece: &Fleece) -> Result<()> {
        for disk in &fleece.disks {
            check_no_disk(&self.store, &disk.scratch)?;
        }
        catalog::put_new(&self.store, fleece).await?;
        for disk in &fleece.disks {
            let size_bytes = disk.bytes.next_multiple_of(BLOCK_BYTES as u64);
            // It is read once, if at all.
            let settings = DiskSettings { dedupe: false, ..DiskSettings::default() };
            self.store.create_disk_as(None, &disk.scratch, size_bytes, settings, disk.number.0).await?;
        }
        Ok(())
    }

    /// The standstill of its guest, which must have an agent.
    pub(crate) fn standstill_of_qemu(&self, source: &Source, of: &QemuGuest) -> Result<Standstill> {
        let agent = of.agent.clone().ok_or_else(|| {
            let what = format!("nobody said where the guest agent of source '{}' is reached", source.name);
            Error::new(Kind::Invalid, what).remedy(
                "add the source with --agent unix:PATH; or back it up as after a loss of power (crash)",
            )
        })?;
        Ok(self.standstill_of_guest(&source.name, agent, source.name.as_str()))
    }

    /// Opens what is kept since the cut, which is over, and after which the guest goes on.
    async fn read_fleece(
        &self,
        fleece: &Fleece,
        guest: &[GuestDisk],
        marks: &Marks,
        folder: &Path,
    ) -> Result<Vec<Reading>> {
        let qmp = &marks.qmp;
        if fleece.halts {
            let goes_on = |fleece: &mut Fleece| {
                fleece.halts = false;
                Ok(())
            };
            catalog::change(&self.store, &fleece.key(), goes_on).await?;
        }
        let whole: Vec<Option<String>> = guest.iter().map(|disk| marks.wrong(disk)).collect();
        let socket = folder.join("nbd.sock");
        qemu::export(qmp, fleece, &socket, |at| marks.last.clone().filter(|_| whole[at].is_none())).await?;
        let mut disks = Vec::new();
        for (disk, whole) in fleece.disks.iter().zip(whole) {
            let address = Address { place: Place::Unix(socket.clone()), export: disk.target.to_string() };
            let bitmap = (marks.last.is_some() && whole.is_none()).then_some(qemu::LOOKED_UP);
            let from = Client::connect(&self.env, &address, bitmap, GREET_MAX).await?;
            disks.push(Reading { target: disk.target.clone(), from: Origin::Export(from), whole });
        }
        Ok(disks)
    }

    /// Takes out of a QEMU what was put into it. What cannot be taken out now is so with a later round; the bitmaps stay.
    pub(crate) async fn unfleece(&self, fleeced: Fleeced) -> Marks {
        let Fleeced { disks, marks, fleece, .. } = fleeced;
        drop(disks);
        self.release_or_tell(&marks.qmp, &fleece).await;
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
    async fn release(&self, qmp: Option<&Qmp>, fleece: &Fleece) -> Result<()> {
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
            // It has ended, and nobody listens any more.
            Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Io) => None,
            // Most likely a run of this very source, which sees to it.
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

impl Marks {
    /// Why it is not known what of a disk has changed since the last point.
    fn wrong(&self, disk: &GuestDisk) -> Option<String> {
        let last = self.last.as_ref()?;
        match disk.bitmaps.iter().find(|bitmap| bitmap.name == *last) {
            None => Some("it has no bitmap from then: its guest was started anew, or it is new".to_owned()),
            Some(bitmap) => bitmap.wrong().map(|why| format!("its bitmap from then is of no use: {why}")),
        }
    }
}
