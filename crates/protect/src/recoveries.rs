//! Recoveries: points brought back.
//!
//! A recovery is clones of a point's disks, `NAME.TARGET`, all or none ([`clones`](crate::clones)), and the machine's description with another
//! identity. The clones are disks like any other, served from the moment they are there. *Order of a discard*: the recovery's document says so,
//! its disks go, then the document. *Never*: discards a disk that is not the very one that
//! was made for it, or that a machine has by now. A discard that is refused before anything is gone is none any more.

use crate::catalog::{self, Entry, Unknown};
use crate::clones::{Copy, Order, remove_own};
use crate::domain::Reach;
use crate::machines::{Machine, MachineDisk, copied_disks};
use crate::number::DiskNumber;
use crate::points::Point;
use crate::{Hardware, Protection};
use serde::{Deserialize, Serialize};
use stonefold_env::WallNanos;
use stonefold_types::{Error, Kind, Name, PointName, Result, SnapshotName};

/// The document of a recovery, `recoveries/NAME`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// Unique in the pool.
    pub name: Name,
    /// The point; it may be gone.
    pub point: PointName,
    /// The clones, with what the machine calls them.
    pub disks: Vec<MachineDisk>,
    /// Of each the snapshot's disk that it began as, in the same order.
    pub of: Vec<Name>,
    /// The clones' numbers, in the same order.
    pub(crate) numbers: Vec<DiskNumber>,
    /// The note by which it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) making: Option<Name>,
    /// What else the machine is made of, by its new identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<Hardware>,
    /// Trusted time, nanoseconds since 1970.
    pub begun: WallNanos,
    /// How long it took until all disks were there, in microseconds.
    pub ready_us: u64,
    /// Whether it is being discarded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub discarding: bool,
    #[serde(flatten)]
    pub(crate) unknown: Unknown,
}

/// A point to be brought back.
#[derive(Clone, Debug)]
pub struct RecoverRequest {
    /// The point.
    pub point: PointName,
    /// What it is called then.
    pub name: Name,
    /// A class of service for its disks; that of the originals where none is named.
    pub qos: Option<Name>,
    /// Where it finds its disks.
    pub reach: Reach,
    /// Only look whether it can be done.
    pub dry_run: bool,
}

/// A point that was brought back, or would be.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// See [`Recovery`].
    pub recovery: Recovery,
    /// What of the original it lacks, or has in common with it, in words.
    pub notes: Vec<String>,
}

impl Entry for Recovery {
    const FAMILY: &'static str = "recoveries";
    const NOUN: &'static str = "recovery";
    const LISTED_BY: &'static str = "stonefold recover ls";

    fn key(&self) -> String {
        self.name.to_string()
    }
}

impl Recovery {
    /// Its disks, and the snapshots they began as.
    fn origins(&self) -> impl Iterator<Item = (&Name, SnapshotName)> {
        let origin = |of: &Name| SnapshotName { disk: of.clone(), snapshot: self.point.stamp.clone() };
        self.disks.iter().zip(&self.of).map(move |(disk, of)| (&disk.disk, origin(of)))
    }
}

impl Protection {
    /// All recoveries, by name.
    pub async fn recoveries(&self) -> Result<Vec<Recovery>> {
        self.settle().await;
        catalog::all(&self.store, None).await
    }

    /// One recovery.
    pub async fn recovery(&self, name: &Name) -> Result<Recovery> {
        self.settle().await;
        catalog::get(&self.store, name.as_str()).await
    }

    /// Brings a point back: its disks are there and served on return, durably.
    pub async fn recover(&self, asked: RecoverRequest) -> Result<Recovered> {
        let asked_at = self.env.monotonic();
        self.change(async {
            let status = self.point(&asked.point).await?;
            status.check_whole()?;
            let mut recovered = self.recovery_of(&status.point, &asked).await?;
            if asked.dry_run {
                return Ok(recovered);
            }
            let copy = |((disk, origin), number): ((&Name, SnapshotName), &DiskNumber)| Copy {
                of: origin.disk,
                at: origin.snapshot,
                disk: disk.clone(),
                number: *number,
            };
            let order = Order {
                snapshot: None,
                disks: recovered.recovery.origins().zip(&recovered.recovery.numbers).map(copy).collect(),
                qos: asked.qos.clone(),
                machines: Vec::new(),
                recovery: Some((recovered.recovery.clone(), asked_at)),
            };
            self.make(order).await?;
            recovered.recovery = self.recovery(&asked.name).await?;
            Ok(recovered)
        })
        .await
    }

    /// What is to be made, looked at as far as that changes nothing.
    async fn recovery_of(&self, point: &Point, asked: &RecoverRequest) -> Result<Recovered> {
        self.check_no_machine(&asked.name).await?;
        if catalog::find::<Recovery>(&self.store, asked.name.as_str()).await?.is_some() {
            let what = format!("recovery '{}' exists already", asked.name);
            return Err(Error::new(Kind::AlreadyExists, what).remedy("choose another name, or stop that one"));
        }
        if let Some(class) = &asked.qos {
            self.check_class(class)?;
        }
        let had = point
            .disks
            .iter()
            .map(|disk| MachineDisk { target: disk.target.clone(), disk: disk.disk.clone() });
        let disks = copied_disks(&had.collect::<Vec<_>>(), &asked.name)?;
        for disk in &disks {
            crate::clones::check_no_disk(&self.store, &disk.disk)?;
        }
        let copied = point.hardware.as_ref();
        let copied = copied
            .map(|hardware| self.copy_of_hardware(hardware, &asked.name, &disks, &asked.reach))
            .transpose()?;
        let (hardware, notes) = copied.map_or((None, Vec::new()), |(made, notes)| (Some(made), notes));
        let recovery = Recovery {
            name: asked.name.clone(),
            point: point.name.clone(),
            numbers: disks.iter().map(|_| self.draw_number()).collect(),
            making: None,
            disks,
            of: point.disks.iter().map(|disk| disk.disk.clone()).collect(),
            hardware,
            begun: self.store.time().trusted,
            ready_us: 0,
            discarding: false,
            unknown: Unknown::new(),
        };
        Ok(Recovered { recovery, notes })
    }

