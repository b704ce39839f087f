//! How long requests took, in buckets whose width grows with them.
//!
//! *Promises*: noting one is two additions to memory that is rarely shared, without a lock; a figure read from the buckets is at most
//! a quarter too high. Memory is bounded, and none before the first request: [`BUCKETS`] numbers for each disk and kind.
//!
//! Bucket boundaries are powers of two of a microsecond with three more between each: what is said of a fast disk
//! and of a slow one is equally exact, and two readings can be subtracted.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets between one power of two and the next.
const PARTS: u64 = 4;
/// Powers of two of a microsecond: the last bucket begins at 58 s, and holds everything slower.
const OCTAVES: u64 = 26;
/// Buckets of a histogram: one below a microsecond, and the last has no end.
const BUCKETS: usize = (1 + OCTAVES * PARTS) as usize;

/// What is told of a kind of request: for each bucket that holds any, its upper end in nanoseconds and how many are in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Ascending; the last bucket's end stands for everything above.
    pub buckets: Vec<(u64, u64)>,
    /// How long they took together, in nanoseconds.
    pub sum_ns: u64,
}

/// What took how long on a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// Reads, from memory and from the engine.
    pub reads: Latency,
    /// Writes, until they are acknowledged.
    pub writes: Latency,
    /// Flushes.
    pub flushes: Latency,
    /// Waits that QoS imposed; a request can have two.
    pub qos_waits: Latency,
}

/// Counts how long requests took.
#[derive(Default)]
pub(crate) struct Histogram(OnceLock<Box<Counts>>);

struct Counts {
    buckets: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

impl Latency {
    /// How many requests there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}

impl Histogram {
    /// Notes `count` requests that took so long.
    #[inline]
    pub(crate) fn note(&self, took: Duration, count: u64) {
        let counts = self.0.get_or_init(|| {
            Box::new(Counts { buckets: [const { AtomicU64::new(0) }; BUCKETS], sum_ns: AtomicU64::new(0) })
        });
        let nanos = took.as_nanos().min(u128::from(u64::MAX)) as u64;
        counts.buckets[bucket_of(nanos)].fetch_add(count, Ordering::Relaxed);
        counts.sum_ns.fetch_add(nanos.saturating_mul(count), Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Latency {
        let Some(counts) = self.0.get() else { return Latency::default() };
        let loaded =
            counts.buckets.iter().enumerate().map(|(at, count)| (end_of(at), count.load(Ordering::Relaxed)));
        Latency {
            buckets: loaded.filter(|(_, count)| *count > 0).collect(),
            sum_ns: counts.sum_ns.load(Ordering::Relaxed),
        }
    }
}

/// The bucket for so many nanoseconds.
fn bucket_of(nanos: u64) -> usize {
    let micros_times_parts = nanos / (1000 / PARTS);
    if micros_times_parts < PARTS {
        return 0;
    }
    let octave = u64::from(micros_times_parts.ilog2()) - u64::from(PARTS.ilog2());
    let part = (micros_times_parts >> octave) - PARTS;
    ((1 + octave * PARTS + part) as usize).min(BUCKETS - 1)
}

/// The first number of nanoseconds that a bucket does not hold.
fn end_of(bucket: usize) -> u64 {
    let Some(above) = (bucket as u64).checked_sub(1) else { return 1000 };
    let (octave, part) = (above / PARTS, above % PARTS);
    ((PARTS + part + 1) << octave) * (1000 / PARTS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_follow_one_another_without_a_gap() {
        assert_eq!((bucket_of(0), bucket_of(999), bucket_of(1000)), (0, 0, 1));
        for bucket in 0..BUCKETS - 1 {
            let end = end_of(bucket);
            assert_eq!((bucket_of(end - 1), bucket_of(end)), (bucket, bucket + 1), "{end} ns");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        assert!(end_of(BUCKETS - 2) > 30_000_000_000, "half a minute is told from a whole one");
    }

    proptest! {
        #[test]
        fn a_bucket_is_no_wider_than_a_quarter(nanos in 1000u64..40_000_000_000) {
            let end = end_of(bucket_of(nanos));
            prop_assert!(nanos < end && end - nanos <= nanos / 4 + 250);
        }
    }

    #[test]
    fn what_was_noted_is_told() {
        let histogram = Histogram::default();
        assert_eq!(histogram.read(), Latency::default());
        histogram.note(Duration::from_micros(100), 3);
        histogram.note(Duration::from_secs(1000), 1);
        let told = histogram.read();
        assert_eq!(told.buckets.iter().map(|(_, count)| count).collect::<Vec<_>>(), [&3, &1]);
        assert!((100_000..125_001).contains(&told.buckets[0].0));
        assert_eq!(told.sum_ns, 300_000 + 1_000_000_000_000);
    }
}
