//! Room for acknowledged data that is not folded yet.
//!
//! A write is admitted only with room for it; when the fold cannot give room back because the pool is full, writes
//! fail with that reason rather than wait for ever.

use parking_lot::Mutex;
use stonefold_types::{Error, Result};
use tokio::sync::Notify;

/// Room taken, and given back unless it is kept.
pub(crate) struct Taken<'a> {
    budget: &'a Budget,
    bytes: u64,
}

impl Taken<'_> {
    /// Somebody else gives it back later.
    pub(crate) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.budget.give(self.bytes);
    }
}

/// Bytes that may be acknowledged and unfolded at one time.
pub(crate) struct Budget {
    bytes_max: u64,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    used: u64,
    /// Requests that wait for room.
    waiting: usize,
    blocked: Option<Error>,
    refused: Option<Error>,
}

/// Somebody waits, until he is served or goes.
struct Waiting<'a>(&'a Budget);

impl<'a> Waiting<'a> {
    fn new(budget: &'a Budget) -> Self {
        budget.state.lock().waiting += 1;
        Waiting(budget)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state.lock().waiting -= 1;
    }
}

impl Budget {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Budget { bytes_max, state: Mutex::default(), changed: Notify::new() }
    }

    /// Waits for room for `bytes`, and takes it until what is returned is dropped, or [kept](Taken::keep) for good. One request may exceed the whole budget, alone. Fails when the fold
    /// is [blocked](Budget::block).
    pub(crate) async fn take(&self, bytes: u64) -> Result<Taken<'_>> {
        let mut waiting = None;
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let mut state = self.state.lock();
                if let Some(error) = &state.refused {
                    return Err(error.clone());
                }
                if state.used == 0 || state.used + bytes <= self.bytes_max {
                    state.used += bytes;
                    return Ok(Taken { budget: self, bytes });
                }
                if let Some(error) = &state.blocked {
                    return Err(error.clone());
                }
            }
            waiting.get_or_insert_with(|| Waiting::new(self));
            changed.await;
        }
    }

    /// Whether a request of `bytes` would have to wait.
    pub(crate) fn is_short_of(&self, bytes: u64) -> bool {
        let used = self.state.lock().used;
        used > 0 && used + bytes > self.bytes_max
    }

    /// How much of it is used, in thousandths; all of it when somebody waits for more than is left.
    pub(crate) fn filled(&self) -> u64 {
        let state = self.state.lock();
        if state.waiting > 0 { 1000 } else { state.used * 1000 / self.bytes_max.max(1) }
    }

    /// Takes room without asking: for what was admitted before a restart, and for changes that free space.
    pub(crate) fn take_anyway(&self, bytes: u64) {
        self.state.lock().used += bytes;
    }

    /// Gives room back.
    pub(crate) fn give(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.used = state.used.checked_sub(bytes).expect("what is given back was taken");
        drop(state);
        self.changed.notify_waiters();
    }

    /// Bytes taken.
    pub(crate) fn used(&self) -> u64 {
        self.state.lock().used
    }

    /// While refusing, every request fails with `error`, whatever room there is; `None` ends that. Whether it was
    /// refusing before.
    pub(crate) fn refuse(&self, error: Option<Error>) -> bool {
        let before = std::mem::replace(&mut self.state.lock().refused, error);
        self.changed.notify_waiters();
        before.is_some()
    }

    /// Whether every request fails now.
    pub(crate) fn is_refusing(&self) -> bool {
        self.state.lock().refused.is_some()
    }

    /// While blocked, requests without room fail with `error`; `None` ends that.
    pub(crate) fn block(&self, error: Option<Error>) {
        self.state.lock().blocked = error;
        self.changed.notify_waiters();
    }
}
