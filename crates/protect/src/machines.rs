//! Machines: disks of ours that belong together, and what else a machine is made of.

use crate::catalog::{self, Entry, Unknown};
use crate::clones::{Copy, NewSnapshot, Order, hexadecimal};
use crate::domain::{Identity, Network, Reach};
use crate::{AgentPlace, Hardware, Protection, stamp};
use serde::{Deserialize, Serialize};
use stonefold_env::WallNanos;
use stonefold_store::SnapshotInfo;
use stonefold_types::{Error, ExportName, Kind, Name, Result};

/// Disks of one machine: more than any bus of QEMU's takes; all of them are locked together for a snapshot.
pub const DISKS_MAX: usize = 256;
/// Machines made by one command: their documents and disks are small, but each is a durable step or two.
pub const CLONES_MAX: u32 = 1000;

/// The document of a machine, `machines/NAME`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Unique in the pool.
    pub name: Name,
    /// Its disks, in the order in which it has them.
    pub disks: Vec<MachineDisk>,
    /// What else it is made of, where that was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<Hardware>,
    /// The machine and snapshot that it was cloned from, as `MACHINE@SNAP`; either may be gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// The note by which it was made, where it was made from another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) making: Option<Name>,
    /// Whether it is there to be cloned: it is not removed, and clones begin as its newest snapshot.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub template: bool,
    /// Disks that a sync leaves as they are, as the last one was told, by what it calls them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Name>,
    /// Where its guest's agent is reached, where that was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentPlace>,
    /// Trusted time, nanoseconds since 1970.
    pub added: WallNanos,
    #[serde(flatten)]
    pub(crate) unknown: Unknown,
}

/// A disk of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineDisk {
    /// What the machine calls it: from its description, or `vda`, `vdb` and so on.
    pub target: Name,
    /// The disk.
    pub disk: Name,
}

/// A machine to be added.
#[derive(Clone, Debug)]
pub struct NewMachine {
    /// See [`Machine`].
    pub name: Name,
    /// Its disks, in the order in which its description has them.
    pub disks: Vec<Name>,
    /// See [`Machine`].
    pub hardware: Option<Hardware>,
}

/// Machines to be made from one.
#[derive(Clone, Debug)]
pub struct CloneRequest {
    /// The machine.
    pub machine: Name,
    /// A snapshot that all its disks have from one instant; of the present where there is none.
    pub snapshot: Option<Name>,
    /// The new machine, or with a count the beginning of `NEW-1`, `NEW-2` and so on.
    pub new: Name,
    /// How many.
    pub count: Option<u32>,
    /// Where the new machines find their disks.
    pub reach: Reach,
}

/// Machines that were made from one.
#[derive(Clone, Debug)]
pub struct Cloned {
    /// The machines.
    pub machines: Vec<Machine>,
    /// The snapshot that they began as, by its name on each disk.
    pub snapshot: Name,
    /// What of the original they lack, or have in common with it, in words.
    pub notes: Vec<String>,
}

impl Entry for Machine {
    const FAMILY: &'static str = "machines";
    const NOUN: &'static str = "machine";
    const LISTED_BY: &'static str = "stonefold machine ls";

    fn key(&self) -> String {
        self.name.to_string()
    }
}

impl Machine {
    pub(crate) fn disk_names(&self) -> Vec<Name> {
        self.disks.iter().map(|disk| disk.disk.clone()).collect()
    }
}

impl Protection {
    /// All machines, by name.
    pub async fn machines(&self) -> Result<Vec<Machine>> {
        self.settle().await;
        catalog::all(&self.store, None).await
    }

    /// One machine.
    pub async fn machine(&self, name: &Name) -> Result<Machine> {
        self.settle().await;
        catalog::get(&self.store, name.as_str()).await
    }

    /// Adds a machine. Its disks stay as they are.
    pub async fn add_machine(&self, new: NewMachine) -> Result<Machine> {
        self.change(async {
            let targets = new.hardware.as_ref().map(Hardware::check).transpose()?.flatten();
            let disks = self.disks_of(&new.disks, targets)?;
            self.check_not_half_made(&new.disks).await?;
            self.check_not_discarding(&new.disks).await?;
            for other in catalog::every::<Machine>(&self.store).await? {
                if let Some(shared) = other.disks.iter().find(|disk| new.disks.contains(&disk.disk)) {
                    let what = format!("disk '{}' is machine '{}''s", shared.disk, other.name);
                    return Err(Error::new(Kind::Busy, what).remedy("name a disk that no machine has"));
                }
            }
            let machine = Machine {
                name: new.name,
                disks,
                hardware: new.hardware,
                origin: None,
                making: None,
                template: false,
                kept: Vec::new(),
                agent: None,
                added: self.store.time().trusted,
                unknown: Unknown::new(),
            };
            catalog::put_new(&self.store, &machine).await?;
            Ok(machine)
        })
        .await
    }

