//! Blocks that the pool has already.

use crate::disks::{create, open};
use crate::pool::{self, BLOCK, attach, contents, counter, create_sized, name, noise, options, run};
use std::sync::Arc;
use stonefold_engine::MemoryEngine;
use stonefold_store::Store;
use stonefold_types::DiskSettings;

/// The first pass of reclaim tells dedupe which blocks of earlier sessions it may point at.
async fn first_pass(store: &Store) {
    while counter(store, "reclaim_passes").await == 0 {
        tokio::task::yield_now().await;
    }
}

/// Goal: what the pool has already is not stored again, also after a restart, when only samples are in memory.
#[test]
fn a_second_copy_costs_next_to_nothing() {
    run(async {
        let engine = Arc::new(MemoryEngine::default());
        let used = async |store: &Store| store.status().await.unwrap().used_bytes;
        let data = noise(7, 704 * BLOCK);
        let store = open(&engine).await;
        for disk in ["a", "b", "c", "off"] {
            create(&store, disk).await;
        }
        let settings = DiskSettings { dedupe: false, ..DiskSettings::default() };
        store.set_disk(&name("off"), |_| settings).await.unwrap();
        attach(&store, "a").write(0, &data, false).await.unwrap();
        store.snapshot(&[name("a")], Some(name("s"))).await.unwrap();
        store.diff(&"a@s".parse().unwrap(), None).await.unwrap();
        let samples = counter(&store, "dedupe_samples").await;
        store.close().await.unwrap();

        let store = open(&engine).await;
        while counter(&store, "dedupe_samples").await < samples {
            tokio::task::yield_now().await;
        }
        first_pass(&store).await;
        let once = used(&store).await;
        // Shifted by a block, and written in another rhythm.
        for (at, part) in data.chunks(3 * 4096 * 17).enumerate() {
            attach(&store, "b").write(4096 + (at * 3 * 4096 * 17) as u64, part, false).await.unwrap();
        }
        store.close().await.unwrap();
        let store = open(&engine).await;
        first_pass(&store).await;
        let twice = used(&store).await;
        // A job of 256 blocks has no sample once in 56 times, and is then stored again. All three once in 170,000.
        assert!(twice < once + once * 4 / 5, "{once} bytes became {twice}");
        attach(&store, "off").write(0, &data, false).await.unwrap();
        store.snapshot(&[name("off")], Some(name("s"))).await.unwrap();
        store.diff(&"off@s".parse().unwrap(), None).await.unwrap();
        assert!(used(&store).await > twice + data.len() as u64, "switched off, it is stored again");

        // Single blocks here and there, known since the last fold.
        let before = counter(&store, "dedupe_found_blocks").await;
        for at in 0..50 {
            let block = &data[at * 5 * 4096..][..4096];
            attach(&store, "c").write(at as u64 * 3 * 4096, block, false).await.unwrap();
        }
        store.snapshot(&[name("c")], Some(name("s"))).await.unwrap();
        store.diff(&"c@s".parse().unwrap(), None).await.unwrap();
        let found = counter(&store, "dedupe_found_blocks").await - before;
        assert_eq!(found, 50);
        store.drop_cache();
        assert_eq!(contents(&attach(&store, "b")).await[4096..4096 + data.len()], data[..]);
        assert_eq!(contents(&attach(&store, "off")).await[..data.len()], data[..]);
        for at in 0..50 {
            let mut block = [0; 4096];
            attach(&store, "c").read(at as u64 * 3 * 4096, &mut block).await.unwrap();
            assert_eq!(block[..], data[at * 5 * 4096..][..4096]);
        }
    });
}

/// Goal: a duplicate is found however much was written between, and however lately: what memory holds of neighbourhoods is much less than
/// the pool, and no pass of reclaim has counted it yet. A disk imported twice in a row was stored twice, because what a minute had
/// brought was thought to be in memory still.
#[test]
fn a_copy_is_found_though_memory_holds_but_a_part() {
    run(async {
        const PIECE: usize = 256 * BLOCK;
        const PIECES: usize = 48;
        let engine = Arc::new(MemoryEngine::default());
        // Some 3,000 neighbours, of 12,288 blocks.
        let store = pool::open(engine.clone(), options(4, 8)).await;
        first_pass(&store).await;
        let pieces: Vec<Vec<u8>> = (0..PIECES).map(|number| noise(900 + number as u64, PIECE)).collect();
        for copy in 0..3 {
            let disk = format!("copy-{copy}");
            create_sized(&store, &disk, (PIECES * PIECE) as u64).await;
            let before = counter(&store, "dedupe_found_blocks").await;
            for (number, piece) in pieces.iter().enumerate() {
                attach(&store, &disk).write((number * PIECE) as u64, piece, false).await.unwrap();
                // Each in a round of its own, and so in a segment of its own.
                store.snapshot(&[name(&disk)], Some(name(&format!("s{number}")))).await.unwrap();
                store.diff(&format!("{disk}@s{number}").parse().unwrap(), None).await.unwrap();
            }
            let found = counter(&store, "dedupe_found_blocks").await - before;
            let share = found as f64 / (PIECES * PIECE / BLOCK) as f64;
            // A piece without a sample, one in 56, is stored again.
            assert!(if copy == 0 { share == 0.0 } else { share > 0.8 }, "copy {copy}: {share} found");
            assert_eq!(counter(&store, "reclaim_passes").await, 1, "the one at the start");
        }
    });
}
