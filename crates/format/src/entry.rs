//! The address of a block, as a map holds it.
//!
//! ```text
//!  bit 0         20                                 64
//!      +----------+----------------------------------+
//!      | slot     | segment                          |  address
//!      +----------+------+---------+---+------------+
//!      | offset 22| length 12| index 3 | birth 27    |  hint
//!      +--------------------------------------------+
//! ```
//! *Address*: the block is the `slot`-th of segment `segment`; this never changes (P4). Segment 0 does not exist:
//! an all-zero entry is a hole, and slot 1 of segment 0 is *lost*: nobody knows what was there ([`Entry::LOST`]). Whoever does not know of
//! that finds no such segment, and so reads neither zeros nor anything else. *Hint*: where its frame lay when it was mapped (`offset` and stored `length`
//! within the segment object, both in units of 16 bytes, and the `index` of the block in the frame). It is never
//! trusted: the frame found there must carry the checksum of the right address; if it does not, the segment's index is
//! asked. *Birth*: the disk's epoch in which the map began to hold this entry: one more than its newest snapshot's number
//! then. Reclaim tells by it which snapshots hold what was overwritten ([`crate::ledger`]).

use std::fmt;

/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 16;
/// Slots in a segment are numbered below this.
pub const SLOTS_MAX: u32 = 1 << 20;
/// Segments are numbered below this.
pub const SEGMENT_IDS_END: u64 = 1 << 43;
/// A segment object is at most this long, in bytes.
pub const SEGMENT_BYTES_MAX: usize = 1 << 26;
/// Frames begin at multiples of this in their segment, in bytes.
pub const FRAME_ALIGN: usize = 16;
/// A frame is stored in fewer bytes than this.
pub const FRAME_STORED_MAX: usize = 1 << 16;
/// Epochs of a disk are numbered below this: one is used by each snapshot.
pub const BIRTH_MAX: u64 = 1 << 27;
/// Blocks in a frame, at most.
pub const FRAME_BLOCKS_MAX: usize = 8;

/// The number of a segment: never 0, which is that of none, and never reused. Below 2^43.
#[derive(Default, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(pub u64);

impl SegmentId {
    /// The `count`-th segment of a session of the pool; both begin at 1 and 0. A pool lives through half a million
    /// sessions of sixteen million segments each.
    pub fn new(session: u32, count: u32) -> Self {
        assert!((1..1 << 19).contains(&session) && count < 1 << 24, "session {session}, segment {count}");
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
    /// Packs the place of a frame and of the block within it. `offset` is a multiple of [`FRAME_ALIGN`]; `length` is
    /// rounded up to one. The birth is left open.
    pub fn new(offset: usize, length: usize, index: usize) -> Self {
        assert!(offset < SEGMENT_BYTES_MAX && offset % FRAME_ALIGN == 0, "offset {offset}");
        assert!(length <= FRAME_STORED_MAX - FRAME_ALIGN && index < FRAME_BLOCKS_MAX);
        let (offset, length) = (offset / FRAME_ALIGN, length.div_ceil(FRAME_ALIGN));
        Hint(offset as u64 | (length as u64) << 22 | (index as u64) << 34)
    }

    /// Byte offset of the frame in the segment object.
    pub fn offset(self) -> u64 {
        (self.0 & ((1 << 22) - 1)) * FRAME_ALIGN as u64
    }

    /// Stored bytes of the frame, its header included, rounded up.
    pub fn length(self) -> usize {
        ((self.0 >> 22) as usize & ((1 << 12) - 1)) * FRAME_ALIGN
    }

    /// Which of the frame's blocks.
    pub fn index(self) -> usize {
        (self.0 >> 34) as usize & (FRAME_BLOCKS_MAX - 1)
    }

    /// The same place, another block of the frame.
    #[must_use]
    pub fn with_index(self, index: usize) -> Self {
        assert!(index < FRAME_BLOCKS_MAX);
        Hint(self.0 & !(7 << 34) | (index as u64) << 34)
    }
}

impl Entry {
    /// Nothing is stored.
    pub const HOLE: Entry = Entry { address: 0, hint: Hint(0) };

    /// The block in `slot` of `segment`.
    pub fn new(segment: SegmentId, slot: u32, hint: Hint) -> Self {
        assert!(slot < SLOTS_MAX && segment.0 < SEGMENT_IDS_END);
        Entry { address: segment.0 << 20 | u64::from(slot), hint }
    }

    /// What was stored is not known any more: reading it is an error until it is written or trimmed. In a node above the leaves all
    /// below it is lost. It was never born, and refers to nothing.
    pub const LOST: Entry = Entry { address: 1, hint: Hint(0) };

    /// Whether nothing is stored.
    pub fn is_hole(&self) -> bool {
        self.address == 0
    }

    /// Whether what was stored is not known.
    pub fn is_lost(&self) -> bool {
        self.address == Self::LOST.address
    }

    /// Whether it refers to something.
    pub fn is_stored(&self) -> bool {
        !self.is_hole() && !self.is_lost()
    }

    /// Its segment.
    pub fn segment(&self) -> SegmentId {
        SegmentId(self.address >> 20)
    }

    /// Its place among the segment's blocks.
    pub fn slot(&self) -> u32 {
        self.address as u32 & (SLOTS_MAX - 1)
    }

    /// The epoch in which the map began to hold it.
    pub fn birth(&self) -> u64 {
        self.hint.0 >> 37
    }

    /// The same, born in `epoch`. Neither a hole nor what is lost is ever born.
    #[must_use]
    pub fn born(self, epoch: u64) -> Self {
        assert!(epoch < BIRTH_MAX, "epoch {epoch}");
        if !self.is_stored() {
            return self;
        }
        Entry { hint: Hint(self.hint.0 & ((1 << 37) - 1) | epoch << 37), ..self }
    }

    /// The address of the first block of its frame, if the hint holds: the identity of the frame.
    pub fn frame_address(&self) -> u64 {
        // Any bits are an entry: one that points before the first slot of all finds no sound frame.
        self.address.saturating_sub(self.hint.index() as u64)
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
        if self.is_lost() {
            return f.write_str("lost");
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
        fn packs_and_unpacks(session in 1u32..1 << 19, count in 0u32..1 << 24, slot in 0u32..SLOTS_MAX,
            offset in 0usize..SEGMENT_BYTES_MAX / FRAME_ALIGN, length in 0usize..FRAME_STORED_MAX / FRAME_ALIGN, index in 0usize..8, epoch in 0..BIRTH_MAX) {
            let segment = SegmentId::new(session, count);
            let (offset, length) = (offset * FRAME_ALIGN, length * FRAME_ALIGN);
            let entry = Entry::new(segment, slot, Hint::new(offset, length, 0).with_index(index)).born(epoch);
            let back = Entry::decode(&entry.encode());
            prop_assert_eq!(back, entry);
            prop_assert_eq!((back.segment(), back.slot(), back.birth()), (segment, slot, epoch));
            let hint = back.hint;
            prop_assert_eq!((hint.offset() as usize, hint.length(), hint.index()), (offset, length, index));
            prop_assert!(back.is_stored());
        }
    }

    #[test]
    fn what_is_lost_is_neither_stored_nor_a_hole() {
        for entry in [Entry::LOST, Entry::LOST.born(5), Entry::decode(&Entry::LOST.encode())] {
            assert!(entry.is_lost() && !entry.is_hole() && !entry.is_stored());
            assert_eq!((entry, entry.birth()), (Entry::LOST, 0));
        }
        assert!(Entry::HOLE.is_hole() && !Entry::HOLE.is_lost() && !Entry::HOLE.is_stored());
    }
}
