//! What is being followed must not be deleted.
//!
//! Whoever takes a reference from a head or a map and follows it to the engine holds a *pin* from before the first look
//! to the end. Reclaim, once nothing durable refers to an object any more, waits for the pins that are older than that
//! and deletes it then: later pins cannot lead there. A pin is one atomic addition.

use crate::planted;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

/// Counts pins of two kinds: those taken before the last [`Pins::drained`] began, and those after.
#[derive(Default)]
pub(crate) struct Pins {
    /// The kind given out now: 0 or 1.
    kind: AtomicUsize,
    held: [AtomicUsize; 2],
    released: Notify,
}

/// Held while references are followed.
pub(crate) struct Pin<'a> {
    pins: &'a Pins,
    kind: usize,
}

impl Pins {
    pub(crate) fn pin(&self) -> Pin<'_> {
        loop {
            let kind = self.kind.load(Ordering::SeqCst);
            self.held[kind].fetch_add(1, Ordering::SeqCst);
            let pin = Pin { pins: self, kind };
            // Unless the kind changed in between, in which case nobody may have waited for this one.
            if self.kind.load(Ordering::SeqCst) == kind {
                return pin;
            }
        }
    }

    /// Waits until every pin taken before this call is gone. One caller at a time.
    pub(crate) async fn drained(&self) {
        if planted::is("pins-ignored") {
            return;
        }
        let old = self.kind.load(Ordering::SeqCst);
        self.kind.store(1 - old, Ordering::SeqCst);
        loop {
            let released = self.released.notified();
            if self.held[old].load(Ordering::SeqCst) == 0 {
                return;
            }
            released.await;
        }
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.pins.held[self.kind].fetch_sub(1, Ordering::SeqCst);
        self.pins.released.notify_one();
    }
}
