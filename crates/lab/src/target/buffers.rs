//! The memory of a thread's requests: one buffer for each that can be in flight.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

/// What lies between two buffers of one mapping; they begin on pages, as direct I/O demands.
const PAGE_BYTES: usize = 4096;

/// Slots of memory, all of one size. A backend holds a slot from submission to completion, the load at all other times.
#[derive(Clone)]
pub(crate) struct Buffers(Arc<Mapping>);

struct Mapping {
    start: NonNull<u8>,
    slot_bytes: usize,
    slots: usize,
}

// SAFETY: the mapping is owned; who may touch a slot is settled between one load and its backends, on one thread.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Buffers {
    /// `slots` buffers of at least `bytes` bytes.
    pub(crate) fn new(slots: usize, bytes: usize) -> io::Result<Self> {
        let slot_bytes = bytes.next_multiple_of(PAGE_BYTES);
        let len = slots * slot_bytes;
        // SAFETY: a fresh private mapping that nothing else knows.
        let start = unsafe {
            mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        }?;
        // SAFETY: the range is the mapping that was just made. Without large pages it goes on with small ones.
        let _ = unsafe { madvise(start, len, Advice::LinuxHugepage) };
        let start = NonNull::new(start.cast()).expect("a mapping does not begin at 0");
        Ok(Buffers(Arc::new(Mapping { start, slot_bytes, slots })))
    }

    /// How many.
    pub(crate) fn slots(&self) -> usize {
        self.0.slots
    }

    /// Bytes of each.
    pub(crate) fn slot_bytes(&self) -> usize {
        self.0.slot_bytes
    }

    /// Where a slot's buffer begins; stays so for as long as any clone lives.
    pub(crate) fn start(&self, slot: u32) -> *mut u8 {
        assert!((slot as usize) < self.0.slots, "slot {slot} of {}", self.0.slots);
        // SAFETY: within the mapping, as asserted.
        unsafe { self.0.start.as_ptr().add(slot as usize * self.0.slot_bytes) }
    }

    /// The first `bytes` bytes of a slot.
    ///
    /// # Safety
    /// The slot is not in flight, and no other slice of it lives.
    #[expect(clippy::mut_from_ref, reason = "slots are handed out one by one, as the contract says")]
    pub(crate) unsafe fn slice(&self, slot: u32, bytes: usize) -> &mut [u8] {
        assert!(bytes <= self.0.slot_bytes);
        // SAFETY: within one slot of the mapping, which the caller holds alone.
        unsafe { std::slice::from_raw_parts_mut(self.start(slot), bytes) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length; the last owner is going.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.slots * self.slot_bytes) };
    }
}
