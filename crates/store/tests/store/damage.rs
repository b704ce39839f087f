//! What is damaged, or cannot be read for a while.
//!
//! Goal: it costs its own disk and nobody else, is told in the user's words, and ends neither the fold nor reclaim.

use crate::pool::{
    BLOCK, attach, contents, create, create_sized, name, noise, open, options, read, run, segment_bytes,
    settled, snap, write,
};
use crate::script::scripted;
use std::ops::Range;
use std::sync::Arc;
use stonefold_engine::wrap::{Ask, Decision};
use stonefold_engine::{Engine, Key, MemoryEngine};
use stonefold_types::Kind;

/// Past bug: a round of the fold ended at the first disk that could not be folded, and every disk's writes waited for
/// room for ever.
#[test]
fn a_damaged_disk_holds_up_no_other() {
    run(async {
        let engine = Arc::new(MemoryEngine::default());
        let store = open(engine.clone(), options(1, 1)).await;
        create_sized(&store, "sound", 3 << 20).await;
        create_sized(&store, "damaged", 3 << 20).await;
        attach(&store, "damaged").write(0, &[1; 4096], false).await.unwrap();
        store.close().await.unwrap();
        for segment in engine.list("segment/", None, 100).await.unwrap() {
            // The first frame lies behind the header of 80 bytes.
            assert!(engine.rot(&segment.key, 8 * 90));
        }
        let store = open(engine, options(1, 1)).await;
        let (sound, damaged) = (attach(&store, "sound"), attach(&store, "damaged"));
        let mut block = [0; 4096];
        assert_eq!(damaged.read(0, &mut block).await.unwrap_err().kind(), Kind::Corrupt);
        damaged.write(4096, &[2; 4096], true).await.unwrap();
        let told = loop {
            if let Err(error) = damaged.write(8192, &[3; 4096], false).await {
                break error;
            }
            sound.write(0, &vec![4; 1 << 19], false).await.unwrap();
            tokio::task::yield_now().await;
        };
        assert_eq!(told.kind(), Kind::Corrupt);
        assert!(told.to_string().contains("'damaged'"), "{told}");
        for _ in 0..20 {
            sound.write(0, &vec![5; 1 << 19], false).await.unwrap();
        }
        damaged.read(4096, &mut block).await.unwrap();
        assert_eq!(block, [2; 4096], "what was acknowledged is still there");
        assert_eq!(contents(&sound).await[..1 << 19], vec![5; 1 << 19]);
    });
}

#[test]
fn damage_is_told_by_disk_and_place() {
    run(async {
        let memory = Arc::new(MemoryEngine::default());
        let engine: Arc<dyn Engine> = memory.clone();
        let store = open(engine.clone(), options(8, 64)).await;
        create(&store, "web").await;
        attach(&store, "web").write(1 << 20, &noise(1, 8 * BLOCK), false).await.unwrap();
        store.snapshot(&[name("web")], Some(name("monday"))).await.unwrap();
        store.close().await.unwrap();
        let segments = engine.list("segment/", None, 100).await.unwrap();
        // The one with data is the longer; its first frame lies behind the header of 80 bytes.
        let data = segments.iter().max_by_key(|one| one.bytes).unwrap();
        assert!(memory.rot(&data.key, 8 * 90));
        let store = open(engine, options(8, 64)).await;
        let checked = store.check().await.unwrap();
        let told = checked.problems.join("\n");
        assert!(told.contains("'web', 'web@monday' cannot be read from 1048576 for 8192 bytes"), "{told}");
        assert_eq!(store.scrub().await.unwrap().healed, 0, "there is no other copy");
    });
}

/// Flips bits all over a part of an object.
fn ruin(memory: &MemoryEngine, key: &Key, bytes: Range<u64>) {
    for byte in bytes.step_by(16) {
        assert!(memory.rot(key, byte * 8 + 3));
    }
}

/// Past bug: a removed disk whose map cannot be read ended reclaim for the whole pool, also after restarts.
#[test]
fn a_removed_disk_with_a_damaged_map_holds_up_nobody() {
    run(async {
        let memory = Arc::new(MemoryEngine::default());
        let engine: Arc<dyn Engine> = memory.clone();
        let store = settled(&engine).await;
        create(&store, "bad").await;
        write(&store, "bad", 0, &noise(1, 8 << 20)).await;
        store.close().await.unwrap();
        let segments = engine.list("segment/", None, 10).await.unwrap();
        let map = segments.iter().min_by_key(|one| one.bytes).unwrap();
        assert!(segments.len() == 2 && map.bytes < 1 << 20, "{segments:?}");
        // The first leaf.
        ruin(&memory, &map.key, 96..1000);
        let store = settled(&engine).await;
        assert!(!store.check().await.unwrap().problems.is_empty(), "the damage is seen");
        create(&store, "good").await;
        write(&store, "good", 0, &noise(2, 8 << 20)).await;
        store.reclaim().await.unwrap();
        store.remove_disk(&name("bad")).await.unwrap();
        write(&store, "good", 0, &noise(3, 8 << 20)).await;
        store.reclaim().await.unwrap();
        let bytes = segment_bytes(&engine).await;
        let (live, unreadable) = (8 << 20, 2 << 20);
        assert!(bytes < live + unreadable, "{bytes} bytes are taken, and {live} are alive");
        assert!(engine.list("gone/", None, 10).await.unwrap().is_empty(), "the removal came to its end");
        let checked = store.check().await.unwrap();
        assert!(
            checked.problems.is_empty() && checked.lost_blocks > 0,
            "what cannot come back is told: {checked:?}"
        );
        assert!(read(&store, "good", 0, 8 << 20).await == noise(3, 8 << 20));
    });
}

