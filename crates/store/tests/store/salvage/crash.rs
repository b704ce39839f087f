//! Goal: whatever call of the engine fails in the midst of a salvage, and whenever the power goes, the pool is as it was, or has a whole
//! new disk; and the next salvage succeeds. Method: the calls fail one after another, each with and without having taken effect.

use super::{DISK_BYTES, LEAF, Tags, lost, open, options, pool, remove, reopen, rot_nodes, write};
use crate::pool::{master, name, run};
use crate::script::scripted;
use std::sync::Arc;
use stonefold_engine::wrap::{Ask, Decision};
use stonefold_engine::{Engine, MemoryEngine};
use stonefold_store::{Options, Store};
use stonefold_types::{DiskSettings, Kind};

/// A pool at rest whose disk `web` has lost its root and a leaf.
async fn damaged() -> (Arc<MemoryEngine>, Tags) {
    let memory = Arc::new(MemoryEngine::default());
    let engine: Arc<dyn Engine> = memory.clone();
    let store = open(&engine).await;
    store.create_disk(&name("web"), DISK_BYTES, DiskSettings::default()).await.unwrap();
    let mut tags = Tags::new(LEAF + 20);
    write(&store, "web", &mut tags, 0..LEAF + 20, 1000).await;
    store.reclaim().await.unwrap();
    let store = reopen(store, &engine).await;
    store.reclaim().await.unwrap();
    store.leave().await.unwrap();
    rot_nodes(&memory, 3, 0).await;
    rot_nodes(&memory, 0, 256).await;
    (memory, tags)
}

async fn open_by(engine: &Arc<dyn Engine>) -> Arc<Store> {
    let store = pool::open(engine.clone(), Options { keys: master(3), ..options(8, 8) }).await;
    // Of a damaged map not everything can be counted; nothing else stirs by itself from here on.
    let _ = store.reclaim().await;
    store
}

/// What a failed or broken-off salvage left is sound, and another one is made.
async fn goes_on(memory: &Arc<MemoryEngine>, tags: &Tags, when: &str) {
    println!("{when}");
    let engine: Arc<dyn Engine> = memory.clone();
    let store = open(&engine).await;
    for disk in store.disks().iter().map(|disk| disk.name.to_string()).filter(|disk| disk != "web") {
        assert!(lost(&store, &disk, tags, true).await.is_empty(), "{when}: '{disk}' is whole");
    }
    let salvage = store.salvage().await.unwrap();
    let made = salvage.salvaged[0].disk.as_ref().unwrap().to_string();
    remove(&store, &[], &["web"]).await;
    for disk in store.disks().iter().map(|disk| disk.name.to_string()) {
        assert!(lost(&store, &disk, tags, true).await.is_empty(), "{when}: '{disk}' beside '{made}'");
    }
    assert!(store.check().await.unwrap().problems.is_empty(), "{when}");
    store.leave().await.unwrap();
}

#[test]
fn whatever_fails_leaves_a_sound_pool() {
    run(async {
        let calls = [(Ask::PutNew, "segment/"), (Ask::PutNew, "ledger/"), (Ask::PutNew, "head/")];
        let reads = [(Ask::Get, "segment/"), (Ask::GetRange, "segment/"), (Ask::List, "segment/")];
        for (ask, prefix) in calls.into_iter().chain(reads) {
            let mut skip = 0;
            loop {
                let (memory, tags) = damaged().await;
                let (engine, script) = scripted(&memory);
                let store = open_by(&engine).await;
                script.after(skip, ask, prefix, Decision::fail(Kind::Io));
                let salvage = store.salvage().await;
                let played = script.is_over();
                script.clear();
                // The store that goes on must not meddle.
                let after = Arc::new(memory.after_crash(&mut |_| 0));
                drop(store);
                let when = format!("{ask:?} of '{prefix}' after {skip}: {salvage:?}");
                goes_on(&after, &tags, &when).await;
                if !played {
                    break;
                }
                // Of reads there are many that are alike.
                skip += if ask == Ask::GetRange { 3 } else { 1 };
            }
        }
    });
}

/// Goal: after a loss of power whatever was told to be made is there, and whatever is there is whole.
#[test]
fn a_loss_of_power_leaves_all_or_nothing() {
    run(async {
        let (memory, tags) = damaged().await;
        let engine: Arc<dyn Engine> = memory.clone();
        let store = open_by(&engine).await;
        store.salvage().await.unwrap();
        let after = Arc::new(memory.after_crash(&mut |_| 0));
        drop(store);
        let engine: Arc<dyn Engine> = after.clone();
        let store = open(&engine).await;
        assert!(store.disk(&name("web.salvaged")).is_ok());
        store.leave().await.unwrap();
        goes_on(&after, &tags, "after a loss of power").await;
    });
}
