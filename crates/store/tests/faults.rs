//! What the engine gets wrong at the worst moment, and what callers do meanwhile.
//!
//! Goal: an error or a caller that goes away never costs what was acknowledged, and one disk's trouble is its own.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use stonefold_engine::wrap::{Ask, Decision, FaultEngine, Operation, Outcome, Subject};
use stonefold_engine::{Engine, MemoryEngine};
use stonefold_env::{Env, SystemWorld};
use stonefold_store::{Attachment, Options, Store};
use stonefold_types::{DiskSettings, Kind, Name, SnapshotName};

const DISK_BYTES: u64 = 64 << 20;
const BUDGET_BYTES: u64 = 4 << 20;

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

/// What shall happen to operations whose keys begin so: to the next ones in order, or, with `None` as a count, to all.
struct Rule {
    ask: Ask,
    prefix: &'static str,
    times: Option<usize>,
    decision: Decision,
}

#[derive(Clone, Default)]
struct Script(Arc<Mutex<VecDeque<Rule>>>);

impl Script {
    fn add(&self, ask: Ask, prefix: &'static str, times: Option<usize>, decision: Decision) {
        self.0.lock().push_back(Rule { ask, prefix, times, decision });
    }

    fn clear(&self) {
        self.0.lock().clear();
    }

    fn decide(&self, operation: &Operation<'_>) -> Decision {
        let Subject::Object(key) = operation.subject else { return Decision::PROCEED };
        let mut rules = self.0.lock();
        let fits = |rule: &Rule| rule.ask == operation.ask && key.as_str().starts_with(rule.prefix);
        let Some(at) = rules.iter().position(fits) else { return Decision::PROCEED };
        let decision = rules[at].decision;
        if let Some(times) = &mut rules[at].times {
            *times -= 1;
            if *times == 0 {
                rules.remove(at);
            }
        }
        decision
    }
}

/// A store on `inner`, and what decides over its faults.
async fn open(inner: &Arc<MemoryEngine>) -> (Arc<Store>, Script) {
    let script = Script::default();
    let deciding = script.clone();
    let engine: Arc<dyn Engine> =
        Arc::new(FaultEngine::new(inner.clone(), env(), move |operation| deciding.decide(operation)));
    let options = Options { cache_bytes: 1 << 20, journal_bytes_max: BUDGET_BYTES, ..Options::default() };
    (Store::open(env(), engine, options).await.unwrap(), script)
}

async fn create(store: &Arc<Store>, disk: &str) -> Attachment {
    store.create_disk(&name(disk), DISK_BYTES, DiskSettings::default()).await.unwrap();
    store.attach(&disk.parse().unwrap()).unwrap()
}

async fn read(attachment: &Attachment, offset: u64) -> [u8; 4096] {
    let mut block = [0xee; 4096];
    attachment.read(offset, &mut block).await.unwrap();
    block
}

const SLOW: Decision = Decision { delay_after: Duration::from_millis(80), ..Decision::PROCEED };
const MOMENT: Duration = Duration::from_millis(20);

/// Past bug: a client that asked what changed, and left, took the round of the fold with it, in the middle of storing a head.
#[test]
fn who_asked_may_leave_while_a_head_is_stored() {
    run(async {
        let inner = Arc::new(MemoryEngine::default());
        let (store, script) = open(&inner).await;
        let a = create(&store, "a").await;
        a.write(0, &[1; 4096], false).await.unwrap();
        store.snapshot(&[name("a")], Some(name("s"))).await.unwrap();
        a.write(4096, &[2; 4096], false).await.unwrap();
        script.add(Ask::PutIf, "head/", None, SLOW);
        let asked = tokio::time::timeout(MOMENT, a.changed_since(&name("s"), 0, DISK_BYTES)).await;
        assert!(asked.is_err(), "it left before there was an answer");
        script.clear();
        a.write(8192, &[3; 4096], true).await.unwrap();
        let changed = store.diff(&snap("a@s"), None).await.unwrap();
        assert_eq!(changed, [(4096, 8192)]);
        store.reclaim().await.unwrap();
        store.close().await.unwrap();
        let (store, _) = open(&inner).await;
        let a = store.attach(&"a".parse().unwrap()).unwrap();
        for (offset, byte) in [(0, 1), (4096, 2), (8192, 3), (12288, 0)] {
            assert_eq!(read(&a, offset).await, [byte; 4096]);
        }
    });
}

