//! Goal: a disk's list of snapshots, cut into pages, reads as it was written, whatever is removed from it in whatever order; its
//! head stays short; a damaged page costs its own snapshots and nothing else, and those only until it is restored.

use crate::pool::{self, attach, create_sized, name, options, read, run, sound};
use std::sync::Arc;
use stonefold_dice::Dice;
use stonefold_engine::{Engine, Key, MemoryEngine};
use stonefold_store::{Options, Store};
use stonefold_types::{Kind, Name, SnapshotName};

async fn open(engine: &Arc<MemoryEngine>, snapshot_page_records: usize) -> Arc<Store> {
    pool::open(engine.clone(), Options { snapshot_page_records, ..options(8, 8) }).await
}

fn of(disk: &str, snapshot: u64) -> SnapshotName {
    SnapshotName { disk: name(disk), snapshot: name(&format!("s{snapshot}")) }
}

/// What the block that snapshot `at` saw last holds.
fn block(at: u64) -> Vec<u8> {
    at.to_le_bytes().repeat(512)
}

/// Takes snapshots `range` of a disk: before each, block 0 is overwritten and block N written.
async fn take(store: &Arc<Store>, disk: &str, range: std::ops::Range<u64>) {
    let attachment = attach(store, disk);
    for at in range {
        attachment.write(0, &block(at), false).await.unwrap();
        attachment.write(at * 4096, &block(at), false).await.unwrap();
        store.snapshot(&[name(disk)], Some(of(disk, at).snapshot)).await.unwrap();
    }
}

async fn check_one(store: &Arc<Store>, disk: &str, at: u64) {
    let snapshot = of(disk, at).to_string();
    for (offset, expected) in [(0, block(at)), (at * 4096, block(at)), ((at + 1) * 4096, vec![0; 4096])] {
        assert!(read(store, &snapshot, offset, 4096).await == expected, "{snapshot} at {offset}");
    }
}

async fn objects(engine: &MemoryEngine, prefix: &str) -> Vec<Key> {
    engine.list(prefix, None, 100_000).await.unwrap().into_iter().map(|one| one.key).collect()
}

#[test]
fn lists_of_every_length_come_back_and_go_in_any_order() {
    run(async {
        for page_records in [1, 2, 3, 5, 16] {
            let engine = Arc::new(MemoryEngine::default());
            let store = open(&engine, page_records).await;
            create_sized(&store, "web", 1 << 20).await;
            let mut there: Vec<u64> = Vec::new();
            for round in 0..12u64 {
                take(&store, "web", round * 7 + 1..round * 7 + 1 + round % 8).await;
                there.extend(round * 7 + 1..round * 7 + 1 + round % 8);
                store.reclaim().await.unwrap();
            }
            store.close().await.unwrap();
            let mut dice = Dice::new(page_records as u64);
            while !there.is_empty() {
                let store = open(&engine, page_records).await;
                let listed = store.snapshots(None).unwrap();
                let listed: Vec<String> = listed.iter().map(|s| s.name.to_string()).collect();
                assert_eq!(listed, there.iter().map(|at| of("web", *at).to_string()).collect::<Vec<_>>());
                for at in &there {
                    check_one(&store, "web", *at).await;
                }
                for _ in 0..9.min(there.len()) {
                    let gone = there.remove(dice.index(there.len()));
                    store.remove_snapshot(&of("web", gone)).await.unwrap();
                    if dice.one_in(4) {
                        store.reclaim().await.unwrap();
                    }
                }
                if dice.one_in(2) {
                    store.reclaim().await.unwrap();
                    sound(&store).await;
                }
                store.close().await.unwrap();
            }
            let store = open(&engine, page_records).await;
            store.reclaim().await.unwrap();
            sound(&store).await;
            assert!(objects(&engine, "snapshots/").await.is_empty(), "nothing is left of {page_records}");
            store.remove_disk(&name("web")).await.unwrap();
            store.reclaim().await.unwrap();
            assert!(
                objects(&engine, "segment/").await.is_empty() && objects(&engine, "gone/").await.is_empty()
            );
        }
    });
}

/// Goal: a listing in parts has all of it once, in order, also when what it stopped at is gone.
#[test]
fn a_listing_goes_on_where_it_stopped() {
    run(async {
        let store = open(&Arc::new(MemoryEngine::default()), 3).await;
        for disk in ["a", "b"] {
            create_sized(&store, disk, 1 << 20).await;
            take(&store, disk, 1..8).await;
        }
        let all: Vec<String> = store.snapshots(None).unwrap().iter().map(|s| s.name.to_string()).collect();
        let mut parts: Vec<String> = Vec::new();
        let mut after: Option<(Name, u64)> = None;
        loop {
            let from = after.as_ref().map(|(disk, number)| (disk, *number));
            let part = store.snapshots_after(None, from, 3).unwrap();
            let Some(last) = part.last() else { break };
            after = Some((last.name.disk.clone(), last.number));
            store.remove_snapshot(&last.name).await.unwrap();
            parts.extend(part.iter().map(|s| s.name.to_string()));
        }
        assert_eq!(parts, all);
        assert_eq!(store.snapshots(Some(&name("b"))).unwrap().len(), 4);
    });
}

