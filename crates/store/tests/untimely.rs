//! Calls that meet at the wrong moment, and engines that fail or dawdle in between.
//!
//! Goal: whatever one call finds while another is half done, what was acknowledged stays; nobody waits for what is none of his
//! business; and what failed for one disk goes on for the others.
//!
//! Method: an engine in memory with a script of what shall be slow or fail, so that the interleaving is always the one meant.

#![allow(clippy::disallowed_methods, reason = "tests let tasks meet, and time what waits")]

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stonefold_engine::wrap::{Ask, Decision, FaultEngine, Operation, Outcome, Subject};
use stonefold_engine::{Engine, MemoryEngine};
use stonefold_env::{Env, SystemWorld};
use stonefold_store::{Attachment, DomainPolicy, DomainState, Keys, MasterKey, Options, Secret, Store};
use stonefold_types::{DiskSettings, Kind, Name, SnapshotName};

const DISK_BYTES: u64 = 1 << 30;
const BLOCK: usize = 4096;
/// Longer than anything here takes beside.
const SLOW: Duration = Duration::from_millis(1500);

/// What shall happen to the next operations of a kind on objects whose keys begin so.
struct Rule {
    ask: Ask,
    prefix: &'static str,
    /// So many pass first.
    skip: usize,
    times: usize,
    decision: Decision,
}

#[derive(Clone, Default)]
struct Script(Arc<Mutex<Vec<Rule>>>);

impl Script {
    fn decide(&self, operation: &Operation<'_>) -> Decision {
        let key = match operation.subject {
            Subject::Object(key) => key.as_str(),
            _ => "",
        };
        let mut rules = self.0.lock();
        let fits = |rule: &Rule| rule.ask == operation.ask && key.starts_with(rule.prefix);
        let Some(at) = rules.iter().position(fits) else { return Decision::PROCEED };
        if rules[at].skip > 0 {
            rules[at].skip -= 1;
            return Decision::PROCEED;
        }
        rules[at].times -= 1;
        let decision = rules[at].decision;
        rules.retain(|rule| rule.times > 0);
        decision
    }

    fn on(&self, ask: Ask, prefix: &'static str, decision: Decision) {
        self.after(0, ask, prefix, decision);
    }

    fn after(&self, skip: usize, ask: Ask, prefix: &'static str, decision: Decision) {
        self.0.lock().push(Rule { ask, prefix, skip, times: 1, decision });
    }

    fn slow(&self, ask: Ask, prefix: &'static str) {
        self.on(ask, prefix, Decision { delay_before: SLOW, ..Decision::PROCEED });
    }

    /// Waits until everything has begun to happen.
    async fn played(&self) {
        while !self.0.lock().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn snap(text: &str) -> SnapshotName {
    text.parse().unwrap()
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn env() -> Env {
    Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap())
}

fn scripted(memory: &Arc<MemoryEngine>) -> (Arc<dyn Engine>, Script) {
    let script = Script::default();
    let by = script.clone();
    (Arc::new(FaultEngine::new(memory.clone(), env(), move |operation| by.decide(operation))), script)
}

async fn open(engine: &Arc<dyn Engine>) -> Arc<Store> {
    let master = Some(MasterKey::Key(Secret::new(&[7; 32])));
    let keys = Keys { master, ..Keys::default() };
    let options = Options { cache_bytes: 8 << 20, journal_bytes_max: 16 << 20, keys, ..Options::default() };
    let store = Store::open(env(), engine.clone(), options).await.unwrap();
    // The first round and the first pass are over before anything is made slow.
    store.reclaim().await.unwrap();
    store
}

async fn create(store: &Store, disk: &str) {
    store.create_disk(&name(disk), DISK_BYTES, DiskSettings::default()).await.unwrap();
}

fn attach(store: &Arc<Store>, export: &str) -> Attachment {
    store.attach(&export.parse().unwrap()).unwrap()
}

/// Bytes that are like no others.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut word = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 32) as u32
    };
    (0..len / 4).flat_map(|_| word().to_le_bytes()).collect()
}

