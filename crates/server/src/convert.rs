//! From the store's infos to the API's types.

use crate::doors::{Door, export_uri};
use stonefold_api::{
    Cache, Checked, Connection, Consistency, Damage, DamagedReads, Directory, DirectoryState, Disk, DiskIo,
    DiskUsage, DomainState, ErrorBody, LastCheck, Latencies, Latency, Pool, PoolTime, Reclaimed, Salvage,
    Salvaged, SalvagedFrom, SalvagedRange, Scrub, Snapshot, Time, Work,
};
use stonefold_store::{Client, DamagedDisk, DiskInfo, PoolStatus, SnapshotInfo, Usage};
use stonefold_types::{BLOCK_BYTES, DiskSettings, ExportName};

pub(crate) fn disk(info: DiskInfo, doors: &[Door]) -> Disk {
    let [reads, read_bytes, writes, written_bytes, flushes] = info.traffic;
    Disk {
        uris: uris(doors, &ExportName::Disk(info.name.clone())),
        name: info.name,
        damaged: None,
        domain: Some(info.domain),
        size_bytes: info.size_bytes,
        domain_state: domain_state(info.domain_state),
        mapped_bytes: info.mapped_bytes,
        unfolded_bytes: info.unfolded_bytes,
        durability: info.settings.durability,
        compression: info.settings.compression,
        dedupe: info.settings.dedupe,
        qos: info.settings.qos,
        reserve: info.settings.reserve,
        created: Time::from_nanos(info.created),
        clients: info.clients as u64,
        connections: info.connections.into_iter().map(connection).collect(),
        snapshots: info.snapshots as u64,
        origin: info.origin.map(|origin| origin.to_string()),
        io: Some(DiskIo {
            reads,
            read_bytes,
            writes,
            written_bytes,
            flushes,
            qos_waits: info.latencies.qos_waits.count(),
            qos_wait_us: info.latencies.qos_waits.sum_ns / 1000,
        }),
        latency: Some(latencies(info.latencies)),
        usage: info.usage.map(usage),
    }
}

/// A disk of which the name alone is known.
pub(crate) fn damaged_disk(disk: DamagedDisk) -> Disk {
    let DiskSettings { durability, compression, dedupe, qos, reserve } = DiskSettings::default();
    Disk {
        damaged: Some(damage(&disk)),
        name: disk.name,
        domain: None,
        domain_state: DomainState::Unknown,
        size_bytes: 0,
        mapped_bytes: 0,
        unfolded_bytes: 0,
        durability,
        compression,
        dedupe,
        qos,
        reserve,
        created: Time::from_nanos(0),
        clients: 0,
        connections: Vec::new(),
        snapshots: 0,
        origin: None,
        uris: Vec::new(),
        io: None,
        latency: None,
        usage: None,
    }
}

fn connection(client: Client) -> Connection {
    Connection {
        peer: client.peer.to_string(),
        since: Time::from_nanos(client.since),
        export: client.export.to_string(),
    }
}

fn damage(disk: &DamagedDisk) -> Damage {
    let remedy = disk.why.remedy_text().unwrap_or_default().to_owned();
    Damage { disk: disk.name.clone(), what: disk.why.what(), remedy }
}

fn latencies(all: stonefold_store::Latencies) -> Latencies {
    Latencies {
        reads: Latency::of(all.reads.buckets),
        writes: Latency::of(all.writes.buckets),
        flushes: Latency::of(all.flushes.buckets),
        qos_waits: Latency::of(all.qos_waits.buckets),
    }
}

pub(crate) fn usage(usage: Usage) -> DiskUsage {
    DiskUsage {
        logical_bytes: usage.logical_bytes,
        unique_bytes: usage.unique_bytes,
        shared_bytes: usage.shared_bytes,
        reclaimable_bytes: usage.reclaimable_bytes,
        as_of: Time::from_nanos(usage.as_of),
    }
}

