//! The way home: a machine that runs on recovered disks is moved to other storage while it runs, by QEMU's own mirror, or libvirt's block copy.
//!
//! *Order*: the document says what goes where; files are made; QEMU copies, and writes both from then on; when all disks are alike it goes on with
//! the new ones alone; the document says so. QEMU does the copying, so it outlives the server: the next one finds the jobs and looks after them
//! again. *Never*: a file that was there is written to; a machine is left without a disk: until the last moment it has the old ones, and a copy
//! that fails or is cancelled leaves it there. *Promise*: it is paced ([`pace`](crate::pace)) so that the guest keeps its share of its speed.

mod comparing;
mod copies;
mod ends;
mod home;
mod jobs;
mod left;
mod mirrors;

pub use home::{Home, HomeFormat};

use crate::catalog::{self, Entry, Unknown};
use crate::hypervisor::Host;
use crate::machines::NewMachine;
use crate::pace::{Pace, Paced};
use crate::recoveries::Recovery;
use crate::{CopyRate, Machine, Protection};
use jobs::{Jobs, Progress};
use left::Left;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use stonefold_env::WallNanos;
use stonefold_types::{Error, Kind, Name, Result};

/// How often QEMU is asked how far it is, and the pace set.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often the document is.
const SAVE_EVERY: Duration = Duration::from_secs(5);

/// The document of a migration, `migrations/NAME`: the newest of a recovery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Migration {
    /// The recovery whose machine is moved.
    pub name: Name,
    /// Its disks, in order.
    pub disks: Vec<MovedDisk>,
    /// What the new images are.
    pub format: HomeFormat,
    /// The share of its speed that the guest keeps, in percent.
    pub floor_percent: u8,
    /// Whether both ends are compared while the guest stands still.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub verify: bool,
    /// How far it is.
    pub state: MigrationState,
    /// Trusted time, nanoseconds since 1970.
    pub begun: WallNanos,
    /// When it ended, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<WallNanos>,
    /// Why it failed, or what there is to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    #[serde(flatten)]
    pub(crate) unknown: Unknown,
}

/// A disk that is moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedDisk {
    /// What the machine calls it.
    pub target: Name,
    /// The recovered disk.
    pub disk: Name,
    /// Where it goes: a file's path, or an NBD URI.
    pub home: Home,
    /// What there is to copy, in bytes, as far as is known; what the guest writes meanwhile comes to it.
    pub total_bytes: u64,
    /// What has been copied.
    pub done_bytes: u64,
    /// The machine has it at its new place, whatever became of the others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub moved: bool,
}

/// How a migration gets on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headway {
    /// How fast it may be, and what its guest keeps.
    pub rate: CopyRate,
    /// How long it will yet take; nothing where that is not known.
    pub left_seconds: Option<u64>,
}

/// How far a migration is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MigrationState {
    /// QEMU copies.
    Copying,
    /// It is to stand still until somebody has it go on.
    Paused,
    /// It is to end, and the machine to stay where it is.
    Cancelling,
    /// The machine has its new disks.
    Done,
    /// The machine has its old ones.
    Failed,
    /// The same, as somebody wished.
    Cancelled,
}

/// A machine that is to be moved.
#[derive(Clone, Debug)]
pub struct MigrateRequest {
    /// The recovery.
    pub name: Name,
    /// Where to: a file or, of several disks, a folder; an NBD URI.
    pub to: Home,
    /// What files are to be.
    pub format: HomeFormat,
    /// The share of its speed that the guest keeps, in percent.
    pub floor_percent: u8,
    /// Whether both ends are compared while the guest stands still.
    pub verify: bool,
}

impl Entry for Migration {
    const FAMILY: &'static str = "migrations";
    const NOUN: &'static str = "migration";
    const LISTED_BY: &'static str = "stonefold migrate ls";

    fn key(&self) -> String {
        self.name.to_string()
    }
}

