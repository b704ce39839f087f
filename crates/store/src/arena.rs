//! Memory of journal chunks, shared while they are being filled.
//!
//! A group commit is built in one run of memory that is later written directly. The data in it is at the same time what
//! reads find until it is folded, so writers append behind while readers read what lies before: bytes are written once
//! and never change while anyone can see them.
//!
//! One allocation serves many chunks, one behind the other: a small write that is flushed at once is a chunk of its own.

use bytes::Bytes;
use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::Arc;
use stonefold_types::AlignedBuf;

struct Memory {
    start: NonNull<u8>,
    capacity: usize,
    /// Owns what `start` points at; never touched through the cell.
    _owner: UnsafeCell<AlignedBuf>,
}

// SAFETY: the memory is plain bytes; who may touch which part of it when is the invariant of the types below.
unsafe impl Send for Memory {}
// SAFETY: as above: [`ArenaSlice`]s only cover bytes that are written already and never again.
unsafe impl Sync for Memory {}

/// Allocated at once, in bytes: enough for hundreds of small chunks, or a dozen large ones.
const ALLOCATED_BYTES: usize = 4 << 20;

/// The one writer of an arena: a part of an allocation.
pub(crate) struct ArenaWriter {
    memory: Arc<Memory>,
    /// Where the arena begins in the allocation, on a page.
    start: usize,
    /// Where it ends at the latest.
    end: usize,
    /// Bytes before this are visible to slices and are never written again, but for the reserved front.
    filled: usize,
    reserved: usize,
}

/// What is left of an allocation behind an arena: its one owner may write it.
pub(crate) struct Rest {
    memory: Arc<Memory>,
    start: usize,
}

/// Finished bytes of an arena; keeps the whole of it alive.
#[derive(Clone)]
pub(crate) struct ArenaSlice {
    memory: Arc<Memory>,
    start: usize,
    len: usize,
}

impl ArenaWriter {
    /// An arena of at least `needed` bytes, and of up to `wanted` where they are there, in what is left of an allocation or in a new
    /// one. The first `reserved` are left for a header that is known only at the end.
    pub(crate) fn new(rest: Option<Rest>, needed: usize, wanted: usize, reserved: usize) -> Self {
        let rest = rest.filter(|rest| rest.start + needed <= rest.memory.capacity);
        let Rest { memory, start } = rest.unwrap_or_else(|| Rest::allocate(needed.max(ALLOCATED_BYTES)));
        let end = memory.capacity.min((start + needed.max(wanted)).next_multiple_of(AlignedBuf::ALIGN));
        assert!(reserved <= needed && start % AlignedBuf::ALIGN == 0);
        ArenaWriter { memory, start, end, filled: start + reserved, reserved }
    }

    /// Bytes written, the reserved front included.
    pub(crate) fn len(&self) -> usize {
        self.filled - self.start
    }

    /// Whether `len` more bytes fit.
    pub(crate) fn has_room(&self, len: usize) -> bool {
        self.filled + len <= self.end
    }

    /// Ends the arena with the page that is being filled; what lies behind is the next one's.
    pub(crate) fn split_rest(&mut self) -> Rest {
        // From here on nothing is pushed beyond this page, nor padded: the rest has one owner.
        self.end = self.filled.next_multiple_of(AlignedBuf::ALIGN).min(self.end);
        Rest { memory: self.memory.clone(), start: self.end }
    }

    /// Appends bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        assert!(self.has_room(bytes.len()), "an arena overflows");
        // SAFETY: the range lies within the allocation and behind `filled`: no slice covers it, and `&mut self` makes
        // this the only writer. `bytes` cannot overlap it, being visible.
        unsafe {
            let to = self.memory.start.as_ptr().add(self.filled);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
        self.filled += bytes.len();
    }

    /// The `len` bytes from the arena's byte `from` on, which have been written.
    pub(crate) fn slice(&self, from: usize, len: usize) -> ArenaSlice {
        assert!(from >= self.reserved && from + len <= self.len(), "a slice of what is not written");
        ArenaSlice { memory: self.memory.clone(), start: self.start + from, len }
    }

    /// What lies behind the reserved front.
    pub(crate) fn payload(&self) -> &[u8] {
        // SAFETY: these bytes are written, and nobody writes them again.
        unsafe {
            let from = self.memory.start.as_ptr().add(self.start + self.reserved);
            std::slice::from_raw_parts(from, self.len() - self.reserved)
        }
    }