    /// Disks with what the machine calls them.
    fn disks_of(&self, disks: &[Name], targets: Option<Vec<String>>) -> Result<Vec<MachineDisk>> {
        let invalid = |what: String, remedy: &str| Err(Error::new(Kind::Invalid, what).remedy(remedy));
        if disks.is_empty() || disks.len() > DISKS_MAX {
            let what = format!("a machine has 1 to {DISKS_MAX} disks, and {} are named", disks.len());
            return invalid(what, "name those that belong together");
        }
        for (at, disk) in disks.iter().enumerate() {
            self.store.disk(disk)?;
            if disks[..at].contains(disk) {
                return invalid(format!("disk '{disk}' is named twice"), "name each once");
            }
        }
        let targets = targets.unwrap_or_else(|| (0..disks.len()).map(letters).collect());
        if targets.len() != disks.len() {
            let (has, named) = (targets.join(", "), disks.len());
            let what = format!(
                "the hardware description has {} disks that hold data ({has}), and {named} are named",
                targets.len()
            );
            return invalid(what, "name as many, in the order in which it has them");
        }
        let called = |(target, disk): (&String, &Name)| {
            Ok(MachineDisk { target: Name::new(target)?, disk: disk.clone() })
        };
        targets.iter().zip(disks).map(called).collect()
    }

    /// Removes a machine; its disks stay. Refused while a source is of it.
    pub async fn remove_machine(&self, name: &Name) -> Result<Machine> {
        self.change(async {
            let machine = self.machine(name).await?;
            if machine.template {
                return Err(machine.is_template("removed"));
            }
            self.check_made(machine.making.as_ref(), &format!("machine '{name}'")).await?;
            self.check_no_sync(name).await?;
            self.check_no_source(&machine).await?;
            catalog::remove::<Machine>(&self.store, name.as_str()).await?;
            Ok(machine)
        })
        .await
    }

    /// Snapshots all disks of a machine at one instant. Durable on return.
    pub async fn snapshot_machine(&self, machine: &Name, name: Option<Name>) -> Result<Vec<SnapshotInfo>> {
        // Alone, so that none has old and new disks of a machine that is being synced.
        self.change(async {
            let machine = self.machine(machine).await?;
            self.check_no_sync(&machine.name).await?;
            let taken = self.store.snapshot(&machine.disk_names(), name).await;
            taken.map_err(|e| e.context(format!("machine '{}'", machine.name)))
        })
        .await
    }

    /// Makes machines from one: their disks are clones, and each is somebody else where the hardware's description allows it.
    /// Durable on return.
    pub async fn clone_machine(&self, asked: CloneRequest) -> Result<Cloned> {
        self.change(async {
            let machine = self.machine(&asked.machine).await?;
            self.check_no_sync(&machine.name).await?;
            let names = new_names(&asked)?;
            for name in &names {
                self.check_no_machine(name).await?;
            }
            let (at, snapshot) = self.snapshot_to_clone(&machine, asked.snapshot.as_ref())?;
            let mut order = Order { snapshot, ..Order::default() };
            let mut notes = Vec::new();
            for name in names {
                let (made, of_it) = self.copy_of(&machine, &at, name, &asked.reach)?;
                let copies = machine.disks.iter().zip(&made.disks).map(|(of, new)| Copy {
                    of: of.disk.clone(),
                    at: at.clone(),
                    disk: new.disk.clone(),
                    number: self.draw_number(),
                });
                order.disks.extend(copies);
                order.machines.push(made);
                notes = of_it;
            }
            let machines = order.machines.clone();
            self.make(order).await?;
            Ok(Cloned { machines, snapshot: at, notes })
        })
        .await
    }

    pub(crate) async fn check_no_machine(&self, name: &Name) -> Result<()> {
        if catalog::find::<Machine>(&self.store, name.as_str()).await?.is_some() {
            let what = format!("machine '{name}' exists already");
            return Err(Error::new(Kind::AlreadyExists, what).remedy("choose another name"));
        }
        Ok(())
    }

