//! Page-aligned memory, as direct I/O demands it.

use bytes::Bytes;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// A fixed run of zeroed bytes that starts on a page boundary and spans whole pages in memory, whatever its
/// length. Freeze it into [`Bytes`] with [`AlignedBuf::freeze`]; slices of that share it without copying.
pub struct AlignedBuf {
    start: NonNull<u8>,
    len: usize,
    capacity: usize,
}

// SAFETY: the buffer owns its memory alone; nothing in it is tied to a thread.
unsafe impl Send for AlignedBuf {}
// SAFETY: a shared reference only reads.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// The alignment, in bytes: a page, and at least the logical block of any disk we direct-write to.
    pub const ALIGN: usize = 4096;

    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> Self {
        let capacity = len.next_multiple_of(Self::ALIGN).max(Self::ALIGN);
        let layout = Self::layout(capacity);
        // SAFETY: the layout's size is at least one page, never zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        AlignedBuf { start, len, capacity }
    }

    /// A copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buf = Self::zeroed(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }

    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, Self::ALIGN).expect("a capacity under isize::MAX")
    }

    /// Bytes it can grow to without a new allocation: whole pages.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Shortens or lengthens it within its capacity.
    ///
    /// # Panics
    /// When `len` is beyond [`AlignedBuf::capacity`].
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity, "a buffer of {} bytes cannot hold {len}", self.capacity);
        self.len = len;
    }

    /// Makes it immutable and shareable, without copying; alignment is kept.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` never exceeds the allocation, which was zeroed and so is initialised.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this very layout.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.capacity)) }
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} of {} bytes)", self.len, self.capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_zeroed_and_survives_freezing() {
        let mut buf = AlignedBuf::zeroed(5000);
        assert_eq!(buf.as_ptr() as usize % AlignedBuf::ALIGN, 0);
        assert_eq!(buf.capacity(), 8192);
        assert!(buf.iter().all(|b| *b == 0));
        buf[4999] = 7;
        let at = buf.as_ptr();
        let bytes = buf.freeze();
        assert_eq!((bytes.as_ptr(), bytes.len(), bytes[4999]), (at, 5000, 7));
    }
}
