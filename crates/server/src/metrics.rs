//! What Prometheus reads: made anew for every scrape from what the store and the doors count, so nothing is counted
//! twice and nothing costs while nobody asks.

use crate::histograms::Histograms;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use std::fmt;
use stonefold_nbd::{COMMANDS, Counts};
use stonefold_protect::ReplicaStatus;
use stonefold_store::{Directory, DirectoryState, DiskInfo, PoolStatus};
use stonefold_types::{Error, Kind, Result};

/// What the text is, as Prometheus negotiates it.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Everything as text.
pub(crate) fn encode(
    version: &str,
    pool: PoolStatus,
    disks: &[DiskInfo],
    nbd: &Counts,
    replicas: &[ReplicaStatus],
) -> Result<String> {
    let mut registry = Registry::with_prefix("stonefold");
    registry.register("build", "The running version", Info::new([("version", version.to_owned())]));
    let mut metrics = of_pool(pool);
    metrics.extend(of_disks(disks));
    metrics.extend(of_doors(nbd));
    metrics.extend(of_replicas(replicas));
    registry.register_collector(Box::new(Metrics(metrics)));
    registry.register_collector(Box::new(Histograms::of_disks(disks)));
    let mut text = String::new();
    text::encode(&mut text, &registry)
        .map_err(|e| Error::new(Kind::Io, format!("writing the metrics: {e}")))?;
    Ok(text)
}

/// One metric: its name and help, and its values by label.
#[derive(Debug)]
struct Metric {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    values: Vec<(Labels, u64)>,
}