    /// The name of the snapshot to clone from, and one to be taken where none is asked for.
    fn snapshot_to_clone(
        &self,
        machine: &Machine,
        asked: Option<&Name>,
    ) -> Result<(Name, Option<NewSnapshot>)> {
        match asked {
            Some(name) => self.check_of_one_instant(machine, name).map(|()| (name.clone(), None)),
            None if machine.template => Ok((self.newest_snapshot(machine)?, None)),
            None => {
                let name = self.stamp_of_chance()?;
                Ok((name.clone(), Some(NewSnapshot { name, disks: machine.disk_names() })))
            }
        }
    }

    /// A name for a snapshot that nobody else gives: should it have to be taken away, it is nobody else's.
    fn stamp_of_chance(&self) -> Result<Name> {
        let second = stamp::free(self.store.time().trusted, None, |_| false);
        Name::new(&format!("{second}-{}", hexadecimal(&self.env.random::<4>())))
    }

    /// A machine that has copies of a machine's disks, `NAME.TARGET`, and what is to be said of it.
    fn copy_of(
        &self,
        machine: &Machine,
        at: &Name,
        name: Name,
        reach: &Reach,
    ) -> Result<(Machine, Vec<String>)> {
        let disks = copied_disks(&machine.disks, &name)?;
        let copied = machine
            .hardware
            .as_ref()
            .map(|hardware| self.copy_of_hardware(hardware, &name, &disks, (reach, Network::Same)));
        let (hardware, notes) =
            copied.transpose()?.map_or((None, Vec::new()), |(made, notes)| (Some(made), notes));
        let made = Machine {
            name,
            disks,
            hardware,
            origin: Some(format!("{}@{at}", machine.name)),
            making: None,
            template: false,
            kept: Vec::new(),
            // Somebody else's.
            agent: None,
            added: self.store.time().trusted,
            unknown: Unknown::new(),
        };
        Ok((made, notes))
    }

    /// A description for a machine that has other disks, by a new identity.
    pub(crate) fn copy_of_hardware(
        &self,
        hardware: &Hardware,
        name: &Name,
        disks: &[MachineDisk],
        (reach, network): (&Reach, Network),
    ) -> Result<(Hardware, Vec<String>)> {
        let export = |disk: &MachineDisk| (disk.target.to_string(), ExportName::Disk(disk.disk.clone()));
        let identity = Identity {
            name: name.clone(),
            uuid: self.env.random(),
            macs: self.env.random(),
            network,
            reach: reach.clone(),
            exports: disks.iter().map(export).collect(),
        };
        hardware.of_copy(&identity)
    }
}

/// The disks of a machine of that name.
pub(crate) fn copied_disks(disks: &[MachineDisk], name: &Name) -> Result<Vec<MachineDisk>> {
    let copied = |disk: &MachineDisk| {
        let new = Name::new(&format!("{name}.{}", disk.target));
        let new = new.map_err(|e| e.context(format!("the copy of disk '{}'", disk.disk)))?;
        Ok(MachineDisk { target: disk.target.clone(), disk: new })
    };
    disks.iter().map(copied).collect()
}

fn new_names(asked: &CloneRequest) -> Result<Vec<Name>> {
    match asked.count {
        None => Ok(vec![asked.new.clone()]),
        Some(count) if (1..=CLONES_MAX).contains(&count) => {
            (1..=count).map(|number| Name::new(&format!("{}-{number}", asked.new))).collect()
        }
        Some(count) => {
            let what = format!("{count} machines cannot be made by one command");
            Err(Error::new(Kind::Invalid, what).remedy(format!("name a count from 1 to {CLONES_MAX}")))
        }
    }
}

/// `vda`, `vdb`, …, `vdz`, `vdaa`, as Linux counts.
fn letters(mut number: usize) -> String {
    let mut letters = Vec::new();
    loop {
        letters.insert(0, b'a' + (number % 26) as u8);
        match number / 26 {
            0 => return format!("vd{}", String::from_utf8(letters).expect("letters are text")),
            more => number = more - 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_counted_as_linux_counts_them() {
        let named = [0, 1, 25, 26, 51, 52].map(letters);
        assert_eq!(named, ["vda", "vdb", "vdz", "vdaa", "vdaz", "vdba"]);
    }
}
