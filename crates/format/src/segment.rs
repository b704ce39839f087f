//! A segment: an immutable object of many frames and their index.
//!
//! ```text
//! +-----------+---------+---------+---+-------+--------------+---------+-----------+
//! | header 80 | frame 0 | frame 1 | … | index | fingerprints | samples | footer 64 |
//! +-----------+---------+---------+---+-------+--------------+---------+-----------+
//! header = check 8 · magic 8 · segment id 8 · generation 1 · kind 1 · domain 2 · object bytes 4 · seed 32 · key version 4 · 0 (12)
//! index  = per frame: first slot 4 · offset 4 · length 4 · blocks 1 · epoch 3 · owner 8 · place 8
//! fingerprints = per block 16, in the order of the frames, or nothing
//! samples      = per sample: slot 4 · fingerprint 16
//! footer = check 8 · magic 8 · segment id 8 · index offset 8 · frames 4 · slots 4 · fingerprints 4 · samples 4 · index check 8 · samples check 8
//! ```
//! Checks cover everything behind them in their own part; index and fingerprints together, and the samples, have theirs in
//! the footer. That lies last, behind the samples, so that one read of an object's tail finds both: rebuilding the
//! dedupe index after a start reads no more of a segment than that. `kind`: 0 data, 1 map nodes. `owner`, `epoch` and `place` say for whom the frame was
//! first written (disk id; the low 24 bits of the epoch of that disk; first block, for a map node with its level in the top byte), so that a lost
//! map can be rebuilt, and of a snapshot's nothing is taken for its content that was written after it.
//! Data of different domains never shares a segment; map nodes of all domains do (domain 0). `key version`: of the domain's key, from
//! which and from `seed`, fresh randomness per physical form, the key of the frames is derived ([`crate::seal`]); 0 when they
//! are not sealed.
//! Slots number the blocks of the segment in the order of the frames. Frames begin at multiples of 16 bytes.
//!
//! A segment can be written anew as its next *generation*, object `segment/ID.GENERATION`, without the frames, or the
//! blocks of frames, that nothing refers to any more. Each block keeps its slot; a frame holds consecutive slots, always.

mod reading;
mod writing;

pub use reading::{Footer, Header};
pub use writing::{SegmentBuilder, object_bytes_for};

use crate::fingerprint::FINGERPRINT_BYTES;
use crate::seal::DataKey;

/// Bytes before the first frame.
pub const SEGMENT_HEADER: usize = 80;
/// Bytes of the footer.
pub const SEGMENT_FOOTER: usize = 64;
/// Bytes of one frame's index record.
pub const INDEX_RECORD: usize = 32;
/// Bytes of one sample.
pub const SAMPLE_RECORD: usize = 4 + FINGERPRINT_BYTES;
/// Bytes that a block takes behind the frames, at most: its fingerprint, and that again if it is a sample.
const SLOT_BYTES_MAX: usize = FINGERPRINT_BYTES + SAMPLE_RECORD;
/// Reading this much of a segment's tail, in bytes, nearly always finds all its samples.
pub const SEGMENT_TAIL: usize = 16 << 10;

/// Where the level of a map node begins in its place.
const LEVEL_SHIFT: u32 = 56;
/// What is kept of an epoch.
const EPOCH_MASK: u32 = (1 << 24) - 1;

const HEADER_MAGIC: [u8; 8] = *b"SFSEGMT1";
const FOOTER_MAGIC: [u8; 8] = *b"SFSEGEND";

/// What a segment holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SegmentKind {
    /// Blocks of disks.
    Data = 0,
    /// Map nodes.
    Map = 1,
}

/// Whose blocks a segment holds, and what seals them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// The domain's id; 0 for map nodes.
    pub domain: u16,
    /// The newest version of its key, when its frames are sealed.
    pub key: Option<DataKey>,
}

/// Where a frame lies in its segment, and for whom it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexRecord {
    /// The slot of its first block.
    pub first_slot: u32,
    /// Byte offset in the object.
    pub offset: u32,
    /// Stored bytes.
    pub length: u32,
    /// Blocks of content.
    pub blocks: u8,
    /// The disk it was first written for.
    pub owner: u64,
    /// The low 24 bits of that disk's epoch when it was.
    pub epoch: u32,
    /// The first block's address in that disk; of a map node, with its level in the top byte.
    pub place: u64,
}

/// For whom a frame was first written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstUse {
    /// The disk.
    pub owner: u64,
    /// Its epoch, of which the low 24 bits are kept.
    pub epoch: u64,
    /// The first block's address in that disk; of a map node, see [`FirstUse::node_place`].
    pub place: u64,
}

impl FirstUse {
    /// The place of the map node of `level` whose first block is `base`.
    pub fn node_place(level: u32, base: u64) -> u64 {
        u64::from(level) << LEVEL_SHIFT | base
    }

    /// Of a map node: its level and its first block.
    pub fn node_at(&self) -> (u32, u64) {
        ((self.place >> LEVEL_SHIFT) as u32, self.place & ((1 << LEVEL_SHIFT) - 1))
    }
}

impl IndexRecord {
    /// The epoch of its owner in which it was written, if that is `last` or one before. One that lies more than half of 2^24 back is taken
    /// for one ahead.
    pub fn epoch_up_to(&self, last: u64) -> Option<u64> {
        let back = (last as u32).wrapping_sub(self.epoch) & EPOCH_MASK;
        (back <= EPOCH_MASK / 2).then(|| last.saturating_sub(back.into()))
    }

    /// For whom the part of it from block `ahead` on was first written.
    pub fn first_use(&self, ahead: usize) -> FirstUse {
        FirstUse { owner: self.owner, epoch: self.epoch.into(), place: self.place + ahead as u64 }
    }
}
