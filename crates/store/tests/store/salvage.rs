//! Disks whose maps are damaged in every copy, made anew beside themselves.
//!
//! Goal: what is salvaged holds at each block what the disk held last, or what it once held there, or says that nothing was found;
//! exactly what it held last where an older version of the node is there and nothing since was found by deduplication or trimmed; never
//! zeros that were not there, nor what was written after a snapshot. Nothing else in the pool changes, and once the damaged disk is
//! removed the pool is sound. Method: every block has a tag, every tag that a block ever had is remembered; chosen nodes rot.

mod chance;
mod crash;
mod ruin;

use crate::pool::{self, attach, master, name, options, run, snap};
use ruin::{everything, rot_node, rot_nodes};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use stonefold_engine::{Engine, MemoryEngine};
use stonefold_store::{DomainPolicy, Options, Salvage, Salvaged, SalvagedFrom, Store};
use stonefold_types::{DiskSettings, Kind};

const DISK_BYTES: u64 = 64 << 20;
/// Blocks that one leaf maps.
const LEAF: u64 = 256;

/// What a block of this tag holds; zeros for 0.
fn content(tag: u64) -> Vec<u8> {
    if tag == 0 { vec![0; 4096] } else { (0..512).flat_map(|at| (tag << 16 | at).to_le_bytes()).collect() }
}

/// The tag of what a block holds.
fn tag_of(block: &[u8]) -> Option<u64> {
    let tag = u64::from_le_bytes(*block.first_chunk().unwrap()) >> 16;
    (block == content(tag)).then_some(tag)
}

/// What each block of a disk holds now, and everything that it ever held.
#[derive(Clone)]
struct Tags {
    now: Vec<u64>,
    once: Vec<BTreeSet<u64>>,
}

impl Tags {
    fn new(blocks: u64) -> Self {
        Tags { now: vec![0; blocks as usize], once: vec![BTreeSet::from([0]); blocks as usize] }
    }

    fn set(&mut self, block: u64, tag: u64) {
        self.now[block as usize] = tag;
        self.once[block as usize].insert(tag);
    }
}

async fn open(engine: &Arc<dyn Engine>) -> Arc<Store> {
    pool::open(engine.clone(), Options { keys: master(3), ..options(8, 8) }).await
}

async fn reopen(store: Arc<Store>, engine: &Arc<dyn Engine>) -> Arc<Store> {
    store.leave().await.unwrap();
    drop(store);
    open(engine).await
}

async fn create(store: &Store, disk: &str) {
    store.create_disk(&name(disk), DISK_BYTES, DiskSettings::default()).await.unwrap();
}

/// Writes a tag to each block, that of the block's number behind `from`, and folds.
async fn write(store: &Arc<Store>, disk: &str, tags: &mut Tags, blocks: Range<u64>, from: u64) {
    let attachment = attach(store, disk);
    for block in blocks {
        attachment.write(block * 4096, &content(from + block), false).await.unwrap();
        tags.set(block, from + block);
    }
    store.fold_everything().await.unwrap();
}

/// Blocks of `tags` that are lost in an export; all others hold what they should: the last, or, unless `exact`, what they once held.
async fn lost(store: &Arc<Store>, export: &str, tags: &Tags, exact: bool) -> Vec<u64> {
    store.drop_cache();
    let attachment = attach(store, export);
    let mut lost = Vec::new();
    for (block, last) in tags.now.iter().enumerate() {
        let mut found = vec![0xee; 4096];
        match attachment.read(block as u64 * 4096, &mut found).await {
            Ok(()) => {
                let tag = tag_of(&found);
                let fits =
                    tag == Some(*last) || (!exact && tag.is_some_and(|tag| tags.once[block].contains(&tag)));
                assert!(fits, "{export}: block {block} holds {tag:?} and not {last}");
            }
            Err(error) => {
                assert_eq!(error.kind(), Kind::Corrupt);
                let told = error.to_string();
                assert!(told.contains("salvaged") && told.contains(&(block * 4096).to_string()), "{told}");
                lost.push(block as u64);
            }
        }
    }
    lost
}

