//! Whether what was issued is what was asked for: sizes, alignments, directions, hotspots and rates.
//!
//! Shares are held against Pearson's χ² (Pearson 1900) at one in a thousand: a generator that is right fails that
//! once in a thousand runs. Rates are held against their share.

use crate::record::StreamRecord;
use crate::workload::{Load, Stream};
use serde::{Deserialize, Serialize};
use statrs::distribution::{ChiSquared, ContinuousCDF};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A deviation rarer than this by chance is a fault of the generator.
pub const CHANCE_MIN: f64 = 0.001;
/// How far the number of I/Os of an open loop may be from what its rate brings, as a share, beside what its arrivals
/// scatter by themselves (the allowance of IOmark for a replay).
pub const RATE_DRIFT_MAX: f64 = 0.0042;

/// One thing that was asked for and what was delivered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Fidelity {
    /// Which stream.
    pub stream: String,
    /// What of it.
    pub what: String,
    /// What was asked for, in words.
    pub asked: String,
    /// What was delivered, in words.
    pub delivered: String,
    /// Whether it is as asked.
    pub kept: bool,
}

/// All that can be held against what a stream was asked for; `seconds` is how long it ran.
pub fn of(stream: &Stream, load: Load, record: &StreamRecord, seconds: f64) -> Vec<Fidelity> {
    let mut found = Vec::new();
    let issued = record.issued();
    if issued == 0 {
        return found;
    }
    let mut tell = |what: &str, asked: String, delivered: String, kept: bool| {
        found.push(Fidelity { stream: stream.name.clone(), what: what.into(), asked, delivered, kept });
    };
    if stream.sizes.iter().filter(|(_, weight)| *weight > 0.0).count() > 1 {
        let likely = chance_of_mix(&stream.sizes, &record.sizes);
        tell(
            "sizes",
            format!("mean {:.0} B", stream.mean_bytes()),
            format!("mean {:.0} B, χ² probability {likely:.3}", mean_issued(record)),
            likely >= CHANCE_MIN,
        );
    }
    if let Some((asked, delivered, likely)) = alignments(stream, record) {
        tell("alignments", asked, format!("{delivered}, χ² probability {likely:.3}"), likely >= CHANCE_MIN);
    }
    let answered = record.ios();
    let shares = [
        ("read share", stream.read, record.read.ios, answered),
        ("random share", stream.random, record.random, issued),
        ("hotspot share", stream.hotspots.map_or(0.0, |spots| spots.share), record.hot, record.random),
    ];
    for (what, asked, got, of) in shares {
        if of > 0 && asked > 0.0 && asked < 1.0 {
            let (delivered, likely) = (got as f64 / of as f64, chance_of_share(asked, got, of));
            tell(what, percent(asked), percent(delivered), likely >= CHANCE_MIN);
        }
    }
    if let Load::Open { from, to, arrivals } = load {
        let asked = (from + to) / 2.0 * seconds;
        let scatter = if arrivals == crate::workload::Arrivals::Poisson { 3.3 * asked.sqrt() } else { 1.0 };
        let kept = (issued as f64 - asked).abs() <= RATE_DRIFT_MAX * asked + scatter;
        tell("rate", format!("{:.1}/s", asked / seconds), format!("{:.1}/s", issued as f64 / seconds), kept);
    }
    found
}

/// I/Os of a follower that the end of a sample cuts off, of each machine that makes the load: those that were due and had no time left.
const CUT_OFF_MAX: f64 = 16.0;

/// Whether a stream that follows another had its `ios` for each so many, `per`, that the leader completed, of all machines together: a log beside its
/// database.
pub fn of_ratio(
    (name, record): (&str, &StreamRecord),
    (leader, led): (&str, &StreamRecord),
    (ios, per): (f64, f64),
    machines: usize,
) -> Fidelity {
    let (asked, got) = (led.ios() as f64 * ios / per, record.issued() as f64);
    let each = |count: f64| count / led.ios().max(1) as f64 * per;
    Fidelity {
        stream: name.to_owned(),
        what: "ratio".into(),
        asked: format!("{ios} for each {per} of {leader}"),
        delivered: format!("{:.3}", each(got)),
        kept: (got - asked).abs() <= RATE_DRIFT_MAX * asked + CUT_OFF_MAX * machines as f64,
    }
}

/// How likely sizes, or alignments, deviate so far by chance from the weights that they were asked for with.
fn chance_of_mix(asked: &[(u64, f64)], issued: &BTreeMap<u64, u64>) -> f64 {
    let whole: f64 = asked.iter().map(|(_, weight)| weight).sum();
    let all = issued.values().sum::<u64>() as f64;
    let mut deviation = 0.0;
    let mut kinds = 0usize;
    for (bytes, weight) in asked.iter().filter(|(_, weight)| *weight > 0.0) {
        let expected = all * weight / whole;
        let got = issued.get(bytes).copied().unwrap_or(0) as f64;
        deviation += (got - expected).powi(2) / expected;
        kinds += 1;
    }
    beyond(deviation, kinds - 1)
}

/// How likely a share deviates so far by chance.
fn chance_of_share(asked: f64, got: u64, of: u64) -> f64 {
    let (of, got) = (of as f64, got as f64);
    let expected = of * asked;
    beyond((got - expected).powi(2) / expected + (got - expected).powi(2) / (of - expected), 1)
}

fn beyond(deviation: f64, freedom: usize) -> f64 {
    ChiSquared::new(freedom.max(1) as f64).map_or(1.0, |chi| 1.0 - chi.cdf(deviation))
}

