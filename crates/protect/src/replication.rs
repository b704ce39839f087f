//! Replication: a policy's points in another pool, from which they are recovered when this one is gone.
//!
//! *Order*: the other pool is opened; of each source the points that it lacks are received there, oldest first ([`copying`](crate::copying)), and what the
//! policies do not keep there goes; then it is closed, and what is there is written down here ([`Replica`]) ([`sending`]). *Promises*: a point is there whole, and was
//! compared with what was sent, or it is not there; of a point only what differs from the one before is read and written; what was cut off at
//! any moment goes on with the next attempt. *Never*: makes a pool in the place of one that was there before; takes another's source for its own, or removes
//! another's points; removes anything while either pool's clock is doubted. One attempt at a time: the other pool is nobody else's meanwhile.

mod sending;

use crate::catalog::{self, Entry, Unknown};
use crate::points::{Point, PointStatus};
use crate::runs::key;
use crate::{Policy, Protection};
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use stonefold_env::WallNanos;
use stonefold_store::Store;
use stonefold_types::{Error, Kind, Name, PointName, Result};

/// The longest URL of a pool, in bytes.
pub const REPLICA_URL_BYTES_MAX: usize = 2048;
/// After a failure nothing is tried for so long.
const PAUSE: Duration = Duration::from_secs(300);
/// How often it is looked whether an attempt has ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Whoever opens other pools.
pub trait Pools: Send + Sync {
    /// Opens the pool at a URL for this process alone; makes it, where it is not there, only when told to.
    fn open(&self, url: String, make: bool) -> BoxFuture<'static, Result<Arc<Store>>>;
}

/// What is known of a source's points in the other pool: the document `replicas/POLICY/SOURCE`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Replica {
    policy: Name,
    source: Name,
    /// The pool.
    url: String,
    /// The newest point that is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    newest: Option<PointName>,
    /// When that was taken: trusted time, nanoseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    taken: Option<WallNanos>,
    /// When it was last tried, likewise.
    tried: WallNanos,
    /// Why that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
    #[serde(flatten)]
    unknown: Unknown,
}

/// How far the points of a source are in the other pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// The policy.
    pub policy: Name,
    /// The source.
    pub source: Name,
    /// The newest point that is there.
    pub newest: Option<PointName>,
    /// When that was taken: trusted time, nanoseconds since 1970.
    pub taken: Option<WallNanos>,
    /// How old what would come back from there is, in seconds: the age of that point, or the time since the policy has been applied.
    pub lag_seconds: u64,
    /// Points that are not there yet.
    pub behind: u64,
    /// When it was last tried, as `taken`.
    pub tried: Option<WallNanos>,
    /// Why that failed.
    pub failed: Option<String>,
}

impl Entry for Replica {
    const FAMILY: &'static str = "replicas";
    const NOUN: &'static str = "replica";
    const LISTED_BY: &'static str = "stonefold policy show";

    fn key(&self) -> String {
        key_of(&self.policy, &self.source)
    }
}

fn key_of(policy: &Name, source: &Name) -> String {
    format!("{policy}/{source}")
}

impl Protection {
    /// Told once who opens other pools.
    pub fn opens_pools(&self, pools: Arc<dyn Pools>) {
        // Only the first is heard.
        let _ = self.pools.set(pools);
    }

    /// Names the pool that a policy's points are sent to, or none any more; what is there stays. What was known of a pool is forgotten: one that is named anew
    /// is made where it is not there.
    pub async fn replicate_policy(&self, name: &Name, url: Option<String>) -> Result<Policy> {
        if let Some(url) = url.as_ref().filter(|url| url.len() > REPLICA_URL_BYTES_MAX) {
            let what = format!("the URL of the other pool has {} bytes", url.len());
            return Err(Error::new(Kind::Invalid, what)
                .remedy(format!("name one of {REPLICA_URL_BYTES_MAX} bytes at most")));
        }
        let set = |policy: &mut Policy| {
            policy.replicate.clone_from(&url);
            Ok(())
        };
        let changed = self.change(async {
            let policy = catalog::change(&self.store, name.as_str(), set).await?;
            self.forget_replicas(name, None).await?;
            Ok(policy)
        });
        let policy = changed.await?;
        self.policies_changed.notify_one();
        Ok(policy)
    }

    /// Forgets what is known of a policy's points in another pool, of some sources or of all; within a change.
    pub(crate) async fn forget_replicas(&self, policy: &Name, sources: Option<&[Name]>) -> Result<()> {
        for known in catalog::keys::<Replica>(&self.store, Some(policy.as_str())).await? {
            let is_of = |source: &Name| known == key_of(policy, source);
            if sources.is_none_or(|sources| sources.iter().any(is_of)) {
                catalog::remove::<Replica>(&self.store, &known).await?;
            }
        }
        Ok(())
    }

