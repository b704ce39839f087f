//! Room promised to a disk.
//!
//! Goal: whatever the others do, a reserved disk can be written to its whole size, with what nothing can be saved of; the others
//! meet "no space" before that, go on reading and trimming, and write again when there is room; nothing is promised twice.

use crate::pool::{self, attach, name, noise, options, run};
use crate::script::{MOMENT, scripted};
use std::sync::Arc;
use stonefold_engine::wrap::{Ask, Decision};
use stonefold_engine::{Engine, MemoryEngine};
use stonefold_store::Store;
use stonefold_types::{DiskSettings, Kind, Result};

const MIB: usize = 1 << 20;
/// Always kept free: twice the journal, 64 MiB, and what reclaim writes before it frees.
const KEPT_FREE: u64 = 200 << 20;
const VM: usize = 32 * MIB;

async fn open(engine: &Arc<dyn Engine>) -> Arc<Store> {
    pool::open(engine.clone(), options(8, 4)).await
}

fn reserved() -> DiskSettings {
    DiskSettings { reserve: true, ..DiskSettings::default() }
}

/// Writes the disk from end to end; reclaim comes by as often as a busy pool would need it.
async fn write_all(store: &Arc<Store>, disk: &str, seed: u64) -> Result<()> {
    let disk = attach(store, disk);
    for at in (0..VM).step_by(MIB) {
        disk.write(at as u64, &noise(seed + at as u64, MIB), false).await?;
        if at % (8 * MIB) == 0 {
            store.reclaim().await?;
        }
    }
    Ok(())
}

/// Writes until there is no space; tells how much went in.
async fn fill(store: &Arc<Store>, disk: &str) -> usize {
    let disk = attach(store, disk);
    for at in (0..1 << 30).step_by(MIB) {
        if let Err(error) = disk.write(at as u64, &noise(77 + at as u64, MIB), false).await {
            assert_eq!(error.kind(), Kind::NoSpace, "{error}");
            return at;
        }
    }
    panic!("the pool has no end");
}

#[test]
fn others_are_refused_before_they_touch_what_was_promised() {
    run(async {
        let memory = Arc::new(MemoryEngine::with_capacity_bytes(340 << 20));
        let engine: Arc<dyn Engine> = memory.clone();
        let store = open(&engine).await;
        store.create_disk(&name("vm"), VM as u64, reserved()).await.unwrap();
        let twice = store.create_disk(&name("big"), 144 << 20, reserved()).await.unwrap_err();
        assert_eq!(twice.kind(), Kind::NoSpace, "{twice}");
        assert!(store.disk(&name("big")).is_err(), "what was refused was not made");
        store.create_disk(&name("other"), 1 << 30, DiskSettings::default()).await.unwrap();

        let went_in = fill(&store, "other").await;
        let free = store.status().await.unwrap().free_bytes;
        assert!(went_in > 40 * MIB && free >= VM as u64 + KEPT_FREE, "{went_in} went in, {free} are free");
        write_all(&store, "vm", 1000).await.unwrap();
        write_all(&store, "vm", 2000).await.unwrap();
        assert!(store.status().await.unwrap().free_bytes < VM as u64 + KEPT_FREE, "the promise was needed");

        let mut found = vec![0; MIB];
        attach(&store, "other").read(0, &mut found).await.unwrap();
        assert_eq!(found, noise(77, MIB), "reads go on");
        let snapshot = store.snapshot(&[name("vm")], Some(name("s"))).await.unwrap_err();
        assert_eq!(snapshot.kind(), Kind::NoSpace, "{snapshot}");

        store.close().await.unwrap();
        let store = open(&engine).await;
        assert!(store.disk(&name("vm")).unwrap().settings.reserve, "it is promised for good");
        // The first round looks at the room.
        store.reclaim().await.unwrap();
        assert!(fill(&store, "other").await < 24 * MIB);
        write_all(&store, "vm", 3000).await.unwrap();

        // What is trimmed comes back, and may be written by anybody; that takes no room, wherever it begins.
        attach(&store, "other").trim(512, went_in as u64 / 2, false).await.unwrap();
        attach(&store, "other").read(0, &mut found).await.unwrap();
        assert!(found[..4096] == noise(77, MIB)[..4096] && found[4096..].iter().all(|byte| *byte == 0));
        store.reclaim().await.unwrap();
        assert!(fill(&store, "other").await > went_in / 4);
        write_all(&store, "vm", 4000).await.unwrap();
        for at in (0..VM).step_by(MIB) {
            attach(&store, "vm").read(at as u64, &mut found).await.unwrap();
            assert_eq!(found, noise(4000 + at as u64, MIB));
        }
        store.close().await.unwrap();
    });
}

