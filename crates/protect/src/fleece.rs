//! Disks of a running QEMU on other people's storage, read as they were at one instant while its guest writes on (fleecing).
//!
//! *Order*: a document names the scratch disks and what the guest's devices read and write; the scratch disks are made. Where there is much to be read,
//! it is read [ahead](ahead), of the disks as the guest has them, with a bitmap that marks what it writes meanwhile. Then the cut: what is written from
//! now on is marked for the next point; filters come between; what they keep is exported, and what is left of it read. Then all of it is
//! [taken out](ending) again, the scratch disks go, and the document. *Promises*: a guest's write waits for the copy of what it overwrites, of what is
//! read after the cut, and for nothing else, and for that no longer than some seconds; a guest that a run has stopped goes on, whatever came between:
//! what is left in a QEMU is taken out with each round, also of a later server. *Never*: takes out what is not ours; believes a bitmap that was not marking
//! all the time since the point that it is named by, or since what it is named by was read.

mod ahead;
mod ending;
mod qemu;

use crate::catalog::{self, Entry, Unknown};
use crate::clones::check_no_disk;
use crate::copying::{Guest, Live, Reading};
use crate::hypervisor::{nbd_server, running_arguments, socket_folder};
use crate::number::DiskNumber;
use crate::qmp::Qmp;
use crate::sources::QemuGuest;
use crate::standstills::Standstill;
use crate::{Hardware, Point, Protection, Source};
use ahead::Ahead;
use parking_lot::Mutex as Memory;
use qemu::{GuestDisk, OURS};
use serde::{Deserialize, Serialize};
use serde_json::Value;
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

/// A guest's disks, to be read; what is put into its QEMU for that is to be taken out.
pub(crate) struct Fleeced {
    /// What is read of them first.
    pub(crate) disks: Vec<Reading>,
    /// What it was started with, or why that is not known.
    pub(crate) hardware: Result<Hardware>,
    pub(crate) marks: Marks,
    fleece: Fleece,
    guest: Vec<GuestDisk>,
    /// How it is had to stand still for the cut.
    still: Option<Standstill>,
    /// Our NBD server, as QEMU reaches it.
    server: Value,
    folder: TempDir,
    /// What is read before the cut, until that is made.
    ahead: Memory<Option<Ahead>>,
}

impl Fleeced {
    /// The guest, which uses them on.
    pub(crate) fn guest(&self) -> Guest {
        Guest::Qemu(self.marks.qmp.clone())
    }

    /// Where QEMU's NBD server listens.
    fn socket(&self) -> PathBuf {
        self.folder.path().join("nbd.sock")
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
    /// Begins to read a guest's disks, for the run whose point is `stamp`. Whoever has it reads what it has first and then what
    /// [`read_on`](Self::read_on) tells, and gives it back by [`unfleece`](Self::unfleece).
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
        let fleece = self.fleece_of(source, socket, &guest)?;
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
        if let Some(still) = &still {
            self.check_can_stand(still).await?;
        }
        live.check()?;
        self.change(self.prepare_scratch(&fleece)).await?;
        let ahead = Memory::new(None);
        let (disks, hardware) = (Vec::new(), arguments_of(&qmp));
        let mut fleeced = Fleeced { disks, hardware, marks, fleece, guest, still, server, folder, ahead };
        match self.begin_reading(&fleeced, live).await {
            Ok(disks) => {
                fleeced.disks = disks;
                Ok(fleeced)
            }
            Err(error) => {
                self.unfleece(fleeced).await.settle(false).await;
                Err(error)
            }
        }
    }

    /// What is to be put into a QEMU.
    fn fleece_of(&self, source: &Source, socket: &Path, guest: &[GuestDisk]) -> Result<Fleece> {
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
            // Until the cut, which may be hours later.
            halts: false,
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
}

/// What a guest was started with.
fn arguments_of(qmp: &Qmp) -> Result<Hardware> {
    let unknown = || Error::new(Kind::NotFound, "the kernel does not say which process it is");
    let peer = qmp.peer().ok_or_else(unknown)?;
    running_arguments(peer.process).map(Hardware::QemuArgs)
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
