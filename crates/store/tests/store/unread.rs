//! Goal: a head or the accounts that the medium fails to read cost their own disk, or reclaim, until the next opening that can read
//! them: nothing is taken for lost, condemned, rewritten or deleted meanwhile, and then all is as it was, with what was done beside.
//! Method: reads of one object fail with an I/O error while the pool is opened and used; what it must not touch is listed.

use crate::pool::{
    BLOCK, attach, create, name, noise, open, options, read, run, snap, sound, try_open, write,
};
use crate::script::{Script, scripted};
use std::collections::BTreeMap;
use std::sync::Arc;
use stonefold_engine::wrap::{Ask, Decision};
use stonefold_engine::{Engine, Key, MemoryEngine};
use stonefold_store::Store;
use stonefold_types::{DiskSettings, Kind};

/// What is stored under these: names, and the bytes of what is below the last.
type Stored = BTreeMap<String, Vec<u8>>;

async fn stored(memory: &MemoryEngine, prefixes: &[&str]) -> Stored {
    let mut stored = Stored::new();
    for prefix in prefixes {
        for one in memory.list(prefix, None, 1 << 20).await.unwrap() {
            let (bytes, _) = memory.get(&one.key).await.unwrap();
            stored.insert(one.key.to_string(), bytes.to_vec());
        }
    }
    stored
}

/// Everything that was there is, as it was; more may be.
async fn assert_kept(memory: &MemoryEngine, before: &Stored) {
    for (key, bytes) in before {
        let now = memory.get(&Key::new(key.as_str())).await;
        assert!(now.is_ok_and(|(now, _)| now == bytes), "'{key}' is what it was");
    }
    assert_eq!(memory.list("lost/", None, 1).await.unwrap(), [], "nothing is taken for lost");
}

struct Place {
    memory: Arc<MemoryEngine>,
    engine: Arc<dyn Engine>,
    script: Script,
}

impl Place {
    fn new() -> Place {
        let memory = Arc::new(MemoryEngine::default());
        let (engine, script) = scripted(&memory);
        Place { memory, engine, script }
    }

    async fn open(&self) -> Arc<Store> {
        open(self.engine.clone(), options(8, 8)).await
    }

    /// Leaves what is not folded in the journal, and opens again with reads failing of what begins so.
    async fn again(&self, store: Arc<Store>, failing: Option<&'static str>) -> Arc<Store> {
        store.leave().await.unwrap();
        drop(store);
        self.script.clear();
        if let Some(prefix) = failing {
            self.script.always(Ask::Get, prefix, Decision::fail(Kind::Io));
        }
        self.open().await
    }
}

fn data(tag: u64, blocks: usize) -> Vec<u8> {
    noise(tag, blocks * BLOCK)
}

async fn whole(store: &Arc<Store>, export: &str, tag: u64, blocks: usize) {
    store.drop_cache();
    assert!(read(store, export, 0, blocks * BLOCK).await == data(tag, blocks), "{export} holds {tag}");
}

#[test]
fn a_head_that_the_medium_fails_to_read_is_waited_for() {
    run(async {
        let place = Place::new();
        let store = place.open().await;
        for disk in ["bad", "good"] {
            create(&store, disk).await;
            write(&store, disk, 0, &data(1, 300)).await;
        }
        store.snapshot(&[name("bad")], Some(name("s"))).await.unwrap();
        store.clone_snapshot(&snap("bad@s"), &name("clone")).await.unwrap();
        store.reclaim().await.unwrap();
        // Not folded when the head is read next; and what the clone began as is overwritten.
        write(&store, "bad", 0, &data(2, 100)).await;
        let mut store = place.again(store, Some("head/bad")).await;
        let before = stored(&place.memory, &["segment/", "ledger/", "head/bad"]).await;
        for round in 0..3u64 {
            let refused = store.attach(&"bad".parse().unwrap()).err().unwrap();
            assert!(refused.kind() == Kind::Io && refused.to_string().contains("'bad'"), "{refused}");
            assert!(refused.remedy_text().unwrap().contains("start again"), "{refused}");
            let taken = store.create_disk(&name("bad"), 1 << 20, DiskSettings::default()).await;
            assert_eq!(taken.unwrap_err().kind(), Kind::AlreadyExists);
            write(&store, "good", 0, &data(10 + round, 300)).await;
            write(&store, "clone", 0, &data(20 + round, 300)).await;
            assert_eq!(store.reclaim().await.unwrap_err().kind(), Kind::Io, "nothing is given back");
            assert_eq!(store.check().await.unwrap().problems.len(), 1);
            assert_kept(&place.memory, &before).await;
            store = place.again(store, (round < 2).then_some("head/bad")).await;
        }
        assert!(store.damaged_disks().is_empty());
        assert!(read(&store, "bad", 0, 100 * BLOCK).await == data(2, 100));
        assert!(read(&store, "bad", 100 * 4096, 200 * BLOCK).await == data(1, 300)[100 * BLOCK..]);
        whole(&store, "bad@s", 1, 300).await;
        whole(&store, "good", 12, 300).await;
        whole(&store, "clone", 22, 300).await;
        store.reclaim().await.unwrap();
        sound(&store).await;
        whole(&store, "bad@s", 1, 300).await;
    });
}