    /// Ends a recovery. Its disks stay, as disks like any other; or go, when they are to be discarded, which is refused while anybody needs
    /// them. Returns what it was.
    pub async fn stop_recovery(&self, name: &Name, discard: bool) -> Result<Recovery> {
        self.change(async {
            let recovery = self.recovery(name).await?;
            self.check_made(recovery.making.as_ref(), &format!("recovery '{name}'")).await?;
            if !discard {
                if recovery.discarding {
                    let what = format!("recovery '{name}' is being discarded");
                    return Err(
                        Error::new(Kind::Busy, what).remedy("discard it again: some of its disks are gone")
                    );
                }
                catalog::remove::<Recovery>(&self.store, name.as_str()).await?;
                return Ok(recovery);
            }
            self.check_discardable(&recovery).await?;
            self.steps_begin();
            let recovery = self.say_discarding(&recovery, true).await?;
            self.go_on_discarding(&recovery).await?;
            Ok(recovery)
        })
        .await
    }

    async fn say_discarding(&self, recovery: &Recovery, discarding: bool) -> Result<Recovery> {
        let say = |recovery: &mut Recovery| {
            recovery.discarding = discarding;
            Ok(())
        };
        catalog::change::<Recovery>(&self.store, &recovery.key(), say).await
    }

    /// Whether nobody needs its disks: looked at before the first goes.
    async fn check_discardable(&self, recovery: &Recovery) -> Result<()> {
        let refused = |what: String, remedy: &str| {
            Err(Error::new(Kind::Busy, format!("recovery '{}' cannot be discarded: {what}", recovery.name))
                .remedy(remedy))
        };
        for machine in catalog::every::<Machine>(&self.store).await? {
            let has = |disk: &&MachineDisk| machine.disks.iter().any(|other| other.disk == disk.disk);
            if let Some(disk) = recovery.disks.iter().find(has) {
                let what = format!("disk '{}' is machine '{}''s", disk.disk, machine.name);
                return refused(what, "stop it without --discard, or remove that machine first");
            }
        }
        for (disk, _) in self.own_disks(recovery)? {
            self.store.check_no_clients(disk)?;
            if self.store.disk(disk)?.snapshots > 0 {
                let what = format!("disk '{disk}' has snapshots");
                return refused(what, "stop it without --discard, or remove the snapshots first");
            }
        }
        Ok(())
    }

    /// Its disks that are still there. Fails where it is not known of one, which is not gone because it cannot be read.
    fn own_disks<'a>(&self, recovery: &'a Recovery) -> Result<Vec<(&'a Name, DiskNumber)>> {
        let mut own = Vec::new();
        for (disk, number) in recovery.disks.iter().zip(&recovery.numbers) {
            if number.is_there(&self.store, &disk.disk)? {
                own.push((&disk.disk, *number));
            }
        }
        Ok(own)
    }

    async fn go_on_discarding(&self, recovery: &Recovery) -> Result<()> {
        let removed = self.remove_own_disks(recovery).await;
        if removed.is_err() && self.own_disks(recovery).is_ok_and(|own| own.len() == recovery.disks.len()) {
            // Refused while all are there, so it can be kept as if nobody had asked: by whoever attached to one meanwhile, say.
            self.say_discarding(recovery, false).await?;
        }
        removed?;
        catalog::remove::<Recovery>(&self.store, &recovery.key()).await
    }

    async fn remove_own_disks(&self, recovery: &Recovery) -> Result<()> {
        // Much may have happened since it was asked for.
        self.check_discardable(recovery).await?;
        for (disk, number) in self.own_disks(recovery)? {
            remove_own(&self.store, disk, number).await?;
        }
        Ok(())
    }

    /// Fails where a disk is one of a recovery that is being discarded.
    pub(crate) async fn check_not_discarding(&self, disks: &[Name]) -> Result<()> {
        let discarding = |recovery: &Recovery| recovery.discarding;
        for recovery in catalog::every::<Recovery>(&self.store).await?.into_iter().filter(discarding) {
            if let Some(disk) = recovery.disks.iter().find(|disk| disks.contains(&disk.disk)) {
                let what =
                    format!("disk '{}' is being discarded with recovery '{}'", disk.disk, recovery.name);
                return Err(Error::new(Kind::Busy, what).remedy("name another disk"));
            }
        }
        Ok(())
    }

    /// Goes on with discards that were cut off; one that cannot be ended keeps no other from it. Returns the first error.
    pub(crate) async fn end_discards(&self) -> Result<()> {
        let recoveries: Vec<Recovery> = catalog::all(&self.store, None).await?;
        let mut ended = Ok(());
        for recovery in recoveries.iter().filter(|recovery| recovery.discarding) {
            let done = self.go_on_discarding(recovery).await;
            ended =
                ended.and(done.map_err(|e| e.context(format!("discarding recovery '{}'", recovery.name))));
        }
        ended
    }
}