/// The new disks' names, and what was salvaged.
fn made(salvage: &Salvage) -> Vec<String> {
    assert!(!salvage.checked.problems.is_empty() && salvage.unseen.is_empty(), "{salvage:?}");
    salvage.salvaged.iter().map(|one| one.disk.as_ref().unwrap().to_string()).collect()
}

fn from(one: &Salvaged) -> BTreeSet<SalvagedFrom> {
    one.ranges.iter().map(|range| range.from).collect()
}

/// Removes everything that is damaged, and finds the pool sound.
async fn remove(store: &Arc<Store>, snapshots: &[&str], disks: &[&str]) {
    store.reclaim().await.unwrap();
    for snapshot in snapshots {
        store.remove_snapshot(&snap(snapshot)).await.unwrap();
    }
    for disk in disks {
        store.remove_disk(&name(disk)).await.unwrap();
    }
    store.reclaim().await.unwrap();
    let checked = store.check().await.unwrap();
    assert!(checked.problems.is_empty(), "{:?}", checked.problems);
}

/// A disk of so many leaves, written once.
async fn pool_with(leaves: u64) -> (Arc<MemoryEngine>, Arc<dyn Engine>, Arc<Store>, Tags) {
    let memory = Arc::new(MemoryEngine::default());
    let engine: Arc<dyn Engine> = memory.clone();
    let store = open(&engine).await;
    create(&store, "web").await;
    let mut tags = Tags::new(leaves * LEAF);
    write(&store, "web", &mut tags, 0..leaves * LEAF, 1000).await;
    (memory, engine, store, tags)
}

#[test]
fn a_leaf_is_rebuilt_from_blocks_alone() {
    run(async {
        let (memory, engine, store, mut tags) = pool_with(2).await;
        write(&store, "web", &mut tags, 300..310, 5000).await;
        store.reclaim().await.unwrap();
        let store = reopen(store, &engine).await;
        rot_nodes(&memory, 0, 256).await;
        assert!(attach(&store, "web").read(256 * 4096, &mut [0; 4096]).await.is_err());
        let before = everything(&engine).await;
        let salvage = store.salvage().await.unwrap();
        assert_eq!(made(&salvage), ["web.salvaged"]);
        let one = &salvage.salvaged[0];
        assert_eq!((one.of.to_string().as_str(), one.lost_bytes), ("web", 0));
        assert_eq!(from(one), BTreeSet::from([SalvagedFrom::Blocks]));
        assert_eq!((one.ranges[0].offset_bytes, one.ranges[0].bytes), (1 << 20, 1 << 20));
        assert!(lost(&store, "web.salvaged", &tags, true).await.is_empty());
        let after = everything(&engine).await;
        assert!(before.iter().all(|(key, bytes)| after.get(key) == Some(bytes)), "nothing else changes");
        assert!(attach(&store, "web").read(256 * 4096, &mut [0; 4096]).await.is_err(), "it stays as it was");
        remove(&store, &[], &["web"]).await;
        assert!(lost(&store, "web.salvaged", &tags, true).await.is_empty());
        assert_eq!(store.check().await.unwrap().notes, [""; 0]);
    });
}