impl Migration {
    /// Whether it goes on.
    pub fn is_under_way(&self) -> bool {
        matches!(self.state, MigrationState::Copying | MigrationState::Paused | MigrationState::Cancelling)
    }
}

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
        let migration = Migration {
            name: asked.name.clone(),
            disks,
            format: asked.format,
            floor_percent: asked.floor_percent,
            verify: asked.verify,
            state: MigrationState::Copying,
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
            disks.push(MovedDisk {
                target: disk.target.clone(),
                disk: disk.disk.clone(),
                home,
                total_bytes: info.size_bytes,
                done_bytes: 0,
                moved: false,
            });
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
        for migration in left.into_iter().filter(Migration::is_under_way) {
            match self.recovery(&migration.name).await.and_then(|recovery| host_of(&recovery)) {
                Ok(host) => self.carry(migration.name, host, true),
                Err(error) => {
                    let _ = self
                        .end_migration(&migration.name, MigrationState::Failed, Some(error.to_string()))
                        .await;
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
        };
        self.env.spawn("migration", carried);
    }

    async fn look_after(&self, name: &Name, host: &Host, again: bool) -> Result<Ended> {
        let migration: Migration = catalog::get(&self.store, name.as_str()).await?;
        let jobs = Jobs::find(&self.env, host, &migration, again).await?;
        let moved = async {
            let mut pace = Pace::begin(&self.env, &jobs, migration.floor_percent).await?;
            jobs.begin(&migration).await?;
            self.follow(&jobs, &migration, &mut pace).await
        };
        let moved = moved.await;
        if !matches!(moved, Ok((MigrationState::Done, _)))
            && !self.leaves(&moved)
            && !self.is_closed(name).await
        {
            // The machine goes on with what it has.
            let abandoned = jobs.abandon(&migration).await.map_err(|left| {
                let why =
                    moved.as_ref().err().map_or_else(|| "it was cancelled".to_owned(), ToString::to_string);
                left.context(format!("{why}; what was copied may still be there"))
            });
            let left = self.left_half(name, &jobs, moved).await;
            return abandoned.and(left);
        }
        let (state, to_know) = moved?;
        let alike = (state == MigrationState::Done && migration.verify)
            .then(|| "both ends were alike while the guest stood still".to_owned());
        let notes: Vec<String> = alike.into_iter().chain(to_know).collect();
        Ok((state, (!notes.is_empty()).then(|| notes.join("; "))))
    }

    /// Keeps which disks have gone over all the same, of a move that did not come to its end, and has it told.
    async fn left_half(&self, name: &Name, jobs: &Jobs, ended: Result<Ended>) -> Result<Ended> {
        let migration: Migration = catalog::get(&self.store, name.as_str()).await?;
        let moved = match jobs.moved(&migration).await {
            Ok(moved) => moved,
            Err(error) => {
                tracing::warn!("which disks of '{name}' have gone over is not known: {error}");
                return ended;
            }
        };
        let say = |migration: &mut Migration| {
            migration.disks.iter_mut().zip(&moved).for_each(|(disk, moved)| disk.moved = *moved);
            Ok(())
        };
        let at_home = catalog::change::<Migration>(&self.store, name.as_str(), say).await?.disks;
        let at_home: Vec<&str> =
            at_home.iter().filter(|disk| disk.moved).map(|disk| disk.target.as_str()).collect();
        if at_home.is_empty() {
            return ended;
        }
        let told = format!(
            "the machine has '{}' at the new place already, and the others where they were",
            at_home.join("', '")
        );
        match ended {
            Ok((state, to_know)) => {
                Ok((state, Some(to_know.into_iter().chain([told]).collect::<Vec<_>>().join("; "))))
            }
            Err(error) => {
                Err(error.context(told).remedy("see to that, and begin again: what is left is moved"))
            }
        }
    }

    /// Whether the server is leaving: then nothing that fails says anything of a migration.
    async fn is_closed(&self, name: &Name) -> bool {
        let found = catalog::find::<Migration>(&self.store, name.as_str()).await;
        found.is_err_and(|error| error.kind() == Kind::Closed)
    }

    /// Looks after the jobs until they have ended, or are to: how, and what somebody is to know of it.
    async fn follow(&self, jobs: &Jobs, migration: &Migration, pace: &mut Pace) -> Result<Ended> {
        let mut saved = self.env.monotonic();
        let (mut paused, mut wish, mut left) = (false, migration.state, Left::default());
        loop {
            match catalog::get::<Migration>(&self.store, migration.name.as_str()).await {
                Ok(found) => wish = found.state,
                Err(error) if error.kind() == Kind::Closed => return Err(error),
                // It may pass, and is no reason to copy anew.
                Err(error) => tracing::warn!("the migration of '{}' goes on: {error}", migration.name),
            }
            match wish {
                MigrationState::Cancelling => return Ok((MigrationState::Cancelled, None)),
                MigrationState::Paused if !paused => jobs.pause().await?,
                MigrationState::Copying if paused => jobs.resume().await?,
                _ => {}
            }
            paused = wish == MigrationState::Paused;
            if paused {
                // How fast it was says nothing of after that.
                left = Left::default();
            }
            let progress = jobs.progress().await?;
            if self.env.monotonic().saturating_sub(saved) > SAVE_EVERY {
                self.save_progress(&migration.name, &progress).await;
                saved = self.env.monotonic();
            }
            if progress.is_ready && !paused {
                self.save_progress(&migration.name, &progress).await;
                let _still = self.compares(migration);
                return match jobs.pivot(&self.env, migration, self.given_up(&migration.name)).await {
                    Err(_) if self.is_cancelled(&migration.name).await => {
                        Ok((MigrationState::Cancelled, None))
                    }
                    moved => moved.map(|to_know| (MigrationState::Done, to_know)),
                };
            }
            if !paused {
                let left_seconds = left.seconds(self.env.monotonic(), progress.sums());
                match pace.set(&self.env, jobs).await {
                    Ok(rate) => {
                        self.moving.lock().insert(migration.name.clone(), Headway { rate, left_seconds });
                    }
                    // Whether it goes on at all is looked at the next time.
                    Err(error) => {
                        tracing::warn!("the pace of the migration of '{}' stays: {error}", migration.name)
                    }
                }
            }
            tokio::select! {
                () = self.env.sleep(LOOK_EVERY) => {}
                () = self.moving_changed.notified() => {}
            }
        }
    }

    /// For whoever looks; where it cannot be kept now, it is later.
    async fn save_progress(&self, name: &Name, progress: &Progress) {
        let save = |migration: &mut Migration| {
            for (disk, (done, total)) in migration.disks.iter_mut().zip(&progress.bytes) {
                (disk.done_bytes, disk.total_bytes) = (*done, *total);
            }
            Ok(())
        };
        if let Err(error) = catalog::change::<Migration>(&self.store, name.as_str(), save).await {
            tracing::warn!("how far the migration of '{name}' is, is not kept: {error}");
        }
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
