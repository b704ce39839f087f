//! The journal's medium fails, and another journal takes its place.
//!
//! Goal: nobody is refused, nothing that was answered as durable is lost with the power, and nothing that was acknowledged is lost
//! with the process. Method: one append or one sync fails, before or after the fact; then the power goes, at its worst and at its best.

use crate::pool::{
    BLOCK, attach, counter, create, master, name, noise, open, options, read, run, snap, sound, write,
};
use crate::script::scripted;
use std::sync::Arc;
use stonefold_engine::MemoryEngine;
use stonefold_engine::wrap::{Ask, Decision, Outcome};
use stonefold_store::{DomainPolicy, Options, Store};
use stonefold_types::{DiskSettings, Kind};

const SIZE: u64 = 64 << 20;

fn keyed() -> Options {
    Options { keys: master(7), ..options(8, 16) }
}

fn fails(outcome: Outcome) -> Decision {
    Decision { outcome, ..Decision::PROCEED }
}

async fn two_disks(store: &Arc<Store>) {
    create(store, "web").await;
    store.create_domain(&name("d"), DomainPolicy::default(), true).await.unwrap();
    store.create_disk_in(&name("d"), &name("vault"), SIZE, DiskSettings::default()).await.unwrap();
}

#[test]
fn a_failure_of_the_medium_costs_nothing() {
    for ask in [Ask::JournalAppend, Ask::JournalSync] {
        for outcome in [Outcome::Fail(Kind::Io), Outcome::FailAfter(Kind::Io)] {
            for best in [false, true] {
                run(one_failure(ask, outcome, best));
            }
        }
    }
}

async fn one_failure(ask: Ask, outcome: Outcome, best: bool) {
    let memory = Arc::new(MemoryEngine::default());
    let (engine, script) = scripted(&memory);
    let store = open(engine, keyed()).await;
    two_disks(&store).await;
    let (web, vault) = (attach(&store, "web"), attach(&store, "vault"));
    web.write(0, &noise(1, 64 << 10), true).await.unwrap();
    // Acknowledged, and not durable.
    web.write(1 << 20, &noise(2, 3 * BLOCK), false).await.unwrap();
    vault.write(0, &noise(3, 300 << 10), false).await.unwrap();
    store.snapshot(&[name("web"), name("vault")], Some(name("before"))).await.unwrap();
    script.on(ask, "", fails(outcome));
    vault.write(8192, &noise(4, BLOCK), false).await.unwrap();
    let _ = web.flush().await.unwrap();
    assert_eq!(counter(&store, "journal_failures").await, 1);
    web.write(2 << 20, &noise(5, 2 * BLOCK), true).await.unwrap();
    // Not answered for: may be there or not.
    web.write(3 << 20, &noise(6, BLOCK), false).await.unwrap();
    let crashed = Arc::new(memory.after_crash(&mut |n| if best { n - 1 } else { 0 }));
    drop((web, vault, store));

    let store = open(crashed.clone(), keyed()).await;
    for (disk, offset, expected) in [
        ("web", 0, noise(1, 64 << 10)),
        ("web", 1 << 20, noise(2, 3 * BLOCK)),
        ("web", 2 << 20, noise(5, 2 * BLOCK)),
        ("vault", 8192, noise(4, BLOCK)),
        ("vault", 12288, noise(3, 300 << 10)[12288..].to_vec()),
        ("web@before", 1 << 20, noise(2, 3 * BLOCK)),
        ("vault@before", 0, noise(3, 300 << 10)),
        ("web@before", 2 << 20, vec![0; BLOCK]),
    ] {
        assert!(read(&store, disk, offset, expected.len()).await == expected, "{disk} at {offset}");
    }
    assert_eq!(store.snapshots(None).unwrap().len(), 2, "a mark that two journals have is one");
    // Once all is folded the journals go, the failed one too.
    store.diff(&snap("web@before"), None).await.unwrap();
    sound(&store).await;
    store.close().await.unwrap();
    assert_eq!(stonefold_engine::Engine::journal_list(&*crashed).await.unwrap(), []);
}

/// A second failure, while what is kept is written anew, costs one more journal and nothing else.
#[test]
fn the_one_that_takes_its_place_may_fail_too() {
    for ask in [Ask::JournalCreate, Ask::JournalAppend] {
        run(async {
            let memory = Arc::new(MemoryEngine::default());
            let (engine, script) = scripted(&memory);
            let store = open(engine.clone(), options(8, 16)).await;
            create(&store, "web").await;
            let web = attach(&store, "web");
            web.write(0, &[1; BLOCK], false).await.unwrap();
            script.on(Ask::JournalSync, "", fails(Outcome::Fail(Kind::Io)));
            script.on(ask, "", fails(Outcome::Fail(Kind::Io)));
            let _ = web.flush().await.unwrap();
            assert_eq!(counter(&store, "journal_failures").await, 1);
            assert_eq!(engine.journal_list().await.unwrap().len(), 2, "what was begun in vain is gone");
            let crashed = Arc::new(memory.after_crash(&mut |choices| 1.min(choices - 1)));
            drop((web, store));
            let store = open(crashed, options(8, 16)).await;
            assert_eq!(read(&store, "web", 0, BLOCK).await, [1; BLOCK]);
        });
    }
}

#[test]
fn what_was_left_goes_once_it_is_folded() {
    run(async {
        let memory = Arc::new(MemoryEngine::default());
        let (engine, script) = scripted(&memory);
        let store = open(engine.clone(), options(8, 16)).await;
        create(&store, "web").await;
        for round in 0..5 {
            script.on(Ask::JournalSync, "", fails(Outcome::Fail(Kind::Io)));
            attach(&store, "web").write(round * 8192, &noise(round, BLOCK), true).await.unwrap();
        }
        assert_eq!(counter(&store, "journal_failures").await, 5);
        assert_eq!(engine.journal_list().await.unwrap().len(), 6);
        store.snapshot(&[name("web")], Some(name("s"))).await.unwrap();
        store.diff(&snap("web@s"), None).await.unwrap();
        assert_eq!(engine.journal_list().await.unwrap().len(), 1, "the one that is written");
        store.close().await.unwrap();
    });
}

/// A place that takes nothing is given up, with an error for everybody; what is durable is there after a restart.
#[test]
fn a_place_that_fails_and_fails_is_given_up() {
    for (ask, others) in [(Ask::JournalCreate, Ask::JournalSync), (Ask::JournalSync, Ask::JournalTrim)] {
        run(async {
            let memory = Arc::new(MemoryEngine::default());
            let (engine, script) = scripted(&memory);
            let store = open(engine, options(8, 16)).await;
            create(&store, "web").await;
            let web = attach(&store, "web");
            web.write(0, &[1; BLOCK], true).await.unwrap();
            script.always(ask, "", fails(Outcome::Fail(Kind::Io)));
            script.always(others, "", fails(Outcome::Fail(Kind::Io)));
            web.write(4096, &[2; BLOCK], false).await.unwrap();
            assert_eq!(web.flush().await.unwrap_err().kind(), Kind::Io);
            assert_eq!(web.flush().await.unwrap_err().kind(), Kind::Io);
            assert_eq!(web.write(8192, &[3; BLOCK], false).await.unwrap_err().kind(), Kind::Io);
            assert_eq!(read(&store, "web", 4096, BLOCK).await, [2; BLOCK], "reads go on");
            drop((web, store));
            let store = open(memory, options(8, 16)).await;
            assert_eq!(read(&store, "web", 0, BLOCK).await, [1; BLOCK]);
            write(&store, "web", 0, &[4; BLOCK]).await;
            sound(&store).await;
        });
    }
}