/// Past bug: the same, of a snapshot behind which a section of the ledger is damaged.
#[test]
fn a_damaged_section_of_the_ledger_holds_up_nobody() {
    run(async {
        let memory = Arc::new(MemoryEngine::default());
        let engine: Arc<dyn Engine> = memory.clone();
        let store = settled(&engine).await;
        for (disk, seed) in [("bad", 1), ("good", 5)] {
            create(&store, disk).await;
            write(&store, disk, 0, &noise(seed, 4 << 20)).await;
        }
        store.snapshot(&[name("bad")], Some(name("s"))).await.unwrap();
        write(&store, "bad", 0, &noise(2, 4 << 20)).await;
        store.reclaim().await.unwrap();
        let ledgers = engine.list("ledger/", None, 10).await.unwrap();
        assert_eq!(ledgers.len(), 1, "only the deaths behind the snapshot are left: {ledgers:?}");
        ruin(&memory, &ledgers[0].key, 0..ledgers[0].bytes);
        for round in 0..70 {
            write(&store, "bad", 8 << 20, &noise(round, BLOCK)).await;
            store.diff(&snap("bad@s"), None).await.unwrap();
        }
        store.remove_snapshot(&snap("bad@s")).await.unwrap();
        write(&store, "good", 0, &noise(3, 4 << 20)).await;
        store.reclaim().await.unwrap();
        // What both hold now, and what only the damaged section names.
        let (bytes, taken) = (segment_bytes(&engine).await, 3 * (4 << 20));
        assert!(bytes < taken + (1 << 20), "{bytes} bytes are taken, and that should be {taken}");
        assert!(read(&store, "bad", 0, 4 << 20).await == noise(2, 4 << 20));
        store.remove_disk(&name("bad")).await.unwrap();
        store.reclaim().await.unwrap();
        assert!(engine.list("gone/", None, 10).await.unwrap().is_empty(), "the removal came to its end");
        assert!(read(&store, "good", 0, 4 << 20).await == noise(3, 4 << 20));
    });
}

/// Past bugs: its data was stored anew in each round, and while its map could not be read, it took the room of all writers.
#[test]
fn a_disk_that_cannot_be_folded_costs_the_others_nothing() {
    run(async {
        let memory = Arc::new(MemoryEngine::default());
        let (engine, script) = scripted(&memory);
        let journal_mib = 4;
        let store = open(engine, options(1, journal_mib)).await;
        create(&store, "ailing").await;
        create(&store, "sound").await;
        let (ailing, sound) = (attach(&store, "ailing"), attach(&store, "sound"));
        ailing.write(0, &[1; 4096], false).await.unwrap();
        store.snapshot(&[name("ailing")], Some(name("s"))).await.unwrap();
        store.diff(&snap("ailing@s"), None).await.unwrap();
        store.drop_cache();
        script.always(Ask::GetRange, "segment/", Decision::fail(Kind::Io));
        ailing.write(4096, &vec![2; 1 << 20], false).await.unwrap();
        for _ in 0..3 {
            assert_eq!(store.diff(&snap("ailing@s"), None).await.unwrap_err().kind(), Kind::Io);
        }
        let refused = ailing.write(8192, &[3; 4096], false).await.unwrap_err();
        assert!(refused.to_string().contains("'ailing'"), "{refused}");
        let segments = async || memory.list("segment/", None, 1 << 20).await.unwrap().len();
        let before = segments().await;
        for _ in 0..20 {
            store.diff(&snap("ailing@s"), None).await.unwrap_err();
        }
        assert_eq!(segments().await, before, "nothing is stored for nothing");
        // More than the journal may hold: the fold goes on with the others.
        for at in 0..3 * journal_mib {
            sound.write(at << 20, &vec![4; 1 << 20], false).await.unwrap();
        }
        script.clear();
        store.diff(&snap("ailing@s"), None).await.unwrap();
        ailing.write(0, &[5; 4096], false).await.unwrap();
        assert_eq!(read(&store, "ailing", 0, BLOCK).await, [5; BLOCK]);
        assert_eq!(read(&store, "ailing", 4096, BLOCK).await, [2; BLOCK]);
    });
}
