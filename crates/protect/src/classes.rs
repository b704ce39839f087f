//! The class of service of a machine: that of each of its disks.
//!
//! *Promise*: nothing is changed before every disk and the class have been looked at. The store changes one disk at a time, so that an error of
//! the medium may leave some with the new class; the error says how many, and setting it again goes on.

use crate::Protection;
use crate::machines::Machine;
use stonefold_types::{DiskSettings, Error, Kind, Name, Result};

impl Protection {
    /// Gives all disks of a machine a class, at once for whoever is connected. Durable on return.
    pub async fn set_machine_class(&self, name: &Name, class: &Name) -> Result<Machine> {
        self.change(async {
            let machine = self.machine(name).await?;
            self.check_class(class)?;
            for disk in &machine.disks {
                self.store.disk(&disk.disk).map_err(|e| e.context(format!("machine '{name}'")))?;
            }
            for (at, disk) in machine.disks.iter().enumerate() {
                let set = |now: DiskSettings| DiskSettings { qos: class.clone(), ..now };
                if let Err(error) = self.store.set_disk(&disk.disk, set).await {
                    let so_far =
                        format!("machine '{name}': {at} of {} disks have the class", machine.disks.len());
                    return Err(error.context(so_far));
                }
            }
            Ok(machine)
        })
        .await
    }

    /// Fails unless disks can have the class.
    pub(crate) fn check_class(&self, class: &Name) -> Result<()> {
        if self.store.qos_class(class)?.background {
            let what = format!("class '{class}' is for the pool's own work, and no disk can have it");
            return Err(Error::new(Kind::Invalid, what).remedy("'stonefold qos ls' shows the others"));
        }
        Ok(())
    }
}