pub(crate) fn domain_state(state: stonefold_store::DomainState) -> DomainState {
    match state {
        stonefold_store::DomainState::Plain => DomainState::Plain,
        stonefold_store::DomainState::Open => DomainState::Open,
        stonefold_store::DomainState::Locked => DomainState::Locked,
        stonefold_store::DomainState::Shredded => DomainState::Shredded,
    }
}

pub(crate) fn snapshot(info: SnapshotInfo, doors: &[Door]) -> Snapshot {
    Snapshot {
        uris: uris(doors, &ExportName::Snapshot(info.name.clone())),
        disk: info.name.disk,
        name: info.name.snapshot,
        number: info.number,
        size_bytes: info.size_bytes,
        created: Time::from_nanos(info.created),
        locked_until: info.locked_until.map(Time::from_nanos),
    }
}

pub(crate) fn consistency(consistency: stonefold_protect::Consistency) -> Consistency {
    match consistency {
        stonefold_protect::Consistency::Crash => Consistency::Crash,
        stonefold_protect::Consistency::App => Consistency::App,
    }
}

pub(crate) fn asked_consistency(asked: Consistency) -> stonefold_protect::Consistency {
    match asked {
        Consistency::Crash => stonefold_protect::Consistency::Crash,
        Consistency::App => stonefold_protect::Consistency::App,
    }
}

pub(crate) fn time(time: &stonefold_store::TimeStatus) -> PoolTime {
    let (trusted, clock) = (Time::from_nanos(time.trusted), Time::from_nanos(time.wall));
    PoolTime { trusted, clock, in_doubt: time.in_doubt }
}

pub(crate) fn pool(status: &PoolStatus) -> Pool {
    Pool {
        engine: status.engine.clone(),
        missing: status.missing.clone(),
        directories: status.directories.iter().map(directory).collect(),
        directories_wait: status.directories_wait.clone(),
        url: status.url.clone(),
        full: status.full,
        damaged: status.damaged.iter().map(damage).collect(),
        disks: status.disks as u64,
        snapshots: status.snapshots as u64,
        provisioned_bytes: status.provisioned_bytes,
        reserved_bytes: status.reserved_bytes,
        total_bytes: status.total_bytes,
        free_bytes: status.free_bytes,
        used_bytes: status.used_bytes,
        journal_bytes: status.journal_bytes,
        provisioned_percent: percent(status.provisioned_bytes, status.total_bytes).unwrap_or(0),
        raw_bytes: status.raw_bytes,
        usable_bytes: status.usable_bytes(),
        logical_bytes: status.logical_bytes,
        reduction_percent: status.reduction().map(|ratio| (ratio * 100.0) as u64),
        effective_bytes: status.effective_bytes(),
        overcommitted_percent: status
            .effective_bytes()
            .and_then(|all| percent(status.provisioned_bytes, all)),
        growth_bytes_per_day: status.trend.map(|trend| trend.bytes_per_day),
        days_to_full: status.trend.and_then(|trend| trend.days_to_full(status.free_bytes)),
        scrub: Scrub {
            begun: status.scrub.begun.map(Time::from_nanos),
            finished: status.scrub.finished.map(Time::from_nanos),
            damaged_segments: status.scrub.damaged_segments,
        },
        checked: status.known.check.as_ref().map(|check| LastCheck {
            finished: Time::from_nanos(check.finished),
            problems: check.problems,
            first: check.first.clone(),
        }),
        damaged_reads: status.known.reads.iter().map(damaged_reads).collect(),
        live_bytes: status.live_bytes,
        dead_bytes: status.dead_bytes,
        work: status.work.iter().map(work).collect(),
        time: time(&status.time),
    }
}

fn damaged_reads(reads: &stonefold_store::DamagedReads) -> DamagedReads {
    DamagedReads {
        export: reads.export.clone(),
        times: reads.times,
        last: Time::from_nanos(reads.last),
        what: reads.what.clone(),
    }
}

