//! Goal: a head that cannot be read costs its own disk, until it is restored or the disk is given up, and nothing and nobody else;
//! nothing that it may refer to is given back, and everything is once it may be.

use crate::pool::{self, name, options, run, snap};
use std::sync::Arc;
use stonefold_engine::{Engine, Key, MemoryEngine};
use stonefold_store::Store;
use stonefold_types::{DiskSettings, Kind};

const DISK_BYTES: u64 = 64 << 20;
/// Where a head's bit flips: in its body.
const BIT: u64 = 8 * 60;

async fn open(engine: &Arc<MemoryEngine>) -> Arc<Store> {
    pool::open(engine.clone(), options(8, 8)).await
}

/// Leaves what is not folded in the journal, and opens again.
async fn again(store: Arc<Store>, engine: &Arc<MemoryEngine>) -> Arc<Store> {
    store.leave().await.unwrap();
    drop(store);
    open(engine).await
}

async fn create(store: &Arc<Store>, disk: &str) {
    store.create_disk(&name(disk), DISK_BYTES, DiskSettings::default()).await.unwrap();
}

async fn write(store: &Arc<Store>, disk: &str, block: u64, blocks: u64, byte: u8) {
    let attachment = store.attach(&disk.parse().unwrap()).unwrap();
    for at in block..block + blocks {
        // Unlike any other, so that nothing is found by deduplication.
        let data: Vec<u8> =
            (0..512u64).flat_map(|i| (at << 16 | i << 8 | u64::from(byte)).to_le_bytes()).collect();
        attachment.write(at * 4096, &data, false).await.unwrap();
    }
}

async fn holds(store: &Arc<Store>, export: &str, block: u64, byte: u8) -> bool {
    let mut found = vec![0; 4096];
    store.attach(&export.parse().unwrap()).unwrap().read(block * 4096, &mut found).await.unwrap();
    let word = block << 16 | u64::from(byte);
    found[..8] == if byte == 0 { [0; 8] } else { word.to_le_bytes() }
}

async fn fold(store: &Arc<Store>) {
    store.fold_everything().await.unwrap();
}

async fn objects(engine: &MemoryEngine, prefix: &str) -> usize {
    engine.list(prefix, None, 100_000).await.unwrap().len()
}

async fn assert_sound(store: &Store) {
    let checked = store.check().await.unwrap();
    assert_eq!((checked.problems.as_slice(), checked.lost_blocks), (&[][..], 0));
}

fn rot(engine: &MemoryEngine, key: &str) {
    assert!(engine.rot(&Key::new(key), BIT), "'{key}' is there");
}

#[test]
fn the_pool_opens_without_the_disk_and_the_disk_comes_back_whole() {
    run(async {
        let engine = Arc::new(MemoryEngine::default());
        let store = open(&engine).await;
        create(&store, "bad").await;
        create(&store, "good").await;
        write(&store, "bad", 0, 4, 1).await;
        write(&store, "good", 0, 4, 1).await;
        fold(&store).await;
        write(&store, "bad", 2, 4, 2).await;
        store.snapshot(&[name("bad"), name("good")], Some(name("s"))).await.unwrap();
        write(&store, "bad", 100, 1, 3).await;
        store.leave().await.unwrap();
        rot(&engine, "head/bad");

        let mut store = open(&engine).await;
        for round in 0..3u8 {
            let refused = store.attach(&"bad".parse().unwrap()).err().unwrap();
            assert_eq!(refused.kind(), Kind::Corrupt);
            assert!(
                refused.to_string().contains("'bad'") && refused.to_string().contains("head/bad"),
                "{refused}"
            );
            assert_eq!(store.damaged_disks().iter().map(|d| d.name.as_str()).collect::<Vec<_>>(), ["bad"]);
            assert_eq!(store.disks().len(), 1);
            assert_eq!(store.remove_disk(&name("bad")).await.unwrap_err().kind(), Kind::Corrupt);
            let taken = store.create_disk(&name("bad"), DISK_BYTES, DiskSettings::default()).await;
            assert_eq!(taken.unwrap_err().kind(), Kind::AlreadyExists);
            write(&store, "good", 0, 4, 10 + round).await;
            fold(&store).await;
            assert_eq!(store.reclaim().await.unwrap_err().kind(), Kind::Corrupt);
            let checked = store.check().await.unwrap();
            assert_eq!(checked.problems.len(), 1, "{:?}", checked.problems);
            store = again(store, &engine).await;
        }
        store.leave().await.unwrap();
        rot(&engine, "head/bad");

        let store = open(&engine).await;
        for (export, block, byte) in
            [("bad", 0, 1), ("bad", 2, 2), ("bad", 5, 2), ("bad", 100, 3), ("bad@s", 5, 2), ("bad@s", 100, 0)]
        {
            assert!(holds(&store, export, block, byte).await, "{export} at {block}");
        }
        assert!(holds(&store, "good", 3, 12).await && holds(&store, "good@s", 3, 1).await);
        store.reclaim().await.unwrap();
        assert_sound(&store).await;
        assert!(engine.journal_list().await.unwrap().len() <= 1, "no journal is kept any longer");
    });
}

