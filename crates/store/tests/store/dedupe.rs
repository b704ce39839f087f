//! Blocks that the pool has already.

use crate::disks::{create, open};
use crate::pool::{BLOCK, attach, contents, counter, name, noise, run};
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
        store.set_disk(&name("off"), settings).await.unwrap();
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
