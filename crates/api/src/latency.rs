//! How long requests took.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// How long requests of a kind took, since the server started. Of reads that are answered from memory at once, one in sixteen is
/// timed and stands for the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Latency {
    /// How many there were.
    pub count: u64,
    /// Half of them took no longer than this, in microseconds, rounded up by at most a quarter.
    pub p50_us: u64,
    /// The same of 99 in 100.
    pub p99_us: u64,
    /// For each bucket that holds any: its upper end in nanoseconds, and how many it holds. They only grow, so two readings can be subtracted.
    #[schema(value_type = Vec<Vec<u64>>, examples(json!([[125000, 17], [150000, 2]])))]
    pub buckets: Vec<(u64, u64)>,
}

/// What took how long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Latencies {
    /// Reads.
    pub reads: Latency,
    /// Writes, until they are acknowledged.
    pub writes: Latency,
    /// Flushes.
    pub flushes: Latency,
    /// Waits that QoS imposed on requests; those that it let pass at once are left out.
    pub qos_waits: Latency,
}

impl Latencies {
    /// Of two disks together.
    #[must_use]
    pub fn and(&self, other: &Latencies) -> Latencies {
        Latencies {
            reads: self.reads.and(&other.reads),
            writes: self.writes.and(&other.writes),
            flushes: self.flushes.and(&other.flushes),
            qos_waits: self.qos_waits.and(&other.qos_waits),
        }
    }
}

impl Latency {
    /// From buckets in ascending order: upper end in nanoseconds, and how many.
    pub fn of(buckets: Vec<(u64, u64)>) -> Self {
        let count = buckets.iter().map(|(_, count)| count).sum();
        let (p50_us, p99_us) = (quantile_us(&buckets, count, 50), quantile_us(&buckets, count, 99));
        Latency { count, p50_us, p99_us, buckets }
    }

    /// These and others, as if they had been counted together.
    #[must_use]
    pub fn and(&self, other: &Latency) -> Latency {
        let mut held = BTreeMap::new();
        for (end, count) in self.buckets.iter().chain(&other.buckets) {
            *held.entry(*end).or_insert(0) += count;
        }
        Latency::of(held.into_iter().collect())
    }

    /// What came after an earlier reading; everything, if the server was started anew in between.
    #[must_use]
    pub fn since(&self, before: &Latency) -> Latency {
        let held =
            |end: u64| before.buckets.iter().find(|(other, _)| *other == end).map_or(0, |(_, count)| *count);
        let newer = || self.buckets.iter().map(|(end, count)| (*end, count.checked_sub(held(*end))));
        let buckets =
            newer().filter_map(|(end, count)| Some((end, count.filter(|count| *count > 0)?))).collect();
        let grew = newer().all(|(_, count)| count.is_some()) && self.count >= before.count;
        if grew { Latency::of(buckets) } else { self.clone() }
    }
}

/// The end of the bucket that the so-many-hundredth of all requests falls into, in microseconds, rounded up; 0 when there are none.
fn quantile_us(buckets: &[(u64, u64)], count: u64, percent: u64) -> u64 {
    let wanted = (u128::from(count) * u128::from(percent)).div_ceil(100);
    let mut below = 0u128;
    for (end, count) in buckets {
        below += u128::from(*count);
        if below >= wanted {
            return end.div_ceil(1000);
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_requests() {
        let latency = Latency::of(vec![(1000, 49), (5000, 50), (9_000_000, 1)]);
        assert_eq!((latency.count, latency.p50_us, latency.p99_us), (100, 5, 5));
        assert_eq!(Latency::of(vec![(1250, 1), (9_000_000, 1)]).p99_us, 9000);
        assert_eq!(Latency::of(Vec::new()), Latency::default());
    }

    #[test]
    fn two_readings_are_subtracted() {
        let before = Latency::of(vec![(1000, 4), (2000, 1)]);
        let now = Latency::of(vec![(1000, 4), (2000, 3), (4000, 1)]);
        assert_eq!(now.since(&before), Latency::of(vec![(2000, 2), (4000, 1)]));
        assert_eq!(now.since(&Latency::default()), now);
        assert_eq!(before.since(&now), before, "the server was started anew");
    }
}
