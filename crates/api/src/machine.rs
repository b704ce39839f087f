//! Machines: disks that belong together, and what else a machine is made of.

use crate::{Snapshot, Time};
use serde::{Deserialize, Serialize};
use stonefold_types::Name;
use utoipa::ToSchema;

/// A machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Machine {
    /// Its name.
    #[schema(value_type = String, examples("web"))]
    pub name: Name,
    /// Its disks, in the order in which it has them.
    pub disks: Vec<MachineDisk>,
    /// What else it is made of; absent where nobody said, and in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<Hardware>,
    /// The machine and snapshot it was cloned from, as `MACHINE@SNAP`; either may be gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("golden@v3"))]
    pub origin: Option<String>,
    /// When it was added.
    pub added: Time,
}

/// A disk of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MachineDisk {
    /// What the machine calls it.
    #[schema(value_type = String, examples("vda"))]
    pub target: Name,
    /// The disk.
    #[schema(value_type = String, examples("web-root"))]
    pub disk: Name,
    /// Whether there is no such disk any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub missing: bool,
    /// Where clients reach it: NBD URIs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(examples(json!(["nbd://127.0.0.1:10809/web-root"])))]
    pub uris: Vec<String>,
}

/// A hardware description, kept as its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// What it is.
    pub kind: HardwareKind,
    /// The description.
    #[schema(examples("<domain type='kvm'>…</domain>"))]
    pub text: String,
}

/// What a hardware description is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HardwareKind {
    /// A domain of libvirt's, in XML.
    LibvirtXml,
    /// What QEMU is started with, disks left out.
    QemuArgs,
}

/// A machine to be added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MachineCreate {
    /// Its name: 1 to 128 letters, digits, `.`, `_` or `-`.
    #[schema(value_type = String, pattern = "^[A-Za-z0-9._-]{1,128}$", examples("web"))]
    pub name: Name,
    /// Its disks, in the order in which its description has them.
    #[schema(value_type = Vec<String>, min_items = 1, max_items = 256, examples(json!(["web-root", "web-data"])))]
    pub disks: Vec<Name>,
    /// What else it is made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<Hardware>,
}

/// A snapshot of a machine to be taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MachineSnapshot {
    /// The name it gets on each disk. Left out: made from the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, examples("before-upgrade"))]
    pub name: Option<Name>,
}

/// A snapshot of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MachineSnapshotTaken {
    /// The machine.
    #[schema(value_type = String, examples("web"))]
    pub machine: Name,
    /// The snapshot's name on each disk.
    #[schema(value_type = String, examples("before-upgrade"))]
    pub name: Name,
    /// Of each disk.
    pub disks: Vec<Snapshot>,
}

/// Machines to be made from one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MachineClone {
    /// The new machine, whose disks are called `NAME.TARGET`.
    #[schema(value_type = String, examples("web-test"))]
    pub name: Name,
    /// A snapshot that all its disks have from one instant. Left out: the present, of which one is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, examples("before-upgrade"))]
    pub snapshot: Option<Name>,
    /// So many of them, 1 to 1000, called `NAME-1`, `NAME-2` and so on. Left out: one, called `NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
}

/// Machines that were made from one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MachineCloned {
    /// The new machines.
    pub machines: Vec<Machine>,
    /// The snapshot they began as, by its name on each disk of the original.
    #[schema(value_type = String, examples("20261123T184005Z"))]
    pub snapshot: Name,
    /// What of the original they lack, or have in common with it, in words.
    pub notes: Vec<String>,
}