/// Past bug: a head that was found to be stored although an error had said otherwise, and could then not be overwritten, was taken for
/// the one in memory; reclaim deleted what it referred to.
#[test]
fn nothing_is_given_back_while_a_stored_head_is_ahead() {
    run(async {
        let inner = Arc::new(MemoryEngine::default());
        let (store, script) = open(&inner).await;
        let a = create(&store, "a").await;
        a.write(0, &[1; 4096], false).await.unwrap();
        store.snapshot(&[name("a")], Some(name("s"))).await.unwrap();
        // It is stored, an error says that it is not, and it cannot be read back.
        let lies = Decision { outcome: Outcome::FailAfter(Kind::Io), ..Decision::PROCEED };
        script.add(Ask::PutIf, "head/", Some(1), lies);
        script.add(Ask::Get, "head/", Some(1), Decision::fail(Kind::Io));
        store.diff(&snap("a@s"), None).await.unwrap_err();
        // Now it can be read back, and not be overwritten.
        script.add(Ask::PutIf, "head/", None, Decision::fail(Kind::NoSpace));
        store.diff(&snap("a@s"), None).await.unwrap_err();
        assert_eq!(store.reclaim().await.unwrap_err().kind(), Kind::Busy);
        // The power fails: what is stored is what there is.
        drop((a, store));
        let (store, _) = open(&inner).await;
        let a = store.attach(&"a".parse().unwrap()).unwrap();
        assert_eq!(read(&a, 0).await, [1; 4096]);
        store.reclaim().await.unwrap();
        assert!(store.check().await.unwrap().problems.is_empty());
        assert_eq!(read(&store.attach(&"a@s".parse().unwrap()).unwrap(), 0).await, [1; 4096]);
    });
}

/// Past bug: the clone stopped the server, and the comparison was with an empty disk.
#[test]
fn a_snapshot_made_anew_under_its_name_is_another() {
    run(async {
        let inner = Arc::new(MemoryEngine::default());
        let (store, script) = open(&inner).await;
        let a = create(&store, "a").await;
        let latest = snap("a@latest");
        for clone in [true, false] {
            a.write(0, &[1; 4096], false).await.unwrap();
            store.snapshot(&[name("a")], Some(name("latest"))).await.unwrap();
            script.add(Ask::PutIf, "head/", None, SLOW);
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

/// Past bugs: its data was stored anew in each round, and while its map could not be read, it took the room of all writers.
#[test]
fn a_disk_that_cannot_be_folded_costs_the_others_nothing() {
    run(async {
        let inner = Arc::new(MemoryEngine::default());
        let (store, script) = open(&inner).await;
        let (ailing, sound) = (create(&store, "ailing").await, create(&store, "sound").await);
        ailing.write(0, &[1; 4096], false).await.unwrap();
        store.snapshot(&[name("ailing")], Some(name("s"))).await.unwrap();
        store.diff(&snap("ailing@s"), None).await.unwrap();
        store.drop_cache();
        script.add(Ask::GetRange, "segment/", None, Decision::fail(Kind::Io));
        ailing.write(4096, &vec![2; 1 << 20], false).await.unwrap();
        for _ in 0..3 {
            assert_eq!(store.diff(&snap("ailing@s"), None).await.unwrap_err().kind(), Kind::Io);
        }
        let refused = ailing.write(8192, &[3; 4096], false).await.unwrap_err();
        assert!(refused.to_string().contains("'ailing'"), "{refused}");
        let segments = async || inner.list("segment/", None, 1 << 20).await.unwrap().len();
        let before = segments().await;
        for _ in 0..20 {
            store.diff(&snap("ailing@s"), None).await.unwrap_err();
        }
        assert_eq!(segments().await, before, "nothing is stored for nothing");
        // More than the budget: the fold goes on with the others.
        for at in 0..(3 * BUDGET_BYTES) >> 20 {
            sound.write(at << 20, &vec![4; 1 << 20], false).await.unwrap();
        }
        script.clear();
        store.diff(&snap("ailing@s"), None).await.unwrap();
        ailing.write(0, &[5; 4096], false).await.unwrap();
        assert_eq!((read(&ailing, 0).await, read(&ailing, 4096).await), ([5; 4096], [2; 4096]));
    });
}
