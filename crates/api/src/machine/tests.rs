//! What disks add up to.

use super::*;
use crate::{DomainState, Latency};

fn disk(name: &str, reads: u64, took_ns: u64, unique: Option<u64>) -> Disk {
    let buckets = vec![(took_ns, reads)];
    Disk {
        name: Name::new(name).unwrap(),
        damaged: None,
        domain: None,
        size_bytes: 1 << 20,
        domain_state: DomainState::Plain,
        mapped_bytes: 4096,
        unfolded_bytes: 0,
        durability: Default::default(),
        compression: Default::default(),
        dedupe: true,
        qos: Name::new("test").unwrap(),
        reserve: false,
        created: Time::from_nanos(0),
        clients: 1,
        connections: Vec::new(),
        snapshots: 2,
        origin: None,
        uris: Vec::new(),
        io: Some(DiskIo { reads, read_bytes: reads * 4096, ..DiskIo::default() }),
        latency: Some(Latencies { reads: Latency::of(buckets), ..Latencies::default() }),
        usage: unique.map(|unique_bytes| DiskUsage {
            logical_bytes: 4096,
            unique_bytes,
            shared_bytes: 1,
            reclaimable_bytes: 1,
            as_of: Time::from_nanos(unique_bytes),
        }),
    }
}

fn stats(disks: [Option<Disk>; 2]) -> MachineStats {
    let one = |disk: Option<Disk>| MachineDiskStats {
        target: Name::new("vda").unwrap(),
        name: Name::new("a").unwrap(),
        disk,
    };
    MachineStats::of(Name::new("web").unwrap(), disks.into_iter().map(one).collect())
}

#[test]
fn a_machine_is_the_sum_of_its_disks() {
    let both = stats([Some(disk("a", 99, 1000, Some(7))), Some(disk("b", 101, 5000, Some(5)))]);
    assert_eq!((both.size_bytes, both.data_bytes, both.snapshots, both.clients), (2 << 20, 8192, 4, 2));
    assert_eq!((both.io.reads, both.io.read_bytes), (200, 200 * 4096));
    assert_eq!((both.latency.reads.count, both.latency.reads.p50_us), (200, 5), "of all requests");
    let usage = both.usage.unwrap();
    assert_eq!((usage.unique_bytes, usage.shared_bytes, usage.as_of), (12, 2, Time::from_nanos(5)));
    assert_eq!(both.qos.unwrap().as_str(), "test");
}

#[test]
fn what_is_not_known_of_all_is_not_told() {
    let other = Disk { qos: Name::new("critical").unwrap(), ..disk("b", 1, 1000, None) };
    let both = stats([Some(disk("a", 1, 1000, Some(7))), Some(other)]);
    assert_eq!((both.qos, both.usage), (None, None));
    let missing = stats([Some(disk("a", 1, 1000, Some(7))), None]);
    assert_eq!((missing.usage, missing.size_bytes, missing.disks.len()), (None, 1 << 20, 2));
}
