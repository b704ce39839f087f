//! Memory for payloads in flight: bounded for a connection and for the whole server, and recycled.
//!
//! *Promises*: a connection with nothing in flight may always take one more; otherwise nobody exceeds
//! [`limits`](crate::limits). What is taken is given back by `Drop`, on every path.

use parking_lot::Mutex;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::limits::{CONNECTION_PART, COPY_BYTES_MAX, PART_BYTES, POOL_BYTES_MAX, SERVER_BYTES_MAX};

/// What all connections of a server share.
#[derive(Default)]
pub(crate) struct Memory {
    in_flight_bytes: AtomicUsize,
    /// Buffers of [`PART_BYTES`], initialised.
    free: Mutex<Vec<Vec<u8>>>,
}

/// What one connection has in flight.
#[derive(Clone)]
pub(crate) struct Lease(Arc<LeaseInner>);

struct LeaseInner {
    shared: Arc<Memory>,
    in_flight_bytes: AtomicUsize,
}

impl Memory {
    pub(crate) fn lease(self: &Arc<Self>) -> Lease {
        Lease(Arc::new(LeaseInner { shared: self.clone(), in_flight_bytes: AtomicUsize::new(0) }))
    }
}

impl Lease {
    /// Whether `bytes` more may be taken now. When not, something of this connection is in flight, and its end is the
    /// moment to ask again.
    #[inline]
    pub(crate) fn allows(&self, bytes: usize) -> bool {
        let own = self.0.in_flight_bytes.load(Relaxed);
        let free = SERVER_BYTES_MAX.saturating_sub(self.0.shared.in_flight_bytes.load(Relaxed));
        own == 0 || (own + bytes <= free / CONNECTION_PART && bytes <= free)
    }

    /// Accounts for bytes in flight.
    pub(crate) fn charge(&self, bytes: usize) -> Charge {
        self.0.in_flight_bytes.fetch_add(bytes, Relaxed);
        self.0.shared.in_flight_bytes.fetch_add(bytes, Relaxed);
        Charge { lease: self.clone(), bytes }
    }

    /// A buffer of `len` bytes of anything, accounted for.
    pub(crate) fn buffer(&self, len: usize) -> Buffer {
        let pooled = len > COPY_BYTES_MAX && len <= PART_BYTES;
        let bytes = match pooled.then(|| self.0.shared.free.lock().pop()).flatten() {
            Some(recycled) => recycled,
            None => vec![0; if pooled { PART_BYTES } else { len }],
        };
        Buffer { charge: self.charge(bytes.len()), bytes, len }
    }
}

/// Bytes accounted for until dropped.
pub(crate) struct Charge {
    lease: Lease,
    bytes: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.lease.0.in_flight_bytes.fetch_sub(self.bytes, Relaxed);
        self.lease.0.shared.in_flight_bytes.fetch_sub(self.bytes, Relaxed);
    }
}

/// A buffer in flight, recycled when dropped.
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    len: usize,
    charge: Charge,
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.bytes.len() == PART_BYTES {
            let mut free = self.charge.lease.0.shared.free.lock();
            if free.len() < POOL_BYTES_MAX / PART_BYTES {
                free.push(std::mem::take(&mut self.bytes));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_bounded_and_given_back() {
        let memory = Arc::new(Memory::default());
        let lease = memory.lease();
        assert!(lease.allows(usize::MAX / 2), "the first is always allowed");
        let held = take_all(&lease);
        assert!((24 << 20..26 << 20).contains(&bytes_of(&held)), "alone: {} bytes", bytes_of(&held));
        let others = memory.lease().charge(SERVER_BYTES_MAX);
        let late = memory.lease();
        let first = late.charge(1);
        assert!(!late.allows(1), "the server's share is used up");
        drop(first);
        assert!(late.allows(1), "but nobody starves");
        drop((held, others));
        assert_eq!(memory.in_flight_bytes.load(Relaxed), 0);
        assert!(memory.free.lock().len() * PART_BYTES <= POOL_BYTES_MAX);
    }

    fn take_all(lease: &Lease) -> Vec<Buffer> {
        std::iter::from_fn(|| lease.allows(PART_BYTES).then(|| lease.buffer(PART_BYTES)))
            .take(10_000)
            .collect()
    }

    fn bytes_of(held: &[Buffer]) -> usize {
        held.len() * PART_BYTES
    }

    /// Past bug: four clients of a limited disk held all there was, and every other client went on with one part at a time.
    #[test]
    fn clients_that_are_not_answered_leave_room_for_those_that_are() {
        let memory = Arc::new(Memory::default());
        let stuck: Vec<_> = (0..10).map(|_| memory.lease()).map(|lease| (take_all(&lease), lease)).collect();
        let quick = take_all(&memory.lease());
        assert!(bytes_of(&quick) >= 2 << 20, "{} bytes beside ten that are stuck", bytes_of(&quick));
        // What comes back is everybody's.
        drop((quick, stuck));
        assert!(bytes_of(&take_all(&memory.lease())) > 24 << 20);
    }
}
