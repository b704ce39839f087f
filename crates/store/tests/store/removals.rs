//! Removals and clones that meet at the wrong moment.
//!
//! Goal: whatever one call finds while another is half done, what was acknowledged stays, and a name never stands for what
//! it stood for before.
//!
//! Method: an engine that dawdles by a [script](crate::script), so that the interleaving is always the one meant.

use crate::beside::beside;
use crate::pool::{attach, create, env, name, noise, read, run, settled, snap, sound, write};
use crate::script::{MOMENT, TOLD_LATE, scripted};
use std::sync::Arc;
use std::time::Duration;
use stonefold_engine::wrap::Ask;
use stonefold_types::Kind;

/// Past bug: the hold on the snapshot went with the disk's head, and reclaim freed what the clone was about to begin with.
#[test]
fn a_disk_is_not_removed_while_a_clone_of_it_is_being_made() {
    run(async {
        let (engine, script) = scripted(&Arc::default());
        let store = settled(&engine).await;
        create(&store, "template").await;
        let data = noise(1, 4 << 20);
        write(&store, "template", 0, &data).await;
        store.snapshot(&[name("template")], Some(name("s"))).await.unwrap();
        store.reclaim().await.unwrap();
        script.slow(Ask::PutNew, "head/new");
        let by = store.clone();
        let cloning = beside(async move { by.clone_snapshot(&snap("template@s"), &name("new")).await });
        script.played().await;
        store.remove_snapshot(&snap("template@s")).await.unwrap();
        let removed = store.remove_disk(&name("template")).await;
        store.reclaim().await.unwrap();
        assert!(!cloning.is_finished(), "all that is meant to come in between has");
        cloning.ended().await.unwrap();
        store.drop_cache();
        assert!(read(&store, "new", 0, data.len()).await == data, "the clone has what its snapshot had");
        assert_eq!(removed.unwrap_err().kind(), Kind::Busy);
        store.remove_disk(&name("template")).await.unwrap();
        store.reclaim().await.unwrap();
        store.drop_cache();
        assert!(read(&store, "new", 0, data.len()).await == data, "and keeps it");
        sound(&store).await;
    });
}

/// Past bug: the second put a second gone disk beside the first, and reclaim of the whole pool ended.
#[test]
fn of_two_removals_of_one_disk_one_finds_it_gone() {
    run(async {
        let (engine, script) = scripted(&Arc::default());
        let store = settled(&engine).await;
        for disk in ["web", "other"] {
            create(&store, disk).await;
            write(&store, disk, 0, &noise(1, 1 << 20)).await;
        }
        store.snapshot(&[name("other")], Some(name("s"))).await.unwrap();
        store.reclaim().await.unwrap();
        write(&store, "other", 0, &noise(2, 1 << 20)).await;
        script.slow(Ask::PutNew, "segment/");
        let by = store.clone();
        let round = beside(async move { by.diff(&snap("other@s"), None).await });
        script.played().await;
        let remove = || {
            let by = store.clone();
            beside(async move { by.remove_disk(&name("web")).await })
        };
        let (first, second) = (remove(), remove());
        round.ended().await.unwrap();
        let outcomes = [first.ended().await, second.ended().await];
        assert_eq!(outcomes.map(|done| done.map_err(|e| e.kind())), [Ok(()), Err(Kind::NotFound)]);
        store.reclaim().await.unwrap();
        assert!(engine.list("gone/", None, 10).await.unwrap().is_empty(), "the removed head is gone");
        assert!(read(&store, "other", 0, 1 << 20).await == noise(2, 1 << 20));
        sound(&store).await;
    });
}

/// Past bug: the map's entry went by name, so a late second removal took a new disk of that name, with what was written to it.
#[test]
fn a_late_removal_does_not_take_a_new_disk_of_that_name() {
    run(async {
        let (engine, script) = scripted(&Arc::default());
        let store = settled(&engine).await;
        for disk in ["web", "other"] {
            create(&store, disk).await;
            write(&store, disk, 0, &noise(1, 1 << 20)).await;
        }
        store.snapshot(&[name("other")], Some(name("s"))).await.unwrap();
        let slow_round = |seed: u64| {
            let by = store.clone();
            beside(async move {
                write(&by, "other", 0, &noise(seed, 1 << 20)).await;
                by.diff(&snap("other@s"), None).await
            })
        };
        let remove = || {
            let by = store.clone();
            beside(async move { by.remove_disk(&name("web")).await })
        };
        script.slow(Ask::PutNew, "segment/");
        let first_round = slow_round(2);
        script.played().await;
        let first = remove();
        tokio::task::yield_now().await;
        let second_round = slow_round(3);
        // It has written, and waits behind the removal.
        env().sleep(Duration::from_millis(200)).await;
        let second = remove();
        tokio::task::yield_now().await;
        script.slow(Ask::PutNew, "segment/");
        first_round.ended().await.unwrap();
        first.ended().await.unwrap();
        script.played().await;
        create(&store, "web").await;
        write(&store, "web", 0, &noise(9, 1 << 20)).await;
        assert!(!second.is_finished());
        second_round.ended().await.unwrap();
        assert_eq!(second.ended().await.unwrap_err().kind(), Kind::NotFound);
        assert!(read(&store, "web", 0, 1 << 20).await == noise(9, 1 << 20));
        store.reclaim().await.unwrap();
        store.close().await.unwrap();
        let store = settled(&engine).await;
        assert!(read(&store, "web", 0, 1 << 20).await == noise(9, 1 << 20), "also after a restart");
        sound(&store).await;
    });
}

/// Past bug: the clone stopped the server, and the comparison was with an empty disk.
#[test]
fn a_snapshot_made_anew_under_its_name_is_another() {
    run(async {
        let (engine, script) = scripted(&Arc::default());
        let store = settled(&engine).await;
        create(&store, "a").await;
        let a = attach(&store, "a");
        let latest = snap("a@latest");
        for clone in [true, false] {
            a.write(0, &[1; 4096], false).await.unwrap();
            store.snapshot(&[name("a")], Some(name("latest"))).await.unwrap();
            script.always(Ask::PutIf, "head/", TOLD_LATE);
            let asked = async {
                match clone {
                    true => store.clone_snapshot(&latest, &name("b")).await.map(|_| Vec::new()),
                    false => store.diff(&latest, None).await,
                }
            };
            let rotate = async {
                env().sleep(MOMENT).await;
                store.remove_snapshot(&latest).await.unwrap();
                store.snapshot(&[name("a")], Some(name("latest"))).await.unwrap();
            };
            let (asked, ()) = futures::join!(asked, rotate);
            match asked {
                // Which of the two is compared with depends on when; a clone of neither is made.
                Ok(changed) => {
                    assert!(!clone && changed.is_empty(), "nothing was written since either: {changed:?}")
                }
                Err(error) => assert_eq!(error.kind(), Kind::NotFound),
            }
            script.clear();
            store.remove_snapshot(&latest).await.unwrap();
        }
    });
}
