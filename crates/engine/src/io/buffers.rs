//! Idle page-aligned buffers, kept for the next read.
//!
//! A fresh buffer costs an aligned allocation and zeroing; a recycled one neither. Only short ones are kept:
//! for long ones the read itself dwarfs the cost.

use bytes::Bytes;
use parking_lot::Mutex;
use stonefold_types::AlignedBuf;

/// Longest buffer kept, in pages.
const PAGES_MAX: usize = 16;
/// Buffers kept of each length: twice a deep queue; 8.5 MiB when all are full.
const KEPT_MAX: usize = 16;

static IDLE: [Mutex<Vec<AlignedBuf>>; PAGES_MAX] = [const { Mutex::new(Vec::new()) }; PAGES_MAX];

fn shelf(buf_bytes: usize) -> Option<&'static Mutex<Vec<AlignedBuf>>> {
    IDLE.get((buf_bytes / AlignedBuf::ALIGN).checked_sub(1)?)
}

/// A buffer of `len` bytes, which may hold anything: its taker fills it before showing it to anyone.
pub(crate) fn take(len: usize) -> AlignedBuf {
    let recycled = shelf(len.next_multiple_of(AlignedBuf::ALIGN)).and_then(|shelf| shelf.lock().pop());
    match recycled {
        Some(mut buf) => {
            buf.set_len(len);
            buf
        }
        None => AlignedBuf::zeroed(len),
    }
}

/// Freezes a buffer so that its memory comes back when the last of the `Bytes` is dropped.
pub(crate) fn freeze(buf: AlignedBuf) -> Bytes {
    if shelf(buf.capacity()).is_none() { buf.freeze() } else { Bytes::from_owner(Recycled(Some(buf))) }
}

struct Recycled(Option<AlignedBuf>);

impl AsRef<[u8]> for Recycled {
    fn as_ref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl Drop for Recycled {
    fn drop(&mut self) {
        let Some(buf) = self.0.take() else { return };
        if let Some(mut shelf) = shelf(buf.capacity()).and_then(Mutex::try_lock) {
            if shelf.len() < KEPT_MAX {
                shelf.push(buf);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_and_lengths_hold() {
        let at = {
            let mut buf = take(5000);
            buf.fill(7);
            let bytes = freeze(buf);
            assert_eq!(bytes.len(), 5000);
            bytes.as_ptr()
        };
        let again = take(8000);
        assert_eq!((again.as_ptr(), again.len(), again.capacity()), (at, 8000, 8192));
        assert_eq!(take(1 << 20).len(), 1 << 20);
    }
}