    /// Fills the reserved front and gives the whole away, padded with zeros to `padded` bytes.
    pub(crate) fn finish(self, header: &[u8], padded: usize) -> Bytes {
        let len = self.len();
        assert!(header.len() == self.reserved && padded >= len && self.start + padded <= self.end);
        // SAFETY: no slice ever covers the reserved front, nor what lies between `filled` and the arena's end, and the writer is
        // consumed here.
        unsafe {
            let start = self.memory.start.as_ptr().add(self.start);
            std::ptr::copy_nonoverlapping(header.as_ptr(), start, header.len());
            start.add(len).write_bytes(0, padded - len);
        }
        Bytes::from_owner(ArenaSlice { memory: self.memory, start: self.start, len: padded })
    }
}

impl Rest {
    /// All of a new allocation of at least `bytes`.
    fn allocate(bytes: usize) -> Rest {
        let mut buf = AlignedBuf::stale(bytes);
        let start = NonNull::new(buf.as_mut_ptr()).expect("an allocation is not null");
        let memory = Memory { start, capacity: buf.capacity(), _owner: UnsafeCell::new(buf) };
        Rest { memory: Arc::new(memory), start: 0 }
    }
}

/// Copies, one behind the other, in allocations that they share.
#[derive(Default)]
pub(crate) struct Copies(Option<Rest>);

impl Copies {
    /// A copy of `bytes`, which lives as long as any of its neighbours.
    pub(crate) fn of(&mut self, bytes: &[u8]) -> ArenaSlice {
        let mut writer = ArenaWriter::new(self.0.take(), bytes.len(), 0, 0);
        writer.push(bytes);
        self.0 = Some(writer.split_rest());
        writer.slice(0, bytes.len())
    }
}

impl ArenaSlice {
    /// A copy of `bytes` in an allocation of their own.
    #[cfg(test)]
    pub(crate) fn copy_of(bytes: &[u8]) -> Self {
        let rest = Rest::allocate(bytes.len());
        let mut writer = ArenaWriter::new(Some(rest), bytes.len(), 0, 0);
        writer.push(bytes);
        writer.slice(0, bytes.len())
    }

    /// A part of it.
    pub(crate) fn part(&self, start: usize, len: usize) -> ArenaSlice {
        assert!(start + len <= self.len);
        ArenaSlice { memory: self.memory.clone(), start: self.start + start, len }
    }
}

impl std::ops::Deref for ArenaSlice {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: a slice is made only of bytes that are written and never written again.
        unsafe { std::slice::from_raw_parts(self.memory.start.as_ptr().add(self.start), self.len) }
    }
}

impl AsRef<[u8]> for ArenaSlice {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_seen_while_more_is_written() {
        let mut writer = ArenaWriter::new(None, 1000, 8192, 48);
        writer.push(&[1; 100]);
        let first = writer.slice(48, 100);
        writer.push(&[2; 100]);
        let second = writer.slice(148, 100).part(10, 5);
        assert_eq!((&first[..], &second[..]), (&[1; 100][..], &[2; 5][..]));
        assert_eq!(writer.payload().len(), 200);
        let mut next = ArenaWriter::new(Some(writer.split_rest()), 100, 100, 0);
        assert!(
            writer.has_room(4096 - 248) && !writer.has_room(4096 - 247),
            "the page that is begun is its own"
        );
        next.push(&[3; 100]);
        let third = next.slice(0, 100);
        let whole = writer.finish(&[9; 48], 4096);
        assert_eq!((whole.len(), whole[0], whole[48], whole[247], whole[248]), (4096, 9, 1, 2, 0));
        assert_eq!(whole.as_ptr() as usize % AlignedBuf::ALIGN, 0);
        drop(whole);
        assert_eq!((first[99], third[99]), (1, 3), "a slice outlives the rest, and arenas do not touch");
        assert_eq!(
            third.as_ptr() as usize - first.as_ptr() as usize,
            4096 - 48,
            "one allocation serves both"
        );
        let mut copies = Copies::default();
        let (one, two) = (copies.of(&[5; 4096]), copies.of(&[6; 100]));
        assert_eq!((one[4095], two[99], two.as_ptr() as usize - one.as_ptr() as usize), (5, 6, 4096));
        let other = ArenaWriter::new(Some(next.split_rest()), ALLOCATED_BYTES, 0, 0);
        assert!(other.has_room(ALLOCATED_BYTES), "what does not fit gets one of its own");
    }
}
