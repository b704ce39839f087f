//! The way home: a machine that runs on recovered disks is moved to other storage while it runs, by QEMU's own mirror, or libvirt's block copy.
//!
//! *Order*: the document says what goes where; files are made; QEMU copies, and writes both from then on; when all disks are alike it goes on with
//! the new ones alone; the document says so. QEMU does the copying, so it outlives the server: the next one finds the jobs and looks after them
//! again. *Never*: a file that was there is written to; a machine is left without a disk: until the last moment it has the old ones, and a copy
//! that fails or is cancelled leaves it there; a guest stays that was had stand still to compare. *Promise*: it is paced ([`pace`](crate::pace)) so that the guest keeps its share of its speed.

mod comparing;
mod copies;
mod document;
mod ends;
mod files;
mod following;
mod home;
mod jobs;
mod left;
mod mirrors;
mod standing;

pub use document::{Headway, MigrateRequest, Migration, MigrationState, MovedDisk};
pub use home::{Home, HomeFormat};

use crate::catalog::{self, Unknown};
use crate::hypervisor::Host;
use crate::machines::NewMachine;
use crate::recoveries::Recovery;
use crate::{Machine, Protection};
use std::sync::Arc;
use std::time::Duration;
use stonefold_types::{Error, Kind, Name, Result};

/// How often QEMU is asked how far it is, and the pace set.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often the document is.
const SAVE_EVERY: Duration = Duration::from_secs(5);

impl Protection {
    /// All migrations, by name, with how each gets on.
    pub async fn migrations(&self) -> Result<Vec<(Migration, Headway)>> {
        self.settle().await;
        let all: Vec<Migration> = catalog::all(&self.store, None).await?;
        let headway =
            |migration: &Migration| self.moving.lock().get(&migration.name).copied().unwrap_or_default();
        Ok(all.into_iter().map(|migration| (migration.clone(), headway(&migration))).collect())
    }

    /// One migration.
    pub async fn migration(&self, name: &Name) -> Result<Migration> {
        self.settle().await;
        catalog::get(&self.store, name.as_str()).await
    }

    /// Begins to move a machine: on return it is known that there is room, and that nothing is in the way.
    pub async fn migrate(self: &Arc<Self>, asked: MigrateRequest) -> Result<Migration> {
        let _held = self.hold_recovery(&asked.name)?;
        let recovery = self.recovery(&asked.name).await?;
        let host = host_of(&recovery)?;
        if self.is_recovery_running(&recovery).await != Some(true) {
            let what = format!("the machine of recovery '{}' has ended", recovery.name);
            return Err(
                Error::new(Kind::NotFound, what).remedy("export its disks instead: stonefold disk export")
            );
        }
        if let Some(home) = home_of(&recovery) {
            let what =
                format!("the machine of recovery '{}' has been moved already, to {home}", recovery.name);
            return Err(
                Error::new(Kind::Conflict, what).remedy("move it on by QEMU's or libvirt's own means")
            );
        }
        let disks = self.to_be_moved(&recovery, &asked).await?;
        home::check_reach(&host, &disks)?;
        let held = |disk: &MovedDisk| {
            self.store.disk(&disk.disk).map_or(0, |info| info.mapped_bytes + info.unfolded_bytes)
        };
        let left: Vec<&MovedDisk> = disks.iter().filter(|disk| !disk.moved).collect();
        home::check_room(&left, left.iter().map(|disk| held(disk)).sum())?;
        home::check_exports(&self.env, &host, &left).await?;
        let migration = Migration {
            name: asked.name.clone(),
            disks,
            format: asked.format,
            floor_percent: asked.floor_percent,
            verify: asked.verify,
            state: MigrationState::Copying,
            stands: false,
            goes_over: false,
            begun: self.store.time().trusted,
            ended: None,
            note: None,
            unknown: Unknown::new(),
        };
        self.change(async {
            if let Some(old) = catalog::find::<Migration>(&self.store, asked.name.as_str()).await? {
                if old.is_under_way() {
                    let what = format!("machine '{}' is being moved already", asked.name);
                    return Err(Error::new(Kind::Busy, what)
                        .remedy("wait for it, or cancel it: stonefold migrate cancel NAME"));
                }
                catalog::remove::<Migration>(&self.store, asked.name.as_str()).await?;
            }
            catalog::put_new(&self.store, &migration).await
        })
        .await?;
        self.carry(asked.name, host, false);
        Ok(migration)
    }

