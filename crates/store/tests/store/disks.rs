//! Disks: what they hold, what they refuse, what they tell.

use crate::pool::{self, attach, contents, name, options, read, run, snap};
use crate::script::{TOLD_LATE, scripted};
use std::sync::Arc;
use stonefold_engine::MemoryEngine;
use stonefold_engine::wrap::Ask;
use stonefold_store::{DomainPolicy, Options, Store};
use stonefold_types::{Compression, DiskSettings, Durability, ExportName, Kind};

/// Of every disk here: little, because it is read from end to end; more than one leaf of the map.
pub(crate) const DISK_BYTES: u64 = 3 << 20;

pub(crate) async fn open(engine: &Arc<MemoryEngine>) -> Arc<Store> {
    pool::open(engine.clone(), Options { snapshot_page_records: 3, ..options(1, 1) }).await
}

pub(crate) async fn create(store: &Store, disk: &str) {
    pool::create_sized(store, disk, DISK_BYTES).await;
}

#[test]
fn a_disk_holds_what_was_written_also_after_reopening() {
    run(async {
        let engine = Arc::new(MemoryEngine::default());
        let store = open(&engine).await;
        create(&store, "web").await;
        let web = attach(&store, "web");
        web.write(4096, &[1; 8192], false).await.unwrap();
        web.write(5000, &[2; 10], true).await.unwrap();
        web.zero(8192, 4096, false).await.unwrap();
        let _ = web.flush().await.unwrap();
        let expected = contents(&web).await;
        assert_eq!((expected[4999], expected[5000], expected[5010], expected[8192]), (1, 2, 1, 0));
        drop(web);
        store.close().await.unwrap();
        assert_eq!(store.disk(&name("web")).unwrap_err().kind(), Kind::Closed);

        let store = open(&engine).await;
        assert_eq!(contents(&attach(&store, "web")).await, expected);
        assert_eq!(store.disk(&name("web")).unwrap().mapped_bytes, 4096);
        store.drop_cache();
        assert_eq!(contents(&attach(&store, "web")).await, expected, "cold");
    });
}

#[test]
fn bad_requests_are_refused_and_change_nothing() {
    run(async {
        let store = open(&Arc::new(MemoryEngine::default())).await;
        create(&store, "web").await;
        let kind = |e: stonefold_types::Error| e.kind();
        let settings = DiskSettings::default;
        assert_eq!(
            store.create_disk(&name("web"), 4096, settings()).await.map_err(kind).unwrap_err(),
            Kind::AlreadyExists
        );
        for size in [0, 100, 4097, 1 << 60] {
            assert_eq!(
                store.create_disk(&name("x"), size, settings()).await.map_err(kind).unwrap_err(),
                Kind::Invalid
            );
        }
        let web = attach(&store, "web");
        assert_eq!(web.write(DISK_BYTES - 1, &[0; 2], false).await.map_err(kind), Err(Kind::Invalid));
        assert_eq!(web.read(u64::MAX, &mut [0; 2]).await.map_err(kind), Err(Kind::Invalid));
        assert_eq!(store.remove_disk(&name("web")).await.map_err(kind), Err(Kind::Busy));
        store.snapshot(&[name("web")], Some(name("s"))).await.unwrap();
        let again = store.snapshot(&[name("web")], Some(name("s"))).await;
        assert_eq!(again.map_err(kind).unwrap_err(), Kind::AlreadyExists);
        let snapshot = attach(&store, "web@s");
        assert_eq!(snapshot.write(0, &[1], false).await.map_err(kind), Err(Kind::ReadOnly));
        assert_eq!(store.remove_snapshot(&"web@s".parse().unwrap()).await.map_err(kind), Err(Kind::Busy));
        assert_eq!(store.rollback(&"web@s".parse().unwrap()).await.map_err(kind).unwrap_err(), Kind::Busy);
        drop((web, snapshot));
        assert_eq!(store.remove_disk(&name("web")).await.map_err(kind), Err(Kind::Busy), "it has a snapshot");
        store.remove_snapshot(&"web@s".parse().unwrap()).await.unwrap();
        store.remove_disk(&name("web")).await.unwrap();
        assert_eq!(store.disk(&name("web")).map_err(kind).unwrap_err(), Kind::NotFound);
    });
}