/// Goal: what only a hidden clone holds stays, whatever happens to what it began as.
#[test]
fn what_a_hidden_clone_shares_is_not_given_back() {
    run(async {
        for counted in [false, true] {
            let engine = Arc::new(MemoryEngine::default());
            let store = open(&engine).await;
            create(&store, "golden").await;
            create(&store, "other").await;
            write(&store, "golden", 0, 64, 1).await;
            store.snapshot(&[name("golden")], Some(name("s"))).await.unwrap();
            store.clone_snapshot(&snap("golden@s"), &name("clone")).await.unwrap();
            write(&store, "clone", 0, 8, 2).await;
            fold(&store).await;
            if counted {
                store.reclaim().await.unwrap();
            }
            store.leave().await.unwrap();
            rot(&engine, "head/clone");

            let mut store = open(&engine).await;
            store.remove_snapshot(&snap("golden@s")).await.unwrap();
            write(&store, "golden", 0, 64, 3).await;
            fold(&store).await;
            store.remove_disk(&name("golden")).await.unwrap();
            for round in 0..4 {
                write(&store, "other", 0, 300, 4 + round).await;
                fold(&store).await;
                store.reclaim().await.unwrap_err();
                store = again(store, &engine).await;
            }
            store.leave().await.unwrap();
            rot(&engine, "head/clone");

            let store = open(&engine).await;
            store.reclaim().await.unwrap();
            store.drop_cache();
            for block in 0..64 {
                assert!(holds(&store, "clone", block, if block < 8 { 2 } else { 1 }).await, "block {block}");
            }
            assert_sound(&store).await;
            store.remove_disk(&name("clone")).await.unwrap();
            store.remove_disk(&name("other")).await.unwrap();
            store.reclaim().await.unwrap();
            assert_sound(&store).await;
            assert_eq!((objects(&engine, "segment/").await, objects(&engine, "gone/").await), (0, 0));
        }
    });
}

