//! The REST API: the types that cross it, the OpenAPI document made from them, and a client.
//!
//! *Promises*: server and clients share these very types, so they cannot disagree; what is under [`paths::V1`] is
//! only ever added to; an error crosses as it was born: its kind, what failed on what, what to do. Sizes are whole
//! bytes, times are RFC 3339 in UTC. What a server tells others by itself ([`PolicyEvent`]) has its type and its way out here, too. *Never*: knows the store, opens a listener, prints. *Owns*: the wire names.
//! *May be used by*: the server, the command line, the lab, and other people's programs.

mod backup;
mod cache;
mod client;
mod disk;
mod domain;
mod error;
mod event;
mod latency;
mod machine;
mod migration;
mod openapi;
pub mod paths;
mod policy;
mod pool;
mod proof;
mod qos;
mod recovery;
mod salvage;
mod server;
mod snapshot;
mod time;
mod token;
mod trace;

pub use backup::{
    Consistency, Point, PointDatabase, PointDiff, PointDisk, PointDiskDiff, PointState, Run, RunCopied,
    RunStart, RunState, Source, SourceCreate,
};
pub use cache::{Cache, CacheResize, CacheWarm, CacheWarmed};
pub use client::{Access, Client, Webhook};
pub use disk::{Connection, Damage, Disk, DiskCreate, DiskIo, DiskResize, DiskSet, DiskUsage};
pub use domain::{Domain, DomainCreate, DomainKey, DomainSet, DomainShred, DomainState, MasterKeyChange};
pub use error::{ErrorBody, ErrorKind};
pub use event::{PolicyEvent, PolicyEventKind};
pub use latency::{Latencies, Latency};
pub use machine::{
    Hardware, HardwareKind, Machine, MachineClone, MachineCloned, MachineCreate, MachineDisk,
    MachineDiskStats, MachineSet, MachineSnapshot, MachineSnapshotTaken, MachineStats, MachineSync,
    MachineSynced,
};
pub use migration::{Migration, MigrationCreate, MigrationDisk, MigrationState};
pub use openapi::document;
pub use policy::{
    Archive, ArchiveSet, PlanVerdict, PlannedPoint, PlannedRun, Policy, PolicyApply, PolicyCreate,
    PolicyPlan, PolicySet, PolicySource, PolicyVerify, Replica, ReplicaSet,
};
pub use pool::{
    Checked, DamagedReads, Directory, DirectoryChange, DirectoryReplace, DirectoryState, LastCheck, Pool,
    PoolTime, Reclaimed, Scrub, Work,
};
pub use proof::{Proof, ProofStage, VerifyCreate};
pub use qos::{QosClass, QosCreate, QosSet};
pub use recovery::{
    MachineLimits, Recovered, Recovery, RecoveryCreate, RecoveryStart, RecoveryStarted, StartedMachine,
};
pub use salvage::{Salvage, Salvaged, SalvagedFrom, SalvagedRange};
pub use server::Server;
pub use snapshot::{CloneCreate, Diff, DiffRange, Rollback, Snapshot, SnapshotCreate, SnapshotLock};
pub use time::Time;
pub use token::{Token, TokenCreate, TokenCreated};
pub use trace::{Trace, TraceStart};

/// Where the API listens, and the command line looks, when nothing else is said.
pub const DEFAULT_URL: &str = "http://127.0.0.1:7770";