fn directory(one: &stonefold_store::Directory) -> Directory {
    Directory {
        dir: one.dir.display().to_string(),
        state: match one.state {
            stonefold_store::DirectoryState::Sound => DirectoryState::Ok,
            stonefold_store::DirectoryState::Filling => DirectoryState::Filling,
            stonefold_store::DirectoryState::Draining => DirectoryState::Draining,
            stonefold_store::DirectoryState::Missing => DirectoryState::Missing,
            stonefold_store::DirectoryState::Damaged => DirectoryState::Damaged,
            stonefold_store::DirectoryState::Emptying => DirectoryState::Emptying,
        },
        used_bytes: one.used_bytes,
        free_bytes: one.free_bytes,
        total_bytes: one.total_bytes,
        medium: one.medium.clone(),
        bounds: one.bounds,
    }
}

fn percent(part: u64, of: u64) -> Option<u64> {
    (of > 0).then(|| (u128::from(part) * 100 / u128::from(of)) as u64)
}

fn work(work: &stonefold_store::Work) -> Work {
    let stonefold_store::Work { what, done_bytes, total_bytes } = *work;
    Work { what: what.to_owned(), done_bytes, total_bytes }
}

pub(crate) fn reclaimed(done: &stonefold_store::Reclaimed) -> Reclaimed {
    Reclaimed {
        dead_bytes: done.dead_blocks * BLOCK_BYTES as u64,
        deleted_segments: done.deleted_segments,
        rewritten_segments: done.rewritten_segments,
        freed_bytes: done.freed_bytes,
    }
}

pub(crate) fn checked(found: stonefold_store::Checked) -> Checked {
    Checked {
        disks: found.disks,
        snapshots: found.snapshots,
        nodes: found.nodes,
        blocks: found.blocks,
        segments: found.segments,
        bytes: found.bytes,
        healed: found.healed,
        lost_bytes: found.lost_blocks * BLOCK_BYTES as u64,
        unfolded_bytes: found.unfolded_bytes,
        notes: found.notes,
        problems: found.problems,
        salvage: None,
    }
}

pub(crate) fn salvage(found: stonefold_store::Salvage) -> Checked {
    let disks = found.salvaged.into_iter().map(salvaged).collect();
    Checked { salvage: Some(Salvage { disks, unseen: found.unseen }), ..checked(found.checked) }
}

fn salvaged(one: stonefold_store::Salvaged) -> Salvaged {
    let from = |from| match from {
        stonefold_store::SalvagedFrom::Memory => SalvagedFrom::Memory,
        stonefold_store::SalvagedFrom::Nodes => SalvagedFrom::Nodes,
        stonefold_store::SalvagedFrom::OlderVersion => SalvagedFrom::OlderVersion,
        stonefold_store::SalvagedFrom::Blocks => SalvagedFrom::Blocks,
        stonefold_store::SalvagedFrom::Nothing => SalvagedFrom::Nothing,
    };
    let ranges = one.ranges.iter();
    let (disk, error) = match one.disk {
        Ok(disk) => (Some(disk), None),
        Err(error) => (None, Some(ErrorBody::from(&error))),
    };
    Salvaged {
        of: one.of.to_string(),
        disk,
        error,
        ranges: ranges
            .map(|range| SalvagedRange {
                offset: range.offset_bytes,
                length: range.bytes,
                from: from(range.from),
            })
            .collect(),
        untold_bytes: one.untold_bytes,
        lost_bytes: one.lost_bytes,
    }
}

pub(crate) fn cache(status: &PoolStatus) -> Cache {
    Cache { used_bytes: status.cache_bytes, max_bytes: status.cache_bytes_max }
}

pub(crate) fn uris(doors: &[Door], export: &ExportName) -> Vec<String> {
    doors.iter().map(|door| export_uri(door, &export.to_string())).collect()
}
