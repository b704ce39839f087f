//! Lives of one pool: each is a store and what protects it, on a runtime of its own. A life ends in order, or as a process does that is
//! killed: its tasks are dropped where they stand. Or its medium fails from a given step on, whatever is asked of it.

use futures::FutureExt;
use parking_lot::Mutex;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use stonefold_engine::MemoryEngine;
use stonefold_engine::wrap::{Ask, Decision, FaultEngine, Operation, Subject};
use stonefold_env::{BoxFuture, Env, SystemWorld, WallNanos, World};
use stonefold_protect::{Pools, Protection};
use stonefold_store::{Keys, MasterKey, Options, Secret, Store};
use stonefold_types::{DiskSettings, Error, Kind, Name, Result};

/// Longer than anything that a test asks for takes on a busy machine; a store whose medium has failed may wait for ever.
const PATIENCE: Duration = Duration::from_secs(3);
/// Steps that no change of a test has.
const NEVER: usize = usize::MAX / 2;

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// With a master key, for whoever seals a domain.
fn options() -> Options {
    let keys = Keys { master: Some(MasterKey::Key(Secret::new(&[7; 32]))), ..Keys::default() };
    Options { cache_bytes: 4 << 20, journal_bytes_max: 4 << 20, keys, ..Options::default() }
}

/// A pool that outlives its servers.
pub(crate) struct Pool {
    memory: Mutex<Arc<MemoryEngine>>,
    pub(crate) clock: Arc<Clock>,
}

/// When a test begins: Monday, 2026-11-23 10:30 UTC.
pub(crate) const BEGINNING: WallNanos = 1_795_429_800 * SECOND;
pub(crate) const SECOND: WallNanos = 1_000_000_000;
pub(crate) const HOUR: WallNanos = 3600 * SECOND;
pub(crate) const DAY: WallNanos = 24 * HOUR;

/// Time that a test lets pass: it runs as the machine's, and leaps when it is told to.
#[derive(Default)]
pub(crate) struct Clock {
    /// Of the machine, when the first life began.
    began: OnceLock<Duration>,
    passed: AtomicU64,
    jumped: AtomicU64,
}

impl Clock {
    /// Lets time pass, for every clock there is.
    pub(crate) fn passes(&self, nanos: u64) {
        self.passed.fetch_add(nanos, Ordering::SeqCst);
    }

    /// Sets the wall's clock forward, and no time passes.
    pub(crate) fn jumps(&self, nanos: u64) {
        self.jumped.fetch_add(nanos, Ordering::SeqCst);
    }

    /// Sets the wall's clock right again.
    pub(crate) fn is_set_right(&self) {
        self.jumped.store(0, Ordering::SeqCst);
    }
}

struct Timed {
    system: SystemWorld,
    clock: Arc<Clock>,
}

impl World for Timed {
    fn monotonic(&self) -> Duration {
        self.system.monotonic() + Duration::from_nanos(self.clock.passed.load(Ordering::SeqCst))
    }
    fn wall(&self) -> WallNanos {
        // Not today's, so that no test depends on it.
        let now = self.system.monotonic();
        let lived = (now - *self.clock.began.get_or_init(|| now)).as_nanos() as u64;
        let leapt = self.clock.passed.load(Ordering::SeqCst) + self.clock.jumped.load(Ordering::SeqCst);
        BEGINNING + lived + leapt
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

/// What ends a life with its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// A kill: what was handed over to the medium is there.
    Kill,
    /// A loss of power: what was not told of as durable is undone, what was not synced is there.
    Undone,
    /// A loss of power: what was not synced is gone.
    Unsynced,
}

pub(crate) const ENDS: [End; 3] = [End::Kill, End::Undone, End::Unsynced];

/// A server's life.
pub(crate) struct Life {
    pub(crate) env: Env,
    pub(crate) store: Arc<Store>,
    pub(crate) protection: Arc<Protection>,
    faults: Arc<Faults>,
}

/// What goes wrong.
struct Faults {
    /// Changes of the medium that are left until it fails.
    left: AtomicUsize,
    /// So many of the changes after that fail, and then it is well again; for good where it is [`NEVER`].
    failing: AtomicUsize,
    /// Each the next operation of a kind on an object whose key begins so.
    once: Mutex<Vec<(Ask, &'static str)>>,
}

/// How a call ended when the medium failed at some step.
pub(crate) enum Ended<T> {
    /// As if nothing had been: there were no so many steps.
    Whole(T),
    /// It failed, or never returned.
    Cut,
}

impl Pool {
    pub(crate) fn new() -> Pool {
        Pool { memory: Mutex::new(Arc::new(MemoryEngine::default())), clock: Arc::default() }
    }

