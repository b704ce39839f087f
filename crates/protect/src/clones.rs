//! Disks cloned together, for a machine that is made from another or brought back from a point: all of them, or none.
//!
//! *Order*: a note that says what is to be made; a snapshot where there is none yet; the disks; the documents of those who have them; then the
//! note goes. A note that is found later tells which: all documents are there, then it was done; they are not, then what it names is
//! taken away. *Never*: takes away a disk whose number is not the one that the note drew for it, a document that does not name the note, or a
//! snapshot of somebody else's name: numbers and names are chance. A note stays while anything of it cannot be ended, and what it names is
//! nobody else's until then.

use crate::Protection;
use crate::catalog::{self, Entry, Unknown};
use crate::machines::Machine;
use crate::number::DiskNumber;
use crate::recoveries::Recovery;
use serde::{Deserialize, Serialize};
use std::sync::atomic::Ordering;
use std::time::Duration;
use stonefold_store::Store;
use stonefold_types::{DiskSettings, Error, Kind, Name, Result, SnapshotName};

/// The note: what is being made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Making {
    /// Chance.
    pub(crate) id: Name,
    /// A snapshot that is taken for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) snapshot: Option<NewSnapshot>,
    /// In the order in which they are made.
    pub(crate) disks: Vec<Copy>,
    /// Machines that have them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) machines: Vec<Name>,
    /// A recovery that has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) recovery: Option<Name>,
    #[serde(flatten)]
    pub(crate) unknown: Unknown,
}

/// A snapshot that is taken of several disks at one instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NewSnapshot {
    pub(crate) name: Name,
    pub(crate) disks: Vec<Name>,
}

/// A disk that is made from a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Copy {
    /// The snapshot's disk.
    pub(crate) of: Name,
    /// The snapshot's name.
    pub(crate) at: Name,
    /// The new disk.
    pub(crate) disk: Name,
    /// Its number.
    pub(crate) number: DiskNumber,
}

impl Copy {
    pub(crate) fn from(&self) -> SnapshotName {
        SnapshotName { disk: self.of.clone(), snapshot: self.at.clone() }
    }
}

impl Entry for Making {
    const FAMILY: &'static str = "making";
    const NOUN: &'static str = "what is being made";
    const LISTED_BY: &'static str = "stonefold machine ls";

    fn key(&self) -> String {
        self.id.to_string()
    }
}

/// What is to be made.
#[derive(Default)]
pub(crate) struct Order {
    pub(crate) snapshot: Option<NewSnapshot>,
    pub(crate) disks: Vec<Copy>,
    /// Their class of service, where it is not that of the originals.
    pub(crate) qos: Option<Name>,
    pub(crate) machines: Vec<Machine>,
    /// And when it was asked for, by the monotonic clock.
    pub(crate) recovery: Option<(Recovery, Duration)>,
}

impl Protection {
    /// Draws a number for a disk that is to be made.
    pub(crate) fn draw_number(&self) -> DiskNumber {
        DiskNumber(u64::from_le_bytes(self.env.random()))
    }

    /// Draws an id for a note.
    pub(crate) fn draw_id(&self) -> Result<Name> {
        Name::new(&hexadecimal(&self.env.random::<8>()))
    }

    /// Makes all of it, or fails; what is half made then is taken away by [`end_clones`](Self::end_clones). Durable on return.
    pub(crate) async fn make(&self, mut order: Order) -> Result<()> {
        let store = &*self.store;
        for copy in &order.disks {
            check_no_disk(store, &copy.disk)?;
        }
        let id = self.draw_id()?;
        order.machines.iter_mut().for_each(|machine| machine.making = Some(id.clone()));
        let recovery = order.recovery.take();
        let note = Making {
            id: id.clone(),
            snapshot: order.snapshot,
            disks: order.disks,
            machines: order.machines.iter().map(|machine| machine.name.clone()).collect(),
            recovery: recovery.as_ref().map(|(recovery, _)| recovery.name.clone()),
            unknown: Unknown::new(),
        };
        self.steps_begin();
        catalog::put_new(store, &note).await?;
        self.make_disks(&note, order.qos.as_ref()).await?;
        for machine in &order.machines {
            catalog::put_new(store, machine).await?;
        }
        if let Some((mut recovery, asked)) = recovery {
            recovery.making = Some(id);
            recovery.ready_us = self.env.monotonic().saturating_sub(asked).as_micros() as u64;
            catalog::put_new(store, &recovery).await?;
        }
        catalog::remove::<Making>(store, &note.key()).await
    }

    async fn make_disks(&self, note: &Making, qos: Option<&Name>) -> Result<()> {
        let store = &*self.store;
        if let Some(new) = &note.snapshot {
            store.snapshot(&new.disks, Some(new.name.clone())).await?;
        }
        for copy in &note.disks {
            if let Err(error) = store.clone_snapshot_as(&copy.from(), &copy.disk, copy.number.0).await {
                if is_in_doubt(&error) {
                    self.in_doubt.store(true, Ordering::Relaxed);
                }
                return Err(error);
            }
            if let Some(class) = qos {
                store.set_disk(&copy.disk, |old| DiskSettings { qos: class.clone(), ..old }).await?;
            }
        }
        Ok(())
    }

