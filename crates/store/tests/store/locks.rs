//! Goal: a locked snapshot outlives every command and every wall clock until its date has come by the pool's own time.

use crate::pool::{BLOCK, attach, master, name, open, options, run};
use crate::script::{MOMENT, scripted};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stonefold_engine::wrap::{Ask, Decision, Outcome};
use stonefold_engine::{Engine, MemoryEngine};
use stonefold_env::{BoxFuture, Env, SystemWorld, WallNanos, World};
use stonefold_store::{DomainPolicy, Options, Store};
use stonefold_types::{DiskSettings, Kind, SnapshotName};

const DAY: u64 = 86_400_000_000_000;

/// The system with a wall clock that can be set.
struct Settable {
    system: SystemWorld,
    ahead: Arc<AtomicU64>,
}

impl World for Settable {
    fn monotonic(&self) -> Duration {
        self.system.monotonic()
    }
    fn wall(&self) -> WallNanos {
        // A clock of its own, so that no test depends on today.
        1_800_000_000_000_000_000 + self.ahead.load(Ordering::SeqCst)
    }
    fn random(&self, bytes: &mut [u8]) {
        self.system.random(bytes);
    }
    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) {
        self.system.spawn(name, task);
    }
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.system.sleep(duration)
    }
    fn offload(&self, job: Box<dyn FnOnce() + Send>) {
        self.system.offload(job);
    }
}

struct Pool {
    engine: Arc<MemoryEngine>,
    ahead: Arc<AtomicU64>,
}

impl Pool {
    async fn open(&self) -> Arc<Store> {
        self.open_on(self.engine.clone()).await
    }

    async fn open_on(&self, engine: Arc<dyn Engine>) -> Arc<Store> {
        let system = SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap();
        let env = Env::new(Settable { system, ahead: self.ahead.clone() });
        // Pages of one, so that a lock has to find its way into one.
        let options = Options { snapshot_page_records: 1, keys: master(7), ..options(1, 1) };
        Store::open(env, engine, options).await.unwrap()
    }

    fn set_forward(&self, by: u64) {
        self.ahead.fetch_add(by, Ordering::SeqCst);
    }
}

async fn disk_with_snapshots(store: &Store) -> SnapshotName {
    store.create_domain(&name("vault"), DomainPolicy::default(), true).await.unwrap();
    store.create_disk_in(&name("vault"), &name("web"), 1 << 20, DiskSettings::default()).await.unwrap();
    for snapshot in ["a", "b", "c"] {
        store.snapshot(&[name("web")], Some(name(snapshot))).await.unwrap();
        store.diff(&format!("web@{snapshot}").parse().unwrap(), None).await.unwrap();
    }
    "web@a".parse().unwrap()
}

async fn removal(store: &Store, snapshot: &SnapshotName) -> Kind {
    store.remove_snapshot(snapshot).await.unwrap_err().kind()
}

#[test]
fn a_lock_holds_against_every_command() {
    run(async {
        let pool = Pool { engine: Arc::default(), ahead: Arc::default() };
        let store = pool.open().await;
        let locked = disk_with_snapshots(&store).await;
        let until = store.time().trusted + 30 * DAY;
        assert_eq!(store.lock_snapshot(&locked, until).await.unwrap().locked_until, Some(until));
        let told = store.remove_snapshot(&locked).await.unwrap_err();
        assert_eq!(told.kind(), Kind::Locked);
        assert!(told.to_string().contains("locked until 2027-02-14 08:00:"), "{told}");
        let refused =
            |result: stonefold_types::Result<_>| result.err().map(|e: stonefold_types::Error| e.kind());
        assert_eq!(refused(store.remove_disk(&name("web")).await), Some(Kind::Locked));
        assert_eq!(refused(store.check_no_locks(&name("web"))), Some(Kind::Locked));
        assert_eq!(refused(store.shred_domain(&name("vault")).await.map(drop)), Some(Kind::Locked));
        for worse in [until - 1, 0, until + 200 * 365 * DAY] {
            assert_eq!(
                refused(store.lock_snapshot(&locked, worse).await.map(drop)),
                Some(Kind::Invalid),
                "{worse}"
            );
        }
        store.rollback(&"web@b".parse().unwrap()).await.unwrap();
        store.remove_snapshot(&"web@b".parse().unwrap()).await.unwrap();
        store.lock_snapshot(&locked, until + DAY).await.unwrap();
        store.reclaim().await.unwrap();
        store.close().await.unwrap();

        let store = pool.open().await;
        assert_eq!(store.snapshot_info(&locked).unwrap().locked_until, Some(until + DAY), "also in its page");
        assert_eq!(removal(&store, &locked).await, Kind::Locked);
        store.shred_domain(&name("vault")).await.unwrap_err();
        assert_eq!(store.domain(&name("vault")).unwrap().state, stonefold_store::DomainState::Open);
    });
}

