//! Goal: a domain goes when nothing needs it, whatever it is protected with; and not before, nor half.

use crate::pool::{attach, master, name, noise, open, options, run, snap, sound, try_open};
use crate::script::scripted;
use std::sync::Arc;
use stonefold_engine::wrap::{Ask, Decision, Outcome};
use stonefold_engine::{Engine, MemoryEngine};
use stonefold_store::{DomainPolicy, Options, Store};
use stonefold_types::{DiskSettings, Kind};

fn with_key() -> Options {
    Options { keys: master(7), ..options(8, 8) }
}

async fn disk_in(store: &Arc<Store>, domain: &str, disk: &str) -> stonefold_types::Result<()> {
    let made = store.create_disk_in(&name(domain), &name(disk), 1 << 24, DiskSettings::default()).await;
    made.map(drop)
}

async fn refused(store: &Store, domain: &str, kind: Kind, says: &str) {
    let error = store.remove_domain(&name(domain)).await.unwrap_err();
    assert!(error.kind() == kind && error.to_string().contains(says), "{error}");
    assert!(error.remedy_text().is_some(), "{error}");
    assert!(store.domain(&name(domain)).is_ok() || kind == Kind::NotFound);
}

#[test]
fn a_domain_goes_when_nothing_needs_it() {
    run(async {
        for sealed in [false, true] {
            for shredded in [false, true] {
                if shredded && !sealed {
                    continue;
                }
                let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::default());
                let store = open(engine.clone(), with_key()).await;
                refused(&store, "default", Kind::Invalid, "cannot be removed").await;
                refused(&store, "bank", Kind::NotFound, "does not exist").await;
                store.create_domain(&name("bank"), DomainPolicy::default(), sealed).await.unwrap();
                disk_in(&store, "bank", "a").await.unwrap();
                disk_in(&store, "default", "b").await.unwrap();
                for disk in ["a", "b"] {
                    attach(&store, disk).write(0, &noise(1, 1 << 20), true).await.unwrap();
                }
                store.snapshot(&[name("a")], Some(name("s"))).await.unwrap();
                store.clone_snapshot(&snap("a@s"), &name("c")).await.unwrap();
                store.fold_everything().await.unwrap();
                refused(&store, "bank", Kind::Busy, "'a', 'c'").await;
                if shredded {
                    store.shred_domain(&name("bank")).await.unwrap();
                    refused(&store, "bank", Kind::Busy, "'a', 'c'").await;
                }
                store.remove_snapshot(&snap("a@s")).await.unwrap();
                store.remove_disk(&name("c")).await.unwrap();
                store.remove_disk(&name("a")).await.unwrap();
                refused(&store, "bank", Kind::Busy, "was removed, and not all of its space is given back")
                    .await;
                store.reclaim().await.unwrap();
                store.remove_domain(&name("bank")).await.unwrap();
                assert_eq!(store.domains().len(), 1);
                refused(&store, "bank", Kind::NotFound, "does not exist").await;
                assert_eq!(disk_in(&store, "bank", "d").await.unwrap_err().kind(), Kind::NotFound);
                // The name is free, for a domain that has nothing to do with the other.
                store.create_domain(&name("bank"), DomainPolicy::default(), true).await.unwrap();
                disk_in(&store, "bank", "d").await.unwrap();
                attach(&store, "d").write(0, &noise(2, 1 << 20), true).await.unwrap();
                store.leave().await.unwrap();
                let store = open(engine, with_key()).await;
                let mut found = vec![0; 1 << 20];
                for (disk, tag) in [("b", 1), ("d", 2)] {
                    attach(&store, disk).read(0, &mut found).await.unwrap();
                    assert!(found == noise(tag, 1 << 20));
                }
                store.reclaim().await.unwrap();
                sound(&store).await;
            }
        }
    });
}

/// When nobody knows whether it went, no disk comes to it until that is known; a restart tells, and so does another try.
#[test]
fn a_removal_that_may_have_happened_closes_the_domain() {
    run(async {
        for (outcome, again) in [
            (Outcome::FailAfter(Kind::Io), true),
            (Outcome::FailAfter(Kind::Io), false),
            (Outcome::Fail(Kind::Io), true),
            (Outcome::Fail(Kind::Io), false),
        ] {
            let memory = Arc::new(MemoryEngine::default());
            let (engine, script) = scripted(&memory);
            let store = open(engine, with_key()).await;
            store.create_domain(&name("bank"), DomainPolicy::default(), true).await.unwrap();
            script.on(Ask::PutIf, "domains", Decision { outcome, ..Decision::PROCEED });
            // The swap looks at what is stored before, and after.
            script.after(1, Ask::Get, "domains", Decision::fail(Kind::Io));
            script.on(Ask::Get, "domains", Decision::fail(Kind::Io));
            assert_eq!(store.remove_domain(&name("bank")).await.unwrap_err().kind(), Kind::Io);
            script.played().await;
            let closed = disk_in(&store, "bank", "a").await.unwrap_err();
            assert!(closed.to_string().contains("not known whether it was removed"), "{closed}");
            if again {
                store.remove_domain(&name("bank")).await.unwrap();
                assert_eq!(disk_in(&store, "bank", "a").await.unwrap_err().kind(), Kind::NotFound);
            }
            store.leave().await.unwrap();
            let store = try_open(memory, with_key()).await.unwrap();
            let gone = again || outcome == Outcome::FailAfter(Kind::Io);
            assert_eq!(disk_in(&store, "bank", "a").await.is_err(), gone);
        }
    });
}

/// Also where an answer got lost, and what is stored tells.
#[test]
fn a_removal_whose_answer_got_lost_is_done() {
    run(async {
        let memory = Arc::new(MemoryEngine::default());
        let (engine, script) = scripted(&memory);
        let store = open(engine, with_key()).await;
        store.create_domain(&name("bank"), DomainPolicy::default(), true).await.unwrap();
        script.on(
            Ask::PutIf,
            "domains",
            Decision { outcome: Outcome::FailAfter(Kind::Io), ..Decision::PROCEED },
        );
        script.after(1, Ask::Get, "domains", Decision::fail(Kind::Io));
        store.remove_domain(&name("bank")).await.unwrap();
        assert_eq!(store.domains().len(), 1);
    });
}

/// A disk of which nobody knows whether it was made keeps its domain.
#[test]
fn a_disk_that_may_have_been_made_keeps_its_domain() {
    run(async {
        let memory = Arc::new(MemoryEngine::default());
        let (engine, script) = scripted(&memory);
        let store = open(engine, with_key()).await;
        store.create_domain(&name("bank"), DomainPolicy::default(), false).await.unwrap();
        script.on(
            Ask::PutNew,
            "head/",
            Decision { outcome: Outcome::FailAfter(Kind::Io), ..Decision::PROCEED },
        );
        script.on(Ask::Get, "head/", Decision::fail(Kind::Io));
        disk_in(&store, "bank", "a").await.unwrap_err();
        refused(&store, "bank", Kind::Busy, "'a' may have been made in it").await;
        store.leave().await.unwrap();
        let store = try_open(memory, with_key()).await.unwrap();
        assert_eq!(store.disk(&name("a")).unwrap().domain, name("bank"));
    });
}
