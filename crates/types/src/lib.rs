//! The words every part of Stonefold shares.
//!
//! *Promises*: a [`Name`] is always valid, a size always parses back to itself, an [`Error`] always says what
//! failed, on what, and what the reader can do. *Never*: does I/O, reads a clock, or knows of any other crate
//! of ours. *May be used by*: everyone.

mod buffer;
mod error;
mod name;
mod qos;
mod role;
mod settings;
mod shelf;
mod size;

pub use buffer::AlignedBuf;
pub use error::{Error, Kind, Result};
pub use name::{ExportName, Name, PointName, SnapshotName};
pub use qos::{OPERATION_BYTES, QOS_BACKGROUND, QOS_DEFAULT, QOS_PREDEFINED, QosFigures, SHARE_MAX};
pub use role::Role;
pub use settings::{Compression, DiskSettings, Durability};
pub use size::{ParseSizeError, Size};

/// Bytes in a block, the unit of the map and of dedupe.
pub const BLOCK_BYTES: usize = 4096;
/// log2 of [`BLOCK_BYTES`].
pub const BLOCK_SHIFT: u32 = 12;
/// The largest disk: 2^32 blocks, the reach of a map of four levels.
pub const DISK_BYTES_MAX: u64 = 1 << (32 + BLOCK_SHIFT);
