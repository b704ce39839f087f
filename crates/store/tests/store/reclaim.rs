//! Giving space back, on an engine in memory.
//!
//! Goal: what nothing refers to comes back, all of it and nothing else; the work grows with what changed; what moves is
//! still found.

use crate::beside::beside;
use crate::pool::{
    self, BLOCK, attach, create, env, name, noise, options, read, run, segment_bytes, snap, sound,
};
use crate::script::scripted;
use std::sync::Arc;
use std::time::Duration;
use stonefold_engine::wrap::{Ask, Decision, Limits, ThrottleEngine};
use stonefold_engine::{Engine, MemoryEngine, TraceEngine};
use stonefold_store::{Options, Store};
use stonefold_types::Kind;

async fn open(engine: &Arc<dyn Engine>) -> Arc<Store> {
    pool::open(engine.clone(), Options { snapshot_page_records: 4, ..options(8, 64) }).await
}

#[test]
fn a_removed_disk_gives_back_what_it_took() {
    run(async {
        let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::default());
        let store = open(&engine).await;
        create(&store, "stays").await;
        attach(&store, "stays").write(0, &noise(1, 2 << 20), false).await.unwrap();
        store.reclaim().await.unwrap();
        let before = segment_bytes(&engine).await;
        create(&store, "goes").await;
        // Also a part that the other disk has, and some that is rewritten.
        attach(&store, "goes").write(0, &noise(2, 8 << 20), false).await.unwrap();
        attach(&store, "goes").write(512 << 20, &noise(1, 1 << 20), false).await.unwrap();
        store.snapshot(&[name("goes")], Some(name("s"))).await.unwrap();
        attach(&store, "goes").write(1 << 20, &noise(3, 1 << 20), false).await.unwrap();
        store.remove_snapshot(&snap("goes@s")).await.unwrap();
        store.remove_disk(&name("goes")).await.unwrap();
        let done = store.reclaim().await.unwrap();
        let after = segment_bytes(&engine).await;
        assert!(after <= before + before / 20, "{before} bytes became {after}: {done:?}");
        assert!(engine.list("gone/", None, 10).await.unwrap().is_empty(), "the removed head is gone");
        assert!(engine.list("ledger/", None, 10).await.unwrap().is_empty(), "every ledger was taken over");
        assert_eq!(read(&store, "stays", 0, 2 << 20).await, noise(1, 2 << 20));
        sound(&store).await;
    });
}

#[test]
fn a_removed_snapshot_gives_back_what_it_alone_held() {
    run(async {
        let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::default());
        let store = open(&engine).await;
        create(&store, "a").await;
        let mut sizes = Vec::new();
        for round in 0..3u64 {
            attach(&store, "a").write(0, &noise(round, 4 << 20), false).await.unwrap();
            store.snapshot(&[name("a")], Some(name(&format!("s{round}")))).await.unwrap();
        }
        attach(&store, "a").write(0, &noise(9, 4 << 20), false).await.unwrap();
        store.reclaim().await.unwrap();
        sizes.push(segment_bytes(&engine).await);
        for gone in ["s1", "s0", "s2"] {
            store.remove_snapshot(&snap(&format!("a@{gone}"))).await.unwrap();
            store.reclaim().await.unwrap();
            sizes.push(segment_bytes(&engine).await);
            for left in store.snapshots(None).unwrap() {
                let round = left.name.snapshot.as_str()[1..].parse().unwrap();
                assert_eq!(read(&store, &left.name.to_string(), 0, 4 << 20).await, noise(round, 4 << 20));
            }
            sound(&store).await;
        }
        for (at, size) in sizes.iter().enumerate() {
            let live = (4 - at as u64) * (4 << 20);
            assert!((live..live + live / 10).contains(size), "after {at} removals {size} bytes: {sizes:?}");
        }
    });
}