async fn write(store: &Arc<Store>, disk: &str, offset: u64, data: &[u8]) {
    attach(store, disk).write(offset, data, false).await.unwrap();
}

async fn read(store: &Arc<Store>, export: &str, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xee; len];
    attach(store, export).read(offset, &mut bytes).await.unwrap();
    bytes
}

async fn segment_bytes(engine: &Arc<dyn Engine>) -> u64 {
    engine.list("segment/", None, 1 << 20).await.unwrap().iter().map(|one| one.bytes).sum()
}

async fn sound(store: &Store) {
    let checked = store.check().await.unwrap();
    assert_eq!((&checked.problems[..], checked.lost_blocks), (&[][..], 0), "{checked:?}");
}

/// Past bug: the hold on the snapshot went with the disk's head, and reclaim freed what the clone was about to begin with.
#[test]
fn a_disk_is_not_removed_while_a_clone_of_it_is_being_made() {
    run(async {
        let (engine, script) = scripted(&Arc::default());
        let store = open(&engine).await;
        create(&store, "template").await;
        let data = noise(1, 4 << 20);
        write(&store, "template", 0, &data).await;
        store.snapshot(&[name("template")], Some(name("s"))).await.unwrap();
        store.reclaim().await.unwrap();
        script.slow(Ask::PutNew, "head/new");
        let by = store.clone();
        let cloning = tokio::spawn(async move { by.clone_snapshot(&snap("template@s"), &name("new")).await });
        script.played().await;
        store.remove_snapshot(&snap("template@s")).await.unwrap();
        let removed = store.remove_disk(&name("template")).await;
        store.reclaim().await.unwrap();
        assert!(!cloning.is_finished(), "all that is meant to come in between has");
        cloning.await.unwrap().unwrap();
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
        let store = open(&engine).await;
        for disk in ["web", "other"] {
            create(&store, disk).await;
            write(&store, disk, 0, &noise(1, 1 << 20)).await;
        }
        store.snapshot(&[name("other")], Some(name("s"))).await.unwrap();
        store.reclaim().await.unwrap();
        write(&store, "other", 0, &noise(2, 1 << 20)).await;
        script.slow(Ask::PutNew, "segment/");
        let by = store.clone();
        let round = tokio::spawn(async move { by.diff(&snap("other@s"), None).await });
        script.played().await;
        let remove = || {
            let by = store.clone();
            tokio::spawn(async move { by.remove_disk(&name("web")).await })
        };
        let (first, second) = (remove(), remove());
        round.await.unwrap().unwrap();
        let outcomes = [first.await.unwrap(), second.await.unwrap()];
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
        let store = open(&engine).await;
        for disk in ["web", "other"] {
            create(&store, disk).await;
            write(&store, disk, 0, &noise(1, 1 << 20)).await;
        }
        store.snapshot(&[name("other")], Some(name("s"))).await.unwrap();
        let slow_round = |seed: u64| {
            let by = store.clone();
            tokio::spawn(async move {
                write(&by, "other", 0, &noise(seed, 1 << 20)).await;
                by.diff(&snap("other@s"), None).await
            })
        };
        let remove = || {
            let by = store.clone();
            tokio::spawn(async move { by.remove_disk(&name("web")).await })
        };
        script.slow(Ask::PutNew, "segment/");
        let first_round = slow_round(2);
        script.played().await;
        let first = remove();
        tokio::task::yield_now().await;
        let second_round = slow_round(3);
        // It has written, and waits behind the removal.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let second = remove();
        tokio::task::yield_now().await;
        script.slow(Ask::PutNew, "segment/");
        first_round.await.unwrap().unwrap();
        first.await.unwrap().unwrap();
        script.played().await;
        create(&store, "web").await;
        write(&store, "web", 0, &noise(9, 1 << 20)).await;
        assert!(!second.is_finished());
        second_round.await.unwrap().unwrap();
        assert_eq!(second.await.unwrap().unwrap_err().kind(), Kind::NotFound);
        assert!(read(&store, "web", 0, 1 << 20).await == noise(9, 1 << 20));
        store.reclaim().await.unwrap();
        store.close().await.unwrap();
        let store = open(&engine).await;
        assert!(read(&store, "web", 0, 1 << 20).await == noise(9, 1 << 20), "also after a restart");
        sound(&store).await;
    });
}