/// Goal: what nobody knows is an error to read, counts as stored and as changed, and is a block like any other once it is written or
/// trimmed; a snapshot, a rollback and reclaim go on with it.
#[test]
fn what_is_lost_is_an_error_until_it_is_written() {
    run(async {
        let (memory, engine, store, _) = pool_with(0).await;
        let mut tags = Tags::new(LEAF);
        write(&store, "web", &mut tags, 0..20, 1000).await;
        let store = reopen(store, &engine).await;
        rot_nodes(&memory, 0, 0).await;
        let salvage = store.salvage().await.unwrap();
        assert_eq!(made(&salvage), ["web.salvaged"]);
        assert_eq!(salvage.salvaged[0].lost_bytes, 236 * 4096);
        assert!(lost(&store, "web.salvaged", &tags, true).await.into_iter().eq(20..LEAF));
        store.snapshot(&[name("web.salvaged")], Some(name("s"))).await.unwrap();
        remove(&store, &[], &["web"]).await;
        let notes = store.check().await.unwrap().notes.join("\n");
        let told = "'web.salvaged', 'web.salvaged@s' cannot be read from 81920 for 966656 bytes";
        assert!(notes.contains(told), "{notes}");
        let disk = attach(&store, "web.salvaged");
        let extents: Vec<_> =
            disk.extents(0, 2 << 20).await.unwrap().iter().map(|e| (e.bytes, e.hole)).collect();
        assert_eq!(extents, [(1 << 20, false), (1 << 20, true)]);
        let half = disk.write(20 * 4096 + 512, &[1; 512], false).await.unwrap_err();
        assert!(half.to_string().contains("whole block"), "{half}");
        disk.write(20 * 4096, &content(77).repeat(4), false).await.unwrap();
        disk.zero(24 * 4096, 232 * 4096, false).await.unwrap();
        drop(disk);
        (20..24).for_each(|block| tags.set(block, 77));
        store.fold_everything().await.unwrap();
        assert!(lost(&store, "web.salvaged", &tags, true).await.is_empty());
        let diff = store.diff(&snap("web.salvaged@s"), None).await.unwrap();
        assert_eq!(diff, [(20 * 4096, 236 * 4096)]);
        store.rollback(&snap("web.salvaged@s")).await.unwrap();
        assert!(lost(&store, "web.salvaged", &tags, true).await.into_iter().eq(20..LEAF));
        store.reclaim().await.unwrap();
        assert!(store.check().await.unwrap().problems.is_empty());
        assert!(lost(&store, "web.salvaged", &tags, true).await.into_iter().eq(20..LEAF));
    });
}

/// Goal: with an older version of a leaf, kept by a snapshot, nothing of what was written since is missing, and no hole is lost.
#[test]
fn an_older_version_and_what_was_written_since_make_a_leaf() {
    run(async {
        let (memory, engine, store, _) = pool_with(0).await;
        let mut tags = Tags::new(2 * LEAF);
        write(&store, "web", &mut tags, 10..100, 1000).await;
        // Found by deduplication: no frame tells of it, the older version does.
        let disk = attach(&store, "web");
        for block in 150..160 {
            disk.write(block * 4096, &content(1010), false).await.unwrap();
            tags.set(block, 1010);
        }
        drop(disk);
        store.snapshot(&[name("web")], Some(name("old"))).await.unwrap();
        let old = tags.clone();
        write(&store, "web", &mut tags, 50..120, 3000).await;
        write(&store, "web", &mut tags, 60..70, 4000).await;
        store.reclaim().await.unwrap();
        let store = reopen(store, &engine).await;
        rot_node(&memory, 0, 0).await;
        let salvage = store.salvage().await.unwrap();
        assert_eq!(made(&salvage), ["web.salvaged"]);
        assert_eq!(from(&salvage.salvaged[0]), BTreeSet::from([SalvagedFrom::OlderVersion]));
        for round in 0..2 {
            assert!(lost(&store, "web.salvaged", &tags, true).await.is_empty());
            assert!(lost(&store, "web@old", &old, true).await.is_empty(), "the snapshot was sound");
            assert_eq!(store.disk(&name("web.salvaged")).unwrap().mapped_bytes, 120 * 4096);
            match round {
                0 => store.reclaim().await.map(drop).unwrap(),
                _ => remove(&store, &["web@old"], &["web"]).await,
            }
        }
        assert!(lost(&store, "web.salvaged", &tags, true).await.is_empty());
    });
}

