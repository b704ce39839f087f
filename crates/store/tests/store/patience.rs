//! Long work beside the short.
//!
//! Goal: nobody waits for what is none of his business.

use crate::beside::beside;
use crate::pool::{
    BLOCK, attach, create, create_sized, env, name, noise, read, run, settled, snap, sound, write,
};
use crate::script::scripted;
use std::sync::Arc;
use std::time::Duration;
use stonefold_engine::wrap::{Ask, Decision};
use stonefold_engine::{Engine, MemoryEngine};
use stonefold_types::Kind;

/// One request of any length leaves the thread to the others, and costs nothing for what is not there.
///
/// Past bug: minutes for a large disk that is empty, in one go.
#[test]
fn bringing_a_range_into_the_cache_holds_up_nobody() {
    run(async {
        let store = settled(&(Arc::new(MemoryEngine::default()) as Arc<dyn Engine>)).await;
        let huge = 16u64 << 40;
        create_sized(&store, "huge", huge).await;
        create(&store, "other").await;
        write(&store, "other", 0, &noise(1, 1 << 20)).await;
        write(&store, "huge", huge - (1 << 20), &noise(2, 1 << 20)).await;
        store.reclaim().await.unwrap();
        store.drop_cache();
        let (warmed, other) = (attach(&store, "huge"), attach(&store, "other"));
        let warming = beside(async move { warmed.prefetch(0, huge).await.map(|()| warmed) });
        let (env, mut slowest) = (env(), Duration::ZERO);
        while !warming.is_finished() {
            let start = env.monotonic();
            other.read(0, &mut [0; BLOCK]).await.unwrap();
            tokio::task::yield_now().await;
            slowest = slowest.max(env.monotonic() - start);
        }
        assert!(slowest < Duration::from_millis(250), "a read beside it took {slowest:?}");
        let warmed = warming.ended().await.unwrap();
        let mut bytes = vec![0; 256 << 10];
        warmed.read_cached(huge - (1 << 20), &mut bytes).expect("it is in the cache").unwrap();
        assert!(bytes == noise(2, 1 << 20)[..256 << 10]);
    });
}

/// Past bug: a rollback held the fold's lock from beginning to end, and writers of all disks waited for it.
#[test]
fn writers_of_other_disks_do_not_wait_for_a_rollback() {
    run(async {
        let (engine, script) = scripted(&Arc::default());
        let store = settled(&engine).await;
        create(&store, "back").await;
        create(&store, "other").await;
        // A block in every leaf, so that there is much to compare.
        let mib = 1u64 << 20;
        let fill = |seed: u64| {
            let back = attach(&store, "back");
            async move {
                for at in 0..300 {
                    back.write(at * mib, &noise(seed << 32 | at, BLOCK), false).await.unwrap();
                }
            }
        };
        fill(1).await;
        store.snapshot(&[name("back")], Some(name("s"))).await.unwrap();
        fill(2).await;
        store.reclaim().await.unwrap();
        store.drop_cache();
        let slow = Decision { delay_before: Duration::from_millis(10), ..Decision::PROCEED };
        script.always(Ask::GetRange, "segment/", slow);
        let by = store.clone();
        let rolling = beside(async move { by.rollback(&snap("back@s")).await });
        env().sleep(Duration::from_millis(300)).await;
        // Three times what may be acknowledged and not folded, so that rounds must go on.
        for at in 0..48 {
            write(&store, "other", at * mib, &noise(100 + at, mib as usize)).await;
        }
        assert!(!rolling.is_finished(), "the writer did not wait for the rollback");
        // Nor may what it has written so far be taken for leftovers.
        store.reclaim().await.unwrap();
        assert!(!rolling.is_finished(), "reclaim did not wait for the rollback");
        assert_eq!(store.attach(&"back".parse().unwrap()).err().map(|e| e.kind()), Some(Kind::Busy));
        script.clear();
        let kept = rolling.ended().await.unwrap();
        store.reclaim().await.unwrap();
        store.drop_cache();
        for at in [0, 17, 299] {
            assert!(read(&store, "back", at * mib, BLOCK).await == noise(1 << 32 | at, BLOCK), "set back");
            let before = read(&store, &kept.name.to_string(), at * mib, BLOCK).await;
            assert!(before == noise(2 << 32 | at, BLOCK), "kept");
        }
        sound(&store).await;
    });
}
