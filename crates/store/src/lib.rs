//! The store: disks that remember everything.
//!
//! *Promises*: P1 to P10 of the design page, `docs/design/promises.md`. *Never*: knows which engine it stands on, nor which door a request
//! came through; reads a clock or rolls a die but through [`stonefold_env::Env`]. *Owns*: every open disk of the pool,
//! the journal, the caches. *May be called by*: doors and the server, through [`Store`] and [`Attachment`] only.
//!
//! The path of a write: [`Attachment::write`] → budget → journal and overlay → acknowledged; later the fold packs it into segments
//! and the map. The path of a read: overlay → map → cache → segment.

mod accounts;
mod ailing;
mod arena;
mod attachment;
mod budget;
mod cache;
mod capture;
mod catalog;
mod check;
mod clients;
mod dedupe;
mod directories;
mod disk;
mod disks;
mod documents;
mod domains;
mod findings;
mod fold;
mod freed;
mod gate;
mod growth;
mod heads;
mod journal;
mod latency;
mod ledger;
mod loading;
mod locator;
mod map;
mod mended;
mod overlay;
mod pack;
mod packer;
mod pages;
mod pins;
pub mod planted;
mod qos;
mod read;
mod reclaim;
mod recount;
mod recovery;
mod releases;
mod removed;
mod reserve;
mod rewrite;
mod rollback;
mod salvage;
mod scrubber;
mod segments;
mod snapshot;
mod snapshots;
mod sound;
mod status;
mod store;
mod stored;
mod sweep;
#[cfg(feature = "synthetic")]
pub mod synthetic;
mod time;
mod tokens;
mod unreadable;
mod usage;

pub use attachment::{Attachment, Extent, Flushed, PREFETCH_BYTES};
pub use capture::{CAPTURE_ROOM_MAX, Capture, CaptureStatus, Taken};
pub use catalog::CatalogEntry;
pub use check::Checked;
pub use clients::{Client, OWN};
pub use domains::{DomainInfo, DomainPolicy, DomainState, Keys, MasterKey};
pub use findings::{CheckFound, DamagedReads, Known};
pub use freed::Freed;
pub use growth::Trend;
pub use latency::{Latencies, Latency};
pub use qos::{Evenly, QosInfo};
pub use reclaim::Reclaimed;
pub use salvage::{Salvage, Salvaged, SalvagedFrom, SalvagedRange};
pub use scrubber::ScrubStatus;
pub use snapshots::SnapshotInfo;
pub use status::{DamagedDisk, DiskInfo, PoolStatus, Work};
pub use stonefold_engine::{Directory, DirectoryState, Version};
pub use stonefold_format::export::{self, ExportedKey};
pub use stonefold_format::seal::Secret;
pub use stonefold_format::tokens::{Token, Tokens};
pub use stonefold_format::trace;
pub use store::{Options, Store};
pub use time::TimeStatus;
pub use usage::Usage;

use stonefold_types::{Error, Kind};

/// What every call gets once the store is closed.
pub(crate) fn closed() -> Error {
    Error::new(Kind::Closed, "the store is closed")
}
