//! Protection: what is backed up when, which points stay, and how they come back.
//!
//! *Promises*: what is decided here is a function of what it is told: schedules and retention read no clock; what is kept of machines, sources,
//! runs, points and recoveries is one truth with what the store holds, after a crash at any moment. *Never*: knows an engine, a door or the API.
//! *Owns*: what the documents of the pool's catalog say; the store keeps them. *May be called by*: the server.
//!
//! What lies on other people's storage is read by an [NBD client](nbd) into disks of ours ([`copying`], [`copy`]), image files by way of
//! [qemu-nbd](image), folders as file systems that are made of them ([`tree`]), PostgreSQL clusters likewise, with their WAL ([`postgres`]), machines of any hardware over SSH ([`ssh`]), disks of a guest that runs as they were at one instant, by QEMU itself
//! ([`fleece`]) or by libvirt ([`domain_backup`]); its points are like all others.
//!
//! [`Protection`] is all of it that changes something: one change at a time, each in steps that a start finds and ends ([`clones`],
//! [`syncs`], [`runs`], [`points`], [`recoveries`]). [`starts`] starts machines with them ([`hypervisor`]), with what their boots read fetched ahead ([`boots`]); [`migrations`] brings those home,
//! [`proofs`] show that they boot. Guests stand still for points where that is wished ([`standstills`]). Disks that they need stay ([`needed`]). [`policies`] say when and what for; [`rounds`] do it, as [`plan`] tells beforehand, and
//! [`replication`] sends what they made to another pool, whose own [`Protection`] receives it.

mod boots;
mod catalog;
mod classes;
#[cfg(test)]
mod clock;
mod clones;
mod copy;
mod copying;
pub mod domain;
mod domain_backup;
mod fleece;
mod hardware;
mod held;
mod hypervisor;
mod image;
mod machines;
mod masters;
mod migrations;
mod nbd;
mod needed;
mod number;
mod origin;
mod outcomes;
mod pace;
mod plan;
mod points;
mod policies;
mod postgres;
pub mod proofs;
mod protection;
pub mod qmp;
mod recoveries;
mod replication;
pub mod retention;
pub mod rounds;
mod runs;
pub mod schedule;
mod sources;
mod ssh;
mod stamp;
mod standstills;
mod starts;
mod syncs;
mod tree;
mod zone;

pub use hardware::{HARDWARE_BYTES_MAX, Hardware};
pub use hypervisor::{Accelerator, AgentPlace, Host, Hypervisors, Limits, Sign, Where};
pub use image::check_whole;
pub use machines::{CLONES_MAX, CloneRequest, Cloned, DISKS_MAX, Machine, MachineDisk, NewMachine};
pub use migrations::{Headway, Home, HomeFormat, MigrateRequest, Migration, MigrationState, MovedDisk};
pub use outcomes::{Listener, Outcome};
pub use pace::CopyRate;
pub use plan::{Plan, Planned, Verdict};
pub use points::{Consistency, DiskDiff, Point, PointDiff, PointDisk, PointStatus};
pub use policies::{
    Applied, Archive, LOCK_SECONDS_MAX, NewPolicy, NewVerification, Policy, PolicyChange, Verification,
    WEBHOOK_BYTES_MAX,
};
pub use postgres::{Cluster, Database};
pub use proofs::{Proof, ProofRecord, Stage, VerifyRequest};
pub use protection::Protection;
pub use recoveries::{RecoverRequest, Recovered, Recovery};
pub use replication::{Pools, REPLICA_URL_BYTES_MAX, ReplicaStatus};
pub use runs::{Copied, RUNS_MAX, Run, RunRequest, RunState, Slot};
pub use sources::{ImageFile, LibvirtDomain, NbdExport, QemuGuest, ReplicaOf, Source, SourceOf};
pub use ssh::SshMachine;
pub use starts::{StartRequest, StartedMachine, StopRequest};
pub use syncs::{SyncRequest, Synced};
pub use tree::Folder;
pub use zone::Zone;
