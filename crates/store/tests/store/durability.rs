//! What is durable when somebody is told so, or builds on it.
//!
//! Goal: a flush answers for nothing that no sync has covered, and nothing is folded that the journal could still lose. Method: one sync is
//! told late, or none succeeds; then the power goes, and of each chunk that no sync covers nothing is left.

use crate::pool::{BLOCK, attach, create, name, open, options, read, run, write};
use crate::script::{TOLD_LATE, scripted};
use std::sync::Arc;
use stonefold_engine::wrap::{Ask, Decision};
use stonefold_engine::{Engine, Key, MemoryEngine};
use stonefold_types::Kind;

#[test]
fn what_came_during_a_sync_is_not_answered_for_by_it() {
    run(async {
        let memory = Arc::new(MemoryEngine::default());
        let (engine, script) = scripted(&memory);
        let store = open(engine, options(8, 16)).await;
        create(&store, "web").await;
        let web = attach(&store, "web");
        web.write(0, &[1; BLOCK], false).await.unwrap();
        script.on(Ask::JournalSync, "", TOLD_LATE);
        let during = async {
            script.played().await;
            web.write(8192, &[2; BLOCK], false).await
        };
        let (flushed, written) = futures::join!(web.flush(), during);
        let _ = flushed.unwrap();
        written.unwrap();
        let _ = web.flush().await.unwrap();
        let crashed = Arc::new(memory.after_crash(&mut |choices| 1.min(choices - 1)));
        drop((web, store));
        let store = open(crashed, options(8, 16)).await;
        assert!(read(&store, "web", 0, BLOCK).await == [1; BLOCK]);
        assert!(read(&store, "web", 8192, BLOCK).await == [2; BLOCK]);
    });
}

#[test]
fn nothing_is_folded_that_is_not_durable() {
    run(async {
        let memory = Arc::new(MemoryEngine::default());
        let (engine, script) = scripted(&memory);
        let store = open(engine, options(8, 16)).await;
        create(&store, "web").await;
        write(&store, "web", 0, &[1; BLOCK]).await;
        store.snapshot(&[name("web")], Some(name("s"))).await.unwrap();
        store.fold_everything().await.unwrap();
        let head = Key::new("head/web");
        let (before, _) = memory.get(&head).await.unwrap();
        for ask in [Ask::JournalSync, Ask::JournalCreate] {
            script.always(ask, "", Decision::fail(Kind::Io));
        }
        attach(&store, "web").write(0, &[2; BLOCK], false).await.unwrap();
        assert_eq!(store.fold_everything().await.unwrap_err().kind(), Kind::Io);
        assert!(memory.get(&head).await.unwrap().0 == before, "the head is as it was");
    });
}