/// Goal: a node above leaves, up to the root, is found again by its children, each of them whole; and by an older version of it what is
/// empty is known to be.
#[test]
fn inner_nodes_are_found_again() {
    run(async {
        for (level, with_older) in [(1, false), (2, false), (3, false), (1, true), (2, true), (3, true)] {
            let (memory, engine, store, mut tags) = pool_with(3).await;
            if with_older {
                store.snapshot(&[name("web")], Some(name("old"))).await.unwrap();
                write(&store, "web", &mut tags, 200..300, 3000).await;
            }
            store.reclaim().await.unwrap();
            let store = reopen(store, &engine).await;
            rot_node(&memory, level, 0).await;
            let salvage = store.salvage().await.unwrap();
            assert_eq!(made(&salvage), ["web.salvaged"], "level {level}");
            assert!(lost(&store, "web.salvaged", &tags, true).await.is_empty());
            let one = &salvage.salvaged[0];
            assert_eq!(one.ranges[0].from, SalvagedFrom::Nodes);
            assert_eq!(
                one.lost_bytes,
                if with_older || level > 1 { 0 } else { DISK_BYTES - (3 << 20) },
                "{one:?}"
            );
            remove(&store, if with_older { &["web@old"] } else { &[] }, &["web"]).await;
            assert!(lost(&store, "web.salvaged", &tags, true).await.is_empty());
        }
    });
}

/// Goal: where a child of a lost node is lost too, its blocks are found, and the others are whole.
#[test]
fn a_root_and_a_leaf_are_rebuilt_together() {
    run(async {
        let (memory, engine, store, tags) = pool_with(3).await;
        store.reclaim().await.unwrap();
        let store = reopen(store, &engine).await;
        for (level, base) in [(3, 0), (1, 0), (0, 256)] {
            rot_nodes(&memory, level, base).await;
        }
        let salvage = store.salvage().await.unwrap();
        assert_eq!(made(&salvage), ["web.salvaged"]);
        let ranges: Vec<_> =
            salvage.salvaged[0].ranges.iter().map(|r| (r.offset_bytes >> 20, r.from)).collect();
        let expected =
            [SalvagedFrom::Nodes, SalvagedFrom::Blocks, SalvagedFrom::Nodes, SalvagedFrom::Nothing];
        assert!(ranges.into_iter().eq((0..4).zip(expected)));
        assert!(lost(&store, "web.salvaged", &tags, true).await.is_empty());
        remove(&store, &[], &["web"]).await;
        assert!(lost(&store, "web.salvaged", &tags, true).await.is_empty());
    });
}

/// Goal: where a block was found by deduplication or trimmed since, it is as it once was or lost, and nothing else.
#[test]
fn what_leaves_no_trace_is_older_or_lost() {
    run(async {
        for with_older in [false, true] {
            let (memory, engine, store, mut tags) = pool_with(1).await;
            if with_older {
                store.snapshot(&[name("web")], Some(name("old"))).await.unwrap();
                write(&store, "web", &mut tags, 0..10, 3000).await;
            }
            let disk = attach(&store, "web");
            for block in 20..40 {
                disk.write(block * 4096, &content(1100), false).await.unwrap();
                tags.set(block, 1100);
            }
            disk.zero(60 * 4096, 20 * 4096, false).await.unwrap();
            (60..80).for_each(|block| tags.set(block, 0));
            drop(disk);
            store.reclaim().await.unwrap();
            let store = reopen(store, &engine).await;
            rot_node(&memory, 0, 0).await;
            let salvage = store.salvage().await.unwrap();
            assert_eq!(made(&salvage), ["web.salvaged"]);
            let gone = lost(&store, "web.salvaged", &tags, false).await;
            assert!(
                gone.iter().all(|block| (20..40).contains(block) || (60..80).contains(block)),
                "{gone:?}"
            );
            assert_eq!(gone.is_empty(), with_older, "the snapshot holds what was there before");
            remove(&store, if with_older { &["web@old"] } else { &[] }, &["web"]).await;
            assert_eq!(lost(&store, "web.salvaged", &tags, false).await, gone);
        }
    });
}

