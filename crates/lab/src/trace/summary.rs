//! What a trace is like: its rates, sizes, directions, and where it goes.

use super::{Op, Record, Totals, Trace};
use serde::Serialize;
use std::collections::BTreeMap;

/// Pieces by which the footprint is counted, in bytes: fine enough for a working set, and few for a large device.
pub const PIECE_BYTES: u64 = 64 << 10;
/// Pieces by which hot places are looked for, in bytes.
const SPOT_BYTES: u64 = 1 << 20;
/// Hot places that are told.
const SPOTS: usize = 5;
const SECOND: u64 = 1_000_000_000;

/// What a trace is like. Reads and writes are its I/Os; flushes, trims and zeroings are counted beside them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Seconds that were captured.
    pub seconds: f64,
    /// How many of each kind, by its word.
    pub count: BTreeMap<&'static str, u64>,
    /// Their bytes.
    pub bytes: BTreeMap<&'static str, u64>,
    /// Requests that had to be durable when they were answered.
    pub durable: u64,
    /// Share of the I/Os that read.
    pub read_share: f64,
    /// I/Os a second, on average.
    pub rate_mean: f64,
    /// I/Os of the busiest second.
    pub rate_max: u64,
    /// I/Os by their bytes, each with how many.
    pub sizes: BTreeMap<u64, u64>,
    /// Share of the I/Os that begin where the one before of the same queue and direction ended.
    pub sequential_share: f64,
    /// Bytes that I/Os touched, in pieces of 64 KiB.
    pub footprint_bytes: u64,
    /// Of all I/Os, the share that went to the hottest tenth of that.
    pub hottest_tenth_share: f64,
    /// The hottest places.
    pub spots: Vec<Spot>,
    /// Queues that I/Os came by.
    pub queues: usize,
    /// Mean time a request took, in nanoseconds, where it is known of any.
    pub took_mean: Option<f64>,
}

/// A place that much goes to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spot {
    /// Where it begins, in bytes; it is 1 MiB long.
    pub offset: u64,
    /// Share of all I/Os.
    pub share: f64,
}

/// What is counted while records go by.
#[derive(Default)]
struct Count {
    totals: Totals,
    durable: u64,
    sizes: BTreeMap<u64, u64>,
    second: u64,
    in_second: u64,
    rate_max: u64,
    sequential: u64,
    /// Where the last I/O of a queue and direction ended.
    ends: BTreeMap<(u32, Op), u64>,
    pieces: BTreeMap<u64, u64>,
    spots: BTreeMap<u64, u64>,
    took: (u64, f64),
}

impl Count {
    fn add(&mut self, record: &Record) {
        self.totals.add(record);
        self.durable += u64::from(record.fua);
        if let Some(took) = record.took {
            self.took = (self.took.0 + 1, self.took.1 + took as f64);
        }
        if !matches!(record.op, Op::Read | Op::Write) {
            return;
        }
        *self.sizes.entry(record.bytes).or_default() += 1;
        if record.at / SECOND != self.second {
            (self.second, self.in_second) = (record.at / SECOND, 0);
        }
        self.in_second += 1;
        self.rate_max = self.rate_max.max(self.in_second);
        let end = record.offset + record.bytes;
        let before = self.ends.insert((record.queue, record.op), end);
        self.sequential += u64::from(before == Some(record.offset));
        // What an I/O of many pieces touches is counted as touched, and its I/O where it begins.
        for piece in record.offset / PIECE_BYTES + 1..end.div_ceil(PIECE_BYTES) {
            self.pieces.entry(piece).or_default();
        }
        *self.pieces.entry(record.offset / PIECE_BYTES).or_default() += 1;
        *self.spots.entry(record.offset / SPOT_BYTES).or_default() += 1;
    }
}

impl Summary {
    /// Looks at all of a trace.
    pub fn of(trace: &Trace) -> Self {
        let mut count = Count::default();
        trace.records().for_each(|record| count.add(&record));
        let ios = (count.totals.count[0] + count.totals.count[1]) as f64;
        let share = |part: u64| if ios > 0.0 { part as f64 / ios } else { 0.0 };
        let by_word = |numbers: [u64; 5]| Op::ALL.iter().map(|op| op.word()).zip(numbers).collect();
        let mut spots: Vec<(u64, u64)> = count.spots.into_iter().collect();
        spots.sort_by_key(|(place, ios)| (std::cmp::Reverse(*ios), *place));
        spots.truncate(SPOTS);
        let mut pieces: Vec<u64> = count.pieces.values().copied().collect();
        pieces.sort_unstable_by_key(|ios| std::cmp::Reverse(*ios));
        let hottest = pieces.len().div_ceil(10);
        Summary {
            seconds: trace.length() as f64 / SECOND as f64,
            count: by_word(count.totals.count),
            bytes: by_word(count.totals.bytes),
            durable: count.durable,
            read_share: share(count.totals.count[0]),
            rate_mean: ios / (trace.length() as f64 / SECOND as f64).max(1e-9),
            rate_max: count.rate_max,
            sizes: count.sizes,
            sequential_share: share(count.sequential),
            footprint_bytes: pieces.len() as u64 * PIECE_BYTES,
            hottest_tenth_share: share(pieces[..hottest].iter().sum()),
            spots: spots
                .into_iter()
                .map(|(place, ios)| Spot { offset: place * SPOT_BYTES, share: share(ios) })
                .collect(),
            queues: count
                .ends
                .keys()
                .map(|(queue, _)| queue)
                .collect::<std::collections::BTreeSet<_>>()
                .len(),
            took_mean: (count.took.0 > 0).then(|| count.took.1 / count.took.0 as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::tests::trace;

    #[test]
    fn what_is_told_is_what_is_in_it() {
        // A second of sequential writes, then nine of reads of one place, and a flush.
        let writes = (0..100).map(|number| (number * 10_000, Op::Write, number << 16, 1 << 16));
        let reads = (0..300).map(|number| (1_000_000 + number * 30_000, Op::Read, 48 << 20, 4096));
        let summary =
            Summary::of(&trace(writes.chain(reads).chain([(9_990_000, Op::Flush, 0, 0)]), 10_000_000));
        assert_eq!((summary.count["read"], summary.count["write"], summary.count["flush"]), (300, 100, 1));
        assert_eq!((summary.read_share, summary.rate_mean, summary.rate_max), (0.75, 40.0, 100));
        assert_eq!(summary.sequential_share, 99.0 / 400.0);
        assert_eq!(summary.footprint_bytes, 101 << 16);
        assert_eq!(summary.spots[0], Spot { offset: 48 << 20, share: 0.75 });
        assert_eq!(summary.hottest_tenth_share, 310.0 / 400.0);
        assert_eq!(summary.sizes, [(4096, 300), (65536, 100)].into());
    }
}
