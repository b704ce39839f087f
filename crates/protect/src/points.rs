//! Points: each is a snapshot of every disk of a machine, of one name, at one instant, and the machine's description then.
//!
//! *Order of a removal*: the point's document says so, its snapshots go, then the document. A removal that is found half done is gone on with.
//! *Promise*: whatever the catalog says, the store refuses to remove a snapshot that is locked, and of a point of which one is none goes.

use crate::catalog::{self, Entry, Unknown};
use crate::machines::MachineDisk;
use crate::runs::key;
use crate::{Database, Hardware, Proof, Protection, Source, SourceOf};
use serde::{Deserialize, Serialize};
use stonefold_env::WallNanos;
use stonefold_store::SnapshotInfo;
use stonefold_types::{Error, ExportName, Kind, Name, PointName, Result, SnapshotName};

/// The document of a point, `points/SOURCE/TIME`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// Its source, and the name of its snapshots.
    pub name: PointName,
    /// The machine, as it was called then.
    pub machine: Name,
    /// Its disks, each with its snapshot.
    pub disks: Vec<PointDisk>,
    /// What else the machine was made of then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<Hardware>,
    /// What it has of a PostgreSQL cluster, where it is of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<Database>,
    /// When, by trusted time, nanoseconds since 1970.
    pub taken: WallNanos,
    /// What its disks are like.
    pub consistency: Consistency,
    /// The policy that it was made for, which removes it when it does not keep it any more; nothing where somebody asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Name>,
    /// Whether it is being removed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removing: bool,
    #[serde(flatten)]
    pub(crate) unknown: Unknown,
}

/// A disk of a point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PointDisk {
    /// What the machine calls it.
    pub target: Name,
    /// The disk that has the snapshot.
    pub disk: Name,
    /// The snapshot's number: another of the same name is not taken for it.
    pub number: u64,
    /// When the disk's snapshot was taken by the machine's clock, nanoseconds since 1970: the same for all.
    pub created: WallNanos,
    /// The disk's size then, in bytes.
    pub size_bytes: u64,
}

/// What a guest finds on a point's disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Consistency {
    /// What it would find after a loss of power.
    #[default]
    Crash,
    /// What its file systems, and by its agent's hooks its programs, had finished when they stood still.
    App,
}

/// A point, and how its snapshots are.
#[derive(Clone, Debug)]
pub struct PointStatus {
    /// The point.
    pub point: Point,
    /// Disks whose snapshots are gone, by their targets.
    pub missing: Vec<Name>,
    /// Nobody can remove any of its snapshots before, by trusted time, nanoseconds since 1970; nothing while one of them is not locked.
    pub locked_until: Option<WallNanos>,
    /// The longest lock of any of them: until then it is not removed.
    pub(crate) longest_lock: Option<WallNanos>,
    /// Why it is not known of some of its snapshots whether they are there.
    pub unread: Option<Error>,
}

/// What differs between the disks of two points.
#[derive(Clone, Debug)]
pub struct DiskDiff {
    /// What both machines call the disk.
    pub target: Name,
    /// How large it is in the first, and in the second, in bytes.
    pub bytes: (u64, u64),
    /// Ranges that differ: offset and length in bytes, up to the end of the second's.
    pub ranges: Vec<(u64, u64)>,
}

/// What differs between two points.
#[derive(Clone, Debug)]
pub struct PointDiff {
    /// Of disks that both have.
    pub disks: Vec<DiskDiff>,
    /// Disks that the first has alone.
    pub only_first: Vec<Name>,
    /// Disks that the second has alone.
    pub only_second: Vec<Name>,
    /// Whether the hardware descriptions differ.
    pub hardware_differs: bool,
}

impl PointDisk {
    pub(crate) fn of(disk: &MachineDisk, taken: &SnapshotInfo) -> PointDisk {
        PointDisk {
            target: disk.target.clone(),
            disk: disk.disk.clone(),
            number: taken.number,
            created: taken.created,
            size_bytes: taken.size_bytes,
        }
    }
}

impl Entry for Point {
    const FAMILY: &'static str = "points";
    const NOUN: &'static str = "point";
    const LISTED_BY: &'static str = "stonefold point ls";

    fn key(&self) -> String {
        key(&self.name)
    }
}