type Labels = Vec<(&'static str, String)>;

fn gauge(name: &'static str, help: &'static str, value: u64) -> Metric {
    Metric { name, help, kind: MetricType::Gauge, values: vec![(Vec::new(), value)] }
}

fn counter(name: &'static str, help: &'static str, value: u64) -> Metric {
    Metric { kind: MetricType::Counter, ..gauge(name, help, value) }
}

fn of_pool(pool: PoolStatus) -> Vec<Metric> {
    let mut metrics = vec![
        gauge(
            "members_missing",
            "Directories of the pool that are not used, so that what is kept has fewer copies",
            pool.missing.len() as u64,
        ),
        gauge(
            "pool_full",
            "Whether writes are refused because there is too little room left",
            pool.full.into(),
        ),
        gauge(
            "damaged_disks",
            "Disks whose heads cannot be read: nobody can use them, and no space is given back",
            pool.damaged.len() as u64,
        ),
        gauge("pool_disks", "Disks in the pool", pool.disks as u64),
        gauge("pool_snapshots", "Snapshots in the pool", pool.snapshots as u64),
        gauge("pool_provisioned_bytes", "Sizes of all disks together", pool.provisioned_bytes),
        gauge("pool_total_bytes", "Bytes that the pool's place can hold", pool.total_bytes),
        gauge("pool_free_bytes", "Bytes free in the pool's place", pool.free_bytes),
        gauge("pool_used_bytes", "Bytes that the pool occupies", pool.used_bytes),
        gauge("pool_raw_bytes", "Bytes of the pool's place itself", pool.raw_bytes),
        gauge("pool_logical_bytes", "Bytes that disks hold, before anything is saved", pool.logical_bytes),
        gauge("journal_bytes", "Bytes acknowledged and not yet folded", pool.journal_bytes),
        gauge(
            "scrub_damaged_segments",
            "Segments with damage that no copy is free of, as the scrub in the background has found",
            pool.scrub.damaged_segments,
        ),
        gauge("cache_bytes", "Bytes in the cache", pool.cache_bytes),
        gauge("cache_max_bytes", "Bytes that the cache may grow to", pool.cache_bytes_max),
        gauge(
            "cache_withheld_bytes",
            "Bytes of that which the cache leaves to the rest of the process",
            pool.cache_withheld_bytes,
        ),
    ];
    metrics.extend(of_directories(&pool.directories));
    metrics.extend(pool.counters.into_iter().map(|(name, help, value)| counter(name, help, value)));
    metrics
}

fn of_directories(directories: &[Directory]) -> Vec<Metric> {
    let metric = |name, help, value: fn(&Directory) -> u64| {
        let values = directories.iter().map(|one| (vec![("dir", one.dir.display().to_string())], value(one)));
        Metric { name, help, kind: MetricType::Gauge, values: values.collect() }
    };
    let changing = |one: &Directory| match one.state {
        DirectoryState::Sound => 0,
        DirectoryState::Filling | DirectoryState::Draining | DirectoryState::Emptying => 1,
        DirectoryState::Missing | DirectoryState::Damaged => 2,
    };
    vec![
        metric("directory_used_bytes", "Bytes that the pool occupies in the directory", |one| one.used_bytes),
        metric("directory_free_bytes", "Bytes free on the directory's file system", |one| one.free_bytes),
        metric(
            "directory_state",
            "0: it holds what it shall; 1: it is being filled, drained or emptied; 2: it is missing or damaged",
            changing,
        ),
    ]
}

fn of_disks(disks: &[DiskInfo]) -> Vec<Metric> {
    let metric = |kind, name, help, value: fn(&DiskInfo) -> u64| {
        let values = disks.iter().map(|disk| (vec![("disk", disk.name.to_string())], value(disk)));
        Metric { name, help, kind, values: values.collect() }
    };
    let (gauge, counter) = (MetricType::Gauge, MetricType::Counter);
    vec![
        metric(gauge, "disk_size_bytes", "Size of the disk as a guest sees it", |d| d.size_bytes),
        metric(gauge, "disk_mapped_bytes", "Bytes of the disk that hold data", |d| d.mapped_bytes),
        metric(gauge, "disk_clients", "Clients connected to the disk", |d| d.clients as u64),
        metric(gauge, "disk_snapshots", "Snapshots of the disk", |d| d.snapshots as u64),
        metric(counter, "disk_reads", "Reads answered", |d| d.traffic[0]),
        metric(counter, "disk_read_bytes", "Bytes read", |d| d.traffic[1]),
        metric(counter, "disk_writes", "Writes acknowledged", |d| d.traffic[2]),
        metric(counter, "disk_written_bytes", "Bytes written", |d| d.traffic[3]),
        metric(counter, "disk_flushes", "Flushes answered", |d| d.traffic[4]),
        metric(counter, "disk_qos_waits", "Requests that QoS let wait", |d| d.latencies.qos_waits.count()),
        metric(counter, "disk_qos_wait_microseconds", "How long they waited, together", |d| {
            d.latencies.qos_waits.sum_ns / 1000
        }),
    ]
}

fn of_doors(nbd: &Counts) -> Vec<Metric> {
    let requests = nbd.exports.iter().flat_map(|(export, counts)| {
        COMMANDS.iter().zip(counts.requests).map(move |(command, count)| {
            (vec![("export", export.clone()), ("command", (*command).to_owned())], count)
        })
    });
    let errors = nbd.exports.iter().map(|(export, counts)| (vec![("export", export.clone())], counts.errors));
    let labelled = |name, help, values| Metric { name, help, kind: MetricType::Counter, values };
    vec![
        gauge("nbd_connections", "NBD clients connected", nbd.connections),
        counter("nbd_connections_accepted", "NBD clients ever accepted", nbd.connections_total),
        counter(
            "nbd_connections_refused",
            "NBD clients turned away because there were too many",
            nbd.connections_refused,
        ),
        counter(
            "nbd_handshakes_failed",
            "NBD clients that went before they opened an export",
            nbd.handshakes_failed,
        ),
        labelled("nbd_requests", "NBD requests answered", requests.collect()),
        labelled("nbd_errors", "NBD requests answered with an error", errors.collect()),
    ]
}

fn of_replicas(replicas: &[ReplicaStatus]) -> Vec<Metric> {
    let metric = |archive: bool, name, help, value: fn(&ReplicaStatus) -> u64| {
        let labels = |one: &ReplicaStatus| {
            vec![("policy", one.policy.to_string()), ("source", one.source.to_string())]
        };
        let of = replicas.iter().filter(|one| one.archive == archive);
        Metric {
            name,
            help,
            kind: MetricType::Gauge,
            values: of.map(|one| (labels(one), value(one))).collect(),
        }
    };
    vec![
        metric(false, "replication_lag_seconds", "Age of the newest point that the other pool has", |one| {
            one.lag_seconds
        }),
        metric(false, "replication_behind_points", "Points that the other pool does not have yet", |one| {
            one.behind
        }),
        metric(false, "replication_failed", "Whether the last attempt failed", |one| {
            one.failed.is_some().into()
        }),
        metric(true, "archive_behind_points", "Points that are to go to the archive", |one| one.behind),
        metric(true, "archive_failed", "Whether the last attempt failed", |one| one.failed.is_some().into()),
    ]
}

#[derive(Debug)]
struct Metrics(Vec<Metric>);

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::result::Result<(), fmt::Error> {
        for Metric { name, help, kind, values } in &self.0 {
            let mut metric = encoder.encode_descriptor(name, help, None, *kind)?;
            match values.as_slice() {
                [(labels, value)] if labels.is_empty() => encode_one(*kind, *value, metric)?,
                _ => {
                    for (labels, value) in values {
                        encode_one(*kind, *value, metric.encode_family(labels)?)?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn encode_one(kind: MetricType, value: u64, to: MetricEncoder<'_>) -> std::result::Result<(), fmt::Error> {
    match kind {
        MetricType::Counter => ConstCounter::new(value).encode(to),
        // A gauge is signed; no number here comes near the bound.
        _ => ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(to),
    }
}
