//! What a load measures while it runs: latencies in histograms, counts, and a series second by second.
//!
//! *Promises*: what several threads, phases or hosts have recorded is added up exactly; a percentile is always one of a
//! merged histogram, never a mean of percentiles.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Significant digits of the histograms that figures come from.
const DIGITS: u8 = 3;
/// And of those that are kept for each second: there are thousands of them.
const DIGITS_SECOND: u8 = 2;

/// Latencies in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Latencies(Histogram<u64>);

/// As it is stored: digits, and each value with its count.
#[derive(Serialize, Deserialize)]
struct Stored {
    digits: u8,
    counts: Vec<(u64, u64)>,
    max: u64,
}

/// How many I/Os must be above a percentile for it to be told: p99.9 from 10,000 I/Os on.
pub(crate) const ABOVE_MIN: f64 = 10.0;

/// Whether so many I/Os tell the percentile of this share, from 0 to 1.
pub(crate) fn is_told(count: f64, share: f64) -> bool {
    count * (1.0 - share) >= ABOVE_MIN - 1e-6
}

impl Latencies {
    /// None yet; three digits.
    pub fn new() -> Self {
        Self::with_digits(DIGITS)
    }

    /// None yet; for one second of many: two digits.
    pub fn of_a_second() -> Self {
        Self::with_digits(DIGITS_SECOND)
    }

    fn with_digits(digits: u8) -> Self {
        let mut histogram = Histogram::new(digits).expect("1 to 5 digits make a histogram");
        histogram.auto(true);
        Latencies(histogram)
    }

    /// One more, in nanoseconds.
    pub fn record(&mut self, nanos: u64) {
        self.0.record(nanos.max(1)).expect("it grows as needed");
    }

    /// All that another has.
    ///
    /// # Panics
    /// When the other has more digits: it would lose some.
    pub fn add(&mut self, other: &Latencies) {
        assert!(other.0.sigfig() <= self.0.sigfig(), "a histogram is not merged into a coarser one");
        self.0.add(&other.0).expect("it grows as needed");
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Mean, in nanoseconds; 0 of none.
    pub fn mean(&self) -> f64 {
        self.0.mean()
    }

    /// The latency that this share of them does not exceed, from 0 to 1, in nanoseconds; 0 of none.
    pub fn quantile(&self, share: f64) -> u64 {
        self.0.value_at_quantile(share)
    }

    /// The same, where it says something: nothing where fewer than ten are above it, as of a p99 of fewer than 1,000.
    pub fn percentile(&self, share: f64) -> Option<u64> {
        is_told(self.count() as f64, share).then(|| self.quantile(share))
    }

    /// The longest, in nanoseconds.
    pub fn max(&self) -> u64 {
        self.0.max()
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Each latency, in nanoseconds, with how many there are.
    pub fn counts(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter_recorded().map(|value| (value.value_iterated_to(), value.count_at_value()))
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

impl Serialize for Latencies {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Stored { digits: self.0.sigfig(), counts: self.counts().collect(), max: self.max() }
            .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Latencies {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let stored = Stored::deserialize(deserializer)?;
        if !(1..=5).contains(&stored.digits) {
            return Err(serde::de::Error::custom(format!("a histogram of {} digits is none", stored.digits)));
        }
        let mut latencies = Latencies::with_digits(stored.digits);
        for (value, count) in stored.counts {
            latencies
                .0
                .record_n(value, count)
                .map_err(|e| serde::de::Error::custom(format!("a latency of {value} ns: {e}")))?;
        }
        Ok(latencies)
    }
}

/// Counts of one direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Direction {
    /// Answered without an error.
    pub ios: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// From the moment an I/O was meant to be issued to its answer: what somebody who waits for it sees.
    pub response: Latencies,
    /// From the moment it was issued: what the storage took.
    pub service: Latencies,
}

impl Direction {
    fn add(&mut self, other: &Direction) {
        self.ios += other.ios;
        self.bytes += other.bytes;
        self.response.add(&other.response);
        self.service.add(&other.service);
    }
}

/// What one stream did in one phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamRecord {
    /// Reads.
    pub read: Direction,
    /// Writes.
    pub write: Direction,
    /// I/Os issued, by their bytes.
    pub sizes: BTreeMap<u64, u64>,
    /// Of a stream with a mix of alignments, I/Os issued to a place by chance, by the alignment that was drawn for each, in bytes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub alignments: BTreeMap<u64, u64>,
    /// I/Os issued to hotspots.
    pub hot: u64,
    /// I/Os issued to a place by chance; the others followed on the one before.
    pub random: u64,
    /// Issued more than a millisecond after they were meant to be.
    pub late: u64,
    /// Meant to be issued within the phase and never issued.
    pub unissued: u64,
    /// Issued and not answered before the phase was given up.
    pub unanswered: u64,
    /// Answered with an error, by its number (errno).
    pub errors: BTreeMap<i32, u64>,
    /// Flushes, trims and zeroings, all together.
    #[serde(default)]
    pub control: Direction,
    /// Requests issued: reads, writes, flushes, trims, zeroings.
    #[serde(default)]
    pub requests: [u64; 5],
    /// Requests that the target cannot be asked for.
    #[serde(default)]
    pub skipped: u64,
    /// Requests that had to be durable when they were answered, of a target that cannot be asked for that.
    #[serde(default)]
    pub weakened: u64,
    /// Of a replay: when its requests were meant to be issued, and when they were.
    #[serde(default)]
    pub timing: Timing,
}

/// How punctual a replay was. Times are nanoseconds since the phase began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// Requests.
    pub count: u64,
    /// When the first was meant to be issued.
    pub first_meant: u64,
    /// And was.
    pub first: u64,
    /// When the last was meant to be issued.
    pub last_meant: u64,
    /// And was.
    pub last: u64,
    /// How late they were, together.
    pub late_sum: u64,
    /// And at most.
    pub late_max: u64,
}

impl Timing {
    /// One more request, after all others.
    pub fn note(&mut self, meant: u64, issued: u64) {
        if self.count == 0 {
            (self.first_meant, self.first) = (meant, issued);
        }
        self.count += 1;
        (self.last_meant, self.last) = (meant, issued);
        let late = issued.saturating_sub(meant);
        self.late_sum += late;
        self.late_max = self.late_max.max(late);
    }

