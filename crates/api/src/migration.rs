//! Migrations: machines on their way home.

use crate::Time;
use serde::{Deserialize, Serialize};
use stonefold_types::Name;
use utoipa::ToSchema;

/// A machine to be moved to other storage while it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MigrationCreate {
    /// The recovery whose machine it is.
    #[schema(value_type = String, examples("web-again"))]
    pub name: Name,
    /// Where to: `file:/PATH` on the server's host (of several disks, a folder), `nbd://HOST/EXPORT` or `nbd+unix:///EXPORT?socket=PATH`.
    #[schema(examples("file:/srv/images/web.img"))]
    pub to: String,
    /// What files are to be: `raw` or `qcow2`.
    #[serde(default = "raw")]
    #[schema(examples("raw"))]
    pub format: String,
    /// The share of its speed that the guest keeps, in percent, 1 to 99.
    #[serde(default = "three_quarters")]
    pub floor_percent: u8,
    /// Whether both ends are compared in the end, while the guest stands still.
    #[serde(default)]
    pub verify: bool,
}

fn raw() -> String {
    "raw".to_owned()
}

fn three_quarters() -> u8 {
    75
}

/// A migration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Migration {
    /// The recovery whose machine is moved.
    #[schema(value_type = String, examples("web-again"))]
    pub name: Name,
    /// How far it is.
    pub state: MigrationState,
    /// Its disks.
    pub disks: Vec<MigrationDisk>,
    /// What files are to be.
    pub format: String,
    /// The share of its speed that the guest keeps, in percent.
    pub floor_percent: u8,
    /// Whether both ends are compared in the end.
    pub verify: bool,
    /// What there is to copy; what the guest writes meanwhile comes to it.
    pub total_bytes: u64,
    /// What has been copied.
    pub done_bytes: u64,
    /// How fast it may be now, in bytes a second; 0 where nobody looks after it.
    pub speed_bytes: u64,
    /// The guest's speed against its own without the copy, in percent; absent while it does too little to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest_percent: Option<u64>,
    /// How long it will yet take, by how fast it was lately, in seconds; absent while that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_seconds: Option<u64>,
    /// When it was begun.
    pub begun: Time,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Time>,
    /// Why it failed, or what there is to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A disk of a migration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MigrationDisk {
    /// What the machine calls it.
    #[schema(value_type = String, examples("vda"))]
    pub target: Name,
    /// Where it goes.
    #[schema(examples("/srv/images/web.img"))]
    pub home: String,
    /// What there is to copy, in bytes.
    pub total_bytes: u64,
    /// What has been copied.
    pub done_bytes: u64,
    /// The machine has it at its new place already.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub moved: bool,
}

/// How far a migration is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum MigrationState {
    /// It is copied.
    Copying,
    /// It stands still.
    Paused,
    /// It is to end, and the machine to stay where it is.
    Cancelling,
    /// The machine has its new disks.
    Done,
    /// It has its old ones.
    Failed,
    /// The same, as somebody wished.
    Cancelled,
}