    /// A machine's disks, each with where it goes; those that went before, with others that could not, stay there.
    async fn to_be_moved(&self, recovery: &Recovery, asked: &MigrateRequest) -> Result<Vec<MovedDisk>> {
        let before = catalog::find::<Migration>(&self.store, asked.name.as_str()).await?;
        // Of an earlier recovery of that name, at most.
        let before = before.filter(|before| before.begun >= recovery.begun);
        let mut disks = Vec::new();
        for disk in &recovery.disks {
            let at_home = before
                .iter()
                .flat_map(|before| &before.disks)
                .find(|moved| moved.moved && moved.disk == disk.disk);
            if let Some(moved) = at_home {
                disks.push(moved.clone());
                continue;
            }
            let info = self.store.disk(&disk.disk)?;
            let home = home::of_disk(&asked.to, asked.format, &recovery.disks, disk)?;
            disks.push(MovedDisk::new(disk.clone(), home, info.size_bytes));
        }
        Ok(disks)
    }

    /// Has a migration stand still, go on, or end and leave the machine where it is.
    pub async fn set_migration(&self, name: &Name, to: MigrationState) -> Result<Migration> {
        let set = |migration: &mut Migration| {
            if !migration.is_under_way() || migration.state == MigrationState::Cancelling {
                let what = format!("the migration of '{}' has ended, or is being cancelled", migration.name);
                return Err(Error::new(Kind::Conflict, what).remedy("begin another"));
            }
            migration.state = to;
            Ok(())
        };
        // Whoever looks after it sees it, and does it.
        let set = catalog::change::<Migration>(&self.store, name.as_str(), set).await?;
        self.moving_changed.notify_waiters();
        Ok(set)
    }

    /// Keeps a recovered machine where it is: its disks are a machine's from now on, and stay when the recovery ends.
    pub async fn keep_recovery(&self, name: &Name) -> Result<Machine> {
        let _held = self.hold_recovery(name)?;
        let recovery = self.recovery(name).await?;
        self.check_not_moving(name).await?;
        self.check_not_half_moved(name).await?;
        if let Some(home) = home_of(&recovery) {
            let what = format!(
                "the machine of recovery '{name}' has been moved to {home}: its disks here are not what it runs on"
            );
            return Err(Error::new(Kind::Conflict, what).remedy(format!(
                "let them go: stonefold recover stop {name} --discard; the machine runs on"
            )));
        }
        let disks = recovery.disks.iter().map(|disk| disk.disk.clone()).collect();
        self.add_machine(NewMachine { name: name.clone(), disks, hardware: recovery.hardware }).await
    }

    /// Fails while a machine is being moved.
    pub(crate) async fn check_not_moving(&self, name: &Name) -> Result<()> {
        match catalog::find::<Migration>(&self.store, name.as_str()).await? {
            Some(migration) if migration.is_under_way() => {
                Err(Error::new(Kind::Busy, format!("machine '{name}' is being moved"))
                    .remedy(format!("wait for it, or cancel it first: stonefold migrate cancel {name}")))
            }
            _ => Ok(()),
        }
    }