    /// Ends what notes tell of; one that cannot be ended keeps no other from it. Returns the first error.
    pub(crate) async fn end_clones(&self) -> Result<()> {
        let mut ended = Ok(());
        for note in catalog::all::<Making>(&self.store, None).await? {
            let done = self.end_making(&note).await;
            ended =
                ended.and(done.map_err(|e| e.context(format!("what was to be made by note '{}'", note.id))));
        }
        ended
    }

    async fn end_making(&self, note: &Making) -> Result<()> {
        if !is_complete(&self.store, note).await? {
            take_away(&self.store, note).await?;
            if self.in_doubt.load(Ordering::Relaxed) {
                let what = "a disk may have been made although the medium failed";
                return Err(Error::new(Kind::Io, what).remedy("the next start tells, and takes it away"));
            }
        }
        catalog::remove::<Making>(&self.store, &note.key()).await
    }

    /// Fails while the note by which something was made is still there: until that is gone it is not sure that it stays.
    pub(crate) async fn check_made(&self, making: Option<&Name>, what: &str) -> Result<()> {
        let Some(id) = making else { return Ok(()) };
        match catalog::find::<Making>(&self.store, id.as_str()).await? {
            None => Ok(()),
            Some(_) => Err(Error::new(Kind::Busy, format!("{what} is still being made"))
                .remedy("the log says what keeps it from being ended; try again when that is mended")),
        }
    }

    /// Fails where a disk is one that a note names, and that may be taken away with it.
    pub(crate) async fn check_not_half_made(&self, disks: &[Name]) -> Result<()> {
        for note in catalog::every::<Making>(&self.store).await? {
            for copy in note.disks.iter().filter(|copy| disks.contains(&copy.disk)) {
                if copy.number.is_there(&self.store, &copy.disk)? {
                    let what = format!("disk '{}' is half made, and about to be taken away", copy.disk);
                    return Err(Error::new(Kind::Busy, what).remedy("the log says what it waits for"));
                }
            }
        }
        Ok(())
    }
}

/// Two digits for each byte.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a clone may have been made although the call failed.
fn is_in_doubt(error: &Error) -> bool {
    !matches!(
        error.kind(),
        Kind::AlreadyExists | Kind::NotFound | Kind::Invalid | Kind::Busy | Kind::NoSpace | Kind::Locked
    )
}

/// Fails where there is a disk of that name.
pub(crate) fn check_no_disk(store: &Store, name: &Name) -> Result<()> {
    match store.disk(name) {
        Err(error) if error.kind() == Kind::NotFound => Ok(()),
        // One that cannot be read has its name all the same.
        _ => {
            let what = format!("disk '{name}' exists already");
            Err(Error::new(Kind::AlreadyExists, what).remedy("choose another name, or remove that disk"))
        }
    }
}

async fn is_complete(store: &Store, note: &Making) -> Result<bool> {
    for machine in &note.machines {
        let found = catalog::find::<Machine>(store, machine.as_str()).await?;
        if found.is_none_or(|machine| machine.making.as_ref() != Some(&note.id)) {
            return Ok(false);
        }
    }
    let Some(recovery) = &note.recovery else { return Ok(true) };
    let found = catalog::find::<Recovery>(store, recovery.as_str()).await?;
    Ok(found.is_some_and(|recovery| recovery.making.as_ref() == Some(&note.id)))
}

/// Documents first, so that none names a disk that is gone; the snapshot last, because disks began as it. Each as far as it can be.
async fn take_away(store: &Store, note: &Making) -> Result<()> {
    for machine in &note.machines {
        let found = catalog::find::<Machine>(store, machine.as_str()).await?;
        // Another of the same name was made otherwise.
        if found.is_some_and(|machine| machine.making.as_ref() == Some(&note.id)) {
            catalog::remove::<Machine>(store, machine.as_str()).await?;
        }
    }
    let mut taken = Ok(());
    for copy in &note.disks {
        taken = taken.and(remove_own(store, &copy.disk, copy.number).await);
    }
    taken?;
    if let Some(new) = &note.snapshot {
        for disk in &new.disks {
            let name = SnapshotName { disk: disk.clone(), snapshot: new.name.clone() };
            gone(store.remove_snapshot(&name).await)?;
        }
    }
    // A removal that failed before may have been done, and not be durable.
    store.settle_marks().await
}

/// Removes a disk, where it is the very one; where there is none there is nothing to do.
pub(crate) async fn remove_own(store: &Store, name: &Name, number: DiskNumber) -> Result<()> {
    if number.is_there(store, name)? {
        gone(store.remove_disk_numbered(name, number.0).await)
    } else {
        Ok(())
    }
}

/// What is not there is gone.
fn gone(removed: Result<()>) -> Result<()> {
    match removed {
        Err(error) if error.kind() == Kind::NotFound => Ok(()),
        removed => removed,
    }
}
