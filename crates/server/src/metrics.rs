//! What Prometheus reads: made anew for every scrape from what the store tells, so nothing is counted twice.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;
use stonefold_store::{DiskInfo, PoolStatus};
use stonefold_types::{Error, Kind, Result};

/// What the text is, as Prometheus negotiates it.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Reads one number of a disk.
type OfDisk = fn(&DiskInfo) -> u64;

/// (name, help, value) of every number told per disk.
const PER_DISK: &[(&str, &str, OfDisk)] = &[
    ("disk_size_bytes", "Size of the disk as a guest sees it", |disk| disk.size_bytes),
    ("disk_mapped_bytes", "Bytes of the disk that hold data", |disk| disk.mapped_bytes),
    ("disk_clients", "Clients connected to the disk", |disk| disk.clients as u64),
    ("disk_snapshots", "Snapshots of the disk", |disk| disk.snapshots as u64),
];

/// Everything as text.
pub(crate) fn encode(version: &str, status: &PoolStatus, disks: Vec<DiskInfo>) -> Result<String> {
    let mut registry = Registry::with_prefix("stonefold");
    let build = prometheus_client::metrics::info::Info::new([("version", version.to_owned())]);
    registry.register("build", "The running version", build);
    for (name, help, value) in PER_DISK {
        let family = Family::<[(&str, String); 1], Gauge<u64, AtomicU64>>::default();
        for disk in &disks {
            family.get_or_create(&[("disk", disk.name.to_string())]).set(value(disk));
        }
        registry.register(*name, *help, family);
    }
    registry.register_collector(Box::new(OfPool(status.clone())));
    let mut text = String::new();
    text::encode(&mut text, &registry)
        .map_err(|e| Error::new(Kind::Io, format!("writing the metrics: {e}")))?;
    Ok(text)
}

#[derive(Debug)]
struct OfPool(PoolStatus);

impl Collector for OfPool {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::result::Result<(), std::fmt::Error> {
        let pool = &self.0;
        for (name, help, value) in [
            ("pool_disks", "Disks in the pool", pool.disks as u64),
            ("pool_snapshots", "Snapshots in the pool", pool.snapshots as u64),
            ("pool_provisioned_bytes", "Sizes of all disks together", pool.provisioned_bytes),
            ("pool_total_bytes", "Bytes the pool's place can hold", pool.total_bytes),
            ("pool_free_bytes", "Bytes free in the pool's place", pool.free_bytes),
            ("pool_used_bytes", "Bytes the pool occupies", pool.used_bytes),
            ("journal_bytes", "Bytes acknowledged and not yet folded", pool.journal_bytes),
            ("cache_bytes", "Bytes in the cache", pool.cache_bytes),
            ("cache_max_bytes", "Bytes the cache may grow to", pool.cache_bytes_max),
        ] {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        for (name, help, value) in &pool.counters {
            let counter = ConstCounter::new(*value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        Ok(())
    }
}
