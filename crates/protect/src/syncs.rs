//! Machines that are brought up to a snapshot of their master, while they keep some disks of their own.
//!
//! A disk that is replaced keeps its name: whoever starts the machine need not be told. *Order*: the note, which is the decision: from then on it
//! is done, whatever the server dies in; the old disks go, in the machine's order; the new ones are made, by numbers that the note has drawn; the
//! machine's document says where they come from; then the note goes. One that is found later is gone on with. There is one way back:
//! where the store refuses the first removal, a client having come, the note goes and it is as if nobody had asked.
//! *Never*: removes a disk whose number the note does not say, or makes one before all old ones are gone. A machine that is
//! half done, because the store refuses a later removal, is neither snapshotted nor cloned nor removed.
//!
//! *Rejected*: new disks under new names and one swap of the document. No disk would ever be missing, but what clients attach by and hypervisors
//! keep would be another with each sync.

use crate::Protection;
use crate::catalog::{self, Entry, Unknown};
use crate::clones::{Copy, remove_own};
use crate::machines::{Machine, MachineDisk};
use crate::number::DiskNumber;
use serde::{Deserialize, Serialize};
use std::sync::atomic::Ordering;
use stonefold_store::{Attachment, DiskInfo};
use stonefold_types::{DiskSettings, Error, ExportName, Kind, Name, Result};

/// A machine to be brought up to another.
#[derive(Clone, Debug)]
pub struct SyncRequest {
    /// The machine.
    pub machine: Name,
    /// Its master.
    pub master: Name,
    /// A snapshot of the master, of one instant; its newest where none is named.
    pub snapshot: Option<Name>,
    /// Disks that stay as they are, by what the machine calls them, now and with each sync to come; those of the last one where it is not said.
    pub keep: Option<Vec<Name>>,
}

/// A machine that was brought up to another.
#[derive(Clone, Debug)]
pub struct Synced {
    /// The machine.
    pub machine: Machine,
    /// The snapshot, by its name on each disk of the master.
    pub snapshot: Name,
    /// Disks that began anew, by what the machine calls them.
    pub replaced: Vec<Name>,
    /// Disks that stayed as they were.
    pub kept: Vec<Name>,
    /// What is to be said of it, in words.
    pub notes: Vec<String>,
}

/// The note: a sync that was decided, `syncing/ID`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Syncing {
    /// Chance.
    pub(crate) id: Name,
    /// The machine.
    pub(crate) machine: Name,
    /// What it comes from then, as `MASTER@SNAP`.
    pub(crate) origin: String,
    /// Disks that begin anew, in the machine's order.
    pub(crate) disks: Vec<Replaced>,
    /// Disks that the machine keeps from now on, where that was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) keep: Option<Vec<Name>>,
    #[serde(flatten)]
    pub(crate) unknown: Unknown,
}

/// A disk that begins anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Replaced {
    /// The new one.
    pub(crate) new: Copy,
    /// The number of the old one, which has the same name; nothing where there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) old: Option<DiskNumber>,
    /// The old one's settings, which the new one gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) settings: Option<DiskSettings>,
}

impl Entry for Syncing {
    const FAMILY: &'static str = "syncing";
    const NOUN: &'static str = "what is being synced";
    const LISTED_BY: &'static str = "stonefold machine ls";

    fn key(&self) -> String {
        self.id.to_string()
    }
}

impl Protection {
    /// Replaces disks of a machine by clones of its master's snapshot. All of them or none, durable on return. What they held is gone.
    pub async fn sync_machine(&self, asked: SyncRequest) -> Result<Synced> {
        self.change(async {
            let (note, synced) = self.plan_sync(&asked).await?;
            // What could not be held then could not be made.
            let _held = self.hold(&note)?;
            self.steps_begin();
            if let Err(error) = catalog::put_new(&self.store, &note).await {
                // It may be there; nothing was done for it yet. The first error is the one to tell.
                let _ = catalog::remove::<Syncing>(&self.store, &note.key()).await;
                return Err(error);
            }
            self.go_on_syncing(&note).await?;
            let machine = self.machine(&asked.machine).await?;
            Ok(Synced { machine, ..synced })
        })
        .await
    }

