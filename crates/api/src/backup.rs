//! Sources, runs and points: what is protected, how that went, and what there is to come back to.

use crate::{DiffRange, Hardware, Time};
use serde::{Deserialize, Serialize};
use stonefold_types::{Name, PointName};
use utoipa::ToSchema;

/// What is protected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Source {
    /// Its name.
    #[schema(value_type = String, examples("web-nightly"))]
    pub name: Name,
    /// The machine, whose disks are ours; absent where it is none of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, examples("web"))]
    pub machine: Option<Name>,
    /// The URI of an export of an NBD server that is copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("nbd://storage/web"))]
    pub nbd: Option<String>,
    /// The dirty bitmap of that export by which it is copied, where one was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("b0"))]
    pub bitmap: Option<String>,
    /// The path of an image file that is copied, on the server's machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("/srv/images/web.qcow2"))]
    pub image: Option<String>,
    /// The image's format, as QEMU calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("qcow2"))]
    pub format: Option<String>,
    /// The QMP socket of a running QEMU whose guest's disks are copied, on the server's machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("/run/web/qmp.sock"))]
    pub qmp: Option<String>,
    /// Where the agent of that guest is reached, where that was told: `unix:/PATH`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("unix:/run/web/agent.sock"))]
    pub agent: Option<String>,
    /// The URI of a libvirt of the server's machine, one of whose domains is copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("qemu:///system"))]
    pub libvirt: Option<String>,
    /// The domain, by its name or UUID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("web"))]
    pub domain: Option<String>,
    /// The folder that is copied, on the server's machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("/srv/files"))]
    pub dir: Option<String>,
    /// The PostgreSQL cluster that is copied, by its connection URI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("postgresql://keeper@db.example"))]
    pub postgres: Option<String>,
    /// The machine that is read over SSH.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("ssh://root@web.example"))]
    pub ssh: Option<String>,
    /// Its devices that are read, each a disk of a point; none where those are that its file systems lie on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(examples(json!(["/dev/sda"])))]
    pub devices: Vec<String>,
    /// The file of the private key by which it lets the server in, on the server's machine; absent where ssh chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("/etc/stonefold/id_ed25519"))]
    pub identity: Option<String>,
    /// How much of each of its volumes may be overwritten while it is read, in bytes; absent where that is a tenth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_bytes: Option<u64>,
    /// The number of another pool, which sends the points of this source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("00112233445566778899aabbccddeeff"))]
    pub replica_of: Option<String>,
    /// The folder in which libvirt keeps what the guest overwrites while it is read, absent where that lies beside each image; or in which the
    /// image of a folder is made, or those of a cluster, and WAL is kept between its runs, absent where that is `/var/tmp`, of a cluster a service's own folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("/srv/scratch"))]
    pub scratch: Option<String>,
    /// The disks that it is copied to, from the first run on; none where nothing is copied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>, examples(json!(["web-nightly.vda"])))]
    pub disks: Vec<Name>,
    /// When it was added.
    pub added: Time,
}