#[test]
fn a_group_is_snapshotted_at_one_instant() {
    run(async {
        let store = open(&Arc::new(MemoryEngine::default())).await;
        create(&store, "a").await;
        create(&store, "b").await;
        let taken = store.snapshot(&[name("b"), name("a"), name("b")], Some(name("s"))).await.unwrap();
        assert_eq!(taken.len(), 2);
        let refused = store.snapshot(&[name("a"), name("nobody")], Some(name("t"))).await;
        assert_eq!(refused.unwrap_err().kind(), Kind::NotFound);
        assert_eq!(store.snapshots(None).unwrap().len(), 2, "all or none");
    });
}

#[test]
fn extents_and_changes_are_told() {
    run(async {
        let store = open(&Arc::new(MemoryEngine::default())).await;
        create(&store, "web").await;
        let web = attach(&store, "web");
        let told = |extents: Vec<stonefold_store::Extent>| {
            extents.iter().map(|e| (e.bytes, e.hole)).collect::<Vec<_>>()
        };
        assert_eq!(told(web.extents(0, DISK_BYTES).await.unwrap()), [(DISK_BYTES, true)]);
        web.write(8192, &[1; 4096], false).await.unwrap();
        store.snapshot(&[name("web")], Some(name("s"))).await.unwrap();
        web.write(1 << 20, &[2; 8192], false).await.unwrap();
        let rest = DISK_BYTES - (1 << 20) - 8192;
        let all = [(8192, true), (4096, false), ((1 << 20) - 12288, true), (8192, false), (rest, true)];
        assert_eq!(told(web.extents(0, DISK_BYTES).await.unwrap()), all);
        assert_eq!(told(web.extents(9000, 100).await.unwrap()), [(100, false)]);
        assert_eq!(store.diff(&"web@s".parse().unwrap(), None).await.unwrap(), [(1 << 20, 8192)]);
        assert_eq!(told(web.extents(0, DISK_BYTES).await.unwrap()), all, "folded, the same");
        let changed = web.changed_since(&name("s"), 4096, 2 << 20).await.unwrap();
        assert_eq!(told(changed), [((1 << 20) - 4096, true), (8192, false), ((1 << 20) - 4096, true)]);
    });
}

/// Goal: a clone is compared with what it was made from, and with what that is now, without a word of what both share.
#[test]
fn a_clone_is_compared_with_its_origin() {
    run(async {
        let store = open(&Arc::new(MemoryEngine::default())).await;
        create(&store, "web").await;
        let web = attach(&store, "web");
        web.write(0, &[1; 64 * 4096], false).await.unwrap();
        store.snapshot(&[name("web")], Some(name("s"))).await.unwrap();
        store.clone_snapshot(&snap("web@s"), &name("test")).await.unwrap();
        attach(&store, "test").write(8192, &[2; 4096], false).await.unwrap();
        let told = async |from: &str, to: &str| {
            let to = to.parse::<ExportName>().unwrap();
            store.diff(&snap(from), Some(&to)).await.map_err(|error| error.to_string())
        };
        assert_eq!(told("web@s", "test").await.unwrap(), [(8192, 4096)]);
        assert_eq!(told("web@s", "web").await.unwrap(), []);
        web.write(16384, &[3; 4096], false).await.unwrap();
        store.snapshot(&[name("test")], Some(name("t"))).await.unwrap();
        assert_eq!(told("test@t", "web").await.unwrap(), [(8192, 4096), (16384, 4096)]);
        assert_eq!(told("web@s", "test@t").await.unwrap(), [(8192, 4096)]);
        let error = told("web@s", "tset").await.unwrap_err();
        assert!(error.contains("'tset'"), "{error}");
        let error = told("web@s", "test@u").await.unwrap_err();
        assert!(error.contains("test@u"), "{error}");
    });
}

