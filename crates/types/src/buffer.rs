//! Page-aligned memory, as direct I/O demands it.

use bytes::Bytes;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::PoisonError;

use crate::shelf::{Released, SHELF};

/// From this size on, in bytes, memory is mapped: the kernel then clears each page when it is first touched, where
/// the allocator would clear all of it at once. A buffer is often made for the most it may have to hold.
const MAPPED_BYTES_MIN: usize = 128 << 10;

/// From this size on, in bytes, the kernel is asked for pages of 2 MiB: one fault instead of 512. Such buffers are filled in order,
/// so that little is touched for nothing.
const HUGE_BYTES_MIN: usize = 4 << 20;

/// A fixed run of bytes that starts on a page boundary and spans whole pages in memory, whatever its
/// length. Freeze it into [`Bytes`] with [`AlignedBuf::freeze`]; slices of that share it without copying. Its memory is
/// kept for a while when it is dropped, for one that need not be zero.
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
        let capacity = class_of(len);
        let released = SHELF.lock().unwrap_or_else(PoisonError::into_inner).made(capacity);
        release_all(released);
        AlignedBuf {
            start: if capacity < MAPPED_BYTES_MIN { allocate(capacity) } else { map(capacity) },
            len,
            capacity,
        }
    }

    /// `len` bytes that may hold anything, also what others wrote: for who fills them before showing them to anyone.
    pub fn stale(len: usize) -> Self {
        let capacity = class_of(len);
        let (kept, released) = SHELF.lock().unwrap_or_else(PoisonError::into_inner).take(capacity);
        release_all(released);
        let start = kept
            .unwrap_or_else(|| if capacity < MAPPED_BYTES_MIN { allocate(capacity) } else { map(capacity) });
        AlignedBuf { start, len, capacity }
    }

    /// Gives the kernel back all memory that is kept for later buffers.
    pub fn release_kept() {
        let kept = SHELF.lock().unwrap_or_else(PoisonError::into_inner).clear();
        release_all(kept);
    }

    /// A copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buf = Self::stale(bytes.len());
        buf.copy_from_slice(bytes);
        buf
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
        // SAFETY: `len` never exceeds the allocation, which was zeroed when it was new and so is initialised.
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

fn layout(capacity: usize) -> Layout {
    Layout::from_size_align(capacity, AlignedBuf::ALIGN).expect("a capacity under isize::MAX")
}

fn allocate(capacity: usize) -> NonNull<u8> {
    // SAFETY: the layout's size is at least one page, never zero.
    let start = unsafe { alloc_zeroed(layout(capacity)) };
    NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout(capacity)))
}

fn map(capacity: usize) -> NonNull<u8> {
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new mapping at a place of the kernel's choice touches nothing that exists.
    let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), capacity, protection, flags) };
    let start = mapped.ok().and_then(|start| NonNull::new(start.cast::<u8>()));
    if let Some(start) = start.filter(|_| capacity >= HUGE_BYTES_MIN) {
        // SAFETY: it is advice about a mapping of our own. Whether it is taken changes nothing but speed.
        let _ = unsafe { madvise(start.as_ptr().cast(), capacity, Advice::LinuxHugepage) };
    }
    start.unwrap_or_else(|| handle_alloc_error(layout(capacity)))
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        let shelf = SHELF.lock();
        let released = shelf.unwrap_or_else(PoisonError::into_inner).keep(self.start, self.capacity);
        release_all(released);
    }
}

/// Gives back runs with their capacities. Not under the shelf's lock: it takes the kernel's time.
fn release_all(released: Released) {
    released.into_iter().for_each(|(start, capacity)| release(start, capacity));
}

/// Gives back memory that nobody refers to any more.
fn release(start: NonNull<u8>, capacity: usize) {
    if capacity < MAPPED_BYTES_MIN {
        // SAFETY: allocated in `allocate` with this very layout.
        unsafe { dealloc(start.as_ptr(), layout(capacity)) }
    } else {
        // SAFETY: mapped in `map` with this very length.
        let unmapped = unsafe { munmap(start.as_ptr().cast(), capacity) };
        debug_assert!(unmapped.is_ok());
    }
}

/// The capacity for `len` bytes: whole pages, and of long ones few different numbers of them, so that what is kept fits again.
fn class_of(len: usize) -> usize {
    let whole = len.next_multiple_of(AlignedBuf::ALIGN).max(AlignedBuf::ALIGN);
    let step = (whole.next_power_of_two() / 16).max(AlignedBuf::ALIGN);
    whole.next_multiple_of(step)
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
    fn a_large_one_is_mapped() {
        let mut buf = AlignedBuf::zeroed(MAPPED_BYTES_MIN + 1);
        assert_eq!((buf.as_ptr() as usize % AlignedBuf::ALIGN, buf[MAPPED_BYTES_MIN]), (0, 0));
        buf[MAPPED_BYTES_MIN] = 1;
        assert_eq!(AlignedBuf::copy_of(&buf)[MAPPED_BYTES_MIN], 1);
    }

    #[test]
    fn memory_comes_back_but_never_as_zeros() {
        let comes_back = || {
            let mut buf = AlignedBuf::stale(1_000_000);
            buf.fill(7);
            drop(buf);
            AlignedBuf::stale(1_000_000)[999_999] == 7
        };
        // What is kept is the process's: another test may be quicker, once and again.
        assert!((0..100).any(|_| comes_back()));
        assert!(AlignedBuf::zeroed(1_000_000).iter().all(|byte| *byte == 0));
    }

    #[test]
    fn lengths_share_few_capacities() {
        let capacities = [1, 4096, 5000, 32 << 10, 260 << 10, 300 << 10, (16 << 20) + 1];
        let found = capacities.map(|len| AlignedBuf::stale(len).capacity() >> 10);
        assert_eq!(found, [4, 4, 8, 32, 288, 320, 18 << 10]);
    }

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
