//! Runs of policies that have tasks of their own, since each may take hours.
//!
//! *Promise*: a source has one such run at a time, and a slot that another policy's run, or one that somebody asked for, is in the way of stays due
//! until that has ended: where an hourly and a nightly policy meet, both make their points. *Never*: is a slot of a policy put off by a run of its own,
//! which takes too long for it: that one is passed over, and told.

use crate::runs::Slot;
use crate::{Policy, Protection};
use parking_lot::Mutex as Memory;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stonefold_types::{Error, Kind, Name};

/// By source, the policy whose task it has.
#[derive(Default)]
pub(crate) struct Apart(Memory<HashMap<Name, Name>>);

/// Such a task: over when this is dropped.
struct Turn {
    protection: Arc<Protection>,
    source: Name,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.protection.apart.0.lock().remove(&self.source);
        // Another policy may have waited; and what was made may have to be sent.
        self.protection.policies_changed.notify_one();
    }
}

impl Protection {
    /// Whether a source has a run now that is none of this policy's.
    pub(super) fn is_taken_by_another(&self, policy: &Policy, source: &Name) -> bool {
        let has_another = self.apart.0.lock().get(source).is_some_and(|of| *of != policy.name);
        has_another || self.copies.is_copied_for_another(source, &policy.name)
    }

    /// Begins a run of a source for a slot of a policy, beside everything else.
    pub(super) fn begin_apart(self: Arc<Self>, policy: Policy, source: Name, slot: Slot) {
        // One of its own that has not ended yet keeps it.
        let is_first = !self.apart.0.lock().contains_key(&source);
        let turn = is_first.then(|| {
            self.apart.0.lock().insert(source.clone(), policy.name.clone());
            Turn { protection: self.clone(), source: source.clone() }
        });
        let own = self.clone();
        let run = async move {
            own.run_apart(&policy, &source, slot).await;
            drop(turn);
        };
        self.env.spawn("run of a policy", run);
    }

    /// Backs a source up for a slot of a policy, and removes what that no longer keeps.
    async fn run_apart(&self, policy: &Policy, source: &Name, slot: Slot) {
        let name = &policy.name;
        let is_told = |error: &Error| error.kind() != Kind::Closed;
        self.wait_for_made_again(source).await;
        match self.back_up_for(source, policy, slot).await {
            Ok(None) => return,
            Ok(Some(run)) => self.tell_done(policy, &run).await,
            // Somebody has just asked for one: the slot is due when that has ended.
            Err(error) if error.kind() == Kind::Busy && self.copies.is_copied_for_another(source, name) => {
                self.slots.lock().remove(&(name.clone(), source.clone()));
                return;
            }
            Err(error) => {
                // What a server that leaves has cut off is made again.
                if is_told(&error) && !self.ending.load(Ordering::SeqCst) {
                    tracing::warn!("policy '{name}', source '{source}': no point: {error}");
                    self.tell_failed(policy, source, &error.to_string()).await;
                }
                return;
            }
        }
        if let Err(error) = self.prune(policy, source, &mut Vec::new()).await {
            if is_told(&error) {
                tracing::warn!("policy '{name}', source '{source}': points stay for now: {error}");
            }
        }
    }
}