/// A source to be added: exactly one of `machine`, `nbd`, `image`, `qmp`, `libvirt`, `dir`, `postgres` and `ssh`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceCreate {
    /// Its name: 1 to 128 letters, digits, `.`, `_` or `-`.
    #[schema(value_type = String, pattern = "^[A-Za-z0-9._-]{1,128}$", examples("web-nightly"))]
    pub name: Name,
    /// A machine, whose disks are ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, examples("web"))]
    pub machine: Option<Name>,
    /// `nbd://HOST[:PORT]/EXPORT`, `nbds://HOST[:PORT]/EXPORT?tls-certificates=DIR` or `nbd+unix:///EXPORT?socket=PATH`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("nbd://storage/web"))]
    pub nbd: Option<String>,
    /// A dirty bitmap that the server offers with that export (`qemu:dirty-bitmap:NAME`), by its name. It must have marked all that has changed since
    /// the last point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("b0"))]
    pub bitmap: Option<String>,
    /// The path of an image file on the server's machine, from the root on. Takes an admin: the server reads it by its own rights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("/srv/images/web.qcow2"))]
    pub image: Option<String>,
    /// The image's format; told by the image where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("qcow2"))]
    pub format: Option<String>,
    /// The QMP socket of a running QEMU on the server's machine, from the root on. Takes an admin: whoever speaks to it has its guest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("/run/web/qmp.sock"))]
    pub qmp: Option<String>,
    /// Where the agent of that guest is reached, for application-consistent points: `unix:/PATH`, the socket of its channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("unix:/run/web/agent.sock"))]
    pub agent: Option<String>,
    /// The URI of a libvirt of the server's machine, with a domain of it. Takes an admin: libvirt does what the server may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("qemu:///system"))]
    pub libvirt: Option<String>,
    /// The domain, by its name or UUID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("web"))]
    pub domain: Option<String>,
    /// A folder on the server's machine, from the root on, made a disk with a file system of its own. Takes an admin: the server reads it by its own
    /// rights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("/srv/files"))]
    pub dir: Option<String>,
    /// A PostgreSQL cluster (13 or newer), by a connection URI of libpq's without a password: its data directory, and all WAL since. Takes an admin: it lets
    /// in the server's user, or whom that one's `.pgpass` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("postgresql://keeper@db.example"))]
    pub postgres: Option<String>,
    /// A machine of any hardware that is reached by SSH, `ssh://[USER@]HOST[:PORT]`: its disks, put together of snapshots of its volumes (LVM). Takes an admin:
    /// it lets in whoever has the server's keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("ssh://root@web.example"))]
    pub ssh: Option<String>,
    /// Devices of that machine, each a disk of a point; those that its file systems lie on where none is named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(examples(json!(["/dev/sda"])))]
    pub devices: Vec<String>,
    /// The file of the private key by which that machine lets the server in, from the root on, on the server's machine; ssh chooses where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("/etc/stonefold/id_ed25519"))]
    pub identity: Option<String>,
    /// How much of each volume may be overwritten while it is read, in bytes: its snapshot takes so much of the volume group meanwhile. A tenth of the volume, and no
    /// less than 128 MiB, where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_bytes: Option<u64>,
    /// A folder, from the root on, in which libvirt keeps what the guest overwrites while it is read, beside each image where it is left out; or in
    /// which the image of a folder is made, or those of a cluster, and WAL is kept between its runs, `/var/tmp` where it is left out, of a cluster a service's own folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("/srv/scratch"))]
    pub scratch: Option<String>,
}

/// A run: one backup of a source, which makes one point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Run {
    /// Its name, which is that of its point.
    #[schema(value_type = String, examples("web-nightly@20261123T184005Z"))]
    pub name: PointName,
    /// The machine that was backed up; the source's name where it is none of ours.
    #[schema(value_type = String, examples("web"))]
    pub machine: Name,
    /// How far it is.
    pub state: RunState,
    /// Whether it stands still until it is resumed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// What it has copied; absent where nothing is copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copied: Option<RunCopied>,
    /// When it began.
    pub begun: Time,
    /// When it ended; absent while it is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Time>,
    /// Why it failed, or what there is to know of how it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The policy that it was begun for; absent where somebody asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, examples("nightly"))]
    pub policy: Option<Name>,
}

/// What a run has copied; while it is under way, so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunCopied {
    /// The disks that it was copied to.
    #[schema(value_type = Vec<String>, examples(json!(["web-nightly.vda"])))]
    pub disks: Vec<Name>,
    /// Whether everything was to be read, also what the source says reads as zeros.
    pub full: bool,
    /// Bytes of the source that were read.
    pub read_bytes: u64,
    /// Of these, what came over the wire: the rest was told to be holes.
    pub sent_bytes: u64,
    /// Bytes written to the disk, because they differed.
    pub written_bytes: u64,
    /// Of these, what the pool did not have yet, in bytes as they are stored, compressed; absent where it is not known, as in the first seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored_bytes: Option<u64>,
    /// The instant that its point is of, where that is not its beginning: of a guest whose disks were read ahead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<Time>,
    /// How long it took, in milliseconds; 0 while it is under way.
    pub took_ms: u64,
    /// What there is to know of it, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Under way.
    Running,
    /// Its point is there.
    Done,
    /// It made no point.
    Failed,
    /// Neither did it, because somebody ended it.
    Cancelled,
}