    /// Fails where a move has left some of a machine's disks here and others at their new places: what is here is not all of it.
    pub(crate) async fn check_not_half_moved(&self, name: &Name) -> Result<()> {
        let Some(migration) = catalog::find::<Migration>(&self.store, name.as_str()).await? else {
            return Ok(());
        };
        standing::check_goes_over(&migration)?;
        let is_half =
            |migration: &Migration| !migration.is_under_way() && migration.state != MigrationState::Done;
        match migration.disks.iter().find(|disk| disk.moved) {
            Some(disk) if is_half(&migration) => {
                let what = format!("machine '{name}' has disk '{}' at {} already", disk.target, disk.home);
                Err(Error::new(Kind::Conflict, what).remedy(
                    "move the others, too: stonefold migrate; or end it all the same: --power-off, after which that one is there, and the others are here",
                ))
            }
            _ => Ok(()),
        }
    }

    /// Looks after the migrations that an earlier server left: QEMU has gone on meanwhile.
    pub async fn go_on_moving(self: Arc<Self>) {
        self.settle().await;
        let left = catalog::all::<Migration>(&self.store, None).await.unwrap_or_default();
        for migration in left {
            if !migration.is_under_way() {
                self.wake_later(migration.name);
                continue;
            }
            match self.recovery(&migration.name).await.and_then(|recovery| host_of(&recovery)) {
                Ok(host) => self.carry(migration.name, host, true),
                Err(error) => {
                    let _ = self
                        .end_migration(&migration.name, MigrationState::Failed, Some(error.to_string()))
                        .await;
                    self.wake_later(migration.name);
                }
            }
        }
    }

    /// Has a migration looked after, beside everything else.
    fn carry(self: &Arc<Self>, name: Name, host: Host, again: bool) {
        let own = self.clone();
        let carried = async move {
            let ended = own.look_after(&name, &host, again).await;
            own.moving.lock().remove(&name);
            if own.leaves(&ended) || own.is_closed(&name).await {
                // QEMU goes on; the next server looks after it again.
                return;
            }
            let (state, note) = match ended {
                Ok(ended) => ended,
                Err(error) => (MigrationState::Failed, Some(error.to_string())),
            };
            tracing::info!(
                "the migration of '{name}' has ended: {state:?}{}",
                note.as_deref().map(|note| format!(", {note}")).unwrap_or_default()
            );
            if let Err(error) = own.end_migration(&name, state, note).await {
                tracing::warn!("what became of the migration of '{name}' is not kept: {error}");
            }
            own.wake_later(name);
        };
        self.env.spawn("migration", carried);
    }

    /// What is kept of a migration goes with the recovery whose machine it was.
    pub(crate) async fn forget_migration(&self, name: &Name) -> Result<()> {
        catalog::remove::<Migration>(&self.store, name.as_str()).await
    }

    async fn end_migration(&self, name: &Name, state: MigrationState, note: Option<String>) -> Result<()> {
        let ended = self.store.time().trusted;
        let end = |migration: &mut Migration| {
            (migration.state, migration.ended, migration.note) = (state, Some(ended), note.clone());
            if state == MigrationState::Done {
                migration.goes_over = false;
                migration.disks.iter_mut().for_each(|disk| disk.done_bytes = disk.total_bytes);
            }
            Ok(())
        };
        if state == MigrationState::Done {
            self.say_home(name).await?;
        }
        catalog::change::<Migration>(&self.store, name.as_str(), end).await.map(drop)
    }
}

/// How a move has ended, and what somebody is to know of it.
type Ended = (MigrationState, Option<String>);

/// Where the first disk of a machine is that has been moved.
fn home_of(recovery: &Recovery) -> Option<&String> {
    recovery.started.as_ref()?.home.first()
}

/// Where the machine of a recovery runs.
fn host_of(recovery: &Recovery) -> Result<Host> {
    recovery.started.as_ref().map(|started| started.host.clone()).ok_or_else(|| {
        let what = format!("no machine was started with recovery '{}'", recovery.name);
        Error::new(Kind::Invalid, what).remedy("export its disks instead: stonefold disk export")
    })
}

#[cfg(test)]
mod tests;
