//! Machines: disks that belong together, and what else a machine is made of.

use crate::{Disk, DiskIo, DiskUsage, Latencies, Snapshot, Time};
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
    /// Whether it is there to be cloned: it is not removed, and clones begin as its newest snapshot.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub template: bool,
    /// Disks that a sync leaves as they are, by what the machine calls them: those that the last one was told to keep.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>, examples(json!(["vdb"])))]
    pub kept: Vec<Name>,
    /// Where its guest's agent is reached, where that was told: `unix:/PATH` or `libvirt:URI`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("libvirt:qemu:///system"))]
    pub agent: Option<String>,
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
    /// A snapshot that all its disks have from one instant. Left out: the present, of which one is taken; of a template its newest snapshot.
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

/// What to change of a machine; what is left out stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MachineSet {
    /// The class of service of all its disks, at once for whoever is connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, examples("test"))]
    pub qos: Option<Name>,
    /// Whether it is a template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<bool>,
    /// Where its guest's agent is reached: `unix:/PATH` or `libvirt:URI`; `none` forgets it. Takes an admin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("unix:/run/vms/web/agent.sock"))]
    pub agent: Option<String>,
}

/// A machine to be brought up to its master. What its disks hold is gone, but for those that are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MachineSync {
    /// The machine whose disks its own are to begin as.
    #[schema(value_type = String, examples("golden"))]
    pub master: Name,
    /// A snapshot that all the master's disks have from one instant. Left out: the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, examples("v4"))]
    pub snapshot: Option<Name>,
    /// Disks that stay as they are, now and with each sync to come, by what the machine calls them; those that the master has not stay, too. Left out: those
    /// of the last sync that named some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>, examples(json!(["vdb"])))]
    pub keep: Option<Vec<Name>>,
}

/// A machine that was brought up to its master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MachineSynced {
    /// The machine.
    pub machine: Machine,
    /// The snapshot, by its name on each disk of the master.
    #[schema(value_type = String, examples("v4"))]
    pub snapshot: Name,
    /// Disks that began anew, by what the machine calls them.
    #[schema(value_type = Vec<String>)]
    pub replaced: Vec<Name>,
    /// Disks that stayed as they were.
    #[schema(value_type = Vec<String>)]
    pub kept: Vec<Name>,
    /// What else there is to know of it, in words.
    pub notes: Vec<String>,
}

/// How a machine's disks are, and what clients did with them since the server started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MachineStats {
    /// The machine.
    #[schema(value_type = String, examples("web"))]
    pub name: Name,
    /// The class of service, where all its disks have the same; absent where they have not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, examples("production"))]
    pub qos: Option<Name>,
    /// Sizes of its disks together.
    pub size_bytes: u64,
    /// Bytes that hold data, those not yet folded counted as if they were all new.
    pub data_bytes: u64,
    /// Clients connected to them now that can write.
    pub clients: u64,
    /// Snapshots of all of them.
    pub snapshots: u64,
    /// What clients did.
    pub io: DiskIo,
    /// How long that took, all requests of all its disks taken together.
    pub latency: Latencies,
    /// What its disks take of the pool, as last counted since the server started; absent unless all were counted. The sum of what was counted
    /// disk by disk: what two of them share is not unique, and counted with each. The instant is that of the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<DiskUsage>,
    /// Disk by disk, in the order in which the machine has them.
    pub disks: Vec<MachineDiskStats>,
}

/// How one disk of a machine is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MachineDiskStats {
    /// What the machine calls it.
    #[schema(value_type = String, examples("vda"))]
    pub target: Name,
    /// The disk's name.
    #[schema(value_type = String, examples("web-root"))]
    pub name: Name,
    /// The disk; absent where there is no such disk any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<Disk>,
}

impl MachineStats {
    /// Adds up what is known of a machine's disks.
    pub fn of(name: Name, disks: Vec<MachineDiskStats>) -> Self {
        // Of a damaged one nothing is a fact, but for its name.
        let known = disks.iter().filter_map(|one| one.disk.as_ref()).filter(|disk| disk.damaged.is_none());
        let known: Vec<&Disk> = known.collect();
        let mut classes = known.iter().map(|disk| &disk.qos);
        let class = classes.next().filter(|class| classes.all(|other| other == *class)).cloned();
        let sum = |of: fn(&Disk) -> u64| known.iter().map(|disk| of(disk)).sum::<u64>();
        let took = |disk: &&Disk| disk.latency.clone();
        let usages: Option<Vec<DiskUsage>> = known.iter().map(|disk| disk.usage).collect();
        MachineStats {
            name,
            qos: class,
            size_bytes: sum(|disk| disk.size_bytes),
            data_bytes: sum(Disk::data_bytes),
            clients: sum(|disk| disk.clients),
            snapshots: sum(|disk| disk.snapshots),
            io: known.iter().filter_map(|disk| disk.io).fold(DiskIo::default(), DiskIo::and),
            latency: known.iter().filter_map(took).fold(Latencies::default(), |all, one| all.and(&one)),
            usage: usages
                .filter(|usages| usages.len() == disks.len())
                .and_then(|usages| usages.into_iter().reduce(DiskUsage::and)),
            disks,
        }
    }
}

#[cfg(test)]
mod tests;