impl Point {
    /// The snapshot of one of its disks.
    pub fn snapshot_of(&self, disk: &PointDisk) -> SnapshotName {
        SnapshotName { disk: disk.disk.clone(), snapshot: self.name.stamp.clone() }
    }
}

impl PointStatus {
    /// Whether all its snapshots are there, and known to be.
    pub(crate) fn is_whole(&self) -> bool {
        self.missing.is_empty() && self.unread.is_none()
    }

    /// Fails where it is not known what is there.
    fn check_known(&self) -> Result<()> {
        let why = self.unread.as_ref().map(|why| why.clone().context(format!("point '{}'", self.point.name)));
        why.map_or(Ok(()), Err)
    }

    /// Fails where it cannot be read whole.
    pub(crate) fn check_whole(&self) -> Result<()> {
        let name = &self.point.name;
        self.check_known()?;
        if self.point.removing {
            let what = format!("point '{name}' is being removed");
            return Err(Error::new(Kind::NotFound, what).remedy("choose another point"));
        }
        if let [first, ..] = self.missing.as_slice() {
            let what = format!("point '{name}' is not whole: the snapshot of its disk '{first}' was removed");
            return Err(Error::new(Kind::NotFound, what).remedy("choose another point"));
        }
        Ok(())
    }
}

impl Protection {
    /// Fails where a point's disks are known to be no machine's.
    pub(crate) async fn check_boots(&self, point: &Point) -> Result<()> {
        const FILES: &str = "look at what is in it: stonefold point files POINT ls, or point mount POINT DIR";
        let name = &point.name;
        let (of, remedy) = match self.readable::<Source>(name.source.as_str()).await?.map(|source| source.of)
        {
            _ if point.database.is_some() => (
                "a PostgreSQL cluster",
                "bring its disks back with 'stonefold recover', mount them and start PostgreSQL on them",
            ),
            Some(SourceOf::Dir(_)) => ("a folder", FILES),
            // What a machine is made of is told with each of its points.
            Some(SourceOf::Ssh(_)) if point.hardware.is_none() => {
                ("folders, or of a machine that could not be described", FILES)
            }
            // Of a source that is gone it is not known; what does not boot is seen on its screen.
            _ => return Ok(()),
        };
        let what = format!("point '{name}' is of {of}: no machine that boots");
        Err(Error::new(Kind::Invalid, what).remedy(remedy))
    }

    /// All points, or those of one source, by source and time.
    pub async fn points(&self, source: Option<&Name>) -> Result<Vec<PointStatus>> {
        self.settle().await;
        let points = catalog::all(&self.store, source.map(Name::as_str)).await?;
        Ok(points.into_iter().map(|point| self.status_of(point)).collect())
    }

    /// One point.
    pub async fn point(&self, name: &PointName) -> Result<PointStatus> {
        self.settle().await;
        Ok(self.status_of(catalog::get(&self.store, &key(name)).await?))
    }

    pub(crate) fn status_of(&self, point: Point) -> PointStatus {
        let (mut missing, mut locks, mut unread) = (Vec::new(), Vec::new(), None);
        for disk in &point.disks {
            match self.snapshot_of(&point, disk) {
                Ok(Some(info)) => locks.push(info.locked_until),
                Ok(None) => missing.push(disk.target.clone()),
                Err(error) => unread = unread.or(Some(error)),
            }
        }
        let (locked_until, longest_lock) = (locks.iter().min().copied(), locks.iter().max().copied());
        let (locked_until, longest_lock) = (locked_until.flatten(), longest_lock.flatten());
        PointStatus { point, missing, locked_until, longest_lock, unread }
    }