    /// How far a policy's points are in the other pool, by source.
    pub async fn replicas(&self, policy: &Policy) -> Result<Vec<ReplicaStatus>> {
        self.settle().await;
        let mut found = Vec::new();
        if policy.replicate.is_none() {
            return Ok(found);
        }
        let now = self.store.time().trusted;
        for applied in &policy.sources {
            let known = self.known_replica(policy, &applied.source).await?;
            let newest = known.as_ref().and_then(|replica| replica.newest.clone());
            let taken = known.as_ref().and_then(|replica| replica.taken);
            let since = taken.unwrap_or(applied.since);
            let lacking =
                self.lacking(std::slice::from_ref(policy), &applied.source, newest.as_ref()).await?;
            found.push(ReplicaStatus {
                policy: policy.name.clone(),
                source: applied.source.clone(),
                behind: lacking.len() as u64,
                newest,
                taken,
                lag_seconds: now.saturating_sub(since) / 1_000_000_000,
                tried: known.as_ref().map(|replica| replica.tried),
                failed: known.and_then(|replica| replica.failed),
            });
        }
        Ok(found)
    }

    /// What was written down of a source, if that is of the pool that the policy names now.
    async fn known_replica(&self, policy: &Policy, source: &Name) -> Result<Option<Replica>> {
        let found = self.readable::<Replica>(&key_of(&policy.name, source)).await?;
        Ok(found.filter(|replica| Some(&replica.url) == policy.replicate.as_ref()))
    }

    /// The last point of a source that was sent: what the next one is told from, and so stays until that is there.
    pub(crate) async fn sent_last(&self, policy: &Policy, source: &Name) -> Result<Option<PointName>> {
        Ok(self.known_replica(policy, source).await?.and_then(|replica| replica.newest))
    }

    /// The points of policies that are younger than the newest that the other pool has, oldest first. Only those are read.
    async fn lacking(
        &self,
        policies: &[Policy],
        source: &Name,
        newest: Option<&PointName>,
    ) -> Result<Vec<PointStatus>> {
        let mut lacking = Vec::new();
        for known in catalog::keys::<Point>(&self.store, Some(source.as_str())).await? {
            if newest.is_some_and(|newest| known <= key(newest)) {
                continue;
            }
            let Some(point) = self.readable::<Point>(&known).await? else { continue };
            let is_theirs = policies.iter().any(|policy| point.policy.as_ref() == Some(&policy.name));
            let status = self.status_of(point);
            if is_theirs && !status.point.removing && status.is_whole() {
                lacking.push(status);
            }
        }
        Ok(lacking)
    }

    /// Sends what policies' points the other pools lack, in a task of its own, unless one is at it.
    pub(crate) async fn replicate_due(&self) -> Result<()> {
        let Some(me) = self.me.upgrade() else { return Ok(()) };
        let mut due: Vec<(String, Name)> = Vec::new();
        for policy in self.policies_at_work().await? {
            let Some(url) = policy.replicate.clone() else { continue };
            // Those of one pool go together.
            if !due.iter().any(|(of, _)| *of == url) && self.is_replica_due(&policy).await? {
                due.push((url, policy.name));
            }
        }
        if due.is_empty() || self.replicates.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        self.env.spawn("replication", async move {
            for (url, policy) in due {
                match me.replicate(&policy).await {
                    Err(error) if error.kind() == Kind::Closed => break,
                    Err(error) => tracing::warn!("not all points are in the other pool: {error}"),
                    Ok(runs) => tracing::info!("{} points more are in the other pool, {url}", runs.len()),
                }
            }
            me.replicates.store(false, Ordering::SeqCst);
        });
        Ok(())
    }

    async fn is_replica_due(&self, policy: &Policy) -> Result<bool> {
        let now = self.store.time().trusted;
        for status in self.replicas(policy).await? {
            let rests = status.failed.is_some()
                && status.tried.is_some_and(|tried| now < tried.saturating_add(PAUSE.as_nanos() as u64));
            if (status.behind > 0 || status.failed.is_some()) && !rests {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Has an attempt under way end at its next step, and waits until the other pool is closed.
    pub(crate) async fn end_replication(&self, patience: Duration) {
        self.ending.store(true, Ordering::SeqCst);
        let until = self.env.monotonic() + patience;
        loop {
            if let Some(other) = self.other.lock().as_ref() {
                other.copies.stop_all();
            }
            if self.replicating.try_lock().is_ok() || self.env.monotonic() > until {
                return;
            }
            self.env.sleep(LOOK_EVERY).await;
        }
    }

    /// Fails once the server ends.
    fn check_goes_on(&self) -> Result<()> {
        if self.ending.load(Ordering::SeqCst) {
            return Err(Error::new(Kind::Closed, "the server ends").remedy("the next one goes on with it"));
        }
        Ok(())
    }
}