/// Flips bits all over a part of an object.
fn ruin(memory: &MemoryEngine, key: &stonefold_engine::Key, bytes: std::ops::Range<u64>) {
    for byte in bytes.step_by(16) {
        assert!(memory.rot(key, byte * 8 + 3));
    }
}

/// Past bug: a removed disk whose map cannot be read ended reclaim for the whole pool, also after restarts.
#[test]
fn a_removed_disk_with_a_damaged_map_holds_up_nobody() {
    run(async {
        let memory = Arc::new(MemoryEngine::default());
        let engine: Arc<dyn Engine> = memory.clone();
        let store = open(&engine).await;
        create(&store, "bad").await;
        write(&store, "bad", 0, &noise(1, 8 << 20)).await;
        store.close().await.unwrap();
        let segments = engine.list("segment/", None, 10).await.unwrap();
        let map = segments.iter().min_by_key(|one| one.bytes).unwrap();
        assert!(segments.len() == 2 && map.bytes < 1 << 20, "{segments:?}");
        // The first leaf.
        ruin(&memory, &map.key, 96..1000);
        let store = open(&engine).await;
        assert!(!store.check().await.unwrap().problems.is_empty(), "the damage is seen");
        create(&store, "good").await;
        write(&store, "good", 0, &noise(2, 8 << 20)).await;
        store.reclaim().await.unwrap();
        store.remove_disk(&name("bad")).await.unwrap();
        write(&store, "good", 0, &noise(3, 8 << 20)).await;
        store.reclaim().await.unwrap();
        let bytes = segment_bytes(&engine).await;
        let (live, unreadable) = (8 << 20, 2 << 20);
        assert!(bytes < live + unreadable, "{bytes} bytes are taken, and {live} are alive");
        assert!(engine.list("gone/", None, 10).await.unwrap().is_empty(), "the removal came to its end");
        let checked = store.check().await.unwrap();
        assert!(
            checked.problems.is_empty() && checked.lost_blocks > 0,
            "what cannot come back is told: {checked:?}"
        );
        assert!(read(&store, "good", 0, 8 << 20).await == noise(3, 8 << 20));
    });
}

/// Past bug: the same, of a snapshot behind which a section of the ledger is damaged.
#[test]
fn a_damaged_section_of_the_ledger_holds_up_nobody() {
    run(async {
        let memory = Arc::new(MemoryEngine::default());
        let engine: Arc<dyn Engine> = memory.clone();
        let store = open(&engine).await;
        for (disk, seed) in [("bad", 1), ("good", 5)] {
            create(&store, disk).await;
            write(&store, disk, 0, &noise(seed, 4 << 20)).await;
        }
        store.snapshot(&[name("bad")], Some(name("s"))).await.unwrap();
        write(&store, "bad", 0, &noise(2, 4 << 20)).await;
        store.reclaim().await.unwrap();
        let ledgers = engine.list("ledger/", None, 10).await.unwrap();
        assert_eq!(ledgers.len(), 1, "only the deaths behind the snapshot are left: {ledgers:?}");
        ruin(&memory, &ledgers[0].key, 0..ledgers[0].bytes);
        for round in 0..70 {
            write(&store, "bad", 8 << 20, &noise(round, BLOCK)).await;
            store.diff(&snap("bad@s"), None).await.unwrap();
        }
        store.remove_snapshot(&snap("bad@s")).await.unwrap();
        write(&store, "good", 0, &noise(3, 4 << 20)).await;
        store.reclaim().await.unwrap();
        // What both hold now, and what only the damaged section names.
        let (bytes, taken) = (segment_bytes(&engine).await, 3 * (4 << 20));
        assert!(bytes < taken + (1 << 20), "{bytes} bytes are taken, and that should be {taken}");
        assert!(read(&store, "bad", 0, 4 << 20).await == noise(2, 4 << 20));
        store.remove_disk(&name("bad")).await.unwrap();
        store.reclaim().await.unwrap();
        assert!(engine.list("gone/", None, 10).await.unwrap().is_empty(), "the removal came to its end");
        assert!(read(&store, "good", 0, 4 << 20).await == noise(3, 4 << 20));
    });
}