    /// How much longer issuing took than it was meant to, as a share; negative where it was shorter. Nothing of fewer than two moments.
    pub fn drift(&self) -> Option<f64> {
        let meant = self.last_meant.saturating_sub(self.first_meant);
        (meant > 0).then(|| (self.last as f64 - self.first as f64) / meant as f64 - 1.0)
    }

    /// How late requests were on average, as a share of the time they were meant to be issued in: a replay that fell behind and had caught up
    /// by its end has no drift, and was another load meanwhile. Nothing of fewer than two moments.
    pub fn lag(&self) -> Option<f64> {
        let meant = self.last_meant.saturating_sub(self.first_meant);
        (meant > 0).then(|| self.late_sum as f64 / self.count as f64 / meant as f64)
    }

    /// Adds what another has seen of the same stream.
    fn add(&mut self, other: &Timing) {
        if self.count == 0 || other.count == 0 {
            *self = if self.count == 0 { *other } else { *self };
            return;
        }
        if other.first_meant < self.first_meant {
            (self.first_meant, self.first) = (other.first_meant, other.first);
        }
        if other.last_meant > self.last_meant {
            (self.last_meant, self.last) = (other.last_meant, other.last);
        }
        self.count += other.count;
        self.late_sum += other.late_sum;
        self.late_max = self.late_max.max(other.late_max);
    }
}

impl StreamRecord {
    /// Adds what another thread or host recorded of the same stream.
    pub fn add(&mut self, other: &StreamRecord) {
        self.read.add(&other.read);
        self.write.add(&other.write);
        other.sizes.iter().for_each(|(bytes, count)| *self.sizes.entry(*bytes).or_default() += count);
        other
            .alignments
            .iter()
            .for_each(|(align, count)| *self.alignments.entry(*align).or_default() += count);
        other.errors.iter().for_each(|(number, count)| *self.errors.entry(*number).or_default() += count);
        self.hot += other.hot;
        self.random += other.random;
        self.late += other.late;
        self.unissued += other.unissued;
        self.unanswered += other.unanswered;
        self.control.add(&other.control);
        self.requests.iter_mut().zip(other.requests).for_each(|(all, other)| *all += other);
        self.skipped += other.skipped;
        self.weakened += other.weakened;
        self.timing.add(&other.timing);
    }