/// Goal: a snapshot gets nothing that was written after it, although one round of the fold wrote both.
#[test]
fn a_snapshot_gets_nothing_younger() {
    run(async {
        let (memory, engine, store, mut tags) = pool_with(1).await;
        let set = async |tags: &mut Tags, blocks: Range<u64>, from: u64| {
            let disk = attach(&store, "web");
            for block in blocks {
                disk.write(block * 4096, &content(from + block), false).await.unwrap();
                tags.set(block, from + block);
            }
        };
        set(&mut tags, 0..50, 3000).await;
        store.snapshot(&[name("web")], Some(name("s"))).await.unwrap();
        let held = tags.clone();
        set(&mut tags, 20..80, 6000).await;
        store.fold_everything().await.unwrap();
        let store = reopen(store, &engine).await;
        let leaves: Vec<_> = ruin::nodes(&memory).await.into_iter().filter(|node| node.level == 0).collect();
        // The first, the snapshot's and the present's.
        assert_eq!(leaves.len(), 3);
        leaves[1..].iter().for_each(|leaf| ruin::rot(&memory, leaf));
        let salvage = store.salvage().await.unwrap();
        assert_eq!(made(&salvage), ["web.s.salvaged", "web.salvaged"]);
        assert!(lost(&store, "web.s.salvaged", &held, true).await.is_empty());
        assert!(lost(&store, "web.salvaged", &tags, true).await.is_empty());
        let origin = store.disk(&name("web.s.salvaged")).unwrap().origin;
        assert_eq!(origin, Some(snap("web@s")));
        remove(&store, &["web@s"], &["web"]).await;
        assert!(lost(&store, "web.s.salvaged", &held, true).await.is_empty());
        assert!(lost(&store, "web.salvaged", &tags, true).await.is_empty());
    });
}

/// Goal: a clone finds what its origin wrote before the snapshot it began as, and nothing that one wrote since.
#[test]
fn a_clone_finds_what_its_origin_wrote() {
    run(async {
        let (memory, engine, store, mut web) = pool_with(2).await;
        store.snapshot(&[name("web")], Some(name("s"))).await.unwrap();
        store.clone_snapshot(&snap("web@s"), &name("copy")).await.unwrap();
        let mut copy = web.clone();
        write(&store, "web", &mut web, 100..300, 3000).await;
        write(&store, "copy", &mut copy, 40..120, 5000).await;
        let store = reopen(store, &engine).await;
        rot_nodes(&memory, 0, 0).await;
        let salvage = store.salvage().await.unwrap();
        assert_eq!(made(&salvage), ["copy.salvaged", "web.s.salvaged", "web.salvaged"]);
        assert!(lost(&store, "copy.salvaged", &copy, true).await.is_empty());
        assert!(lost(&store, "web.salvaged", &web, true).await.is_empty());
        remove(&store, &["web@s"], &["web", "copy"]).await;
        assert!(lost(&store, "copy.salvaged", &copy, true).await.is_empty());
        assert!(lost(&store, "web.salvaged", &web, true).await.is_empty());
    });
}

/// Goal: what was acknowledged and cannot be folded into a damaged map is in the salvaged disk, and in that of each snapshot what was
/// written before it.
#[test]
fn what_could_not_be_folded_is_not_left_behind() {
    run(async {
        let (memory, engine, store, mut tags) = pool_with(1).await;
        let store = reopen(store, &engine).await;
        rot_nodes(&memory, 0, 0).await;
        let disk = attach(&store, "web");
        disk.write(5 * 4096, &content(50), false).await.unwrap();
        tags.set(5, 50);
        let held = tags.clone();
        // At one time and in this order: the fold that the snapshot asks for finds the damage, and then nothing is written any more.
        let (disks, late) = ([name("web")], content(60));
        let done = futures::join!(
            store.snapshot(&disks, Some(name("s"))),
            disk.write(6 * 4096, &late, false),
            disk.zero(7 * 4096, 4096, false),
        );
        assert!(done.0.is_ok() && done.1.is_ok() && done.2.is_ok());
        tags.set(6, 60);
        tags.set(7, 0);
        drop(disk);
        let salvage = store.salvage().await.unwrap();
        assert_eq!(made(&salvage), ["web.s.salvaged", "web.salvaged"]);
        let store = reopen(store, &engine).await;
        assert!(lost(&store, "web.s.salvaged", &held, true).await.is_empty());
        assert!(lost(&store, "web.salvaged", &tags, true).await.is_empty());
        store.reclaim().await.unwrap();
        assert!(lost(&store, "web.salvaged", &tags, true).await.is_empty());
        assert_eq!(store.disk(&name("web.salvaged")).unwrap().mapped_bytes, 255 * 4096);
    });
}