/// Goal: who asks for space back has an answer, though somebody goes on overwriting. *Past bug*: there was always one more block to
/// look at again.
#[test]
fn reclaim_ends_beside_one_who_overwrites() {
    const ROUNDS: u64 = 200;
    run(async {
        // So that both go on side by side.
        let limits = Limits { latency: Duration::from_micros(200), ..Limits::default() };
        let slow = ThrottleEngine::new(Arc::new(MemoryEngine::default()), env(), limits);
        let engine: Arc<dyn Engine> = Arc::new(slow);
        let store = open(&engine).await;
        create(&store, "a").await;
        store.snapshot(&[name("a")], Some(name("s"))).await.unwrap();
        let by = store.clone();
        let overwriting = beside(async move {
            for round in 0..ROUNDS {
                let a = attach(&by, "a");
                a.write(round % 7 * BLOCK as u64, &noise(round, BLOCK), false).await.unwrap();
                by.diff(&snap("a@s"), None).await.unwrap();
            }
        });
        store.reclaim().await.unwrap();
        assert!(!overwriting.is_finished(), "reclaim waited for the end of all writing");
    });
}

/// Rounds of the fold add sections to a head; it must not grow with their number.
#[test]
fn many_rounds_behind_a_snapshot_keep_the_head_short() {
    run(async {
        let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::default());
        let store = open(&engine).await;
        create(&store, "a").await;
        attach(&store, "a").write(0, &noise(1, 400 * BLOCK), false).await.unwrap();
        store.snapshot(&[name("a")], Some(name("s"))).await.unwrap();
        for round in 0..200u64 {
            attach(&store, "a")
                .write(round * 2 * BLOCK as u64, &noise(round + 2, BLOCK), false)
                .await
                .unwrap();
            store.diff(&snap("a@s"), None).await.unwrap();
            if round % 50 == 49 {
                store.reclaim().await.unwrap();
            }
        }
        let head = engine.list("head/", None, 10).await.unwrap().remove(0).bytes;
        assert!(head < 4000, "the head has {head} bytes");
        assert!(engine.list("ledger/", None, 1000).await.unwrap().len() < 120, "merged ledgers are deleted");
        assert_eq!(read(&store, "a@s", 0, 400 * BLOCK).await, noise(1, 400 * BLOCK));
        store.remove_snapshot(&snap("a@s")).await.unwrap();
        let done = store.reclaim().await.unwrap();
        assert!(done.dead_blocks >= 200, "{done:?}");
        sound(&store).await;
    });
}

#[test]
fn what_was_moved_is_found_by_old_maps() {
    run(async {
        let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::default());
        let store = open(&engine).await;
        create(&store, "a").await;
        // Half incompressible, so that frames have several sizes.
        let mut data = noise(7, 4 << 20);
        data.chunks_mut(3 * BLOCK).for_each(|chunk| chunk[..BLOCK].fill(5));
        attach(&store, "a").write(0, &data, false).await.unwrap();
        store.snapshot(&[name("a")], Some(name("s"))).await.unwrap();
        store.clone_snapshot(&snap("a@s"), &name("c")).await.unwrap();
        // Every other block of most frames dies, then more.
        for (round, step) in [(1u64, 2), (2, 3)] {
            for block in (0..data.len() / BLOCK).step_by(step) {
                let fresh = noise(round << 32 | block as u64, BLOCK);
                data[block * BLOCK..][..BLOCK].copy_from_slice(&fresh);
                for disk in ["a", "c"] {
                    attach(&store, disk).write((block * BLOCK) as u64, &fresh, false).await.unwrap();
                }
            }
            if round == 1 {
                store.remove_snapshot(&snap("a@s")).await.unwrap();
            }
            let done = store.reclaim().await.unwrap();
            store.drop_cache();
            assert_eq!(read(&store, "c", 0, data.len()).await, data, "the clone, round {round}");
            assert_eq!(read(&store, "a", 0, data.len()).await, data, "round {round}: {done:?}");
        }
        store.remove_disk(&name("c")).await.unwrap();
        let done = store.reclaim().await.unwrap();
        assert!(done.rewritten_segments > 0, "{done:?}");
        store.drop_cache();
        assert_eq!(read(&store, "a", 0, data.len()).await, data);
        let bytes = segment_bytes(&engine).await;
        assert!(bytes < data.len() as u64 * 5 / 4, "{bytes} bytes for {}", data.len());
        store.close().await.unwrap();
        let store = open(&engine).await;
        assert_eq!(read(&store, "a", 0, data.len()).await, data, "after a restart");
        sound(&store).await;
    });
}

