//! The guest's memory: a file that this program has together with a QEMU.
//!
//! *Promises*: whoever asks for bytes beyond it is stopped. *Never*: reads or writes a device's indices but as whole words, in the order that the
//! device is to see them in.

use anyhow::{Context, Result};
use rustix::fs::{Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ops::Range;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering, fence};

/// Mapped for as long as this lives.
pub(crate) struct Memory {
    at: NonNull<u8>,
    len: usize,
}

impl Memory {
    /// # Errors
    ///
    /// When the file cannot be opened or mapped.
    pub(crate) fn open(path: &Path, len: usize) -> Result<Self> {
        let file = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .with_context(|| format!("{}: the guest's memory", path.display()))?;
        // SAFETY: a new mapping, wherever the kernel puts it, overlaps nothing of this program's.
        let at = unsafe {
            mmap(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0)
        }
        .context("mapping the guest's memory")?;
        let at = NonNull::new(at.cast()).context("mapping the guest's memory gave nothing")?;
        Ok(Self { at, len })
    }

    fn checked(&self, place: &Range<usize>) -> *mut u8 {
        assert!(
            place.start <= place.end && place.end <= self.len,
            "{place:?} of {} bytes of memory",
            self.len
        );
        // SAFETY: within the mapping, as was just seen.
        unsafe { self.at.as_ptr().add(place.start) }
    }

    /// What the device has written, or is to read. It changes under whoever reads it while a request is with the device: so only the places of
    /// requests that are not, and parts of the ring that the device does not write, are asked for.
    pub(crate) fn bytes(&self, place: Range<usize>) -> &[u8] {
        let at = self.checked(&place);
        // SAFETY: within the mapping, which lives as long as the borrow; the device leaves these places alone meanwhile (above).
        unsafe { std::slice::from_raw_parts(at, place.len()) }
    }

    /// The same, to be written.
    pub(crate) fn bytes_mut(&mut self, place: Range<usize>) -> &mut [u8] {
        let at = self.checked(&place);
        // SAFETY: as in `bytes`, and nobody else of this program has a borrow.
        unsafe { std::slice::from_raw_parts_mut(at, place.len()) }
    }

    fn word(&self, at: usize) -> &AtomicU16 {
        assert!(at % 2 == 0, "a word at {at}");
        let place = self.checked(&(at..at + 2));
        // SAFETY: within the mapping, which begins with a page; aligned, as was just seen.
        unsafe { AtomicU16::from_ptr(place.cast()) }
    }

    /// A word that the device writes: what it had written before is seen, too.
    pub(crate) fn heard(&self, at: usize) -> u16 {
        u16::from_le(self.word(at).load(Ordering::Acquire))
    }

    /// A word that the device reads: what was written before is seen by it, too, and what it writes afterwards is not taken for what it had
    /// written before.
    pub(crate) fn tell(&self, at: usize, word: u16) {
        self.word(at).store(word.to_le(), Ordering::Release);
        fence(Ordering::SeqCst);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `open` with this length, and no borrow outlives `self`.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.len) };
    }
}
