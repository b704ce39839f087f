//! Recoveries: points brought back.

use crate::{Hardware, MachineDisk, Time};
use serde::{Deserialize, Serialize};
use stonefold_types::{Name, PointName};
use utoipa::ToSchema;

/// A point that is brought back: clones of its disks, served like any other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Recovery {
    /// Its name.
    #[schema(value_type = String, examples("web-again"))]
    pub name: Name,
    /// The point; it may be gone.
    #[schema(value_type = String, examples("web-nightly@20261123T184005Z"))]
    pub point: PointName,
    /// Its disks.
    pub disks: Vec<MachineDisk>,
    /// What else the machine is made of, by its new identity; absent where nobody had said, and in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<Hardware>,
    /// When it was asked for.
    pub begun: Time,
    /// How long it took from then until all its disks were there and served, in microseconds.
    pub ready_us: u64,
    /// The machine that was started with its disks; absent where none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<StartedMachine>,
    /// Whether it is being discarded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub discarding: bool,
}

/// A point to be brought back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecoveryCreate {
    /// The point.
    #[schema(value_type = String, examples("web-nightly@20261123T184005Z"))]
    pub point: PointName,
    /// What it is called then; its disks are called `NAME.TARGET`.
    #[schema(value_type = String, pattern = "^[A-Za-z0-9._-]{1,128}$", examples("web-again"))]
    pub name: Name,
    /// A class of service for its disks. Left out: that of the originals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, examples("critical"))]
    pub qos: Option<Name>,
    /// Where its network goes: `isolated`, or a network of libvirt's by its name. Left out: where the original's goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("isolated"))]
    pub network: Option<String>,
    /// Where a machine is to be started with it: then it is looked, before anything is made, whether one could be. It is not started by this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("qemu", "libvirt:qemu:///system"))]
    pub on: Option<String>,
    /// What that machine is to take of its host.
    #[serde(default, skip_serializing_if = "MachineLimits::is_none")]
    pub limits: MachineLimits,
    /// Only look whether it can be done, and tell what would be there.
    #[serde(default)]
    pub dry_run: bool,
}

/// A point that was brought back, or would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Recovered {
    /// Whether nothing was done.
    pub dry_run: bool,
    /// The recovery.
    pub recovery: Recovery,
    /// What of the original it lacks, or has in common with it, in words.
    pub notes: Vec<String>,
}

/// A machine that was started with a recovery's disks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StartedMachine {
    /// Where: `qemu`, or `libvirt:URI`.
    #[schema(examples("qemu", "libvirt:qemu:///system"))]
    pub on: String,
    /// Of one by QEMU itself: the folder, on the server's host, of its sockets (`qmp.sock`, `agent.sock`) and its console (`console.log`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// Of one by libvirt: its UUID, or its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Whether it runs; absent where that is not known, and in lists of libvirt's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<bool>,
    /// From being asked for until it had read the first block from its disks, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_block_us: Option<u64>,
    /// From being asked for until the sign of life that was waited for, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alive_us: Option<u64>,
    /// Where its disks are since it was moved; empty while they are the recovery's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub home: Vec<String>,
    /// What it may take of its host; empty where nothing is said of that.
    #[serde(default, skip_serializing_if = "MachineLimits::is_none")]
    pub limits: MachineLimits,
}

/// What a machine may take of its host at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MachineLimits {
    /// Memory in bytes, the hypervisor's own and its page cache among it: more than the guest is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Hundredths of a processor's time: 150 is one and a half.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processors_percent: Option<u32>,
}

impl MachineLimits {
    /// Whether there are none.
    pub fn is_none(&self) -> bool {
        *self == MachineLimits::default()
    }
}

/// A machine to be started with a recovery's disks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecoveryStart {
    /// Where: `qemu`, or `libvirt:URI`.
    #[schema(examples("qemu", "libvirt:qemu:///system"))]
    pub on: String,
    /// A sign of life to wait for, as when a point is verified. Left out: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<String>,
    /// How long it is waited for, in seconds.
    #[serde(default = "five_minutes")]
    pub timeout_seconds: u64,
    /// What it may take of its host. Left out: what there is.
    #[serde(default, skip_serializing_if = "MachineLimits::is_none")]
    pub limits: MachineLimits,
}

fn five_minutes() -> u64 {
    300
}

/// A machine that was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecoveryStarted {
    /// The recovery.
    pub recovery: Recovery,
    /// What there is to say of it, in words.
    pub notes: Vec<String>,
}
