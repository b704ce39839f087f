//! One change of an object at a time, and no read beside it.
//!
//! A put whose answer was lost is known again by what lies there ([`bucket`](crate::bucket)), which nobody may have put something over meanwhile: else it
//! would be told to have lost against another, and be done twice. A change whose caller has gone is waited for in the same way: it may still
//! take effect.

use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use tokio::sync::Notify;

/// The objects that are being changed.
#[derive(Default)]
pub(crate) struct Changes {
    objects: Mutex<HashSet<String>>,
    ended: Notify,
}

/// A change, for the task that does it; dropped when nothing of it is on its way any more.
pub(crate) struct Change {
    changes: Arc<Changes>,
    object: String,
}

impl Changes {
    /// Begins a change of an object, after those that are under way.
    pub(crate) async fn begin(self: &Arc<Self>, object: &str) -> Change {
        loop {
            // Before the look, so that an end between the two wakes it.
            let ended = self.ended.notified();
            if self.objects.lock().insert(object.to_owned()) {
                return Change { changes: self.clone(), object: object.to_owned() };
            }
            ended.await;
        }
    }

    /// Waits until no change of this object is under way.
    pub(crate) async fn settled(&self, object: &str) {
        loop {
            let ended = self.ended.notified();
            if !self.objects.lock().contains(object) {
                return;
            }
            ended.await;
        }
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        self.changes.objects.lock().remove(&self.object);
        self.changes.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[tokio::test]
    async fn changes_of_one_object_take_turns() {
        let changes = Arc::new(Changes::default());
        let first = changes.begin("a").await;
        let mut second = Box::pin(changes.begin("a"));
        let mut read = Box::pin(changes.settled("a"));
        assert!((&mut second).now_or_never().is_none() && (&mut read).now_or_never().is_none());
        assert!(changes.settled("b").now_or_never().is_some(), "another object is none of its");
        drop(first);
        let second = second.await;
        drop(second);
        read.await;
    }
}
