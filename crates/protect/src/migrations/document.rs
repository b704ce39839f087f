//! What is kept of a machine that is moved.

use super::{Home, HomeFormat};
use crate::CopyRate;
use crate::catalog::{Entry, Unknown};
use crate::machines::MachineDisk;
use serde::{Deserialize, Serialize};
use stonefold_env::WallNanos;
use stonefold_types::Name;

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
    /// The server has the guest stand still for it, or had, and has not seen it go on since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stands: bool,
    /// The machine may be going over to its new disks, or have gone: what it writes may be there alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub goes_over: bool,
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
    /// The file it goes to was made for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub made: bool,
    /// The machine has it at its new place, whatever became of the others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub moved: bool,
}

impl MovedDisk {
    /// One of which nothing has gone yet.
    pub(super) fn new(MachineDisk { target, disk }: MachineDisk, home: Home, total_bytes: u64) -> Self {
        MovedDisk { target, disk, home, total_bytes, done_bytes: 0, made: false, moved: false }
    }
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
