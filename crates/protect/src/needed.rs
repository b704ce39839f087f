//! Who needs a disk: machines, recoveries and sources refer to theirs by name, and are of no use without.

use crate::catalog;
use crate::{Machine, Protection, Recovery, Source};
use std::future::Future;
use stonefold_types::{Error, Kind, Name, Result};

impl Protection {
    /// Does what takes a disk away, if nobody needs that disk: `Busy`, with who does and what ends that, otherwise. Nobody comes to need it
    /// meanwhile.
    pub async fn where_unneeded<T>(&self, disk: &Name, take: impl Future<Output = Result<T>>) -> Result<T> {
        self.change(async {
            self.check_unneeded(disk).await?;
            take.await
        })
        .await
    }

    async fn check_unneeded(&self, disk: &Name) -> Result<()> {
        let machines = catalog::all::<Machine>(&self.store, None).await?;
        if let Some(machine) = machines.iter().find(|one| one.disks.iter().any(|of| of.disk == *disk)) {
            let name = &machine.name;
            return Err(needed(disk, format!("machine '{name}'"), format!("stonefold machine rm {name}")));
        }
        let recoveries = catalog::all::<Recovery>(&self.store, None).await?;
        if let Some(recovery) = recoveries.iter().find(|one| one.disks.iter().any(|of| of.disk == *disk)) {
            let name = &recovery.name;
            let ends = format!("stonefold recover stop {name} --discard");
            return Err(needed(disk, format!("recovery '{name}'"), ends));
        }
        let sources = catalog::all::<Source>(&self.store, None).await?;
        if let Some(source) = sources.iter().find(|one| one.disks().contains(disk)) {
            let name = &source.name;
            return Err(needed(disk, format!("source '{name}'"), format!("stonefold source rm {name}")));
        }
        Ok(())
    }
}

fn needed(disk: &Name, by: String, ends: String) -> Error {
    let error = Error::new(Kind::Busy, format!("disk '{disk}' is one of {by}"));
    error.remedy(format!("'{ends}' first; or add --needed (API: needed=true), and that is without it"))
}