    /// What the next life finds, once the last is over.
    pub(crate) fn ends(&self, end: End) {
        let mut memory = self.memory.lock();
        *memory = match end {
            End::Kill => return,
            End::Undone => Arc::new(memory.after_crash(&mut |_| 0)),
            End::Unsynced => Arc::new(memory.after_crash(&mut |choices| 1 % choices)),
        };
    }

    /// Of the same clock as another.
    pub(crate) fn beside(other: &Pool) -> Pool {
        Pool { clock: other.clock.clone(), ..Pool::new() }
    }

    /// What opens it for a life of another pool; `is_made` where it was opened before.
    pub(crate) fn opener(&self, life: &Life, is_made: bool) -> Arc<Opener> {
        let opener = Arc::new(Opener {
            memory: self.memory.lock().clone(),
            env: life.env.clone(),
            faults: Faults::none(),
            is_made: AtomicBool::new(is_made),
            opened: AtomicUsize::new(0),
        });
        life.protection.opens_pools(opener.clone());
        opener
    }

    /// A life that ends as a kill does, when `work` is over.
    pub(crate) fn life<T, F: Future<Output = T>>(&self, work: impl FnOnce(Arc<Life>) -> F) -> T {
        let memory = self.memory.lock().clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let system = SystemWorld::new(tokio::runtime::Handle::current(), 1).unwrap();
            let env = Env::new(Timed { system, clock: self.clock.clone() });
            let faults = Faults::none();
            let by = faults.clone();
            let decide = move |operation: &Operation<'_>| by.decide(operation);
            let engine = Arc::new(FaultEngine::new(memory, env.clone(), decide));
            let options = options();
            let store = Store::open(env.clone(), engine, options).await.unwrap();
            let protection = Protection::new(env.clone(), store.clone());
            protection.settle().await;
            work(Arc::new(Life { env, store, protection, faults })).await
        })
    }
}

/// Opens a pool for a life of another one, which sends points to it; ends with that life.
pub(crate) struct Opener {
    memory: Arc<MemoryEngine>,
    env: Env,
    faults: Arc<Faults>,
    /// Whether there is a pool already.
    is_made: AtomicBool,
    /// So often was it opened.
    pub(crate) opened: AtomicUsize,
}

impl Opener {
    /// The medium of the other pool fails after so many changes, for good.
    pub(crate) fn fail_after(&self, steps: usize) {
        self.faults.left.store(steps, Ordering::SeqCst);
    }

    /// The pool was taken away.
    pub(crate) fn forget(&self) {
        self.is_made.store(false, Ordering::SeqCst);
    }

    /// And is there again.
    pub(crate) fn remember(&self) {
        self.is_made.store(true, Ordering::SeqCst);
    }

    /// Whether it has not failed.
    pub(crate) fn is_well(&self) -> bool {
        self.faults.left.load(Ordering::SeqCst) > 0
    }
}

impl Pools for Opener {
    fn check(&self, _url: String) -> BoxFuture<'static, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn open(&self, _url: String, make: bool) -> BoxFuture<'static, Result<Arc<Store>>> {
        self.opened.fetch_add(1, Ordering::SeqCst);
        let is_made = self.is_made.fetch_or(make, Ordering::SeqCst);
        let (memory, env, by) = (self.memory.clone(), self.env.clone(), self.faults.clone());
        Box::pin(async move {
            if !make && !is_made {
                return Err(Error::new(Kind::NotFound, "there is no pool"));
            }
            let decide = move |operation: &Operation<'_>| by.decide(operation);
            let engine = Arc::new(FaultEngine::new(memory, env.clone(), decide));
            let options = options();
            Store::open(env, engine, options).await
        })
    }
}

