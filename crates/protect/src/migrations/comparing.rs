//! Guests that stand still while both ends of their disks are compared: for no longer than that is wanted.
//!
//! *Promise*: a move that is cancelled, and a server that leaves, have the guest go on at once; such a server waits for that. *Never*: is a move ended because
//! the server leaves: the next one compares anew.

use super::{LOOK_EVERY, Migration, MigrationState};
use crate::{Protection, catalog};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use stonefold_types::{Error, Kind, Name, Result};

/// How often a server that leaves looks whether guests go on.
const LEAVE_LOOK: Duration = Duration::from_millis(50);

/// A comparison, under way.
pub(super) struct Comparing<'a>(&'a AtomicUsize);

impl Drop for Comparing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Protection {
    /// Whether a move was left for the next server, by one that leaves.
    pub(super) fn leaves<T>(&self, moved: &Result<T>) -> bool {
        self.ending.load(Ordering::SeqCst) && matches!(moved, Err(error) if error.kind() == Kind::Closed)
    }

    /// Why both ends are compared no further, once that is so: the guest stands still meanwhile.
    pub(super) async fn given_up(&self, name: &Name) -> Error {
        loop {
            if self.ending.load(Ordering::SeqCst) {
                return Error::new(Kind::Closed, "the server leaves");
            }
            if self.is_cancelled(name).await {
                return Error::new(Kind::Conflict, "somebody cancelled it");
            }
            self.env.sleep(LOOK_EVERY).await;
        }
    }

    pub(super) async fn is_cancelled(&self, name: &Name) -> bool {
        let found = catalog::get::<Migration>(&self.store, name.as_str()).await;
        found.is_ok_and(|found| found.state == MigrationState::Cancelling)
    }

    /// For as long as this is kept a guest may stand still, which a server that leaves waits for.
    pub(super) fn compares(&self, migration: &Migration) -> Option<Comparing<'_>> {
        migration.verify.then(|| {
            self.comparing.fetch_add(1, Ordering::SeqCst);
            Comparing(&self.comparing)
        })
    }

    /// Until no guest stands still for a comparison: what is under way is given up, once the server is leaving.
    pub(crate) async fn end_comparisons(&self, patience: Duration) {
        let until = self.env.monotonic() + patience;
        while self.comparing.load(Ordering::SeqCst) > 0 && self.env.monotonic() < until {
            self.env.sleep(LEAVE_LOOK).await;
        }
    }
}
