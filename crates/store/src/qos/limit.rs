//! Limits: so many operations and bytes a second, and no more, whatever the pool has to spare.
//!
//! *Promises*: over any stretch of time no more is let through than the rate times that stretch, and [`BURST`], and one
//! request. A rate changed takes effect at once: what was let through before counts at most as a burst.

use std::time::Duration;
use stonefold_types::QosFigures;

/// What a disk that was quiet may do at once, in time at its rate: as long as a few turns of a timer (1 ms), so that no part of
/// the rate is lost to waking late; and short, so that a limit looks like one.
pub(crate) const BURST: Duration = Duration::from_millis(50);

const SECOND: u64 = 1_000_000_000;

/// The limits of one disk.
#[derive(Debug, Default)]
pub(crate) struct Limit {
    operations: Bucket,
    bytes: Bucket,
}

/// One rate. What was let through is kept as the instant until which it fills the rate (a virtual clock, or GCRA).
#[derive(Debug, Default)]
struct Bucket {
    /// 0 for no limit.
    per_second: u64,
    full_until_ns: u64,
}

impl Limit {
    /// The limits from now on.
    pub(crate) fn set(&mut self, figures: &QosFigures, now: Duration) {
        self.operations.set(figures.max_iops.unwrap_or(0), now);
        self.bytes.set(figures.max_bytes.unwrap_or(0), now);
    }

    /// Lets a request through and returns `None`, or says how long it has to wait.
    pub(crate) fn take(&mut self, now: Duration, bytes: u64) -> Option<Duration> {
        let wait = self.operations.wait(now).max(self.bytes.wait(now));
        if wait > 0 {
            return Some(Duration::from_nanos(wait));
        }
        self.count(now, bytes);
        None
    }

    /// Counts a request that passed by other grounds.
    pub(crate) fn count(&mut self, now: Duration, bytes: u64) {
        self.operations.take(now, QosFigures::operations(bytes));
        self.bytes.take(now, bytes);
    }

    /// Whether a request would be let through.
    pub(crate) fn is_open(&self, now: Duration) -> bool {
        self.operations.wait(now).max(self.bytes.wait(now)) == 0
    }
}

impl Bucket {
    fn set(&mut self, per_second: u64, now: Duration) {
        if self.per_second == per_second {
            return;
        }
        self.per_second = per_second;
        // What one large request filled at a rate of yesterday must not stop the disk today.
        self.full_until_ns = self.full_until_ns.min(nanos(now + BURST));
    }

    fn wait(&self, now: Duration) -> u64 {
        if self.per_second == 0 { 0 } else { self.full_until_ns.saturating_sub(nanos(now + BURST)) }
    }

    fn take(&mut self, now: Duration, amount: u64) {
        if let Some(fills) = (amount * SECOND).checked_div(self.per_second) {
            self.full_until_ns = self.full_until_ns.max(nanos(now)) + fills;
        }
    }
}

fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn limited(max_iops: Option<u64>, max_bytes: Option<u64>) -> Limit {
        let mut limit = Limit::default();
        let figures = QosFigures { max_iops, max_bytes, ..QosFigures::default() };
        limit.set(&figures, Duration::ZERO);
        limit
    }

    /// A greedy client for `seconds`; returns how many requests were let through. It wakes late by `late`.
    fn greedy(limit: &mut Limit, from: u64, seconds: u64, bytes: u64, late: Duration) -> u64 {
        let (mut now, end) = (Duration::from_secs(from), Duration::from_secs(from + seconds));
        let mut passed = 0;
        while now < end {
            match limit.take(now, bytes) {
                None => passed += 1,
                Some(wait) => now += wait + late,
            }
        }
        passed
    }

    #[test]
    fn a_limit_is_kept_and_used_to_the_full_even_by_who_wakes_late() {
        for late in [0, 1, 10] {
            let late = Duration::from_millis(late);
            let passed = greedy(&mut limited(Some(1000), None), 1, 20, 4096, late);
            assert!((19_900..=20_100).contains(&passed), "{passed} operations, late by {late:?}");
            let passed = greedy(&mut limited(None, Some(10 << 20)), 1, 20, 1 << 20, late);
            assert!((199..=202).contains(&passed), "{passed} MiB, late by {late:?}");
        }
        // Of two limits the tighter one counts; a long request counts as several operations.
        let passed = greedy(&mut limited(Some(100), Some(1 << 30)), 1, 20, 256 << 10, Duration::ZERO);
        assert!((495..=505).contains(&passed), "{passed}");
    }

    #[test]
    fn a_new_rate_counts_at_once_whatever_was_before() {
        let mut limit = limited(None, Some(1000));
        assert_eq!(limit.take(Duration::from_secs(1), 32 << 20), None);
        assert!(limit.take(Duration::from_secs(1), 1) > Some(Duration::from_secs(30_000)));
        let figures = QosFigures { max_bytes: Some(1 << 20), ..QosFigures::default() };
        limit.set(&figures, Duration::from_secs(2));
        let passed = greedy(&mut limit, 2, 10, 64 << 10, Duration::ZERO);
        assert!((159..=163).contains(&passed), "{passed}");
        limit.set(&QosFigures::default(), Duration::from_secs(12));
        assert!((0..100_000).all(|_| limit.take(Duration::from_secs(12), 1 << 20).is_none()));
    }

    proptest! {
        /// Whatever is asked when, no stretch of time sees more than its rate, a burst and a request.
        #[test]
        fn no_stretch_exceeds_the_rate(
            rate in 1u64..100_000,
            asks in prop::collection::vec((0u64..50_000_000, 1u64..200_000), 1..200),
        ) {
            let mut limit = limited(None, Some(rate));
            let (mut now, mut passed) = (Duration::from_secs(1), Vec::new());
            for (gap, bytes) in asks {
                now += Duration::from_nanos(gap);
                while let Some(wait) = limit.take(now, bytes) {
                    now += wait;
                }
                passed.push((now, bytes));
            }
            for from in 0..passed.len() {
                let mut sum = 0;
                for (at, bytes) in &passed[from..] {
                    let span = (*at - passed[from].0 + BURST).as_nanos();
                    // The request that comes now may be as long as it likes; those before it have to fit.
                    prop_assert!(sum <= span * u128::from(rate) / u128::from(SECOND) + u128::from(passed[from].1) + 1);
                    sum += u128::from(*bytes);
                }
            }
        }
    }
}
