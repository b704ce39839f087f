//! What protects: everything that changes the catalog, one change at a time.
//!
//! A change that takes several steps writes down first what it is about to do. Should it end in its midst, by an error or by a crash, what
//! it wrote tells how to end it: [`Protection::settle`] does, at a start, after an error, and before the next change while something is
//! left to end.

use crate::Listener;
use crate::boots::LEARNT_AT_ONCE;
use crate::copying::{Bandwidth, Copies};
use crate::domain::Reach;
use crate::rounds::Apart;
use crate::{Headway, Hypervisors, Pools};
use parking_lot::Mutex as Memory;
use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use stonefold_env::{Env, WallNanos};
use stonefold_store::Store;
use stonefold_types::{Name, Result};
use tokio::sync::{Mutex, MutexGuard, Notify, OnceCell, Semaphore, watch};

/// See the module. One for a store.
pub struct Protection {
    /// Itself, for what goes on in the background.
    pub(crate) me: Weak<Protection>,
    pub(crate) env: Env,
    pub(crate) store: Arc<Store>,
    /// What machines are started with.
    pub(crate) hypervisors: Hypervisors,
    /// Whether machines run under KVM here, once that was needed.
    pub(crate) kvm: OnceCell<bool>,
    /// Standstills, by their keys, of guests that this life has stand still; those of earlier ones are to go on.
    pub(crate) standing: Memory<HashSet<String>>,
    /// Recoveries that this life's proofs have; those of earlier ones are nobody's.
    pub(crate) proving: Memory<HashSet<Name>>,
    /// Recoveries that something is being done to.
    pub(crate) held: Memory<HashSet<Name>>,
    /// Recoveries for which something is fetched ahead, each with what ends that.
    pub(crate) fetching: Memory<HashMap<Name, watch::Sender<bool>>>,
    /// Places for boots that are learnt.
    pub(crate) learning: Arc<Semaphore>,
    /// How fast each migration is that is looked after.
    pub(crate) moving: Memory<HashMap<Name, Headway>>,
    /// Told when somebody wishes something else of one.
    pub(crate) moving_changed: Notify,
    /// Held over a change; whether there is nothing left to end of those before.
    settled: Mutex<bool>,
    /// Set once what an earlier server left has been looked at.
    begun: OnceCell<()>,
    /// Whether the change under way has stored anything that would have to be ended.
    stepped: AtomicBool,
    /// Whether a disk may have been made by a call that failed: only the next start tells.
    pub(crate) in_doubt: AtomicBool,
    /// Whether a disk may have been removed by a call that failed, likewise.
    pub(crate) removal_in_doubt: AtomicBool,
    /// By policy and source: the slot of the last run, as far as that was looked up or made.
    pub(crate) slots: Memory<HashMap<(Name, Name), WallNanos>>,
    /// Runs of policies that have tasks of their own.
    pub(crate) apart: Apart,
    /// By policy and source: whether its last run failed, as far as that was looked up or made.
    pub(crate) failing: Memory<HashMap<(Name, Name), bool>>,
    /// Who is told what policies' runs came to.
    pub(crate) listener: OnceLock<Listener>,
    /// Where a QEMU reaches the disks of ours; unset without a door.
    pub(crate) reach: OnceLock<Reach>,
    /// Runs that copy, now.
    pub(crate) copies: Arc<Copies>,
    /// By source: held by whoever gives its domain back.
    pub(crate) releasing: Memory<HashMap<Name, Arc<Mutex<()>>>>,
    /// Sources of which a run of before is made again, each until that has ended.
    pub(crate) again: Memory<HashMap<Name, watch::Receiver<()>>>,
    /// Told when something may be due sooner.
    pub(crate) policies_changed: Arc<Notify>,
    /// Who opens other pools; unset where nobody does.
    pub(crate) pools: OnceLock<Arc<dyn Pools>>,
    /// Held while another pool is open.
    pub(crate) replicating: Mutex<()>,
    /// Whether a task is at that.
    pub(crate) replicates: AtomicBool,
    /// Set once the server ends.
    pub(crate) ending: AtomicBool,
    /// Moves whose guests may stand still, since both ends are compared.
    pub(crate) comparing: AtomicUsize,
    /// Whether it only receives: what another server of the pool has left, but for what is received and removed, is that server's to end.
    receives: bool,
    /// What protects in it, meanwhile.
    pub(crate) other: Memory<Option<Arc<Protection>>>,
}

