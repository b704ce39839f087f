//! One disk's way through: first its limits, then the lanes.

use super::lanes::{Lane, Lanes, Tags};
use super::limit::Limit;
use crate::latency::{Histogram, Latency};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use stonefold_env::Env;
use stonefold_types::QosFigures;
use tokio::sync::{Notify, oneshot};

/// A disk, as the scheduler sees it. Made unlimited; [`Gates::set`] says otherwise.
pub(crate) struct Flow {
    /// The disk's.
    pub(crate) id: u64,
    /// Locked only by who has the lanes' lock already.
    pub(crate) tags: Mutex<Tags>,
    is_limited: AtomicBool,
    limit: Mutex<Limit>,
    /// Held by the request that is next to pass the limit: in the order in which they came.
    turn: tokio::sync::Mutex<()>,
    limit_changed: Notify,
    waited: Histogram,
}

impl Flow {
    pub(crate) fn new(id: u64) -> Arc<Self> {
        Arc::new(Flow {
            id,
            tags: Mutex::default(),
            is_limited: AtomicBool::new(false),
            limit: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            limit_changed: Notify::new(),
            waited: Histogram::default(),
        })
    }

    /// Whether it has a limit. All that a read from memory asks.
    #[inline]
    pub(crate) fn is_limited(&self) -> bool {
        self.is_limited.load(Ordering::Relaxed)
    }

    /// For how long requests had to wait since the start; those that had not are left out.
    pub(crate) fn waits(&self) -> Latency {
        self.waited.read()
    }
}

/// Held by a request that is under way.
pub(crate) struct Place {
    gates: Arc<Gates>,
    flow: Arc<Flow>,
    lane: Lane,
    bytes: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut lanes = self.gates.lanes.lock();
        lanes.leave(&self.flow, self.lane, self.bytes);
        if lanes.is_queued(self.lane) {
            let mut ready = Vec::new();
            lanes.next(self.lane, self.gates.env.monotonic(), &mut ready);
            drop(lanes);
            self.gates.tell(ready);
        }
    }
}

/// A request whose turn has come.
pub(crate) struct Ready {
    pub(crate) flow: Arc<Flow>,
    pub(crate) lane: Lane,
    pub(crate) bytes: u64,
    pub(crate) tell: oneshot::Sender<Place>,
}

/// What every request of a client passes.
pub(crate) struct Gates {
    pub(crate) env: Env,
    pub(crate) lanes: Mutex<Lanes>,
}

impl Gates {
    /// Waits until the disk's limits allow a request.
    pub(crate) async fn pass_limit(&self, flow: &Flow, bytes: u64) {
        if !flow.is_limited() {
            return;
        }
        // Who finds the turn free and the limit open has overtaken nobody.
        if let Ok(_turn) = flow.turn.try_lock() {
            if flow.limit.lock().take(self.env.monotonic(), bytes).is_none() {
                return;
            }
        }
        let since = self.env.monotonic();
        {
            let _turn = flow.turn.lock().await;
            loop {
                let changed = flow.limit_changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                let wait = flow.limit.lock().take(self.env.monotonic(), bytes);
                let Some(wait) = wait else { break };
                futures::future::select(changed, self.env.sleep(wait)).await;
            }
        }
        self.count(flow, since);
    }

    /// Waits for a place in a lane.
    pub(crate) async fn enter(self: &Arc<Self>, flow: &Arc<Flow>, lane: Lane, bytes: u64) -> Place {
        let (told, since) = {
            let mut lanes = self.lanes.lock();
            if lanes.enter(flow, lane, bytes) {
                return Place { gates: self.clone(), flow: flow.clone(), lane, bytes };
            }
            let now = self.env.monotonic();
            (lanes.wait(flow, lane, bytes, now), now)
        };
        let place = told.await.expect("a queue lets go of nobody but by a place");
        self.count(flow, since);
        place
    }

    fn count(&self, flow: &Flow, since: std::time::Duration) {
        flow.waited.note(self.env.monotonic().saturating_sub(since), 1);
    }

    /// Without the lanes' lock: a place whose request has gone comes back at once.
    fn tell(self: &Arc<Self>, ready: Vec<Ready>) {
        for Ready { flow, lane, bytes, tell } in ready {
            drop(tell.send(Place { gates: self.clone(), flow, lane, bytes }));
        }
    }

    /// A disk's figures from now on, also for those who wait already.
    pub(crate) fn set(self: &Arc<Self>, flow: &Arc<Flow>, figures: QosFigures) {
        let now = self.env.monotonic();
        flow.limit.lock().set(&figures, now);
        flow.is_limited.store(figures.is_limited(), Ordering::Relaxed);
        flow.limit_changed.notify_waiters();
        let mut ready = Vec::new();
        let mut lanes = self.lanes.lock();
        lanes.set(flow, figures, now);
        lanes.next(Lane::Reads, now, &mut ready);
        lanes.next(Lane::Writes, now, &mut ready);
        drop(lanes);
        self.tell(ready);
    }
}