impl Faults {
    fn none() -> Arc<Self> {
        let (left, failing) = (AtomicUsize::new(NEVER), AtomicUsize::new(NEVER));
        Arc::new(Faults { left, failing, once: Mutex::default() })
    }

    fn decide(&self, operation: &Operation<'_>) -> Decision {
        let changes = !matches!(
            operation.ask,
            Ask::Get
                | Ask::GetRange
                | Ask::List
                | Ask::Room
                | Ask::JournalList
                | Ask::JournalOpen
                | Ask::JournalRead
        );
        let take = |left: &AtomicUsize| {
            left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
        };
        let is_over = match changes {
            true => !take(&self.left) && take(&self.failing),
            false => self.left.load(Ordering::SeqCst) == 0 && self.failing.load(Ordering::SeqCst) > 1 << 20,
        };
        let mut once = self.once.lock();
        let is_it = |(ask, prefix): &(Ask, &str)| {
            let of = matches!(operation.subject, Subject::Object(key) if key.as_str().starts_with(prefix));
            *ask == operation.ask && of
        };
        let found = once.iter().position(is_it).map(|at| once.remove(at));
        if is_over || found.is_some() { Decision::fail(Kind::Io) } else { Decision::PROCEED }
    }
}

impl Life {
    /// The next operation of that kind on an object whose key begins so fails, and does not happen.
    pub(crate) fn fail_once(&self, ask: Ask, prefix: &'static str) {
        self.faults.once.lock().push((ask, prefix));
    }

    /// Calls with a medium of which, after so many changes, so many fail; afterwards it is well again. Whether any failed, and the answer;
    /// none where the call did not return.
    pub(crate) async fn shaken_after<T>(
        &self,
        steps: usize,
        failing: usize,
        call: impl Future<Output = Result<T>>,
    ) -> (bool, Option<Result<T>>) {
        self.faults.failing.store(failing, Ordering::SeqCst);
        self.faults.left.store(steps, Ordering::SeqCst);
        let mut call = std::pin::pin!(call.fuse());
        let mut patience = self.env.sleep(PATIENCE).fuse();
        let answer = futures::select_biased! {
            done = call => Some(done),
            () = patience => None,
        };
        (self.faults.failing.load(Ordering::SeqCst) < failing, answer)
    }

    /// Calls with a medium that fails after so many changes, for good.
    pub(crate) async fn cut_after<T>(&self, steps: usize, call: impl Future<Output = Result<T>>) -> Ended<T> {
        self.faults.left.store(steps, Ordering::SeqCst);
        let mut call = std::pin::pin!(call.fuse());
        let mut patience = self.env.sleep(PATIENCE).fuse();
        let ended = futures::select_biased! {
            done = call => done.map_or(Ended::Cut, Ended::Whole),
            () = patience => Ended::Cut,
        };
        match ended {
            // Only what nothing kept from its end is whole.
            Ended::Whole(done) if self.faults.left.load(Ordering::SeqCst) > 0 => Ended::Whole(done),
            _ => Ended::Cut,
        }
    }

    pub(crate) async fn create(&self, disk: &str) {
        self.store.create_disk(&name(disk), 1 << 20, DiskSettings::default()).await.unwrap();
    }

    /// Writes one block full of a byte.
    pub(crate) async fn write(&self, disk: &str, byte: u8) {
        let attachment = self.store.attach(&disk.parse().unwrap()).unwrap();
        attachment.write(0, &[byte; 4096], false).await.unwrap();
        let _durable = attachment.flush().await.unwrap();
    }

    /// What a disk's or a snapshot's first block is full of.
    pub(crate) async fn read(&self, export: &str) -> u8 {
        let mut block = [0; 4096];
        let attachment = self.store.attach(&export.parse().unwrap()).unwrap();
        attachment.read(0, &mut block).await.unwrap();
        assert!(block.iter().all(|byte| *byte == block[0]));
        block[0]
    }

    pub(crate) fn disks(&self) -> Vec<String> {
        self.store.disks().into_iter().map(|disk| disk.name.to_string()).collect()
    }

    pub(crate) fn snapshots(&self) -> Vec<String> {
        self.store.snapshots(None).unwrap().into_iter().map(|one| one.name.to_string()).collect()
    }
}