impl Protection {
    /// Of an open store, which may have been closed in the midst of something: see [`settle`](Self::settle).
    pub fn new(env: Env, store: Arc<Store>) -> Arc<Self> {
        Protection::with_hypervisors(env, store, Hypervisors::default())
    }

    /// The same, with what machines are started with.
    pub fn with_hypervisors(env: Env, store: Arc<Store>, hypervisors: Hypervisors) -> Arc<Self> {
        Protection::of(env, store, hypervisors, false)
    }

    /// Of a pool that points are sent to.
    pub(crate) fn receiving(env: Env, store: Arc<Store>) -> Arc<Self> {
        Protection::of(env, store, Hypervisors::default(), true)
    }

    fn of(env: Env, store: Arc<Store>, hypervisors: Hypervisors, receives: bool) -> Arc<Self> {
        Arc::new_cyclic(|me| Protection {
            me: me.clone(),
            env,
            store,
            hypervisors,
            kvm: OnceCell::new(),
            standing: Memory::default(),
            proving: Memory::default(),
            held: Memory::default(),
            fetching: Memory::default(),
            learning: Arc::new(Semaphore::new(LEARNT_AT_ONCE)),
            moving: Memory::default(),
            moving_changed: Notify::new(),
            settled: Mutex::new(false),
            begun: OnceCell::new(),
            stepped: AtomicBool::new(false),
            in_doubt: AtomicBool::new(false),
            removal_in_doubt: AtomicBool::new(false),
            slots: Memory::default(),
            apart: Apart::default(),
            failing: Memory::default(),
            listener: OnceLock::new(),
            reach: OnceLock::new(),
            copies: Arc::default(),
            releasing: Memory::default(),
            again: Memory::default(),
            policies_changed: Arc::default(),
            pools: OnceLock::new(),
            replicating: Mutex::new(()),
            replicates: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            comparing: AtomicUsize::new(0),
            receives,
            other: Memory::default(),
        })
    }

    /// Told once how many bytes a second all that copies may move together.
    pub fn copies_at_most(&self, bytes_per_second: NonZeroU64) {
        // Only the first is heard.
        let _ = self.copies.bandwidth.set(Arc::new(Bandwidth::new(bytes_per_second)));
    }

    /// Told once where a QEMU of this host reaches the disks.
    pub fn is_reached(&self, reach: Reach) {
        // Only the first is heard.
        let _ = self.reach.set(reach);
    }

    /// Ends what an earlier server left in its midst. Everything else waits for that, so that nobody sees it; a start should do it, so
    /// that nobody waits.
    pub async fn settle(&self) {
        self.begun.get_or_init(|| async { drop(self.alone().await) }).await;
    }

    /// Whether what an earlier server left is still being ended.
    pub(crate) fn is_starting(&self) -> bool {
        !self.begun.initialized()
    }

    /// Waits for other changes, and ends what they left.
    async fn alone(&self) -> MutexGuard<'_, bool> {
        let mut settled = self.settled.lock().await;
        // A run that copied and whose caller has gone is ended as after a crash.
        if self.copies.was_left() || !*settled {
            *settled = self.end_all().await;
        }
        settled
    }

    /// Makes a change when no other is under way. One that failed is ended at once, as after a crash.
    pub(crate) async fn change<T>(&self, change: impl Future<Output = Result<T>>) -> Result<T> {
        self.settle().await;
        let mut settled = self.alone().await;
        let was_settled = *settled;
        self.stepped.store(false, Ordering::Relaxed);
        // Should it be dropped in its midst, or panic, the next change looks.
        *settled = false;
        let done = change.await;
        *settled = match (&done, self.stepped.load(Ordering::Relaxed)) {
            (Err(_), true) => self.end_all().await,
            _ => was_settled,
        };
        done
    }

    /// Told by a change before the first step that would have to be ended.
    pub(crate) fn steps_begin(&self) {
        self.stepped.store(true, Ordering::Relaxed);
    }

    /// Whether nothing is left. What cannot be ended now is told, and keeps nothing else from being done.
    async fn end_all(&self) -> bool {
        if self.receives {
            let ended = [self.end_runs().await, self.end_removals().await];
            return ended.iter().all(Result::is_ok);
        }
        let ended = [
            self.end_clones().await,
            self.end_syncs().await,
            self.end_runs().await,
            self.end_removals().await,
            self.end_proofs().await,
            self.end_discards().await,
        ];
        for error in ended.iter().filter_map(|ended| ended.as_ref().err()) {
            tracing::warn!("what was left in its midst is still there: {error}");
        }
        ended.iter().all(Result::is_ok)
    }
}