/// A run to be begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunStart {
    /// The source.
    #[schema(value_type = String, examples("web-nightly"))]
    pub source: Name,
    /// Read everything that is to be copied, also what the source says reads as zeros.
    #[serde(default)]
    pub full: bool,
    /// What a guest is to find on the point. Left out: what it would find after a loss of power.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consistency: Option<Consistency>,
}

/// A point: all disks of a machine at one instant, and what else it was made of. None leans on another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Point {
    /// Its name; the part behind the `@` is the name of its snapshots.
    #[schema(value_type = String, examples("web-nightly@20261123T184005Z"))]
    pub name: PointName,
    /// The machine, as it was called then.
    #[schema(value_type = String, examples("web"))]
    pub machine: Name,
    /// When.
    pub taken: Time,
    /// Whether it can be recovered.
    pub state: PointState,
    /// What a guest finds on its disks.
    pub consistency: Consistency,
    /// The policy that it was made for, which removes it when it does not keep it any more; absent where somebody asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, examples("nightly"))]
    pub policy: Option<Name>,
    /// Nobody can remove it before. Absent when it is not locked, or no longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locked_until: Option<Time>,
    /// Its disks.
    pub disks: Vec<PointDisk>,
    /// What else the machine was made of; absent where nobody had said, and in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<Hardware>,
    /// What it has of a PostgreSQL cluster; absent where it is of none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<PointDatabase>,
}

/// What a point has of a PostgreSQL cluster: it can be brought back to any moment between two.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PointDatabase {
    /// The cluster's own number, which its copies share (`system_identifier`).
    #[schema(examples("7712361537833245177"))]
    pub system: String,
    /// Its version, as in 150004.
    pub version: u32,
    /// The earliest moment, by the cluster's clock: the end of its base backup.
    pub since: Time,
    /// The latest, likewise: its own.
    pub until: Time,
}

/// Whether a point can be recovered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PointState {
    /// It can.
    Whole,
    /// Somebody has removed a snapshot of it, or one cannot be read now.
    Broken,
    /// It is being removed.
    Removing,
}

/// What a guest finds on the disks of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Consistency {
    /// What it would find after a loss of power.
    Crash,
    /// What its file systems, and by its agent's hooks its programs, had finished when they stood still.
    App,
}

/// A disk of a point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PointDisk {
    /// What the machine calls it.
    #[schema(value_type = String, examples("vda"))]
    pub target: Name,
    /// Its snapshot, as `DISK@SNAP`: it can be read and cloned as any other.
    #[schema(examples("web-root@20261123T184005Z"))]
    pub snapshot: String,
    /// The disk's size then, in bytes.
    pub size_bytes: u64,
    /// Whether that snapshot is gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub missing: bool,
}

/// What differs between two points.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PointDiff {
    /// The point compared from.
    #[schema(value_type = String, examples("web-nightly@20261123T184005Z"))]
    pub from: PointName,
    /// The point compared to.
    #[schema(value_type = String, examples("web-nightly@20261124T184005Z"))]
    pub to: PointName,
    /// Bytes in all ranges, together.
    pub changed_bytes: u64,
    /// Of disks that both have.
    pub disks: Vec<PointDiskDiff>,
    /// Disks that `from` has alone, by what the machine calls them.
    #[schema(value_type = Vec<String>)]
    pub only_from: Vec<Name>,
    /// Disks that `to` has alone.
    #[schema(value_type = Vec<String>)]
    pub only_to: Vec<Name>,
    /// Whether the hardware descriptions differ.
    pub hardware_differs: bool,
}

/// What differs between a disk in one point and in another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PointDiskDiff {
    /// What the machine calls it.
    #[schema(value_type = String, examples("vda"))]
    pub target: Name,
    /// How large it is in `from`, in bytes.
    pub from_bytes: u64,
    /// And in `to`.
    pub to_bytes: u64,
    /// Bytes in the ranges, together.
    pub changed_bytes: u64,
    /// The ranges that differ, in order; they do not touch.
    pub ranges: Vec<DiffRange>,
}
