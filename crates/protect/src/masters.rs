//! Machines that others are made from: templates, and which of their snapshots others begin as.

use crate::Protection;
use crate::catalog;
use crate::machines::Machine;
use stonefold_types::{Error, Kind, Name, Result, SnapshotName};

impl Machine {
    /// Why something is refused of a template.
    pub(crate) fn is_template(&self, refused: &str) -> Error {
        let what = format!("machine '{}' is a template, and cannot be {refused}", self.name);
        let remedy = format!("if that is meant, first: stonefold machine template {} --off", self.name);
        Error::new(Kind::Busy, what).remedy(remedy)
    }
}

impl Protection {
    /// Says whether a machine is a template.
    pub async fn set_template(&self, name: &Name, template: bool) -> Result<Machine> {
        let set = |machine: &mut Machine| {
            machine.template = template;
            Ok(())
        };
        self.change(catalog::change(&self.store, name.as_str(), set)).await
    }

    /// Fails unless all disks of a machine have a snapshot of that name, from one instant.
    pub(crate) fn check_of_one_instant(&self, machine: &Machine, name: &Name) -> Result<()> {
        let mut taken = None;
        for disk in machine.disk_names() {
            let info = self.store.snapshot_info(&SnapshotName { disk, snapshot: name.clone() })?;
            if *taken.get_or_insert(info.created) != info.created {
                let what =
                    format!("the snapshots '{name}' of machine '{}' are not of one instant", machine.name);
                return Err(Error::new(Kind::Invalid, what)
                    .remedy("take one by 'stonefold machine snapshot', or clone disk by disk"));
            }
        }
        Ok(())
    }

    /// The newest snapshot that all disks of a machine have from one instant.
    pub(crate) fn newest_snapshot(&self, machine: &Machine) -> Result<Name> {
        let first = machine.disks.first().map(|disk| &disk.disk);
        let mut of_first = first.map_or_else(|| Ok(Vec::new()), |disk| self.store.snapshots(Some(disk)))?;
        while let Some(info) = of_first.pop() {
            match self.check_of_one_instant(machine, &info.name.snapshot) {
                Ok(()) => return Ok(info.name.snapshot),
                Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Invalid) => {}
                // What cannot be read may be the newest.
                Err(error) => return Err(error),
            }
        }
        let what = format!("machine '{}' has no snapshot that all its disks have", machine.name);
        let remedy = format!("take one first: stonefold machine snapshot {}", machine.name);
        Err(Error::new(Kind::NotFound, what).remedy(remedy))
    }
}
