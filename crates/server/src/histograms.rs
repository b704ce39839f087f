//! How long requests took, as Prometheus histograms.
//!
//! *Bounded*: four histograms of [`ENDS`] buckets for each disk that had any such request, and for no more than [`DISKS_MAX`] disks, the oldest;
//! what all others did together has the disk `(others)`, which no disk can be called. The store's buckets are finer: each lies
//! within one of these, so no figure is moved.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use std::fmt;
use stonefold_store::{DiskInfo, Latencies, Latency};

/// Disks with histograms of their own: some 13,000 series, which a scraper takes in its stride.
const DISKS_MAX: usize = 256;

/// Ends of the buckets in nanoseconds: 16 microseconds and fourfold from there, to 17 seconds.
const ENDS: [u64; 11] = {
    let (mut ends, mut at) = ([16_000; 11], 1);
    while at < ends.len() {
        ends[at] = ends[at - 1] * 4;
        at += 1;
    }
    ends
};

/// One histogram in [`ENDS`]: requests in each bucket, the last for what took longer, and seconds together.
type Series = ([u64; ENDS.len() + 1], f64);

/// Name, help and which of a disk's.
type Kind = (&'static str, &'static str, fn(&Latencies) -> &Latency);

const KINDS: [Kind; 4] = [
    ("disk_read_seconds", "How long reads took", |all| &all.reads),
    ("disk_write_seconds", "How long writes took until they were acknowledged", |all| &all.writes),
    ("disk_flush_seconds", "How long flushes took", |all| &all.flushes),
    ("disk_qos_wait_seconds", "How long QoS let requests wait that it did not let pass at once", |all| {
        &all.qos_waits
    }),
];

/// Of every kind, by disk.
#[derive(Debug)]
pub(crate) struct Histograms([Vec<(String, Series)>; KINDS.len()]);

impl Histograms {
    pub(crate) fn of_disks(disks: &[DiskInfo]) -> Self {
        let mut oldest: Vec<&DiskInfo> = disks.iter().collect();
        oldest.sort_by_key(|disk| (disk.created, disk.name.clone()));
        let (own, others) = oldest.split_at(oldest.len().min(DISKS_MAX));
        Histograms(KINDS.map(|(_, _, of)| {
            let mut all: Vec<(String, Series)> = Vec::new();
            for disk in own {
                add(&mut all, disk.name.as_str(), of(&disk.latencies));
            }
            for disk in others {
                add(&mut all, "(others)", of(&disk.latencies));
            }
            all
        }))
    }
}

/// Adds to the series of `name`, which is the last if there is one.
fn add(all: &mut Vec<(String, Series)>, name: &str, latency: &Latency) {
    if latency.buckets.is_empty() {
        return;
    }
    if all.last().is_none_or(|(last, _)| last != name) {
        all.push((name.to_owned(), Series::default()));
    }
    let (_, (counts, seconds)) = all.last_mut().expect("added just now");
    for (end, count) in &latency.buckets {
        counts[ENDS.partition_point(|mine| mine < end)] += count;
    }
    *seconds += latency.sum_ns as f64 / 1e9;
}

impl Collector for Histograms {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for ((name, help, _), disks) in KINDS.iter().zip(&self.0) {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
            for (disk, (counts, seconds)) in disks {
                let ends = ENDS.iter().map(|end| *end as f64 / 1e9).chain([f64::MAX]);
                let buckets: Vec<(f64, u64)> = ends.zip(counts.iter().copied()).collect();
                let labels = [("disk", disk.clone())];
                let mut one = metric.encode_family(&labels)?;
                one.encode_histogram::<[(&str, String); 1]>(*seconds, counts.iter().sum(), &buckets, None)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_is_in_one_bucket_and_the_slowest_in_the_last() {
        let latency = Latency {
            buckets: vec![(1000, 5), (16_000, 2), (20_000, 3), (67_000_000_000, 1)],
            sum_ns: 2_000_000_000,
        };
        let mut all = Vec::new();
        add(&mut all, "web", &latency);
        add(&mut all, "web", &latency);
        add(&mut all, "idle", &Latency::default());
        let (counts, seconds) = all[0].1;
        assert_eq!((all.len(), counts[0], counts[1], counts[ENDS.len()], seconds), (1, 14, 6, 2, 4.0));
    }
}