    /// What is to be done, looked at as far as that changes nothing.
    async fn plan_sync(&self, asked: &SyncRequest) -> Result<(Syncing, Synced)> {
        let SyncRequest { machine, master, .. } = asked;
        if machine == master {
            let what = format!("machine '{machine}' cannot be its own master");
            return Err(Error::new(Kind::Invalid, what).remedy("name the machine it was cloned from"));
        }
        let (machine, master) = (self.machine(machine).await?, self.machine(master).await?);
        self.check_syncable(&machine, asked).await?;
        self.check_no_sync(&master.name).await?;
        let at = match &asked.snapshot {
            Some(name) => self.check_of_one_instant(&master, name).map(|()| name.clone())?,
            None => self.newest_snapshot(&master)?,
        };
        let keep = asked.keep.as_ref().unwrap_or(&machine.kept);
        let (mut disks, mut replaced, mut kept) = (Vec::new(), Vec::new(), Vec::new());
        for disk in &machine.disks {
            let of = master.disks.iter().find(|of| of.target == disk.target);
            match of.filter(|_| !keep.contains(&disk.target)) {
                Some(of) => {
                    disks.push(self.replacement(disk, of, &at)?);
                    replaced.push(disk.target.clone());
                }
                None => kept.push(disk.target.clone()),
            }
        }
        if disks.is_empty() {
            let what = format!("machine '{}' keeps all its disks: there is nothing to sync", machine.name);
            return Err(Error::new(Kind::Invalid, what)
                .remedy(format!("'stonefold machine show {}' shows what the master has", master.name)));
        }
        let lacks = |of: &&MachineDisk| !machine.disks.iter().any(|disk| disk.target == of.target);
        let lacking = master.disks.iter().filter(lacks);
        let notes = lacking.map(|of| format!("'{}' has a disk '{}' besides", master.name, of.target));
        let notes = notes.collect();
        let note = Syncing {
            id: self.draw_id()?,
            machine: machine.name.clone(),
            origin: format!("{}@{at}", master.name),
            disks,
            keep: asked.keep.clone(),
            unknown: Unknown::new(),
        };
        Ok((note, Synced { machine, snapshot: at, replaced, kept, notes }))
    }

    async fn check_syncable(&self, machine: &Machine, asked: &SyncRequest) -> Result<()> {
        let name = &machine.name;
        if machine.template {
            return Err(machine.is_template("synced"));
        }
        self.check_made(machine.making.as_ref(), &format!("machine '{name}'")).await?;
        self.check_no_sync(name).await?;
        self.check_not_discarding(&machine.disk_names()).await?;
        let is_there = |target: &&Name| machine.disks.iter().any(|disk| disk.target == **target);
        match asked.keep.iter().flatten().find(|target| !is_there(target)) {
            Some(other) => {
                let what = format!("machine '{name}' has no disk that it calls '{other}'");
                let remedy = format!("'stonefold machine show {name}' shows those it has");
                Err(Error::new(Kind::Invalid, what).remedy(remedy))
            }
            None => Ok(()),
        }
    }

    /// A disk that is to begin anew: fails where it could not, or where more would go than what it holds now.
    fn replacement(&self, disk: &MachineDisk, of: &MachineDisk, at: &Name) -> Result<Replaced> {
        let master = self.store.disk(&of.disk)?;
        let old = match self.store.disk(&disk.disk) {
            Ok(old) => Some(old),
            // The machine lacks it, and gets it.
            Err(error) if error.kind() == Kind::NotFound => None,
            Err(error) => return Err(error),
        };
        if let Some(old) = &old {
            self.check_replaceable(old, &master)?;
        }
        Ok(Replaced {
            new: Copy {
                of: of.disk.clone(),
                at: at.clone(),
                disk: disk.disk.clone(),
                number: self.draw_number(),
            },
            old: old.as_ref().map(|old| DiskNumber(old.number)),
            settings: old.map(|old| old.settings),
        })
    }

    fn check_replaceable(&self, old: &DiskInfo, master: &DiskInfo) -> Result<()> {
        let name = &old.name;
        let refused = |what: String, remedy: String| Err(Error::new(Kind::Busy, what).remedy(remedy));
        self.store.check_no_clients(name)?;
        self.store.check_no_locks(name)?;
        if old.snapshots > 0 {
            let what = format!("disk '{name}' has {} snapshots, which would go with it", old.snapshots);
            return refused(what, "remove them first, or keep that disk (--keep)".to_owned());
        }
        if old.settings.reserve {
            let what = format!("disk '{name}' is reserved, and the one in its place would not be");
            return refused(what, format!("give that up first: stonefold disk set {name} --reserve off"));
        }
        if old.domain != master.domain {
            let what = format!(
                "disk '{name}' is in domain '{}', and its master's is in '{}'",
                old.domain, master.domain
            );
            return refused(what, "keep that disk (--keep)".to_owned());
        }
        Ok(())
    }

