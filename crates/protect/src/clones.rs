//! Disks cloned together, for a machine that is made from another or brought back from a point: all of them, or none.
//!
//! *Order*: a note that says what is to be made; a snapshot where there is none yet; the disks; the documents of those who have them; then the
//! note goes. A note that is found later tells which: all documents are there, then it was done; they are not, then what it names is
//! taken away. *Never*: takes away a disk that did not begin as the very snapshot that the note names.

use crate::Protection;
use crate::catalog::{self, Entry, Unknown};
use crate::machines::Machine;
use crate::recoveries::Recovery;
use serde::{Deserialize, Serialize};
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
}

impl Copy {
    fn from(&self) -> SnapshotName {
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
    /// Makes all of it, or fails; what is half made then is taken away by [`end_clones`](Self::end_clones). Durable on return.
    pub(crate) async fn make(&self, order: Order) -> Result<()> {
        let store = &*self.store;
        for copy in &order.disks {
            check_no_disk(store, &copy.disk)?;
        }
        let id = self.env.random::<8>().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let note = Making {
            id: Name::new(&id)?,
            snapshot: order.snapshot,
            disks: order.disks,
            machines: order.machines.iter().map(|machine| machine.name.clone()).collect(),
            recovery: order.recovery.as_ref().map(|(recovery, _)| recovery.name.clone()),
            unknown: Unknown::new(),
        };
        catalog::put_new(store, &note).await?;
        if let Some(new) = &note.snapshot {
            store.snapshot(&new.disks, Some(new.name.clone())).await?;
        }
        for copy in &note.disks {
            store.clone_snapshot(&copy.from(), &copy.disk).await?;
            if let Some(class) = &order.qos {
                store.set_disk(&copy.disk, |old| DiskSettings { qos: class.clone(), ..old }).await?;
            }
        }
        for machine in &order.machines {
            catalog::put_new(store, machine).await?;
        }
        if let Some((mut recovery, asked)) = order.recovery {
            recovery.ready_us = self.env.monotonic().saturating_sub(asked).as_micros() as u64;
            catalog::put_new(store, &recovery).await?;
        }
        catalog::remove::<Making>(store, &note.key()).await
    }

    /// Ends what notes tell of.
    pub(crate) async fn end_clones(&self) -> Result<()> {
        for note in catalog::all::<Making>(&self.store, None).await? {
            if !is_complete(&self.store, &note).await? {
                take_away(&self.store, &note).await?;
            }
            catalog::remove::<Making>(&self.store, &note.key()).await?;
        }
        Ok(())
    }
}

/// Fails where there is a disk of that name.
pub(crate) fn check_no_disk(store: &Store, name: &Name) -> Result<()> {
    let is_damaged = store.damaged_disks().iter().any(|disk| disk.name == *name);
    if store.disk(name).is_ok() || is_damaged {
        let what = format!("disk '{name}' exists already");
        return Err(Error::new(Kind::AlreadyExists, what).remedy("choose another name, or remove that disk"));
    }
    Ok(())
}

async fn is_complete(store: &Store, note: &Making) -> Result<bool> {
    for machine in &note.machines {
        if catalog::find::<Machine>(store, machine.as_str()).await?.is_none() {
            return Ok(false);
        }
    }
    match &note.recovery {
        Some(recovery) => Ok(catalog::find::<Recovery>(store, recovery.as_str()).await?.is_some()),
        None => Ok(true),
    }
}

/// Documents first, so that none names a disk that is gone; the snapshot last, because disks began as it.
async fn take_away(store: &Store, note: &Making) -> Result<()> {
    let mine =
        |copy: &&Copy| store.disk(&copy.disk).is_ok_and(|disk| disk.origin.as_ref() == Some(&copy.from()));
    for machine in &note.machines {
        let found = catalog::find::<Machine>(store, machine.as_str()).await?;
        // Another's of the same name has other disks.
        let of_note = |machine: Machine| {
            machine.disks.iter().all(|disk| note.disks.iter().any(|copy| copy.disk == disk.disk))
        };
        if found.is_some_and(of_note) {
            catalog::remove::<Machine>(store, machine.as_str()).await?;
        }
    }
    for copy in note.disks.iter().filter(mine) {
        store.remove_disk(&copy.disk).await?;
    }
    let Some(new) = &note.snapshot else { return Ok(()) };
    for disk in &new.disks {
        let name = SnapshotName { disk: disk.clone(), snapshot: new.name.clone() };
        match store.remove_snapshot(&name).await {
            Err(error) if error.kind() == Kind::NotFound => {}
            removed => removed?,
        }
    }
    // A removal that failed before may have been done, and not be durable.
    store.settle_marks().await
}
