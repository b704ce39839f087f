//! Disks.

use crate::{DomainState, Latencies, Time};
use serde::{Deserialize, Serialize};
use stonefold_types::{Compression, Durability, Name};
use utoipa::ToSchema;

/// A virtual disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Disk {
    /// Its name.
    #[schema(value_type = String, examples("web"))]
    pub name: Name,
    /// Why nobody can use it: its head cannot be read. What else is told of it is then no fact, but for its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damaged: Option<Damage>,
    /// The domain it was made in; absent when that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, examples("default"))]
    pub domain: Option<Name>,
    /// Whether that is open: the disks of one that is locked or shredded are refused to clients.
    pub domain_state: DomainState,
    /// Its size as a guest sees it, in bytes.
    pub size_bytes: u64,
    /// Bytes that hold data: written and neither trimmed nor zeroed since; shared ones count in full.
    pub mapped_bytes: u64,
    /// Bytes written and not yet folded, on top of those: at most so much more holds data.
    #[serde(default)]
    pub unfolded_bytes: u64,
    /// When its writes are acknowledged: `flush` (at once; durable after a flush) or `ack` (only when durable).
    #[schema(value_type = String, examples("flush"))]
    pub durability: Durability,
    /// How what is written from now on is compressed: `none`, `lz4` or `zstd:1` to `zstd:19`.
    #[schema(value_type = String, examples("lz4"))]
    pub compression: Compression,
    /// Whether what is written from now on is stored only once in the pool.
    pub dedupe: bool,
    /// Its class of service.
    #[schema(value_type = String, examples("production"))]
    pub qos: Name,
    /// Whether the pool keeps room for its whole size.
    #[serde(default)]
    pub reserve: bool,
    /// When it was made.
    pub created: Time,
    /// Clients connected now that can write.
    pub clients: u64,
    /// All that are connected to it or to its snapshots, in the order in which they came.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connections: Vec<Connection>,
    /// How many snapshots it has.
    pub snapshots: u64,
    /// The snapshot it was cloned from, as `DISK@SNAP`; that may be gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("golden@v3"))]
    pub origin: Option<String>,
    /// Where clients reach it: NBD URIs, as QEMU, qemu-img and nbdinfo take them.
    #[schema(examples(json!(["nbd://127.0.0.1:10809/web"])))]
    pub uris: Vec<String>,
    /// What clients did with it since the server started; absent where the server does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io: Option<DiskIo>,
    /// How long requests took since the server started; absent where the server does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latencies>,
    /// What it takes of the pool, as last counted since the server started; absent when it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<DiskUsage>,
}

/// A client that is connected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Connection {
    /// Where it comes from, for people: an address and port, or a process of the server's machine.
    #[schema(examples("192.0.2.7:40112", "process 4711 (qemu-system-x86)"))]
    pub peer: String,
    /// Since when.
    pub since: Time,
    /// What it has: the disk, or a snapshot of it as `DISK@SNAP`.
    #[schema(examples("web@monday"))]
    pub export: String,
}

/// Why a disk cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Damage {
    /// The disk.
    #[schema(value_type = String, examples("web"))]
    pub disk: Name,
    /// What is wrong.
    #[schema(examples("the head of disk 'web' cannot be read: the Head record fails its checksum"))]
    pub what: String,
    /// What to do.
    pub remedy: String,
}

/// What a disk with its snapshots takes of the pool, exact as of one instant. Bytes are as they are stored: compressed, and with the
/// map's nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiskUsage {
    /// Bytes of the blocks that the disk holds, before anything is saved.
    pub logical_bytes: u64,
    /// Bytes that nothing else refers to.
    pub unique_bytes: u64,
    /// Bytes that others refer to as well: disks with the same content, what it was cloned from, what clones began as.
    pub shared_bytes: u64,
    /// Bytes that come back when the disk and its snapshots are removed. Clones made of it hold it all back until they are gone.
    pub reclaimable_bytes: u64,
    /// The instant.
    pub as_of: Time,
}

impl Disk {
    /// Bytes that hold data, those not yet folded counted as if they were all new.
    pub fn data_bytes(&self) -> u64 {
        self.mapped_bytes.saturating_add(self.unfolded_bytes).min(self.size_bytes)
    }
}

/// What clients did since the server started: counters that only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiskIo {
    /// Reads answered.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes acknowledged, zeroes and trims among them.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Flushes answered.
    pub flushes: u64,
    /// Requests that its class of service, or competition, let wait.
    #[serde(default)]
    pub qos_waits: u64,
    /// For how long they waited, together, in microseconds.
    #[serde(default)]
    pub qos_wait_us: u64,
}

impl DiskUsage {
    /// Of two disks, each counted for itself; as of the first instant.
    #[must_use]
    pub fn and(self, other: DiskUsage) -> DiskUsage {
        DiskUsage {
            logical_bytes: self.logical_bytes + other.logical_bytes,
            unique_bytes: self.unique_bytes + other.unique_bytes,
            shared_bytes: self.shared_bytes + other.shared_bytes,
            reclaimable_bytes: self.reclaimable_bytes + other.reclaimable_bytes,
            as_of: self.as_of.min(other.as_of),
        }
    }
}

impl DiskIo {
    /// Of two disks together.
    #[must_use]
    pub fn and(self, other: DiskIo) -> DiskIo {
        DiskIo {
            reads: self.reads + other.reads,
            read_bytes: self.read_bytes + other.read_bytes,
            writes: self.writes + other.writes,
            written_bytes: self.written_bytes + other.written_bytes,
            flushes: self.flushes + other.flushes,
            qos_waits: self.qos_waits + other.qos_waits,
            qos_wait_us: self.qos_wait_us + other.qos_wait_us,
        }
    }
}

/// A disk to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskCreate {
    /// Its name: 1 to 128 letters, digits, `.`, `_` or `-`.
    #[schema(value_type = String, pattern = "^[A-Za-z0-9._-]{1,128}$", examples("web"))]
    pub name: Name,
    /// Its size in bytes.
    #[schema(examples(21474836480u64))]
    pub size_bytes: u64,
    /// The domain to make it in, for good. Left out: `default`, which is not encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, examples("bank"))]
    pub domain: Option<Name>,
    /// Left out: as the server was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, examples("flush"))]
    pub durability: Option<Durability>,
    /// Left out: as the domain says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, examples("zstd:3"))]
    pub compression: Option<Compression>,
    /// Whether blocks that its domain has already are not stored again. Left out: as the domain says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedupe: Option<bool>,
    /// Its class of service. Left out: `production`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, examples("critical"))]
    pub qos: Option<Name>,
    /// Whether the pool keeps room for its whole size, whatever it holds; refused when there is not enough. Left out: it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve: Option<bool>,
}

/// Settings to change; what is left out stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskSet {
    /// When its writes are acknowledged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, examples("ack"))]
    pub durability: Option<Durability>,
    /// How what is written from now on is compressed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, examples("none"))]
    pub compression: Option<Compression>,
    /// Whether what is written from now on is stored only once in the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedupe: Option<bool>,
    /// Its class of service, at once for whoever is connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, examples("test"))]
    pub qos: Option<Name>,
    /// Whether the pool keeps room for its whole size, at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve: Option<bool>,
}

/// A new size for a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskResize {
    /// In bytes.
    pub size_bytes: u64,
    /// Shrinking throws away what lies beyond the new end, so it must be asked for.
    #[serde(default)]
    pub shrink: bool,
}