#[test]
fn twice_makes_two_and_memory_is_asked_first() {
    run(async {
        let (memory, engine, store, tags) = pool_with(2).await;
        store.reclaim().await.unwrap();
        for (level, base) in [(3, 0), (0, 256)] {
            rot_nodes(&memory, level, base).await;
        }
        let salvage = store.salvage().await.unwrap();
        assert_eq!(made(&salvage), ["web.salvaged"]);
        assert_eq!(from(&salvage.salvaged[0]), BTreeSet::from([SalvagedFrom::Memory]));
        assert_eq!(salvage.salvaged[0].lost_bytes, 0);
        store.remove_disk(&name("web.salvaged")).await.unwrap();
        store.reclaim().await.unwrap();
        let store = reopen(store, &engine).await;
        for again in ["web.salvaged", "web.salvaged.2", "web.salvaged.3"] {
            assert_eq!(made(&store.salvage().await.unwrap()), [again]);
            assert!(lost(&store, again, &tags, true).await.is_empty());
        }
        remove(&store, &[], &["web", "web.salvaged.2"]).await;
        assert!(lost(&store, "web.salvaged", &tags, true).await.is_empty());
        assert!(store.salvage().await.unwrap().salvaged.is_empty(), "nothing is damaged any more");
    });
}

/// Goal: a sealed disk is salvaged where its domain is open; where it is not, that is told of it alone.
#[test]
fn a_closed_domain_costs_its_own_disk() {
    run(async {
        let (memory, engine, store, tags) = pool_with(1).await;
        store.create_domain(&name("vault"), DomainPolicy::default(), true).await.unwrap();
        let (vault, sealed) = (name("vault"), name("sealed"));
        store.create_disk_in(&vault, &sealed, DISK_BYTES, DiskSettings::default()).await.unwrap();
        let mut secret = Tags::new(LEAF);
        write(&store, "sealed", &mut secret, 0..LEAF, 9000).await;
        let store = reopen(store, &engine).await;
        rot_nodes(&memory, 0, 0).await;
        assert_eq!(made(&store.salvage().await.unwrap()), ["sealed.salvaged", "web.salvaged"]);
        assert!(lost(&store, "sealed.salvaged", &secret, true).await.is_empty());
        store.leave().await.unwrap();
        drop(store);
        let store = pool::open(engine.clone(), options(8, 8)).await;
        let salvage = store.salvage().await.unwrap();
        let told = salvage.salvaged[0].disk.as_ref().unwrap_err().to_string();
        assert!(told.contains("'sealed' was not salvaged") && told.contains("locked"), "{told}");
        assert_eq!(salvage.salvaged[1].disk.as_ref().unwrap().as_str(), "web.salvaged.2");
        assert!(lost(&store, "web.salvaged.2", &tags, true).await.is_empty());
    });
}

/// Goal: a segment whose index cannot be read either is told; what it held is missed, and nothing else.
#[test]
fn a_segment_without_an_index_is_told() {
    run(async {
        let (memory, engine, store, mut tags) = pool_with(1).await;
        write(&store, "web", &mut tags, 0..10, 5000).await;
        let store = reopen(store, &engine).await;
        rot_nodes(&memory, 0, 0).await;
        let newest = engine.list("segment/", None, 100).await.unwrap();
        // Data and map of two rounds; the second's data.
        let segment = &newest[2];
        assert!(memory.rot(&segment.key, (segment.bytes - 20) * 8));
        let salvage = store.salvage().await.unwrap();
        assert_eq!(salvage.unseen.len(), 1, "{salvage:?}");
        let gone = lost(&store, "web.salvaged", &tags, false).await;
        assert!(gone.iter().all(|block| *block < 10));
    });
}