/// The head that came back still names what reclaim had counted of it.
#[test]
fn what_was_counted_of_a_disk_is_not_counted_again_when_its_head_comes_back() {
    run(async {
        let place = Place::new();
        let store = place.open().await;
        for disk in ["bad", "good"] {
            create(&store, disk).await;
            write(&store, disk, 0, &data(if disk == "bad" { 1 } else { 2 }, 300)).await;
        }
        store.fold_everything().await.unwrap();
        place.script.always(Ask::PutIf, "head/bad", Decision::fail(Kind::NoSpace));
        store.reclaim().await.unwrap();
        let store = place.again(store, Some("head/bad")).await;
        write(&store, "good", 0, &data(3, 300)).await;
        assert_eq!(store.reclaim().await.unwrap_err().kind(), Kind::Io);
        let store = place.again(store, None).await;
        store.reclaim().await.unwrap();
        sound(&store).await;
        for disk in ["bad", "good"] {
            store.remove_disk(&name(disk)).await.unwrap();
        }
        store.reclaim().await.unwrap();
        sound(&store).await;
        assert_eq!(place.memory.list("segment/", None, 10).await.unwrap(), []);
    });
}

/// What the pool can do without keeps it from nothing.
#[test]
fn classes_of_service_and_growth_are_done_without() {
    for record in ["growth", "qos"] {
        for kind in [Kind::Io, Kind::Corrupt] {
            run(async {
                let place = Place::new();
                let store = place.open().await;
                create(&store, "good").await;
                write(&store, "good", 0, &data(1, 3)).await;
                store.leave().await.unwrap();
                drop(store);
                place.script.always(Ask::Get, record, Decision::fail(kind));
                let store = place.open().await;
                whole(&store, "good", 1, 3).await;
                write(&store, "good", 0, &data(2, 3)).await;
                sound(&store).await;
            });
        }
    }
}

/// The operator may know that it will not pass.
#[test]
fn a_disk_whose_head_cannot_be_read_can_be_given_up() {
    run(async {
        let place = Place::new();
        let store = place.open().await;
        create(&store, "bad").await;
        write(&store, "bad", 0, &data(1, 300)).await;
        let store = place.again(store, Some("head/bad")).await;
        store.give_up_disk(&name("bad")).await.unwrap();
        create(&store, "good").await;
        store.reclaim().await.unwrap();
        sound(&store).await;
        assert_eq!(place.memory.list("segment/", None, 10).await.unwrap(), []);
    });
}

#[test]
fn a_removed_disk_whose_head_the_medium_fails_to_read_is_waited_for() {
    run(async {
        let place = Place::new();
        let store = place.open().await;
        for disk in ["golden", "other"] {
            create(&store, disk).await;
            write(&store, disk, 0, &data(if disk == "other" { 9 } else { 1 }, 300)).await;
        }
        store.snapshot(&[name("golden")], Some(name("s"))).await.unwrap();
        store.clone_snapshot(&snap("golden@s"), &name("clone")).await.unwrap();
        store.remove_snapshot(&snap("golden@s")).await.unwrap();
        store.fold_everything().await.unwrap();
        store.remove_disk(&name("golden")).await.unwrap();
        let store = place.again(store, Some("gone/")).await;
        let before = stored(&place.memory, &["segment/", "ledger/", "gone/"]).await;
        assert!(store.damaged_disks().is_empty(), "nobody misses it");
        write(&store, "other", 0, &data(3, 300)).await;
        assert_eq!(store.reclaim().await.unwrap_err().kind(), Kind::Io);
        assert_eq!(store.check().await.unwrap().problems.len(), 1);
        assert_kept(&place.memory, &before).await;
        let store = place.again(store, None).await;
        whole(&store, "clone", 1, 300).await;
        store.reclaim().await.unwrap();
        sound(&store).await;
        for disk in ["clone", "other"] {
            store.remove_disk(&name(disk)).await.unwrap();
        }
        store.reclaim().await.unwrap();
        for prefix in ["segment/", "gone/"] {
            assert_eq!(place.memory.list(prefix, None, 10).await.unwrap(), []);
        }
    });
}