/// Past bug: a shredding looked for locks, folded, and then shredded what had been locked meanwhile.
#[test]
fn what_is_being_shredded_takes_no_lock() {
    run(async {
        let (engine, script) = scripted(&Arc::default());
        let store = open(engine, Options { keys: master(7), ..options(8, 16) }).await;
        let snapshot = disk_with_snapshots(&store).await;
        attach(&store, "web").write(0, &[1; BLOCK], false).await.unwrap();
        script.on(Ask::PutIf, "head/", Decision { delay_before: 5 * MOMENT, ..Decision::PROCEED });
        let lock = async {
            script.played().await;
            store.lock_snapshot(&snapshot, store.time().trusted + DAY).await
        };
        let vault = name("vault");
        let (shredded, locked) = futures::join!(store.shred_domain(&vault), lock);
        assert!(locked.unwrap_err().to_string().contains("'web'"));
        assert_eq!(shredded.unwrap().state, stonefold_store::DomainState::Shredded);
    });
}

#[test]
fn a_clock_that_jumps_opens_no_lock_until_it_is_confirmed() {
    run(async {
        let pool = Pool { engine: Arc::default(), ahead: Arc::default() };
        let store = pool.open().await;
        let locked = disk_with_snapshots(&store).await;
        store.lock_snapshot(&locked, store.time().trusted + 30 * DAY).await.unwrap();
        pool.set_forward(31 * DAY);
        assert_eq!(removal(&store, &locked).await, Kind::Locked, "while it runs");
        assert!(store.time().in_doubt);
        let told = store.remove_snapshot(&locked).await.unwrap_err().to_string();
        assert!(told.contains("confirm-time"), "{told}");
        store.close().await.unwrap();
        for _ in 0..3 {
            let store = pool.open().await;
            assert!(store.time().in_doubt, "after a restart");
            assert_eq!(removal(&store, &locked).await, Kind::Locked);
            store.close().await.unwrap();
        }
        // A clock that is set right again is believed by itself.
        pool.ahead.store(0, Ordering::SeqCst);
        let store = pool.open().await;
        assert!(!store.time().in_doubt);
        store.close().await.unwrap();
        // Steps that are small each are not believed for ever.
        for _ in 0..12 {
            pool.set_forward(3 * DAY);
            let store = pool.open().await;
            assert_eq!(removal(&store, &locked).await, Kind::Locked);
            store.close().await.unwrap();
        }
        let store = pool.open().await;
        assert!(store.time().in_doubt);
        let confirmed = store.confirm_time().await.unwrap();
        assert!(!confirmed.in_doubt && confirmed.trusted >= confirmed.wall);
        assert_eq!(store.snapshot_info(&locked).unwrap().locked_until, None);
        store.remove_snapshot(&locked).await.unwrap();
    });
}

/// Goal: what was off for a while, and what is behind, needs nobody.
#[test]
fn a_clock_in_order_needs_no_confirmation() {
    run(async {
        let pool = Pool { engine: Arc::default(), ahead: Arc::new(AtomicU64::new(10 * DAY)) };
        let store = pool.open().await;
        let locked = disk_with_snapshots(&store).await;
        store.lock_snapshot(&locked, store.time().trusted + 2 * DAY).await.unwrap();
        store.close().await.unwrap();
        pool.ahead.store(0, Ordering::SeqCst);
        let store = pool.open().await;
        assert!(!store.time().in_doubt);
        assert!(store.time().trusted >= store.time().wall + 10 * DAY, "it never goes back by itself");
        store.close().await.unwrap();
        pool.set_forward(13 * DAY);
        let store = pool.open().await;
        assert!(!store.time().in_doubt);
        store.remove_snapshot(&locked).await.unwrap();
    });
}

/// Past bug: a confirmation was refused as a conflict, because an earlier record of the time was stored although an error had said
/// otherwise.
#[test]
fn a_confirmation_that_was_stored_unseen_does_not_stand_in_the_way_of_the_next() {
    run(async {
        let pool = Pool { engine: Arc::default(), ahead: Arc::default() };
        let (engine, script) = scripted(&pool.engine);
        let store = pool.open_on(engine).await;
        pool.set_forward(31 * DAY);
        script.on(
            Ask::PutIf,
            "pool",
            Decision { outcome: Outcome::FailAfter(Kind::Io), ..Decision::PROCEED },
        );
        script.on(Ask::Get, "pool", Decision::fail(Kind::Io));
        assert_eq!(store.confirm_time().await.unwrap_err().kind(), Kind::Io);
        assert!(script.is_over() && store.time().in_doubt);
        pool.set_forward(DAY);
        let confirmed = store.confirm_time().await.unwrap();
        assert!(!confirmed.in_doubt && confirmed.trusted >= confirmed.wall);
        store.close().await.unwrap();
        let store = pool.open().await;
        assert!(!store.time().in_doubt);
    });
}
