//! Memory of one journal chunk, shared while it is being filled.
//!
//! A group commit is built in one buffer that is later written directly. The data in it is at the same time what
//! reads find until it is folded, so writers append behind while readers read what lies before: bytes are written once
//! and never change while anyone can see them.

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

/// The one writer of an arena.
pub(crate) struct ArenaWriter {
    memory: Arc<Memory>,
    /// Bytes before this are visible to slices and are never written again, but for the reserved front.
    filled: usize,
    reserved: usize,
}

/// Finished bytes of an arena; keeps the whole of it alive.
#[derive(Clone)]
pub(crate) struct ArenaSlice {
    memory: Arc<Memory>,
    start: usize,
    len: usize,
}

impl ArenaWriter {
    /// An arena of at least `capacity` bytes. The first `reserved` are left for a header that
    /// is known only at the end.
    pub(crate) fn new(capacity: usize, reserved: usize) -> Self {
        let mut buf = AlignedBuf::stale(capacity);
        let start = NonNull::new(buf.as_mut_ptr()).expect("an allocation is not null");
        let memory = Memory { start, capacity: buf.capacity(), _owner: UnsafeCell::new(buf) };
        assert!(reserved <= memory.capacity);
        ArenaWriter { memory: Arc::new(memory), filled: reserved, reserved }
    }

    /// Bytes written, the reserved front included.
    pub(crate) fn len(&self) -> usize {
        self.filled
    }

    /// Whether `len` more bytes fit.
    pub(crate) fn has_room(&self, len: usize) -> bool {
        self.filled + len <= self.memory.capacity
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

    /// The `len` bytes from `start`, which have been written.
    pub(crate) fn slice(&self, start: usize, len: usize) -> ArenaSlice {
        assert!(start >= self.reserved && start + len <= self.filled, "a slice of what is not written");
        ArenaSlice { memory: self.memory.clone(), start, len }
    }

    /// What lies behind the reserved front.
    pub(crate) fn payload(&self) -> &[u8] {
        // SAFETY: these bytes are written, and nobody writes them again.
        unsafe {
            let from = self.memory.start.as_ptr().add(self.reserved);
            std::slice::from_raw_parts(from, self.filled - self.reserved)
        }
    }

    /// Fills the reserved front and gives the whole away, padded with zeros to `padded` bytes.
    pub(crate) fn finish(self, header: &[u8], padded: usize) -> Bytes {
        assert!(header.len() == self.reserved && padded >= self.filled && padded <= self.memory.capacity);
        // SAFETY: no slice ever covers the reserved front, nor what lies behind `filled`, and the writer is consumed here.
        unsafe {
            let start = self.memory.start.as_ptr();
            std::ptr::copy_nonoverlapping(header.as_ptr(), start, header.len());
            start.add(self.filled).write_bytes(0, padded - self.filled);
        }
        Bytes::from_owner(ArenaSlice { memory: self.memory, start: 0, len: padded })
    }
}

impl ArenaSlice {
    /// A copy of `bytes` in an arena of their own.
    pub(crate) fn copy_of(bytes: &[u8]) -> Self {
        let mut writer = ArenaWriter::new(bytes.len(), 0);
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
        let mut writer = ArenaWriter::new(8192, 48);
        writer.push(&[1; 100]);
        let first = writer.slice(48, 100);
        writer.push(&[2; 100]);
        let second = writer.slice(148, 100).part(10, 5);
        assert_eq!((&first[..], &second[..]), (&[1; 100][..], &[2; 5][..]));
        assert_eq!(writer.payload().len(), 200);
        let whole = writer.finish(&[9; 48], 4096);
        assert_eq!((whole.len(), whole[0], whole[48], whole[247], whole[248]), (4096, 9, 1, 2, 0));
        assert_eq!(whole.as_ptr() as usize % AlignedBuf::ALIGN, 0);
        drop(whole);
        assert_eq!(first[99], 1, "a slice outlives the rest");
    }
}