/// A disk whose removal was broken off is not served while it is not known that it was: what is written to it would go with it.
#[test]
fn a_disk_that_may_have_been_removed_is_not_served() {
    run(async {
        let place = Place::new();
        let store = place.open().await;
        create(&store, "web").await;
        write(&store, "web", 0, &data(1, 10)).await;
        store.fold_everything().await.unwrap();
        let (head, _) = place.memory.get(&Key::new("head/web")).await.unwrap();
        store.remove_disk(&name("web")).await.unwrap();
        place.memory.put_new(&Key::new("head/web"), head).await.unwrap();
        let store = place.again(store, Some("gone/")).await;
        let refused = store.attach(&"web".parse().unwrap()).err().unwrap();
        assert!(refused.kind() == Kind::Io && refused.to_string().contains("gone/"), "{refused}");
        let before = stored(&place.memory, &["head/", "gone/", "segment/"]).await;
        store.reclaim().await.unwrap_err();
        assert_kept(&place.memory, &before).await;
        let store = place.again(store, None).await;
        assert_eq!(
            store.attach(&"web".parse().unwrap()).err().unwrap().kind(),
            Kind::NotFound,
            "it is removed"
        );
        store.reclaim().await.unwrap();
        sound(&store).await;
    });
}

/// Also what was written anew is found, by the names of its forms.
#[test]
fn accounts_that_the_medium_fails_to_read_are_waited_for() {
    run(async {
        let place = Place::new();
        let store = place.open().await;
        let mut held = data(1, 2000);
        create(&store, "a").await;
        write(&store, "a", 0, &held).await;
        store.reclaim().await.unwrap();
        let mut rewritten = 0;
        for round in 0..2 {
            for at in (round..2000).step_by(3) {
                attach(&store, "a").zero((at * BLOCK) as u64, BLOCK as u64, false).await.unwrap();
                held[at * BLOCK..][..BLOCK].fill(0);
            }
            rewritten += store.reclaim().await.unwrap().rewritten_segments;
        }
        assert!(rewritten > 0);
        let mut store = place.again(store, Some("accounts")).await;
        let before = stored(&place.memory, &["segment/", "ledger/", "account"]).await;
        for round in 0..2u64 {
            store.drop_cache();
            assert!(read(&store, "a", 0, held.len()).await == held, "all is read");
            create(&store, &format!("new{round}")).await;
            write(&store, &format!("new{round}"), 0, &data(50 + round, 300)).await;
            store.snapshot(&[name("a")], Some(name(&format!("s{round}")))).await.unwrap();
            write(&store, "a", 4096 * 5000, &data(50 + round, 10)).await;
            let why = store.reclaim().await.unwrap_err();
            assert!(why.kind() == Kind::Io && why.to_string().contains("the accounts"), "{why}");
            assert_eq!(store.usage(&name("a")).await.unwrap_err().kind(), Kind::Io);
            let problems = store.check().await.unwrap().problems;
            assert!(problems.len() == 1 && problems[0].contains("accounts"), "{problems:?}");
            assert_kept(&place.memory, &before).await;
            store = place.again(store, (round == 0).then_some("accounts")).await;
        }
        store.drop_cache();
        assert!(read(&store, "a", 0, held.len()).await == held);
        store.reclaim().await.unwrap();
        sound(&store).await;
        for round in 0..2 {
            store.remove_snapshot(&snap(&format!("a@s{round}"))).await.unwrap();
            store.remove_disk(&name(&format!("new{round}"))).await.unwrap();
        }
        store.remove_disk(&name("a")).await.unwrap();
        store.reclaim().await.unwrap();
        sound(&store).await;
        assert_eq!(place.memory.list("segment/", None, 10).await.unwrap(), [], "and all is given back");
    });
}

/// Goal: accounts that are not there, and cannot be read at first either, are not taken for accounts of nothing: what nobody counts
/// any more would be given back. Past bug: they were looked for twice.
#[test]
fn accounts_that_are_gone_and_fail_once_are_counted_anew() {
    run(async {
        for failing in 0..2 {
            let place = Place::new();
            let store = place.open().await;
            create(&store, "a").await;
            write(&store, "a", 0, &data(1, 300)).await;
            store.reclaim().await.unwrap();
            store.close().await.unwrap();
            place.memory.delete(&Key::new("accounts")).await.unwrap();
            place.script.after(failing, Ask::Get, "accounts", Decision::fail(Kind::Io));
            let store = place.open().await;
            let counted = store.reclaim().await;
            whole(&store, "a", 1, 300).await;
            let store = if counted.is_err() { place.again(store, None).await } else { store };
            store.reclaim().await.unwrap();
            sound(&store).await;
            whole(&store, "a", 1, 300).await;
        }
    });
}

/// What a pool cannot do without still keeps it from opening, by name.
#[test]
fn the_record_of_the_pool_is_needed() {
    run(async {
        let place = Place::new();
        let store = place.open().await;
        store.close().await.unwrap();
        for document in ["pool", "domains"] {
            place.script.clear();
            place.script.always(Ask::Get, document, Decision::fail(Kind::Io));
            let why = try_open(place.engine.clone(), options(8, 8)).await.err().unwrap();
            assert!(why.kind() == Kind::Io && why.to_string().contains(document), "{why}");
        }
    });
}