    /// I/Os answered without an error.
    pub fn ios(&self) -> u64 {
        self.read.ios + self.write.ios
    }

    /// I/Os issued.
    pub fn issued(&self) -> u64 {
        self.sizes.values().sum()
    }

    /// I/Os answered with an error.
    pub fn failed(&self) -> u64 {
        self.errors.values().sum()
    }
}

/// One second of all streams of a thread, or of all threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Reads that ended in it.
    pub reads: u64,
    /// Writes that ended in it.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Response times of those that ended in it, of two digits.
    pub response: Latencies,
}

impl Second {
    /// Nothing yet.
    pub fn new() -> Self {
        Second { reads: 0, writes: 0, read_bytes: 0, write_bytes: 0, response: Latencies::of_a_second() }
    }

    /// Adds what another thread recorded of the same second.
    pub fn add(&mut self, other: &Second) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.read_bytes += other.read_bytes;
        self.write_bytes += other.write_bytes;
        self.response.add(&other.response);
    }

    /// I/Os that ended in it.
    pub fn ios(&self) -> u64 {
        self.reads + self.writes
    }
}

impl Default for Second {
    fn default() -> Self {
        Self::new()
    }
}

/// Adds one series to another, second by second from the same beginning.
pub fn add_series(all: &mut Vec<Second>, other: &[Second]) {
    if all.len() < other.len() {
        all.resize_with(other.len(), Second::new);
    }
    all.iter_mut().zip(other).for_each(|(second, other)| second.add(other));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::Chance;

    /// The lab's acceptance: a percentile of what was merged is that of what was pooled.
    #[test]
    fn merged_percentiles_are_pooled_percentiles() {
        let mut chance = Chance::new(1);
        let (mut pooled, mut merged) = (Latencies::new(), Latencies::new());
        for scale in [10_000u64, 300_000, 40_000_000] {
            let mut one = Latencies::new();
            for _ in 0..20_000 {
                let nanos = scale + chance.below(scale * 3);
                one.record(nanos);
                pooled.record(nanos);
            }
            merged.add(&one);
        }
        for share in [0.5, 0.9, 0.95, 0.99, 0.999, 1.0] {
            assert_eq!(merged.quantile(share), pooled.quantile(share));
        }
        assert_eq!((merged.count(), merged.max()), (pooled.count(), pooled.max()));
    }

    /// Goal: a replay that stood still in its midst and had caught up by its end is not taken for one that kept its times.
    #[test]
    fn what_was_caught_up_has_lagged() {
        let mut timing = Timing::default();
        for moment in (0..100).map(|number| number * 1000) {
            let issued = if (40_000..60_000).contains(&moment) { 60_000 } else { moment };
            timing.note(moment, issued);
        }
        assert_eq!(timing.drift(), Some(0.0));
        assert!((timing.lag().unwrap() - 0.0212).abs() < 0.0001, "{:?}", timing.lag());
    }

    #[test]
    fn what_is_stored_comes_back_exactly() {
        let mut latencies = Latencies::new();
        [1, 999, 123_456, 7_000_000_000].iter().for_each(|nanos| latencies.record(*nanos));
        let text = serde_json::to_string(&latencies).unwrap();
        let back: Latencies = serde_json::from_str(&text).unwrap();
        assert_eq!(back.counts().collect::<Vec<_>>(), latencies.counts().collect::<Vec<_>>());
        assert_eq!(back.quantile(0.99), latencies.quantile(0.99));
        assert!(serde_json::from_str::<Latencies>(r#"{"digits":9,"counts":[],"max":0}"#).is_err());
    }
}