    /// The very snapshot, where it is still there. An error, where nobody knows: what cannot be read now is not gone.
    fn snapshot_of(&self, point: &Point, disk: &PointDisk) -> Result<Option<SnapshotInfo>> {
        match self.store.snapshot_info(&point.snapshot_of(disk)) {
            Ok(info) => Ok((info.number == disk.number && info.created == disk.created).then_some(info)),
            Err(error) if error.kind() == Kind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes a point. Refused while any of its snapshots is locked.
    pub async fn remove_point(&self, name: &PointName) -> Result<()> {
        self.change(self.remove_now(name)).await
    }

    /// The same, within a change.
    pub(crate) async fn remove_now(&self, name: &PointName) -> Result<()> {
        let status = self.point(name).await?;
        status.check_known()?;
        if let Some(until) = status.longest_lock {
            self.store.check_unlocked(&format!("point '{name}'"), until)?;
        }
        self.check_no_readers(&status.point)?;
        let say = |point: &mut Point| {
            point.removing = true;
            Ok(())
        };
        self.steps_begin();
        let point = catalog::change::<Point>(&self.store, &key(name), say).await?;
        self.go_on_removing(&point).await
    }

    /// A snapshot that is read would be refused after others are gone.
    fn check_no_readers(&self, point: &Point) -> Result<()> {
        for disk in &point.disks {
            if self.snapshot_of(point, disk)?.is_none() {
                continue;
            }
            let export = ExportName::Snapshot(point.snapshot_of(disk));
            let info = self.store.disk(&disk.disk)?;
            if let Some(client) = info.connections.iter().find(|client| client.export == export) {
                let what = format!("point '{}' is in use: {} reads '{export}'", point.name, client.peer);
                return Err(Error::new(Kind::Busy, what).remedy("disconnect it, and try again"));
            }
        }
        Ok(())
    }

    async fn go_on_removing(&self, point: &Point) -> Result<()> {
        for disk in &point.disks {
            if self.snapshot_of(point, disk)?.is_some() {
                self.store.remove_snapshot(&point.snapshot_of(disk)).await?;
            }
        }
        // A removal that failed before may have been done, and not be durable.
        self.store.settle_marks().await?;
        catalog::remove::<Proof>(&self.store, &point.key()).await?;
        catalog::remove::<Point>(&self.store, &point.key()).await
    }

    /// Goes on with removals that were cut off; one that cannot be ended keeps no other from it. Returns the first error.
    pub(crate) async fn end_removals(&self) -> Result<()> {
        let mut ended = Ok(());
        for key in catalog::keys::<Point>(&self.store, None).await? {
            let Some(point) = self.readable::<Point>(&key).await?.filter(|point| point.removing) else {
                continue;
            };
            let done = self.go_on_removing(&point).await;
            ended = ended.and(done.map_err(|e| e.context(format!("removing point '{}'", point.name))));
        }
        ended
    }

    /// Locks a point until an instant of trusted time, nanoseconds since 1970: each of its snapshots. A lock is never shortened.
    pub async fn lock_point(&self, name: &PointName, until: WallNanos) -> Result<PointStatus> {
        self.change(async {
            let status = self.point(name).await?;
            status.check_whole()?;
            // All that the store would refuse it refuses of the first, but for locks of their own that are longer: these are looked at before.
            let snapshots = status.point.disks.iter().map(|disk| status.point.snapshot_of(disk));
            let longest = status.longest_lock.filter(|longest| *longest > until);
            if let Some(longest) = longest {
                let is = crate::stamp::shown(longest);
                let what = format!("point '{name}' is locked until {is}, and a lock is never shortened");
                return Err(Error::new(Kind::Invalid, what).remedy("name a later time"));
            }
            for snapshot in snapshots {
                self.store
                    .lock_snapshot(&snapshot, until)
                    .await
                    .map_err(|e| e.context(format!("point '{name}'")))?;
            }
            self.point(name).await
        })
        .await
    }

    /// What differs between two points, disk by disk, as their machines call them.
    pub async fn diff_points(&self, first: &PointName, second: &PointName) -> Result<PointDiff> {
        let (first, second) = (self.point(first).await?, self.point(second).await?);
        first.check_whole()?;
        second.check_whole()?;
        let (first, second) = (first.point, second.point);
        let named =
            |point: &Point, target: &Name| point.disks.iter().find(|disk| disk.target == *target).cloned();
        let alone = |of: &Point, other: &Point| {
            let targets = of.disks.iter().map(|disk| disk.target.clone());
            targets.filter(|target| named(other, target).is_none()).collect()
        };
        let mut disks = Vec::new();
        for disk in &first.disks {
            let Some(other) = named(&second, &disk.target) else { continue };
            let to = ExportName::Snapshot(second.snapshot_of(&other));
            let ranges = self.store.diff(&first.snapshot_of(disk), Some(&to)).await?;
            let bytes = (disk.size_bytes, other.size_bytes);
            disks.push(DiskDiff { target: disk.target.clone(), bytes, ranges });
        }
        let hardware_differs = first.hardware != second.hardware;
        let (only_first, only_second) = (alone(&first, &second), alone(&second, &first));
        Ok(PointDiff { disks, only_first, only_second, hardware_differs })
    }
}