/// Goal: a disk that is given up gives all back that nobody else refers to; clones of it keep what they share, and are as any disk.
#[test]
fn a_disk_that_is_given_up_gives_its_space_back_and_its_clones_live_on() {
    run(async {
        for counted in [false, true] {
            let engine = Arc::new(MemoryEngine::default());
            let store = open(&engine).await;
            create(&store, "golden").await;
            write(&store, "golden", 0, 64, 1).await;
            store.snapshot(&[name("golden")], Some(name("s"))).await.unwrap();
            for clone in ["one", "two"] {
                store.clone_snapshot(&snap("golden@s"), &name(clone)).await.unwrap();
            }
            // Of what they share: overwritten before any snapshot of the clone, and after one.
            write(&store, "one", 0, 8, 2).await;
            fold(&store).await;
            store.snapshot(&[name("one")], Some(name("mine"))).await.unwrap();
            write(&store, "one", 8, 8, 2).await;
            write(&store, "golden", 100, 500, 3).await;
            fold(&store).await;
            if counted {
                store.reclaim().await.unwrap();
            }
            store.leave().await.unwrap();
            rot(&engine, "head/golden");

            let store = open(&engine).await;
            assert_eq!(store.give_up_disk(&name("one")).await.unwrap_err().kind(), Kind::Invalid);
            assert_eq!(store.give_up_disk(&name("none")).await.unwrap_err().kind(), Kind::NotFound);
            store.give_up_disk(&name("golden")).await.unwrap();
            assert_eq!(store.give_up_disk(&name("golden")).await.unwrap_err().kind(), Kind::NotFound);
            create(&store, "golden").await;
            let store = again(store, &engine).await;
            store.reclaim().await.unwrap();
            assert_sound(&store).await;
            assert_eq!(objects(&engine, "lost/").await, 0);
            let live = store.status().await.unwrap().live_bytes / 4096;
            assert!(live < 64 + 16 + 40, "{live} blocks and nodes are counted");
            store.drop_cache();
            for block in 0..64 {
                assert!(holds(&store, "two", block, 1).await);
                assert!(holds(&store, "one", block, if block < 16 { 2 } else { 1 }).await);
                assert!(holds(&store, "one@mine", block, if block < 8 { 2 } else { 1 }).await);
            }
            // From here on they are as any other.
            write(&store, "two", 0, 32, 7).await;
            store.remove_snapshot(&snap("one@mine")).await.unwrap();
            write(&store, "one", 0, 64, 8).await;
            fold(&store).await;
            store.reclaim().await.unwrap();
            assert_sound(&store).await;
            assert!(holds(&store, "two", 40, 1).await && holds(&store, "two", 0, 7).await);
            for disk in ["one", "two", "golden"] {
                store.remove_disk(&name(disk)).await.unwrap();
            }
            store.reclaim().await.unwrap();
            assert_sound(&store).await;
            assert_eq!((objects(&engine, "segment/").await, objects(&engine, "gone/").await), (0, 0));
        }
    });
}

/// Goal: a removed disk's head is missed by nobody: its clones live on, and its space comes back.
#[test]
fn a_removed_disk_whose_head_cannot_be_read_is_counted_out() {
    run(async {
        let engine = Arc::new(MemoryEngine::default());
        let store = open(&engine).await;
        create(&store, "golden").await;
        write(&store, "golden", 0, 64, 1).await;
        store.snapshot(&[name("golden")], Some(name("s"))).await.unwrap();
        store.clone_snapshot(&snap("golden@s"), &name("clone")).await.unwrap();
        write(&store, "clone", 0, 8, 2).await;
        write(&store, "golden", 0, 400, 3).await;
        store.remove_snapshot(&snap("golden@s")).await.unwrap();
        fold(&store).await;
        store.remove_disk(&name("golden")).await.unwrap();
        store.leave().await.unwrap();
        let gone = engine.list("gone/", None, 10).await.unwrap().remove(0).key;
        rot(&engine, gone.as_str());

        let store = open(&engine).await;
        assert!(store.damaged_disks().is_empty());
        store.reclaim().await.unwrap();
        assert_sound(&store).await;
        assert_eq!(objects(&engine, "gone/").await, 0);
        let live = store.status().await.unwrap().live_bytes / 4096;
        assert!(live < 64 + 30, "{live} blocks and nodes are counted");
        for block in 0..64 {
            assert!(holds(&store, "clone", block, if block < 8 { 2 } else { 1 }).await);
        }
        store.remove_disk(&name("clone")).await.unwrap();
        store.reclaim().await.unwrap();
        assert_sound(&store).await;
        assert_eq!(objects(&engine, "segment/").await, 0);
    });
}

/// Goal: of a removal that was broken off half-way the head that can be read counts.
#[test]
fn a_removal_that_was_broken_off_is_undone_when_only_the_old_head_can_be_read() {
    run(async {
        let engine = Arc::new(MemoryEngine::default());
        let store = open(&engine).await;
        create(&store, "web").await;
        write(&store, "web", 0, 4, 1).await;
        fold(&store).await;
        let (head, _) = engine.get(&Key::new("head/web")).await.unwrap();
        store.remove_disk(&name("web")).await.unwrap();
        store.leave().await.unwrap();
        engine.put_new(&Key::new("head/web"), head).await.unwrap();
        let gone = engine.list("gone/", None, 10).await.unwrap().remove(0).key;
        rot(&engine, gone.as_str());

        let store = open(&engine).await;
        assert!(holds(&store, "web", 3, 1).await);
        assert_eq!(objects(&engine, "gone/").await, 0);
        store.reclaim().await.unwrap();
        assert_sound(&store).await;
    });
}
