//! A bounded cache of things read from the engine.
//!
//! *Promises*: never holds more than its bytes; a hit is a short lock on one of several shards, a bit set, and a clone of an `Arc`.
//! Replacement is CLOCK: what was used since the hand last passed stays, so that one long scan
//! does not sweep out what is used again and again more than once round.

mod shard;

use parking_lot::Mutex;
use shard::Shard;
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

/// Shards of a large cache: more than threads that would meet there.
const SHARDS_MAX: u64 = 16;
/// A shard smaller than this, in bytes, would refuse large values.
const SHARD_BYTES_MIN: u64 = 1 << 20;
/// What an entry costs beside its value: its slot, its part of the chains, its allocations' own headers.
const ENTRY_OVERHEAD_BYTES: u64 = 128;
/// One part in this many of a value is added to what it costs: values of many lengths come and go, and the allocator cannot use
/// every gap they leave. Measured on a server whose cache was full: a tenth.
const GAPS_PART: u64 = 10;

/// A map from block or node address to `V`, bounded in bytes.
pub(crate) struct Cache<V> {
    shards: Box<[Mutex<Shard<V>>]>,
    bytes_max: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// For tables by address.
#[derive(Default)]
pub(crate) struct AddressHasher(u64);

/// Addresses of blocks.
pub(crate) type AddressSet = HashSet<u64, BuildHasherDefault<AddressHasher>>;

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = spread(self.0 ^ value);
    }
}

/// Addresses are sequential numbers: one multiplication spreads them, over high bits and low.
fn spread(value: u64) -> u64 {
    let mixed = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}

impl<V: Clone> Cache<V> {
    pub(crate) fn new(bytes_max: u64) -> Self {
        let shards = (bytes_max / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX);
        Cache {
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            bytes_max: AtomicU64::new(bytes_max),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    fn shard(&self, address: u64) -> &Mutex<Shard<V>> {
        &self.shards[(spread(address) >> 60) as usize % self.shards.len()]
    }

    fn shard_bytes_max(&self) -> u64 {
        self.bytes_max() / self.shards.len() as u64
    }

    pub(crate) fn get(&self, address: u64) -> Option<V> {
        let mut shard = self.shard(address).lock();
        let found = shard.use_value(address);
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        found.cloned()
    }

    /// What a value of so many bytes takes of the bound.
    pub(crate) fn weight(bytes: u64) -> u64 {
        bytes + bytes / GAPS_PART + ENTRY_OVERHEAD_BYTES
    }

    /// Adds a value that takes `bytes`, and makes room for it.
    pub(crate) fn insert(&self, address: u64, value: V, bytes: u64) {
        let bytes = Self::weight(bytes);
        let shard_max = self.shard_bytes_max();
        let mut shard = self.shard(address).lock();
        if bytes <= shard_max && !shard.contains(address) {
            shard.shrink_to(shard_max - bytes);
            shard.insert(address, value, bytes);
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.shards.iter().for_each(|shard| shard.lock().shrink_to(0));
    }

    /// Parts that [`retain_part`](Self::retain_part) can be called for.
    pub(crate) fn parts(&self) -> usize {
        self.shards.len()
    }

    /// Forgets the values of one part that are not to be kept.
    pub(crate) fn retain_part(&self, part: usize, keep: impl Fn(&V) -> bool) {
        self.shards[part].lock().retain(keep);
    }

    /// A new bound, kept to at once.
    pub(crate) fn resize(&self, bytes_max: u64) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
        let shard_max = self.shard_bytes_max();
        self.shards.iter().for_each(|shard| shard.lock().shrink_to(shard_max));
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().bytes()).sum()
    }

    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max.load(Ordering::Relaxed)
    }

    /// Hits and misses so far.
    pub(crate) fn hits_misses(&self) -> (u64, u64) {
        (self.hits.load(Ordering::Relaxed), self.misses.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_to_its_bytes_and_to_what_is_used() {
        let entry = 1000 + 1000 / GAPS_PART + ENTRY_OVERHEAD_BYTES;
        let cache = Cache::new(1000 * entry);
        for address in 0..10_000u64 {
            cache.insert(address, address, 1000);
            assert_eq!(cache.get(7), (address >= 7).then_some(7), "the one that is always used stays");
        }
        assert!(cache.bytes() <= cache.bytes_max());
        assert!(cache.bytes() > cache.bytes_max() / 2);
        cache.resize(100 * entry);
        assert!(cache.bytes() <= cache.bytes_max());
        cache.clear();
        assert_eq!((cache.bytes(), cache.get(7)), (0, None));
        cache.insert(7, 8, 1000);
        cache.insert(9, 9, 1000);
        (0..cache.parts()).for_each(|part| cache.retain_part(part, |value| *value != 9));
        assert_eq!((cache.get(7), cache.get(9), cache.bytes()), (Some(8), None, entry));
    }
}
