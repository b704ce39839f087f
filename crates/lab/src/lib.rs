//! The lab: measures any storage, so that a newcomer's number can be trusted.
//!
//! *Promises*: a number comes with how it was got and with what speaks against it; a latency counts from the moment an
//! I/O was meant to be issued; percentiles come of merged histograms; what was written is known, so that what is read is
//! held against it. *Never*: knows what is behind a target, so that Stonefold is measured as any other; writes over data
//! that is not its own unasked. *May be used by*: the command line. It depends on `types`, `env`
//! and, for traces, `format` alone.

pub mod address;
pub mod bundle;
pub mod certificate;
pub mod chance;
pub mod chaos;
pub mod claims;
pub mod counters;
pub mod durability;
pub mod erased;
mod front;
pub mod generations;
pub mod import;
pub mod load;
mod lock;
pub mod machine;
pub mod measure;
pub mod oltp;
pub mod payload;
pub mod preflight;
pub mod profile;
pub mod record;
pub mod reduced;
pub mod replay;
pub mod report;
pub mod rig;
mod shell;
pub mod space;
pub mod stats;
pub mod study;
pub mod system;
mod target;
pub mod tiles;
pub mod trace;
pub mod trial;
pub mod verdict;
pub mod verify;
mod volume;
pub mod worker;
pub mod workload;

pub use target::TargetSpec;
