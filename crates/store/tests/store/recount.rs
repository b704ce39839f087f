//! Goal: whatever of the accounts or the ledger is damaged, reclaim goes on with what is told by the maps: nothing in use goes, and
//! everything else does. Method: each kind of object in turn rots in its only copy; snapshots and clones are read, all is removed.

use crate::pool::{self, name, options, run, snap};
use std::sync::Arc;
use stonefold_engine::{Engine, Key, MemoryEngine};
use stonefold_store::Store;
use stonefold_types::DiskSettings;

const DISK_BYTES: u64 = 64 << 20;
const BLOCKS: u64 = 96;

async fn open(engine: &Arc<MemoryEngine>) -> Arc<Store> {
    pool::open(engine.clone(), options(8, 8)).await
}

fn content(tag: u64) -> Vec<u8> {
    (0..512u64).flat_map(|i| (tag << 16 | i).to_le_bytes()).collect()
}

/// What each export holds, block by block.
type Held = Vec<(&'static str, Vec<u64>)>;

async fn write(store: &Arc<Store>, disk: &str, held: &mut [u64], blocks: std::ops::Range<u64>, tag: u64) {
    let attachment = store.attach(&disk.parse().unwrap()).unwrap();
    for block in blocks {
        attachment.write(block * 4096, &content(tag + block % 5), false).await.unwrap();
        held[block as usize] = tag + block % 5;
    }
}

/// A disk with three snapshots and a clone with one, much overwritten, some of it found by deduplication.
async fn make(store: &Arc<Store>) -> Held {
    store.create_disk(&name("web"), DISK_BYTES, DiskSettings::default()).await.unwrap();
    let (mut web, mut held) = (vec![0; BLOCKS as usize], Held::new());
    write(store, "web", &mut web, 0..BLOCKS, 100).await;
    for (at, snapshot) in ["web@a", "web@b", "web@c"].into_iter().enumerate() {
        let at = at as u64;
        store.snapshot(&[name("web")], Some(snap(snapshot).snapshot)).await.unwrap();
        held.push((snapshot, web.clone()));
        store.fold_everything().await.unwrap();
        write(store, "web", &mut web, at * 10..at * 10 + 40, 200 + 50 * at).await;
        store.fold_everything().await.unwrap();
    }
    store.clone_snapshot(&snap("web@b"), &name("clone")).await.unwrap();
    let mut clone = held[1].1.clone();
    write(store, "clone", &mut clone, 0..30, 500).await;
    store.snapshot(&[name("clone")], Some(name("x"))).await.unwrap();
    held.push(("clone@x", clone.clone()));
    store.fold_everything().await.unwrap();
    write(store, "clone", &mut clone, 20..60, 600).await;
    store.fold_everything().await.unwrap();
    held.extend([("web", web), ("clone", clone)]);
    held
}

async fn check_content(store: &Arc<Store>, held: &Held) {
    store.drop_cache();
    for (export, tags) in held {
        let attachment = store.attach(&export.parse().unwrap()).unwrap();
        for (block, tag) in tags.iter().enumerate() {
            let mut found = vec![0; 4096];
            attachment.read(block as u64 * 4096, &mut found).await.unwrap();
            assert!(found == if *tag == 0 { vec![0; 4096] } else { content(*tag) }, "{export} at {block}");
        }
    }
}

async fn assert_sound(store: &Store, when: &str) {
    let checked = store.check().await.unwrap();
    assert_eq!((checked.problems.as_slice(), checked.lost_blocks), (&[][..], 0), "{when}");
}

async fn keys(engine: &MemoryEngine, prefix: &str) -> Vec<Key> {
    engine.list(prefix, None, 100_000).await.unwrap().into_iter().map(|one| one.key).collect()
}

/// Damages every object of a kind, opens, takes everything apart.
async fn survives(prefix: &str, counted: bool, gone: bool) {
    let when = format!("'{prefix}' rots, counted: {counted}, gone: {gone}");
    let engine = Arc::new(MemoryEngine::default());
    let store = open(&engine).await;
    let mut held = make(&store).await;
    if counted {
        store.reclaim().await.unwrap();
        let (_, clone) = held.last_mut().unwrap();
        write(&store, "clone", clone, 50..80, 700).await;
        store.fold_everything().await.unwrap();
    }
    store.leave().await.unwrap();
    let rotten = keys(&engine, prefix).await;
    assert!(!rotten.is_empty() || !counted, "{when}: there is something to rot");
    for key in rotten {
        if gone {
            engine.delete(&key).await.unwrap();
        } else {
            assert!(engine.rot(&key, 8 * 40));
        }
    }
    let store = open(&engine).await;
    store.remove_snapshot(&snap("web@a")).await.unwrap();
    held.retain(|(export, _)| *export != "web@a");
    store.reclaim().await.unwrap_or_else(|e| panic!("{when}: {e}"));
    check_content(&store, &held).await;
    assert_sound(&store, &when).await;
    for snapshot in ["web@c", "clone@x", "web@b"] {
        store.remove_snapshot(&snap(snapshot)).await.unwrap();
        held.retain(|(export, _)| *export != snapshot);
        store.reclaim().await.unwrap();
        check_content(&store, &held).await;
        assert_sound(&store, &when).await;
    }
    for disk in ["web", "clone"] {
        store.remove_disk(&name(disk)).await.unwrap();
    }
    store.reclaim().await.unwrap();
    assert_sound(&store, &when).await;
    for prefix in ["segment/", "gone/", "lost/", "ledger/"] {
        assert_eq!(keys(&engine, prefix).await, [], "{when}");
    }
}

#[test]
fn reclaim_survives_damage_of_what_it_keeps() {
    run(async {
        for prefix in ["account/", "ledger/", "accounts", "a"] {
            for counted in [false, true] {
                survives(prefix, counted, false).await;
            }
        }
        for prefix in ["account/", "ledger/", "accounts"] {
            survives(prefix, true, true).await;
        }
    });
}

/// Past danger: accounts without their document were taken for those of a pool that has never counted; a batch that only told of
/// births then made all other segments leftovers of a crash.
#[test]
fn accounts_without_their_document_are_no_new_pools() {
    run(async {
        let engine = Arc::new(MemoryEngine::default());
        let store = open(&engine).await;
        let mut held = make(&store).await;
        store.reclaim().await.unwrap();
        store.leave().await.unwrap();
        engine.delete(&Key::new("accounts")).await.unwrap();
        for round in 0..3 {
            let store = open(&engine).await;
            // A disk of its own, so that nothing is freed: that would show that something is not counted.
            let disk = ["first", "second", "third"][round];
            store.create_disk(&name(disk), DISK_BYTES, DiskSettings::default()).await.unwrap();
            let mut blocks = vec![0; 8];
            write(&store, disk, &mut blocks, 0..8, 9000 + 10 * round as u64).await;
            held.push((disk, blocks));
            store.fold_everything().await.unwrap();
            store.reclaim().await.unwrap();
            check_content(&store, &held).await;
            assert_sound(&store, &format!("round {round}")).await;
            assert_eq!(keys(&engine, "lost/").await, []);
            store.leave().await.unwrap();
        }
    });
}

/// Goal: while a part of a map cannot be read nothing is counted anew, because what lies below is not known; and everything is once
/// it can be.
#[test]
fn nothing_is_counted_anew_from_half_a_map() {
    run(async {
        let engine = Arc::new(MemoryEngine::default());
        let store = open(&engine).await;
        let held = make(&store).await;
        store.reclaim().await.unwrap();
        store.leave().await.unwrap();
        let segments = keys(&engine, "segment/").await;
        let accounts = keys(&engine, "account/").await;
        // All nodes and data of one round.
        let victim = segments.last().unwrap();
        let (bytes, _) = engine.get(victim).await.unwrap();
        for at in (0..bytes.len() as u64).step_by(64) {
            engine.rot(victim, at * 8);
        }
        for key in &accounts {
            assert!(engine.rot(key, 8 * 20));
        }
        let store = open(&engine).await;
        store.reclaim().await.unwrap_err();
        store.reclaim().await.unwrap_err();
        store.leave().await.unwrap();
        assert_eq!(keys(&engine, "segment/").await, segments, "nothing was deleted");
        for at in (0..bytes.len() as u64).step_by(64) {
            engine.rot(victim, at * 8);
        }
        let store = open(&engine).await;
        store.reclaim().await.unwrap();
        check_content(&store, &held).await;
        assert_sound(&store, "after the map was restored").await;
    });
}
