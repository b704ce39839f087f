//! The seeded world: the whole store on simulated time, storage and tasks.
//!
//! *World*: [`world::World`] is an executor with virtual time that polls one task at a time, chosen by dice; the
//! engine is in memory, with delays and faults by the same dice. A seed is a schedule. *Actors*: clients that write,
//! zero, flush, read, snapshot, clone, each on its own region, with neighbours that share a block; one has a disk to itself and
//! makes it larger and smaller. *Rot*: with two copies a bit of one flips now and then, which nobody may notice and scrub mends; at the
//! end bits of an only copy, which must be told and never read as anything else. *Crashes*: after any
//! poll, every task is dropped; the engine keeps what was durable and some of the rest, as chosen by the dice (loss of
//! power), or all that was handed over (the process was killed). *Oracle*: the reference disk; see [`story`].
//!
//! The same seed gives the same digest. A failing seed prints the command that replays it.

pub mod clients;
mod decay;
mod family;
pub mod life;
mod opening;
mod resize;
pub mod rot;
mod service;
pub mod story;
pub mod weather;
pub mod world;

pub use life::run_seed;
