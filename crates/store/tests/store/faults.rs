//! What the engine gets wrong at the worst moment, and callers that go away meanwhile.
//!
//! Goal: an error, or not knowing whether there was one, never costs what was acknowledged.

use crate::pool::{
    BLOCK, DISK_BYTES, attach, create, env, name, noise, open, options, read, run, settled, snap, sound,
    write,
};
use crate::script::{MOMENT, TOLD_LATE, scripted};
use std::sync::Arc;
use std::time::Duration;
use stonefold_engine::MemoryEngine;
use stonefold_engine::wrap::{Ask, Decision, Outcome};
use stonefold_store::{DomainPolicy, DomainState};
use stonefold_types::{DiskSettings, Kind};

/// Past bug: a client that asked what changed, and left, took the round of the fold with it, in the middle of storing a head.
#[test]
fn who_asked_may_leave_while_a_head_is_stored() {
    run(async {
        let memory = Arc::new(MemoryEngine::default());
        let (engine, script) = scripted(&memory);
        let store = open(engine, options(1, 4)).await;
        create(&store, "a").await;
        let a = attach(&store, "a");
        a.write(0, &[1; 4096], false).await.unwrap();
        store.snapshot(&[name("a")], Some(name("s"))).await.unwrap();
        a.write(4096, &[2; 4096], false).await.unwrap();
        script.always(Ask::PutIf, "head/", TOLD_LATE);
        #[expect(clippy::disallowed_methods, reason = "the client that leaves is a real one")]
        let asked = tokio::time::timeout(MOMENT, a.changed_since(&name("s"), 0, DISK_BYTES)).await;
        assert!(asked.is_err(), "it left before there was an answer");
        script.clear();
        a.write(8192, &[3; 4096], true).await.unwrap();
        let changed = store.diff(&snap("a@s"), None).await.unwrap();
        assert_eq!(changed, [(4096, 8192)]);
        store.reclaim().await.unwrap();
        store.close().await.unwrap();
        let store = open(memory, options(1, 4)).await;
        for (offset, byte) in [(0, 1), (4096, 2), (8192, 3), (12288, 0)] {
            assert_eq!(read(&store, "a", offset, BLOCK).await, [byte; BLOCK]);
        }
    });
}

/// Past bug: a head that was found to be stored although an error had said otherwise, and could then not be overwritten, was taken for
/// the one in memory; reclaim deleted what it referred to.
#[test]
fn nothing_is_given_back_while_a_stored_head_is_ahead() {
    run(async {
        let memory = Arc::new(MemoryEngine::default());
        let (engine, script) = scripted(&memory);
        let store = open(engine, options(1, 4)).await;
        create(&store, "a").await;
        let a = attach(&store, "a");
        a.write(0, &[1; 4096], false).await.unwrap();
        store.snapshot(&[name("a")], Some(name("s"))).await.unwrap();
        // It is stored, an error says that it is not, and it cannot be read back.
        let lies = Decision { outcome: Outcome::FailAfter(Kind::Io), ..Decision::PROCEED };
        script.on(Ask::PutIf, "head/", lies);
        script.on(Ask::Get, "head/", Decision::fail(Kind::Io));
        store.diff(&snap("a@s"), None).await.unwrap_err();
        // Now it can be read back, and not be overwritten.
        script.always(Ask::PutIf, "head/", Decision::fail(Kind::NoSpace));
        store.diff(&snap("a@s"), None).await.unwrap_err();
        assert_eq!(store.reclaim().await.unwrap_err().kind(), Kind::Busy);
        // The power fails: what is stored is what there is.
        drop((a, store));
        let store = open(memory, options(1, 4)).await;
        assert_eq!(read(&store, "a", 0, BLOCK).await, [1; BLOCK]);
        store.reclaim().await.unwrap();
        sound(&store).await;
        assert_eq!(read(&store, "a@s", 0, BLOCK).await, [1; BLOCK]);
    });
}

/// Past bug: a shred of which nobody knew whether it was stored opened the domain again, and what was written then could be read
/// by nobody after a restart.
#[test]
fn a_domain_stays_closed_while_it_is_unclear_whether_it_was_shredded() {
    let broken = |outcome: Outcome| Decision { outcome, ..Decision::PROCEED };
    for (outcome, state) in
        [(Outcome::FailAfter(Kind::Io), DomainState::Shredded), (Outcome::Fail(Kind::Io), DomainState::Open)]
    {
        run(async {
            let (engine, script) = scripted(&Arc::default());
            let store = settled(&engine).await;
            store.create_domain(&name("d"), DomainPolicy::default(), true).await.unwrap();
            store
                .create_disk_in(&name("d"), &name("web"), DISK_BYTES, DiskSettings::default())
                .await
                .unwrap();
            write(&store, "web", 0, &noise(1, 1 << 20)).await;
            script.on(Ask::PutIf, "domains", broken(outcome));
            // The first is before the swap; from the second on nobody can tell.
            script.after(1, Ask::Get, "domains", broken(Outcome::Fail(Kind::Io)));
            script.on(Ask::Get, "domains", broken(Outcome::Fail(Kind::Io)));
            assert_eq!(store.shred_domain(&name("d")).await.unwrap_err().kind(), Kind::Io);
            let attached = store.attach(&"web".parse().unwrap());
            assert_eq!(attached.err().map(|e| e.kind()), Some(Kind::Busy), "it is not clear yet");
            let env = env();
            let deadline = env.monotonic() + Duration::from_secs(10);
            while store.domain(&name("d")).unwrap().state != state {
                assert!(env.monotonic() < deadline, "what is stored is found out");
                env.sleep(Duration::from_millis(10)).await;
            }
            if state == DomainState::Open {
                write(&store, "web", 0, &noise(2, 1 << 20)).await;
            }
            let readable = store.attach(&"web".parse().unwrap()).is_ok();
            store.close().await.unwrap();
            let store = settled(&engine).await;
            assert_eq!(store.domain(&name("d")).unwrap().state, state);
            assert_eq!(store.attach(&"web".parse().unwrap()).is_ok(), readable);
            if readable {
                assert!(read(&store, "web", 0, 1 << 20).await == noise(2, 1 << 20));
            }
        });
    }
}

/// Past bug: a moment without room for the journal's next file, or without a descriptor for it, ended the journal until a restart.
#[test]
fn a_journal_that_finds_no_room_for_a_moment_goes_on() {
    run(async {
        let (engine, script) = scripted(&Arc::default());
        let store = settled(&engine).await;
        create(&store, "web").await;
        for _ in 0..2 {
            script.on(Ask::JournalAppend, "", Decision::fail(Kind::NoSpace));
        }
        let web = attach(&store, "web");
        web.write(0, &noise(1, 1 << 20), true).await.unwrap();
        let _ = web.flush().await.unwrap();
        drop(web);
        script.played().await;
        assert!(read(&store, "web", 0, 1 << 20).await == noise(1, 1 << 20));
    });
}