/// An engine refuses a short segment as a whole, not its parts, when something in it is damaged: what of it is sound is taken along.
#[test]
fn a_segment_that_cannot_be_had_as_a_whole_holds_up_nothing() {
    run(async {
        let (engine, script) = scripted(&Arc::new(MemoryEngine::default()));
        let store = open(&engine).await;
        create(&store, "a").await;
        let mut data = noise(1, 4 << 20);
        attach(&store, "a").write(0, &data, false).await.unwrap();
        store.reclaim().await.unwrap();
        script.always(Ask::Get, "segment/", Decision::fail(Kind::Corrupt));
        data[..3 << 20].copy_from_slice(&noise(2, 3 << 20));
        attach(&store, "a").write(0, &data[..3 << 20], false).await.unwrap();
        let done = store.reclaim().await.unwrap();
        assert!(done.rewritten_segments > 0, "{done:?}");
        store.drop_cache();
        assert!(read(&store, "a", 0, data.len()).await == data);
        sound(&store).await;
    });
}

/// Past bug: the new form of a segment of blocks that compress well was given too little room, and the process ended.
#[test]
fn what_compresses_well_is_written_anew() {
    run(async {
        let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::default());
        let store = open(&engine).await;
        create(&store, "a").await;
        let mut data = vec![0; 64 << 20];
        data.chunks_mut(BLOCK).enumerate().for_each(|(at, block)| {
            block[..8].copy_from_slice(&(at as u64 + 1).to_le_bytes());
        });
        for (at, part) in data.chunks(1 << 20).enumerate() {
            attach(&store, "a").write((at << 20) as u64, part, false).await.unwrap();
        }
        store.reclaim().await.unwrap();
        let mut rewritten = 0;
        // First whole frames, then blocks within them.
        for (step, blocks) in [(16, 8), (3, 1)] {
            for frame in (0..data.len() / (8 * BLOCK)).step_by(step) {
                let range = frame * 8 * BLOCK..(frame * 8 + blocks) * BLOCK;
                attach(&store, "a").zero(range.start as u64, range.len() as u64, false).await.unwrap();
                data[range].fill(0);
            }
            for _ in 0..2 {
                rewritten += store.reclaim().await.unwrap().rewritten_segments;
            }
        }
        assert!(rewritten > 0);
        store.drop_cache();
        assert!(read(&store, "a", 0, data.len()).await == data);
        sound(&store).await;
    });
}

/// Reclaim after one block in a hundred changed asks the engine for far less than the first one, and than the maps have
/// nodes.
#[test]
fn the_work_grows_with_what_changed() {
    run(async {
        let trace = Arc::new(TraceEngine::new(Arc::new(MemoryEngine::default()), env()));
        let engine: Arc<dyn Engine> = trace.clone();
        let store = open(&engine).await;
        create(&store, "a").await;
        let blocks = 40_000usize;
        for at in (0..blocks * BLOCK).step_by(1 << 20) {
            attach(&store, "a").write(at as u64, &noise(at as u64, 1 << 20), false).await.unwrap();
        }
        store.snapshot(&[name("a")], Some(name("s"))).await.unwrap();
        store.reclaim().await.unwrap();
        let nodes = store.check().await.unwrap().nodes;
        for block in (0..blocks).step_by(100) {
            attach(&store, "a")
                .write((block * BLOCK) as u64, &noise(block as u64, BLOCK), false)
                .await
                .unwrap();
        }
        store.snapshot(&[name("a")], Some(name("t"))).await.unwrap();
        store.diff(&snap("a@t"), None).await.unwrap();
        store.drop_cache();
        let asked = || {
            let counts = trace.counts();
            let reads = counts.iter().filter(|count| matches!(count.ask, Ask::Get | Ask::GetRange));
            reads.map(|count| count.operations).sum::<u64>()
        };
        let before = asked();
        store.remove_snapshot(&snap("a@s")).await.unwrap();
        let done = store.reclaim().await.unwrap();
        let reads = asked() - before;
        assert!(done.dead_blocks > 0, "{done:?}");
        // Every leaf changed; a walk of the map would have read each of them.
        assert!(nodes > 150 && reads < nodes / 4, "{reads} reads, {nodes} nodes, {done:?}");
    });
}