/// Goal: whoever takes only what has changed also learns what was trimmed, from a snapshot to now and to another snapshot (P10).
#[test]
fn what_was_trimmed_has_changed() {
    run(async {
        let store = open(&Arc::new(MemoryEngine::default())).await;
        create(&store, "web").await;
        let web = attach(&store, "web");
        web.write(0, &[1; 8 * 4096], false).await.unwrap();
        store.snapshot(&[name("web")], Some(name("s"))).await.unwrap();
        web.zero(4096, 3 * 4096, false).await.unwrap();
        // Of this one block in the middle becomes a hole, and its neighbours are written in part.
        web.zero(6 * 4096 - 100, 4096 + 200, false).await.unwrap();
        store.snapshot(&[name("web")], Some(name("t"))).await.unwrap();
        let since = snap("web@s");
        let told = [(4096, 3 * 4096), (5 * 4096, 3 * 4096)];
        assert_eq!(store.diff(&since, Some(&"web@t".parse().unwrap())).await.unwrap(), told);
        assert_eq!(store.diff(&since, None).await.unwrap(), told);
        let changed = web.changed_since(&name("s"), 2 * 4096, 5 * 4096).await.unwrap();
        let changed: Vec<_> = changed.iter().map(|run| (run.bytes, run.hole)).collect();
        assert_eq!(changed, [(2 * 4096, false), (4096, true), (2 * 4096, false)]);
    });
}

/// *Past bug*: of two changes at one time, the later put back what the earlier had changed.
#[test]
fn changes_at_one_time_all_hold() {
    run(async {
        let (engine, script) = scripted(&Arc::default());
        let store = pool::open(engine, options(1, 1)).await;
        create(&store, "web").await;
        store.create_domain(&name("d"), DomainPolicy::default(), false).await.unwrap();
        script.on(Ask::PutIf, "head/", TOLD_LATE);
        script.on(Ask::PutIf, "domains", TOLD_LATE);
        let (web, d) = (name("web"), name("d"));
        let done = futures::join!(
            store.set_disk(&web, |now| DiskSettings { durability: Durability::Ack, ..now }),
            store.set_disk(&web, |now| DiskSettings { dedupe: false, ..now }),
            store.set_domain(&d, |now| DomainPolicy { compression: Compression::None, ..now }),
            store.set_domain(&d, |now| DomainPolicy { dedupe: false, ..now }),
        );
        assert!(script.is_over() && done.0.is_ok() && done.1.is_ok() && done.2.is_ok() && done.3.is_ok());
        let settings = store.disk(&web).unwrap().settings;
        assert_eq!((settings.durability, settings.dedupe), (Durability::Ack, false));
        let policy = store.domain(&d).unwrap().policy;
        assert_eq!((policy.compression, policy.dedupe), (Compression::None, false));
    });
}

/// Goal: a guest's disk never ends in its midst.
#[test]
fn a_disk_is_cut_only_on_demand_and_without_clients() {
    run(async {
        let store = open(&Arc::default()).await;
        create(&store, "web").await;
        let (web, half) = (name("web"), DISK_BYTES / 2);
        assert_eq!(store.resize_disk(&web, half, false).await.unwrap_err().kind(), Kind::Invalid);
        let guest = store.attach_for(&ExportName::Disk(web.clone()), "a guest".into()).unwrap();
        let told = store.resize_disk(&web, half, true).await.unwrap_err();
        assert_eq!(told.kind(), Kind::Busy);
        assert!(told.to_string().contains("a guest"), "{told}");
        store.resize_disk(&web, 2 * DISK_BYTES, false).await.unwrap();
        drop(guest);
        assert_eq!(store.resize_disk(&web, half, true).await.unwrap().size_bytes, half);
    });
}

/// Goal: what was answered as durable outlives a loss of power that takes all that was not (P1).
#[test]
fn what_was_told_to_be_durable_outlives_the_power() {
    run(async {
        for (how, stays) in [("fua", true), ("fua zero", true), ("ack", true), ("flush", true), ("", false)] {
            let engine = Arc::new(MemoryEngine::default());
            let store = open(&engine).await;
            create(&store, "web").await;
            if how == "ack" {
                let ack = DiskSettings { durability: Durability::Ack, ..DiskSettings::default() };
                store.set_disk(&name("web"), |_| ack).await.unwrap();
            }
            let web = attach(&store, "web");
            web.write(0, &[1; 4096], how == "fua").await.unwrap();
            match how {
                "fua zero" => web.zero(4096, 4096, true).await.unwrap(),
                "flush" => drop(web.flush().await.unwrap()),
                _ => {}
            }
            // Every chunk of the journal that was not synced is lost.
            let engine = Arc::new(engine.after_crash(&mut |choices| 1 % choices));
            let found = read(&open(&engine).await, "web", 0, 4096).await;
            assert!(found == [u8::from(stays); 4096], "after {how:?}");
        }
    });
}
