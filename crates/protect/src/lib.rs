//! Protection: what is backed up when, which points stay, and how they come back.
//!
//! *Promises*: what is decided here is a function of what it is told: schedules and retention read no clock. *Never*: knows an engine.
//! *May be called by*: the server, which asks with the store's trusted time, so that a clock that jumps expires nothing.

pub mod domain;
pub mod qmp;
pub mod retention;
pub mod schedule;
mod zone;

pub use zone::Zone;