/// One request of any length leaves the thread to the others, and costs nothing for what is not there.
///
/// Past bug: minutes for a large disk that is empty, in one go.
#[test]
fn bringing_a_range_into_the_cache_holds_up_nobody() {
    run(async {
        let (engine, _) = scripted(&Arc::default());
        let store = open(&engine).await;
        let huge = 16u64 << 40;
        store.create_disk(&name("huge"), huge, DiskSettings::default()).await.unwrap();
        create(&store, "other").await;
        write(&store, "other", 0, &noise(1, 1 << 20)).await;
        write(&store, "huge", huge - (1 << 20), &noise(2, 1 << 20)).await;
        store.reclaim().await.unwrap();
        store.drop_cache();
        let (warmed, beside) = (attach(&store, "huge"), attach(&store, "other"));
        let warming = tokio::spawn(async move { warmed.prefetch(0, huge).await.map(|()| warmed) });
        let mut slowest = Duration::ZERO;
        while !warming.is_finished() {
            let start = Instant::now();
            beside.read(0, &mut [0; BLOCK]).await.unwrap();
            tokio::task::yield_now().await;
            slowest = slowest.max(start.elapsed());
        }
        assert!(slowest < Duration::from_millis(250), "a read beside it took {slowest:?}");
        let warmed = warming.await.unwrap().unwrap();
        let mut bytes = vec![0; 256 << 10];
        warmed.read_cached(huge - (1 << 20), &mut bytes).expect("it is in the cache").unwrap();
        assert!(bytes == noise(2, 1 << 20)[..256 << 10]);
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
            let store = open(&engine).await;
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
            let deadline = Instant::now() + Duration::from_secs(10);
            while store.domain(&name("d")).unwrap().state != state {
                assert!(Instant::now() < deadline, "what is stored is found out");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            if state == DomainState::Open {
                write(&store, "web", 0, &noise(2, 1 << 20)).await;
            }
            let readable = store.attach(&"web".parse().unwrap()).is_ok();
            store.close().await.unwrap();
            let store = open(&engine).await;
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
        let store = open(&engine).await;
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

/// Past bug: a rollback held the fold's lock from beginning to end, and writers of all disks waited for it.
#[test]
fn writers_of_other_disks_do_not_wait_for_a_rollback() {
    run(async {
        let (engine, script) = scripted(&Arc::default());
        let store = open(&engine).await;
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
        let rule = Rule { ask: Ask::GetRange, prefix: "segment/", skip: 0, times: 100_000, decision: slow };
        script.0.lock().push(rule);
        let by = store.clone();
        let rolling = tokio::spawn(async move { by.rollback(&snap("back@s")).await });
        tokio::time::sleep(Duration::from_millis(300)).await;
        // Three times what may be acknowledged and not folded, so that rounds must go on.
        for at in 0..48 {
            write(&store, "other", at * mib, &noise(100 + at, mib as usize)).await;
        }
        assert!(!rolling.is_finished(), "the writer did not wait for the rollback");
        // Nor may what it has written so far be taken for leftovers.
        store.reclaim().await.unwrap();
        assert!(!rolling.is_finished(), "reclaim did not wait for the rollback");
        assert_eq!(store.attach(&"back".parse().unwrap()).err().map(|e| e.kind()), Some(Kind::Busy));
        script.0.lock().clear();
        let kept = rolling.await.unwrap().unwrap();
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
