//! What policies' runs came to, for who wants to be told: each that fails, or makes a point that lacks what the policy wants of it (its lock, its
//! application told), and the first of a source that makes a point as it should be after such a one; and likewise of sending points to another pool, of which a failure is told once.
//!
//! *Promise*: whoever listens is called at once, and nothing waits for what he makes of it. *Never*: a change fails because nobody could be told. What
//! failed before is known from the runs' documents; of a run that failed before it had one it is forgotten at a restart.

use crate::catalog;
use crate::runs::{Run, RunState, key};
use crate::{Consistency, Point, Policy, Protection};
use stonefold_env::WallNanos;
use stonefold_types::{Name, PointName, Result};

/// What a run of a policy came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The policy.
    pub policy: Name,
    /// The source.
    pub source: Name,
    /// The run, where it came so far that it has a name.
    pub run: Option<PointName>,
    /// Why it failed, or what its point lacks; nothing where it made a point as it should be, and the one before it did not.
    pub failure: Option<String>,
    /// Whether it is not of a run, but of sending points to another pool.
    pub sending: bool,
    /// Trusted time, nanoseconds since 1970.
    pub at: WallNanos,
    /// Where the policy wants this to be told, too.
    pub webhook: Option<String>,
}

/// Called with each outcome; must not block.
pub type Listener = Box<dyn Fn(Outcome) + Send + Sync>;

impl Protection {
    /// Has somebody told of outcomes from now on. The first who asks is the only one.
    pub fn listen(&self, listener: Listener) {
        // A server has one.
        let _ = self.listener.set(listener);
    }

    pub(crate) fn tell(
        &self,
        policy: &Policy,
        source: &Name,
        run: Option<PointName>,
        failure: Option<String>,
    ) {
        self.tell_of(false, policy, source, run, failure);
    }

    /// That points could not be sent to another pool, or can again.
    pub(crate) fn tell_sending(
        &self,
        policy: &Policy,
        source: &Name,
        newest: Option<PointName>,
        failure: Option<String>,
    ) {
        self.tell_of(true, policy, source, newest, failure);
    }

    fn tell_of(
        &self,
        sending: bool,
        policy: &Policy,
        source: &Name,
        run: Option<PointName>,
        failure: Option<String>,
    ) {
        let Some(listener) = self.listener.get() else { return };
        let (at, webhook) = (self.store.time().trusted, policy.webhook.clone());
        let (policy, source) = (policy.name.clone(), source.clone());
        listener(Outcome { policy, source, run, failure, sending, at, webhook });
    }

    pub(crate) async fn tell_failed(&self, policy: &Policy, source: &Name, why: &str) {
        let of = (policy.name.clone(), source.clone());
        let slot = self.slots.lock().get(&of).copied();
        self.failing.lock().insert(of, true);
        let newest = async {
            let newest = catalog::keys::<Run>(&self.store, Some(source.as_str())).await?.pop();
            match newest {
                Some(key) => self.readable::<Run>(&key).await,
                None => Ok(None),
            }
        };
        // Without its name it is told all the same.
        let newest: Option<Run> = newest.await.unwrap_or_default();
        let is_it =
            |run: &Run| run.slot.as_ref().is_some_and(|of| of.policy == policy.name && Some(of.at) == slot);
        self.tell(policy, source, newest.filter(is_it).map(|run| run.name), Some(why.to_owned()));
    }

    pub(crate) async fn tell_done(&self, policy: &Policy, run: &Run) {
        let of = (policy.name.clone(), run.name.source.clone());
        if let Some(why) = self.lacks(policy, run).await {
            tracing::warn!("policy '{}', source '{}': {why}", policy.name, run.name.source);
            self.failing.lock().insert(of, true);
            self.tell(policy, &run.name.source, Some(run.name.clone()), Some(why));
            return;
        }
        let known = self.failing.lock().insert(of, false);
        let was_failing = match known {
            Some(was_failing) => was_failing,
            None => self.has_failed_before(policy, run).await.unwrap_or_else(|error| {
                tracing::warn!("whether the run before '{}' failed is not known: {error}", run.name);
                false
            }),
        };
        if was_failing {
            self.tell(policy, &run.name.source, Some(run.name.clone()), None);
        }
    }

    /// What the policy wants of its points, and the one of a run that is done has not; nothing where it has all, or is gone by now.
    async fn lacks(&self, policy: &Policy, run: &Run) -> Option<String> {
        let status = self.status_of(self.readable::<Point>(&key(&run.name)).await.ok()??);
        let is_crash =
            policy.consistency == Consistency::App && status.point.consistency == Consistency::Crash;
        let mut lacks = Vec::new();
        lacks.extend(
            is_crash.then_some("a point of an application that was told (only as after a loss of power)"),
        );
        lacks.extend((policy.lock_seconds.is_some() && status.locked_until.is_none()).then_some("locked"));
        if lacks.is_empty() {
            return None;
        }
        let note = run.note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
        Some(format!("point '{}' was made, but is not {}{note}", run.name, lacks.join(", nor ")))
    }

    /// Of a run that a start has ended.
    pub(crate) async fn tell_ended(&self, run: &Run) {
        let Some(slot) = &run.slot else { return };
        let Ok(Some(policy)) = self.readable::<Policy>(slot.policy.as_str()).await else { return };
        match run.state {
            RunState::Failed => {
                let source = &run.name.source;
                self.failing.lock().insert((policy.name.clone(), source.clone()), true);
                self.tell(
                    &policy,
                    source,
                    Some(run.name.clone()),
                    Some(run.note.clone().unwrap_or_default()),
                );
            }
            RunState::Done => self.tell_done(&policy, run).await,
            RunState::Running | RunState::Cancelled => {}
        }
    }

    /// Whether the last run of the policy before this one failed.
    async fn has_failed_before(&self, policy: &Policy, run: &Run) -> Result<bool> {
        let keys = catalog::keys::<Run>(&self.store, Some(run.name.source.as_str())).await?;
        let this = key(&run.name);
        for key in keys.iter().rev().filter(|key| **key < this) {
            let Some(before) = self.readable::<Run>(key).await? else { continue };
            if before.slot.is_some_and(|slot| slot.policy == policy.name) {
                return Ok(before.state == RunState::Failed);
            }
        }
        Ok(false)
    }
}