#[test]
fn a_promise_is_made_taken_back_and_grown_live() {
    run(async {
        let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::with_capacity_bytes(340 << 20));
        let store = open(&engine).await;
        store.create_disk(&name("vm"), VM as u64, DiskSettings::default()).await.unwrap();
        store.create_disk(&name("other"), 1 << 30, DiskSettings::default()).await.unwrap();
        let without = fill(&store, "other").await;
        // What deduplication makes of it today does not count.
        let all = without as u64;
        let late = store.set_disk(&name("vm"), |_| reserved()).await.unwrap_err();
        assert_eq!(late.kind(), Kind::NoSpace, "{late}");
        attach(&store, "other").zero(0, all, false).await.unwrap();
        store.reclaim().await.unwrap();
        store.set_disk(&name("vm"), |_| reserved()).await.unwrap();
        assert_eq!(store.status().await.unwrap().reserved_bytes, VM as u64);
        let with = fill(&store, "other").await;
        assert!(with > 16 * MIB && with + VM < without, "{with} with, {without} without");
        let grown = store.resize_disk(&name("vm"), 4 * VM as u64, true).await.unwrap_err();
        assert_eq!((grown.kind(), store.disk(&name("vm")).unwrap().size_bytes), (Kind::NoSpace, VM as u64));
        // Taken back, it is anybody's at once.
        store.set_disk(&name("vm"), |_| DiskSettings::default()).await.unwrap();
        attach(&store, "other").write(with as u64, &noise(5, MIB), false).await.unwrap();
        // A clone was promised nothing.
        attach(&store, "other").zero(0, all, false).await.unwrap();
        store.reclaim().await.unwrap();
        store.set_disk(&name("vm"), |_| reserved()).await.unwrap();
        store.snapshot(&[name("vm")], Some(name("s"))).await.unwrap();
        let clone = store.clone_snapshot(&"vm@s".parse().unwrap(), &name("clone")).await.unwrap();
        assert!(!clone.settings.reserve);
        store.close().await.unwrap();
    });
}

/// Past bug: the snapshot was taken in the middle of the rollback, and held what that made, or ended the process.
#[test]
fn a_snapshot_that_asks_for_room_is_refused_when_a_rollback_begins_meanwhile() {
    run(async {
        let (engine, script) = scripted(&Arc::default());
        let store = open(&engine).await;
        store.create_disk(&name("vm"), VM as u64, reserved()).await.unwrap();
        attach(&store, "vm").write(0, &[1; 4096], false).await.unwrap();
        store.snapshot(&[name("vm")], Some(name("s"))).await.unwrap();
        store.fold_everything().await.unwrap();
        attach(&store, "vm").write(0, &[2; 4096], false).await.unwrap();
        script.always(Ask::Room, "", Decision { delay_before: 2 * MOMENT, ..Decision::PROCEED });
        script.always(Ask::PutIf, "head/", Decision { delay_before: 10 * MOMENT, ..Decision::PROCEED });
        let disks = [name("vm")];
        let late = store.snapshot(&disks, Some(name("late")));
        let to = "vm@s".parse().unwrap();
        let (late, kept) = futures::join!(late, store.rollback(&to));
        assert_eq!(late.unwrap_err().kind(), Kind::Busy);
        let kept = kept.unwrap();
        for (export, byte) in [("vm".to_owned(), 1), ("vm@s".to_owned(), 1), (kept.name.to_string(), 2)] {
            assert_eq!(pool::read(&store, &export, 0, 4096).await, [byte; 4096], "{export}");
        }
        assert_eq!(store.snapshots(None).unwrap().len(), 2);
    });
}
