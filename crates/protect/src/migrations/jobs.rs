//! The jobs that move a machine's disks, whoever does them: [`Mirrors`] of a QEMU that is ours, [`Copies`] of libvirt's.
//!
//! *Promises*, of both: whatever was begun before is found again, at every step; the guest's writes go to both ends from the beginning, so that copying
//! comes to an end however much it writes. *Never*: a file is taken away that the machine has.

use super::Migration;
use super::copies::Copies;
use super::files::Files;
use super::mirrors::Mirrors;
use crate::hypervisor::{Folder, Host};
use crate::pace::{Counted, Paced, SPEED_BEGINNING};
use std::future::Future;
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::{Error, Result};

/// How far the jobs are.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    /// Of each disk: done, and in all.
    pub(super) bytes: Vec<(u64, u64)>,
    /// Whether both ends are alike, and stay so.
    pub(super) is_ready: bool,
}

impl Progress {
    /// Of all disks together: done, and in all.
    pub(super) fn sums(&self) -> (u64, u64) {
        self.bytes.iter().fold((0, 0), |(done, total), (one, of)| (done + one, total + of))
    }
}

/// See the module.
pub(super) enum Jobs {
    Qemu(Mirrors),
    Libvirt(Copies),
}

impl Jobs {
    /// Those of a machine.
    pub(super) async fn find(env: &Env, host: &Host, migration: &Migration, files: Files) -> Result<Jobs> {
        match host {
            Host::Qemu { folder } => {
                let folder = Folder(folder.clone());
                Mirrors::find(env, &folder, migration, files).await.map(Jobs::Qemu)
            }
            Host::Libvirt { uri, domain } => {
                Ok(Jobs::Libvirt(Copies::of(env, (uri, domain), migration, files)))
            }
        }
    }

    /// Begins what has not been begun.
    pub(super) async fn begin(&self, migration: &Migration) -> Result<()> {
        match self {
            Jobs::Qemu(mirrors) => mirrors.begin(migration).await,
            Jobs::Libvirt(copies) => copies.begin().await,
        }
    }

    pub(super) async fn progress(&self) -> Result<Progress> {
        match self {
            Jobs::Qemu(mirrors) => mirrors.progress().await,
            Jobs::Libvirt(copies) => copies.progress().await,
        }
    }

    /// Whether the guest runs, and nobody has it stand still.
    pub(super) async fn runs(&self) -> Result<bool> {
        match self {
            Jobs::Qemu(mirrors) => mirrors.runs().await,
            Jobs::Libvirt(copies) => copies.runs().await,
        }
    }

    /// Has the guest go on.
    pub(super) async fn go_on(&self) -> Result<()> {
        match self {
            Jobs::Qemu(mirrors) => mirrors.go_on().await,
            Jobs::Libvirt(copies) => copies.go_on().await,
        }
    }

    /// Goes over to the new disks, once both are alike; compares them before, where that is wished, while the guest stands still: `runs` says whether
    /// it did not before. Returns what somebody is to know of it.
    ///
    /// The comparison ends when `given_up` does; then the guest goes on with what it has.
    pub(super) async fn pivot(
        &self,
        env: &Env,
        migration: &Migration,
        runs: bool,
        given_up: impl Future<Output = Error>,
    ) -> Result<Option<String>> {
        match self {
            Jobs::Qemu(mirrors) => mirrors.pivot(env, migration, runs, given_up).await,
            Jobs::Libvirt(copies) => copies.pivot(runs, given_up).await,
        }
    }

    /// Of each disk whether the machine has it at its new place.
    pub(super) async fn moved(&self, migration: &Migration) -> Result<Vec<bool>> {
        match self {
            Jobs::Qemu(mirrors) => mirrors.moved(migration).await,
            Jobs::Libvirt(copies) => copies.moved().await,
        }
    }

    /// Ends what was begun: the machine goes on with what it has, and files that it does not have go.
    pub(super) async fn abandon(&self, migration: &Migration) -> Result<()> {
        match self {
            Jobs::Qemu(mirrors) => mirrors.abandon(migration).await,
            Jobs::Libvirt(copies) => copies.abandon().await,
        }
    }
}

/// How a move has ended, and what somebody is to know of it, where the guest stood still for it and may do so yet.
pub(super) fn after_standstill(moved: Result<Option<String>>, goes_on: Result<()>) -> Result<Option<String>> {
    match (moved, goes_on) {
        (moved, Ok(())) => moved,
        (Ok(to_know), Err(stands)) => {
            Ok(Some(to_know.into_iter().chain([stands.to_string()]).collect::<Vec<_>>().join("; ")))
        }
        (Err(why), Err(stands)) => Err(stands.context(why.to_string())),
    }
}

impl Paced for Jobs {
    const LOOK: Duration = Duration::from_secs(3);
    // As long: a guest whose server was away reaches it again meanwhile, before the copy reads by the same connection.
    const LOOK_AT_IDLE: Duration = Self::LOOK;
    const SPEED_AT_IDLE: u64 = SPEED_BEGINNING;
    const SPEED_AT_WORK: u64 = SPEED_BEGINNING;
    const SPEED_MIN: u64 = 1 << 20;
    // Windows of ten seconds are to keep the floor, and swing by a sixth around the mean where nothing is moved.
    const MARGIN: f64 = 0.85;

    async fn pause(&self) -> Result<()> {
        match self {
            Jobs::Qemu(mirrors) => mirrors.pause().await,
            Jobs::Libvirt(copies) => copies.pause().await,
        }
    }

    async fn resume(&self) -> Result<()> {
        match self {
            Jobs::Qemu(mirrors) => mirrors.resume().await,
            Jobs::Libvirt(copies) => copies.resume().await,
        }
    }

    async fn set_speed(&self, bytes: u64) -> Result<()> {
        match self {
            Jobs::Qemu(mirrors) => mirrors.set_speed(bytes).await,
            Jobs::Libvirt(copies) => copies.set_speed(bytes).await,
        }
    }

    async fn counted(&self) -> Result<Counted> {
        match self {
            Jobs::Qemu(mirrors) => mirrors.counted().await,
            Jobs::Libvirt(copies) => copies.counted().await,
        }
    }
}
