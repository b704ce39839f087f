//! The address of a block, as a map holds it.
//!
//! ```text
//!  bit 0         20                                 64
//!      +----------+----------------------------------+
//!      | slot     | segment                          |  address
//!      +----------+-----------+-----+--------+-------+
//!      | offset 26            | length 19| index 3 | generation 8 | 0 … |  hint
//!      +----------------------------------------------------------------+
//! ```
//! *Address*: the block is the `slot`-th of segment `segment`; this never changes (P4). Segment 0 does not exist:
//! an all-zero entry is a hole. *Hint*: where its frame lay when it was mapped (byte `offset` and stored `length`
//! within the segment object, `index` of the block in the frame, and the `generation` of the segment's physical
//! form). A hint is never trusted: the frame found there must carry the checksum of the right address; if it does
//! not, the segment's index is asked.

use std::fmt;

/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 16;
/// Slots in a segment are numbered below this.
pub const SLOTS_MAX: u32 = 1 << 20;
/// A segment object is at most this long, in bytes.
pub const SEGMENT_BYTES_MAX: usize = 1 << 26;
/// A frame is stored in fewer bytes than this.
pub const FRAME_STORED_MAX: usize = 1 << 19;
/// Blocks in a frame, at most.
pub const FRAME_BLOCKS_MAX: usize = 8;

/// The number of a segment: never 0, never reused. Below 2^44.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(pub u64);

impl SegmentId {
    /// The `count`-th segment of a session of the pool; both begin at 1 and 0. A pool lives through a million
    /// sessions of sixteen million segments each.
    pub fn new(session: u32, count: u32) -> Self {
        assert!((1..1 << 20).contains(&session) && count < 1 << 24, "session {session}, segment {count}");
        SegmentId(u64::from(session) << 24 | u64::from(count))
    }
}

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:011x}", self.0)
    }
}

/// Where a block is. [`Entry::HOLE`] means nowhere: it reads as zeros.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Segment and slot: the identity of the block.
    pub address: u64,
    /// Where it was last seen.
    pub hint: Hint,
}

/// Where a frame was last seen; drawn at the top.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Hint(pub u64);

impl Hint {
    /// Packs the place of a frame and of the block within it.
    pub fn new(offset: usize, length: usize, index: usize, generation: u8) -> Self {
        assert!(offset < SEGMENT_BYTES_MAX && length < FRAME_STORED_MAX && index < FRAME_BLOCKS_MAX);
        Hint(offset as u64 | (length as u64) << 26 | (index as u64) << 45 | u64::from(generation) << 48)
    }

    /// Byte offset of the frame in the segment object.
    pub fn offset(self) -> u64 {
        self.0 & ((1 << 26) - 1)
    }

    /// Stored bytes of the frame, its header included.
    pub fn length(self) -> usize {
        (self.0 >> 26) as usize & (FRAME_STORED_MAX - 1)
    }

    /// Which of the frame's blocks.
    pub fn index(self) -> usize {
        (self.0 >> 45) as usize & (FRAME_BLOCKS_MAX - 1)
    }

    /// Physical form of the segment it was seen in.
    pub fn generation(self) -> u8 {
        (self.0 >> 48) as u8
    }
}

impl Entry {
    /// Nothing is stored.
    pub const HOLE: Entry = Entry { address: 0, hint: Hint(0) };

    /// The block in `slot` of `segment`.
    pub fn new(segment: SegmentId, slot: u32, hint: Hint) -> Self {
        assert!(slot < SLOTS_MAX && segment.0 < 1 << 44);
        Entry { address: segment.0 << 20 | u64::from(slot), hint }
    }

    /// Whether nothing is stored.
    pub fn is_hole(&self) -> bool {
        self.address == 0
    }

    /// Its segment.
    pub fn segment(&self) -> SegmentId {
        SegmentId(self.address >> 20)
    }

    /// Its place among the segment's blocks.
    pub fn slot(&self) -> u32 {
        self.address as u32 & (SLOTS_MAX - 1)
    }

    /// The address of the first block of its frame, if the hint holds: the identity of the frame.
    pub fn frame_address(&self) -> u64 {
        self.address - self.hint.index() as u64
    }

    /// Its 16 bytes.
    pub fn encode(&self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..8].copy_from_slice(&self.address.to_le_bytes());
        bytes[8..].copy_from_slice(&self.hint.0.to_le_bytes());
        bytes
    }

    /// From its 16 bytes. Any bits are an entry; what it points at is verified when read.
    pub fn decode(bytes: &[u8; ENTRY_BYTES]) -> Self {
        let half = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        Entry { address: half(0), hint: Hint(half(8)) }
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_hole() {
            return f.write_str("hole");
        }
        let hint = self.hint;
        write!(f, "{}:{} (frame at {}+{})", self.segment(), self.slot(), hint.offset(), hint.length())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn packs_and_unpacks(session in 1u32..1 << 20, count in 0u32..1 << 24, slot in 0u32..SLOTS_MAX,
            offset in 0usize..SEGMENT_BYTES_MAX, length in 0usize..FRAME_STORED_MAX, index in 0usize..8, generation: u8) {
            let segment = SegmentId::new(session, count);
            let entry = Entry::new(segment, slot, Hint::new(offset, length, index, generation));
            let back = Entry::decode(&entry.encode());
            prop_assert_eq!(back, entry);
            prop_assert_eq!((back.segment(), back.slot()), (segment, slot));
            let hint = back.hint;
            prop_assert_eq!((hint.offset() as usize, hint.length(), hint.index(), hint.generation()), (offset, length, index, generation));
            prop_assert!(!back.is_hole());
        }
    }
}
