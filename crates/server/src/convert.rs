//! From the store's infos to the API's types.

use crate::doors::{Door, export_uri};
use stonefold_api::{Cache, Checked, Disk, DiskIo, Pool, Reclaimed, Snapshot, Time, Work};
use stonefold_store::{DiskInfo, PoolStatus, SnapshotInfo};
use stonefold_types::{BLOCK_BYTES, ExportName};

pub(crate) fn disk(info: DiskInfo, doors: &[Door]) -> Disk {
    let [reads, read_bytes, writes, written_bytes, flushes] = info.traffic;
    Disk {
        uris: uris(doors, &ExportName::Disk(info.name.clone())),
        name: info.name,
        domain: info.domain,
        size_bytes: info.size_bytes,
        mapped_bytes: info.mapped_bytes,
        durability: info.settings.durability,
        compression: info.settings.compression,
        dedupe: info.settings.dedupe,
        qos: info.settings.qos,
        created: Time::from_nanos(info.created),
        clients: info.clients as u64,
        snapshots: info.snapshots as u64,
        origin: info.origin.map(|origin| origin.to_string()),
        io: Some(DiskIo {
            reads,
            read_bytes,
            writes,
            written_bytes,
            flushes,
            qos_waits: info.qos_waits.0,
            qos_wait_us: info.qos_waits.1 / 1000,
        }),
    }
}

pub(crate) fn snapshot(info: SnapshotInfo, doors: &[Door]) -> Snapshot {
    Snapshot {
        uris: uris(doors, &ExportName::Snapshot(info.name.clone())),
        disk: info.name.disk,
        name: info.name.snapshot,
        size_bytes: info.size_bytes,
        created: Time::from_nanos(info.created),
    }
}

pub(crate) fn pool(status: &PoolStatus) -> Pool {
    let provisioned_percent = match status.total_bytes {
        0 => 0,
        total => (u128::from(status.provisioned_bytes) * 100 / u128::from(total)) as u64,
    };
    Pool {
        engine: status.engine.clone(),
        disks: status.disks as u64,
        snapshots: status.snapshots as u64,
        provisioned_bytes: status.provisioned_bytes,
        total_bytes: status.total_bytes,
        free_bytes: status.free_bytes,
        used_bytes: status.used_bytes,
        journal_bytes: status.journal_bytes,
        provisioned_percent,
        live_bytes: status.live_bytes,
        dead_bytes: status.dead_bytes,
        work: status.work.iter().map(work).collect(),
    }
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
        problems: found.problems,
    }
}

pub(crate) fn cache(status: &PoolStatus) -> Cache {
    Cache { used_bytes: status.cache_bytes, max_bytes: status.cache_bytes_max }
}

fn uris(doors: &[Door], export: &ExportName) -> Vec<String> {
    doors.iter().map(|door| export_uri(door, &export.to_string())).collect()
}