/// Goal: heads are as short behind thousands of snapshots as behind a few, and no object of a list is long.
#[test]
fn a_head_stays_short() {
    run(async {
        let engine = Arc::new(MemoryEngine::default());
        let store = open(&engine, 256).await;
        create_sized(&store, "web", 1 << 30).await;
        for at in 0..5000 {
            store.snapshot(&[name("web")], Some(of("web", at).snapshot)).await.unwrap();
        }
        store.diff(&of("web", 4999), None).await.unwrap();
        let (head, _) = engine.get(&Key::new("head/web")).await.unwrap();
        assert!(head.len() < 8 << 10, "{} bytes", head.len());
        let listed = engine.list("snapshots/", None, 10_000).await.unwrap();
        assert!(listed.iter().all(|one| one.bytes < 64 << 10) && listed.len() < 30, "{listed:?}");
    });
}

#[test]
fn a_damaged_page_costs_its_own_snapshots_until_it_is_restored() {
    run(async {
        for directory in [false, true] {
            let engine = Arc::new(MemoryEngine::default());
            let store = open(&engine, 3).await;
            create_sized(&store, "web", 1 << 20).await;
            for at in 1..13 {
                take(&store, "web", at..at + 1).await;
                store.diff(&of("web", at), None).await.unwrap();
            }
            store.clone_snapshot(&of("web", 2), &name("clone")).await.unwrap();
            store.close().await.unwrap();
            // Any but the youngest object of either kind: a directory is shorter than a page.
            let mut list = engine.list("snapshots/", None, 100).await.unwrap();
            list.sort_by_key(|one| one.bytes);
            let damaged = if directory { &list[1].key } else { &list[list.len() - 1].key };
            assert!(engine.rot(damaged, 8 * 60));

            let store = open(&engine, 3).await;
            let seen: Vec<u64> = (1..13).filter(|at| store.snapshot_info(&of("web", *at)).is_ok()).collect();
            let lost: Vec<u64> = (1..13).filter(|at| !seen.contains(at)).collect();
            assert!((1..=9).contains(&lost.len()), "{lost:?}");
            for at in &seen {
                check_one(&store, "web", *at).await;
            }
            let told = store.snapshot_info(&of("web", lost[0])).unwrap_err();
            assert_eq!(told.kind(), Kind::Corrupt);
            assert!(told.to_string().contains(damaged.as_str()), "{told}");
            let checked = store.check().await.unwrap();
            assert_eq!((checked.problems.len(), checked.lost_blocks), (1, 0), "{checked:?}");
            // The disk is served, gets more snapshots, loses others; and nothing that the lost ones hold goes.
            take(&store, "web", 20..26).await;
            for at in seen.iter().filter(|at| *at % 2 == 0) {
                store.remove_snapshot(&of("web", *at)).await.unwrap();
            }
            store.reclaim().await.unwrap();
            store.reclaim().await.unwrap();
            assert_eq!(store.remove_disk(&name("web")).await.unwrap_err().kind(), Kind::Corrupt);
            assert_eq!(read(&store, "clone", 0, 4096).await, block(2));
            store.close().await.unwrap();

            assert!(engine.rot(damaged, 8 * 60), "as it was");
            let store = open(&engine, 3).await;
            let odd = seen.iter().filter(|at| *at % 2 == 1);
            for at in lost.iter().chain(odd).copied().chain(20..26) {
                check_one(&store, "web", at).await;
            }
            store.reclaim().await.unwrap();
            sound(&store).await;
            for snapshot in store.snapshots(Some(&name("web"))).unwrap() {
                store.remove_snapshot(&snapshot.name).await.unwrap();
            }
            store.remove_disk(&name("clone")).await.unwrap();
            store.remove_disk(&name("web")).await.unwrap();
            store.reclaim().await.unwrap();
            assert!(
                objects(&engine, "snapshots/").await.is_empty()
                    && objects(&engine, "segment/").await.is_empty()
            );
        }
    });
}

/// Goal: a page that rots under a running store is told by a check and written anew by a scrub.
#[test]
fn a_scrub_writes_a_damaged_page_anew() {
    run(async {
        let engine = Arc::new(MemoryEngine::default());
        let store = open(&engine, 3).await;
        create_sized(&store, "web", 1 << 20).await;
        take(&store, "web", 1..13).await;
        store.diff(&of("web", 12), None).await.unwrap();
        for key in objects(&engine, "snapshots/").await.iter().step_by(2) {
            assert!(engine.rot(key, 8 * 60));
        }
        let told = store.check().await.unwrap().problems.len();
        assert!(told >= 2, "{told}");
        assert!(store.scrub().await.unwrap().healed >= 2);
        sound(&store).await;
        store.close().await.unwrap();
        let store = open(&engine, 3).await;
        for at in 1..13 {
            check_one(&store, "web", at).await;
        }
    });
}
