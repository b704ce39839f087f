//! Protection: what is backed up when, which points stay, and how they come back.
//!
//! *Promises*: what is decided here is a function of what it is told: schedules and retention read no clock; what is kept of machines, sources,
//! runs, points and recoveries is one truth with what the store holds, after a crash at any moment. *Never*: knows an engine, a door or the API.
//! *Owns*: what the documents of the pool's catalog say; the store keeps them. *May be called by*: the server.
//!
//! [`Protection`] is all of it that changes something: one change at a time, each in steps that a start finds and ends ([`clones`],
//! [`syncs`], [`runs`], [`points`], [`recoveries`]). [`policies`] say when and what for; [`rounds`] do it, as [`plan`] tells beforehand.

mod catalog;
mod classes;
mod clones;
pub mod domain;
mod hardware;
mod machines;
mod masters;
mod number;
mod outcomes;
mod plan;
mod points;
mod policies;
mod protection;
pub mod qmp;
mod recoveries;
pub mod retention;
pub mod rounds;
mod runs;
pub mod schedule;
mod sources;
mod stamp;
mod syncs;
mod zone;

pub use hardware::{HARDWARE_BYTES_MAX, Hardware};
pub use machines::{CLONES_MAX, CloneRequest, Cloned, DISKS_MAX, Machine, MachineDisk, NewMachine};
pub use outcomes::{Listener, Outcome};
pub use plan::{Plan, Planned, Verdict};
pub use points::{Consistency, DiskDiff, Point, PointDiff, PointDisk, PointStatus};
pub use policies::{Applied, LOCK_SECONDS_MAX, NewPolicy, Policy, WEBHOOK_BYTES_MAX};
pub use protection::Protection;
pub use recoveries::{RecoverRequest, Recovered, Recovery};
pub use runs::{RUNS_MAX, Run, RunState, Slot};
pub use sources::{Source, SourceOf};
pub use syncs::{SyncRequest, Synced};
pub use zone::Zone;