fn mean_issued(record: &StreamRecord) -> f64 {
    let bytes: u64 = record.sizes.iter().map(|(bytes, count)| bytes * count).sum();
    bytes as f64 / record.issued().max(1) as f64
}

/// Of a mix of them: what was asked for and delivered, and how likely it deviates so far by chance.
fn alignments(stream: &Stream, record: &StreamRecord) -> Option<(String, String, f64)> {
    if !stream.mixes_alignments() || record.alignments.is_empty() {
        return None;
    }
    let issued = record.alignments.iter().map(|(align, count)| (*align, *count as f64));
    let likely = chance_of_mix(&stream.alignments, &record.alignments);
    Some((in_shares(stream.alignments.iter().copied()), in_shares(issued), likely))
}

/// Each with its share of all, the smallest first.
fn in_shares(weighted: impl Iterator<Item = (u64, f64)>) -> String {
    let mut weighted: Vec<(u64, f64)> = weighted.filter(|(_, weight)| *weight > 0.0).collect();
    weighted.sort_unstable_by_key(|(bytes, _)| *bytes);
    let whole: f64 = weighted.iter().map(|(_, weight)| weight).sum();
    let each = weighted.iter().map(|(bytes, weight)| format!("{} of {bytes} B", percent(weight / whole)));
    each.collect::<Vec<_>>().join(", ")
}

fn percent(share: f64) -> String {
    format!("{:.2}%", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a log that got less, or more, than its share of the database's I/Os is found.
    #[test]
    fn a_follower_that_is_starved_is_found() {
        let stream = reads(1 << 30).streams.remove(0);
        let of = |ios: usize| record(&stream, ios);
        let leader = of(20_000);
        let told = |many: usize| of_ratio(("log", &of(many)), ("db", &leader), (15.0, 100.0), 1);
        for (many, kept) in [(3000, true), (2980, true), (2900, false), (3100, false), (0, false)] {
            assert_eq!(told(many).kept, kept, "{:?}", told(many));
        }
        assert_eq!(
            (told(3000).asked.as_str(), told(3000).delivered.as_str()),
            ("15 for each 100 of db", "15.000")
        );
    }
    use crate::address::Addresses;
    use crate::workload::Arrivals;
    use crate::workload::tests::reads;

    fn record(stream: &Stream, many: usize) -> StreamRecord {
        let workload = reads(1 << 30);
        let mut addresses = Addresses::new(stream, &workload.volumes[0], 3);
        let mut record = StreamRecord::default();
        for _ in 0..many {
            let draw = addresses.draw().unwrap();
            *record.sizes.entry(draw.bytes).or_default() += 1;
            record.random += u64::from(draw.random);
            record.hot += u64::from(draw.hot);
            if let Some(align) = draw.align {
                *record.alignments.entry(align).or_default() += 1;
            }
            *(if draw.op == crate::trace::Op::Read {
                &mut record.read.ios
            } else {
                &mut record.write.ios
            }) += 1;
        }
        record
    }

    #[test]
    fn a_mix_is_kept_and_another_is_told_from_it() {
        let base = reads(1 << 30).streams[0].clone();
        let stream = Stream {
            read: 0.65,
            random: 0.9,
            sizes: vec![(512, 3.5), (4096, 16.0), (8192, 34.5), (65536, 5.5)],
            ..base
        };
        let record = record(&stream, 100_000);
        assert!(of(&stream, stream.load, &record, 1.0).iter().all(|one| one.kept));
        // What fio makes of 3.5%.
        let rounded =
            Stream { sizes: vec![(512, 3.0), (4096, 16.0), (8192, 35.0), (65536, 5.5)], ..stream.clone() };
        assert!(of(&rounded, stream.load, &record, 1.0).iter().any(|one| one.what == "sizes" && !one.kept));
        let other = Stream { read: 0.66, ..stream };
        assert!(of(&other, other.load, &record, 1.0).iter().any(|one| one.what == "read share" && !one.kept));
    }

    #[test]
    fn a_mix_of_alignments_is_kept_and_another_is_told_from_it() {
        let base = reads(1 << 30).streams[0].clone();
        let stream = Stream { random: 0.9, alignments: vec![(4096, 70.0), (512, 30.0)], ..base };
        let record = record(&stream, 100_000);
        let kept = |stream: &Stream| {
            let told = of(stream, stream.load, &record, 1.0);
            told.into_iter().find(|one| one.what == "alignments")
        };
        let told = kept(&stream).unwrap();
        assert!(told.kept && told.asked == "30.00% of 512 B, 70.00% of 4096 B", "{told:?}");
        let other = Stream { alignments: vec![(4096, 71.0), (512, 29.0)], ..stream.clone() };
        assert!(!kept(&other).unwrap().kept);
        // Of one alignment for all there is nothing to be held against.
        assert_eq!(kept(&Stream { alignments: vec![(512, 100.0)], ..stream }), None);
    }

    #[test]
    fn a_rate_may_drift_by_the_allowance() {
        let stream = reads(1 << 30).streams[0].clone();
        let load = Load::Open { from: 1000.0, to: 1000.0, arrivals: Arrivals::Constant };
        for (issued, kept) in [(100_000, true), (100_400, true), (99_500, false), (107_000, false)] {
            let record = StreamRecord { sizes: [(4096, issued)].into(), ..StreamRecord::default() };
            assert_eq!(of(&stream, load, &record, 100.0)[0].kept, kept, "{issued}");
        }
    }
}
