//! Quality of service: what each disk gets when they compete, and what it never exceeds.
//!
//! *Promises*: a limit is kept over any stretch of time but for a burst of 50 ms; a disk's reservation comes before everything
//! else that competes; the rest is given in proportion to shares; nobody waits while there is room; whoever waits gets his turn.
//! A change counts at once, also for requests that wait already. *Never*: changes what is stored or in which order; loses
//! anything when a waiting request is given up. *Owns*: the queues in front of engine and journal. *May be called by*: the
//! store's own rooms.
//!
//! The way of a client's request: [`limit`], in its disk's own queue, where it holds nothing; then a place in a *lane*
//! ([`lanes`], mClock), which it holds until it is answered. Flushes, trims and zeroings of whole blocks pass the limit and take no
//! place: one sync serves all who wait for it, and neither takes room in the journal, but they may give some back. A
//! read from memory takes no place either: it needs neither the engine nor a wait. The fold and reclaim are held back step by
//! step ([`background`]), and never wait for a client.
//!
//! Without a limit a read from memory costs one relaxed load more; any other request two short locks that nobody contends.

mod background;
mod classes;
mod flow;
mod lanes;
mod limit;

pub(crate) use background::{Background, PRESSURE_FULL};
pub use classes::QosInfo;
pub(crate) use classes::open;
pub(crate) use flow::{Flow, Place};
pub(crate) use lanes::Lane;

use crate::store::Store;
use background::{Look, Pace, TICK};
use flow::Gates;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use stonefold_env::Env;
use stonefold_format::qos::QosClasses;
use stonefold_types::QosFigures;

/// The part of the journal's room, in thousandths, up to which the fold waits where it would disturb others: what is copied is mostly less than that.
const FOLD_WAITS_BELOW: u64 = 200;

/// See the module.
pub(crate) struct Qos {
    gates: Arc<Gates>,
    /// As stored.
    classes: Mutex<QosClasses>,
    /// Held while classes change, and while a disk is put into one, so that no class goes that a disk is about to have.
    pub(crate) changing: tokio::sync::Mutex<()>,
    paces: [Mutex<Pace>; 3],
    /// How many wait for a round of the fold to end.
    hurried: AtomicUsize,
    /// How many know of others who would be disturbed.
    beside: AtomicUsize,
    closing: AtomicBool,
}

/// While it lives the fold is not held up.
pub(crate) struct Hurry<'a>(&'a Qos);

impl Drop for Hurry<'_> {
    fn drop(&mut self) {
        self.0.hurried.fetch_sub(1, Ordering::Relaxed);
    }
}

/// While it lives, the pool's own work goes evenly, at its reservations, and faster only where it is pressed, and the fold not before a fifth of the journal
/// is full: others than clients would be disturbed, of whom the pool knows nothing, as a guest on other storage that is backed up.
pub struct Evenly(Arc<Store>);

impl Drop for Evenly {
    fn drop(&mut self) {
        self.0.qos.beside.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Store {
    /// See [`Evenly`].
    pub fn goes_evenly(self: &Arc<Self>) -> Evenly {
        self.qos.beside.fetch_add(1, Ordering::Relaxed);
        Evenly(self.clone())
    }
}

impl Qos {
    pub(crate) fn new(env: Env, classes: QosClasses) -> Self {
        let qos = Qos {
            gates: Arc::new(Gates { env, lanes: Mutex::default() }),
            classes: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
            paces: Default::default(),
            hurried: AtomicUsize::new(0),
            beside: AtomicUsize::new(0),
            closing: AtomicBool::new(false),
        };
        qos.adopt(classes);
        qos
    }

    /// Waits until a request of a client may take a place, and takes it.
    #[inline]
    pub(crate) async fn enter(&self, flow: &Arc<Flow>, lane: Lane, bytes: u64) -> Place {
        self.gates.enter(flow, lane, bytes).await
    }

    /// Waits until a disk's limits allow a request.
    #[inline]
    pub(crate) async fn pass_limit(&self, flow: &Flow, bytes: u64) {
        self.gates.pass_limit(flow, bytes).await;
    }

    /// A disk's class from now on.
    pub(crate) fn assign(&self, flow: &Arc<Flow>, class: &str) {
        self.gates.set(flow, self.figures(class));
    }

    /// Waits until a step of the pool's own work may begin; it handles so many bytes. `filled` tells how full that
    /// is which it makes room in, in thousandths.
    pub(crate) async fn pace(&self, of: Background, bytes: u64, filled: impl Fn() -> u64) {
        let env = &self.gates.env;
        let began = env.monotonic();
        while !self.may_begin(of, bytes, began, filled()) {
            env.sleep(TICK).await;
        }
    }

    fn may_begin(&self, of: Background, bytes: u64, began: Duration, pressure: u64) -> bool {
        let now = self.gates.env.monotonic();
        let (progress, idle) = {
            let lanes = self.gates.lanes.lock();
            (lanes.progress(), lanes.is_idle())
        };
        let urgent = self.closing.load(Ordering::Relaxed)
            || of == Background::Fold && self.hurried.load(Ordering::Relaxed) > 0;
        let mut pace = self.paces[of as usize].lock();
        let beside = self.beside.load(Ordering::Relaxed) > 0;
        let may_begin = pace.may_begin(Look { now, progress, idle, beside, pressure }) || urgent;
        if may_begin {
            pace.owe(now, bytes);
            pace.waited += now.saturating_sub(began);
        }
        may_begin
    }

    /// As long as the result lives the fold is not held up: somebody waits for it.
    pub(crate) fn hurry(&self) -> Hurry<'_> {
        self.hurried.fetch_add(1, Ordering::Relaxed);
        Hurry(self)
    }

    /// Whether a round of the fold need not begin yet, where the journal is so full, in thousandths, and somebody would be disturbed. One that has begun goes
    /// on: others wait for its end.
    pub(crate) fn can_fold_wait(&self, filled: u64) -> bool {
        self.beside.load(Ordering::Relaxed) > 0 && filled < FOLD_WAITS_BELOW
    }

    /// From now on nothing of the pool's own is held up.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    /// For how long work has been held back since the start.
    pub(crate) fn held_back(&self, of: Background) -> Duration {
        self.paces[of as usize].lock().waited
    }

    fn adopt(&self, classes: QosClasses) {
        let now = self.gates.env.monotonic();
        for of in [Background::Fold, Background::Reclaim, Background::Moving] {
            let class = classes.get(of.name()).expect("the document has it");
            self.paces[of as usize].lock().set(class.figures, now);
        }
        *self.classes.lock() = classes;
    }

    /// Of a class that is not there, those of the default: a disk must be served whatever was lost.
    fn figures(&self, class: &str) -> QosFigures {
        let classes = self.classes.lock();
        let found = classes.get(class).or_else(|| classes.get(stonefold_types::QOS_DEFAULT));
        found.map(|class| class.figures).unwrap_or_default()
    }
}