    /// Attaches to what the disks that are still to be made begin as: as long as that is held nobody removes it.
    fn hold(&self, note: &Syncing) -> Result<Vec<Attachment>> {
        let mut held = Vec::new();
        for Replaced { new, .. } in &note.disks {
            if !new.number.is_there(&self.store, &new.disk)? {
                held.push(self.store.attach(&ExportName::Snapshot(new.from()))?);
            }
        }
        Ok(held)
    }

    async fn go_on_syncing(&self, note: &Syncing) -> Result<()> {
        let named =
            |e: Error| e.context(format!("bringing machine '{}' up to {}", note.machine, note.origin));
        let held = match self.hold(note) {
            // Somebody was faster than this start. What is gone cannot be made.
            Err(error) if error.kind() == Kind::NotFound => {
                catalog::remove::<Syncing>(&self.store, &note.key()).await?;
                return Err(named(error).remedy("sync it again, to another snapshot"));
            }
            held => held.map_err(named)?,
        };
        self.remove_replaced(note).await.map_err(named)?;
        for one in &note.disks {
            self.make_anew(one).await.map_err(named)?;
        }
        drop(held);
        let say = |machine: &mut Machine| {
            machine.origin = Some(note.origin.clone());
            if let Some(keep) = &note.keep {
                machine.kept.clone_from(keep);
            }
            Ok(())
        };
        match catalog::change::<Machine>(&self.store, note.machine.as_str(), say).await {
            Err(error) if error.kind() == Kind::NotFound => {}
            changed => drop(changed?),
        }
        catalog::remove::<Syncing>(&self.store, &note.key()).await
    }

    async fn remove_replaced(&self, note: &Syncing) -> Result<()> {
        let mut are_all_there = true;
        let old = || note.disks.iter().filter_map(|one| one.old.map(|number| (&one.new.disk, number)));
        for (disk, number) in old() {
            are_all_there &= number.is_there(&self.store, disk)?;
        }
        for (disk, number) in old() {
            let Err(error) = remove_own(&self.store, disk, number).await else {
                are_all_there = false;
                continue;
            };
            if !matches!(error.kind(), Kind::Busy | Kind::Locked) {
                self.removal_in_doubt.store(true, Ordering::Relaxed);
            } else if are_all_there && !self.removal_in_doubt.load(Ordering::Relaxed) {
                // Refused, and surely nothing has happened.
                catalog::remove::<Syncing>(&self.store, &note.key()).await?;
            }
            return Err(error);
        }
        Ok(())
    }

    /// Makes a disk, where there is none of the name, and gives it the settings it had.
    async fn make_anew(&self, one: &Replaced) -> Result<()> {
        let Replaced { new, settings, .. } = one;
        let made = match self.store.disk(&new.disk) {
            Ok(found) if new.number.is_of(&found) => found,
            Ok(_) => {
                tracing::warn!(
                    "disk '{}' has been made by somebody meanwhile, and is left as it is",
                    new.disk
                );
                return Ok(());
            }
            Err(error) if error.kind() == Kind::NotFound => {
                // One that may be there although this fails is found by the next start.
                self.store.clone_snapshot_as(&new.from(), &new.disk, new.number.0).await?
            }
            Err(error) => return Err(error),
        };
        let Some(settings) = settings else { return Ok(()) };
        let mut wanted = settings.clone();
        if self.check_class(&wanted.qos).is_err() {
            // It went when no disk had it.
            wanted.qos = made.settings.qos.clone();
        }
        if made.settings != wanted {
            self.store.set_disk(&new.disk, |_| wanted).await?;
        }
        Ok(())
    }

    /// Fails while a machine is being synced, and may have old disks and new ones.
    pub(crate) async fn check_no_sync(&self, machine: &Name) -> Result<()> {
        let notes = catalog::every::<Syncing>(&self.store).await?;
        match notes.iter().find(|note| note.machine == *machine) {
            Some(note) => {
                let what = format!("machine '{machine}' is being brought up to {}", note.origin);
                Err(Error::new(Kind::Busy, what).remedy("the log says what that waits for"))
            }
            None => Ok(()),
        }
    }

    /// Goes on with syncs that were cut off; one that cannot be ended keeps no other from it. Returns the first error.
    pub(crate) async fn end_syncs(&self) -> Result<()> {
        let mut ended = Ok(());
        for note in catalog::all::<Syncing>(&self.store, None).await? {
            ended = ended.and(self.go_on_syncing(&note).await);
        }
        ended
    }
}
