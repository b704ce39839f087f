//! Replication: a policy's points in another pool, from which they are recovered when this one is gone; all of them, or those that an archive keeps.
//!
//! *Order*: the other pool is opened; of each source the points that it lacks are received there, oldest first ([`copying`](crate::copying)), and what the
//! policies do not keep there goes; then it is closed, and what is there is written down here ([`Replica`]) ([`sending`]). *Promises*: a point is there whole, and was
//! compared with what was sent, or it is not there; of a point only what differs from the one before is read and written; what was cut off at
//! any moment goes on with the next attempt. *Never*: makes a pool in the place of one that was there before; takes another's source for its own, or removes
//! another's points; removes anything while either pool's clock is doubted. One attempt at a time: the other pool is nobody else's meanwhile.

mod sending;

use crate::catalog::{self, Entry, Unknown};
use crate::plan::in_order;
use crate::points::{Point, PointStatus};
use crate::retention::Keep;
use crate::runs::key;
use crate::{Archive, Policy, Protection};
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
    /// Fails for the URL of the pool itself, which is no other.
    fn check(&self, url: String) -> BoxFuture<'static, Result<()>>;

    /// Opens the pool at a URL for this process alone; makes it, where it is not there, only when told to.
    fn open(&self, url: String, make: bool) -> BoxFuture<'static, Result<Arc<Store>>>;
}

/// Where a policy's points are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Destination {
    pub(crate) url: String,
    /// Of an archive which points go there; else all do.
    pub(crate) keep: Option<Keep>,
}

/// A policy that sends to a pool, and what it sends.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    pub(crate) policy: Policy,
    pub(crate) to: Destination,
}

/// What is known of a source's points in the other pool: the document `replicas/POLICY/SOURCE`; of an archive [`Archived`].
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
    /// Whether the other pool is the policy's archive, which has some points only.
    pub archive: bool,
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

/// The same of a policy's archive: the document `archived/POLICY/SOURCE`. A family of its own, as no document lies below another: where an object store is made
/// of files, one cannot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Archived(Replica);

impl Entry for Archived {
    const FAMILY: &'static str = "archived";
    const NOUN: &'static str = "archive";
    const LISTED_BY: &'static str = "stonefold policy show";

    fn key(&self) -> String {
        self.0.key()
    }
}

fn key_of(policy: &Name, source: &Name) -> String {
    format!("{policy}/{source}")
}

impl Destination {
    /// Whether it has some of the points only.
    pub(crate) fn is_archive(&self) -> bool {
        self.keep.is_some()
    }
}

impl Policy {
    /// Where its points are sent.
    pub(crate) fn destinations(&self) -> Vec<Destination> {
        let all = self.replicate.clone().map(|url| Destination { url, keep: None });
        let some =
            self.archive.clone().map(|archive| Destination { url: archive.url, keep: Some(archive.keep) });
        all.into_iter().chain(some).collect()
    }
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
        self.set_destination(name, false, url.as_deref(), |policy| policy.replicate.clone_from(&url)).await
    }

    /// Names the pool that keeps some of a policy's points for longer, and which; or none any more, likewise.
    pub async fn archive_policy(&self, name: &Name, archive: Option<Archive>) -> Result<Policy> {
        let url = archive.as_ref().map(|archive| archive.url.as_str());
        self.set_destination(name, true, url, |policy| policy.archive.clone_from(&archive)).await
    }

    async fn set_destination(
        &self,
        name: &Name,
        archive: bool,
        url: Option<&str>,
        set: impl Fn(&mut Policy),
    ) -> Result<Policy> {
        if let Some(url) = url.filter(|url| url.len() > REPLICA_URL_BYTES_MAX) {
            let what = format!("the URL of the other pool has {} bytes", url.len());
            return Err(Error::new(Kind::Invalid, what)
                .remedy(format!("name one of {REPLICA_URL_BYTES_MAX} bytes at most")));
        }
        if let (Some(url), Some(pools)) = (url, self.pools.get()) {
            pools.check(url.to_owned()).await?;
        }
        let set = |policy: &mut Policy| {
            set(policy);
            match policy.destinations().as_slice() {
                // What is not kept there by one would be sent there by the other, again and again.
                [all, some] if all.url == some.url => {
                    let what = format!(
                        "policy '{name}' sends all of its points to that pool, which cannot be its archive"
                    );
                    Err(Error::new(Kind::Invalid, what).remedy("name another one"))
                }
                _ => Ok(()),
            }
        };
        let changed = self.change(async {
            let before = catalog::get::<Policy>(&self.store, name.as_str()).await?;
            let mut after = before.clone();
            set(&mut after)?;
            self.check_archives(&after).await?;
            let policy = catalog::change(&self.store, name.as_str(), set).await?;
            // An archive that is to keep other points is the same pool.
            let is_other = |was: &Destination| was.is_archive() == archive && Some(was.url.as_str()) != url;
            if before.destinations().iter().any(is_other) {
                self.forget_replicas(name, None, Some(archive)).await?;
            }
            Ok(policy)
        });
        let policy = changed.await?;
        self.policies_changed.notify_one();
        Ok(policy)
    }

    /// Fails where an archive would get points of one source by two policies. They go there in the order in which they were made, and an archive's are chosen
    /// only later, when the other's younger ones may be there.
    pub(crate) async fn check_archives(&self, policy: &Policy) -> Result<()> {
        let others = catalog::all::<Policy>(&self.store, None).await?.into_iter();
        let others = others.filter(|other| other.name != policy.name);
        for other in others {
            let Some(shared) = policy.sources.iter().find(|applied| other.since(&applied.source).is_some())
            else {
                continue;
            };
            for mine in policy.destinations() {
                let meets = |theirs: &Destination| {
                    theirs.url == mine.url && (theirs.is_archive() || mine.is_archive())
                };
                if other.destinations().iter().any(meets) {
                    let what = format!(
                        "policies '{}' and '{}' would both send points of source '{}' to one pool, which is an archive of either",
                        policy.name, other.name, shared.source
                    );
                    let error = Error::new(Kind::Invalid, what);
                    return Err(
                        error.remedy("give each archive a pool of its own: another prefix or directory")
                    );
                }
            }
        }
        Ok(())
    }

    /// Forgets what is known of a policy's points in other pools, of some sources or of all, of archives or of others or of both; within a change.
    pub(crate) async fn forget_replicas(
        &self,
        policy: &Name,
        sources: Option<&[Name]>,
        archive: Option<bool>,
    ) -> Result<()> {
        if archive != Some(true) {
            self.forget::<Replica>(policy, sources).await?;
        }
        if archive != Some(false) {
            self.forget::<Archived>(policy, sources).await?;
        }
        Ok(())
    }

    async fn forget<E: Entry>(&self, policy: &Name, sources: Option<&[Name]>) -> Result<()> {
        for known in catalog::keys::<E>(&self.store, Some(policy.as_str())).await? {
            let is_of = |source: &Name| known == key_of(policy, source);
            if sources.is_none_or(|sources| sources.iter().any(is_of)) {
                catalog::remove::<E>(&self.store, &known).await?;
            }
        }
        Ok(())
    }

    /// How far a policy's points are in other pools, by source.
    pub async fn replicas(&self, policy: &Policy) -> Result<Vec<ReplicaStatus>> {
        self.settle().await;
        let mut found = Vec::new();
        let now = self.store.time().trusted;
        for to in policy.destinations() {
            let sender = Sender { policy: policy.clone(), to };
            for applied in &policy.sources {
                let known = self.known_replica(&sender, &applied.source).await?;
                let newest = known.as_ref().and_then(|replica| replica.newest.clone());
                let taken = known.as_ref().and_then(|replica| replica.taken);
                let since = taken.unwrap_or(applied.since);
                let lacking =
                    self.lacking(std::slice::from_ref(&sender), &applied.source, newest.as_ref()).await?;
                found.push(ReplicaStatus {
                    policy: policy.name.clone(),
                    source: applied.source.clone(),
                    archive: sender.to.is_archive(),
                    behind: lacking.len() as u64,
                    newest,
                    taken,
                    lag_seconds: now.saturating_sub(since) / 1_000_000_000,
                    tried: known.as_ref().map(|replica| replica.tried),
                    failed: known.and_then(|replica| replica.failed),
                });
            }
        }
        Ok(found)
    }

    /// What was written down of a source, if that is of the pool that the policy names now.
    async fn known_replica(&self, sender: &Sender, source: &Name) -> Result<Option<Replica>> {
        let key = key_of(&sender.policy.name, source);
        let found = match sender.to.is_archive() {
            true => self.readable::<Archived>(&key).await?.map(|Archived(replica)| replica),
            false => self.readable::<Replica>(&key).await?,
        };
        Ok(found.filter(|replica| replica.url == sender.to.url))
    }

    /// Points of a source that stay here because of other pools: the last that was sent to each, as what the next one is told from; and those that
    /// an archive is to get.
    pub(crate) async fn kept_for_others(&self, policy: &Policy, source: &Name) -> Result<Vec<PointName>> {
        let mut kept = Vec::new();
        for to in policy.destinations() {
            let sender = Sender { policy: policy.clone(), to };
            let newest = self.known_replica(&sender, source).await?.and_then(|replica| replica.newest);
            if sender.to.is_archive() {
                let lacking = self.lacking(std::slice::from_ref(&sender), source, newest.as_ref()).await?;
                kept.extend(lacking.into_iter().map(|status| status.point.name));
            }
            kept.extend(newest);
        }
        Ok(kept)
    }

    /// The points of policies that are to go to a pool and are younger than the newest that it has, oldest first. Only those are read.
    async fn lacking(
        &self,
        senders: &[Sender],
        source: &Name,
        newest: Option<&PointName>,
    ) -> Result<Vec<PointStatus>> {
        let mut younger = Vec::new();
        for known in catalog::keys::<Point>(&self.store, Some(source.as_str())).await? {
            if newest.is_some_and(|newest| known <= key(newest)) {
                continue;
            }
            let Some(point) = self.readable::<Point>(&known).await? else { continue };
            // Descriptions of two thousand points would be hundreds of megabytes; whoever sends one reads it again.
            let status = self.status_of(Point { hardware: None, ..point });
            if !status.point.removing && status.is_whole() {
                younger.push(status);
            }
        }
        let mut goes = vec![false; younger.len()];
        for sender in senders {
            let of: Vec<usize> = (0..younger.len())
                .filter(|at| younger[*at].point.policy.as_ref() == Some(&sender.policy.name))
                .collect();
            let taken = in_order(of.iter().map(|at| younger[*at].point.taken).collect());
            let chosen = match &sender.to.keep {
                Some(keep) => keep.settled(&taken, sender.policy.schedule.zone()),
                None => vec![true; of.len()],
            };
            of.into_iter().zip(chosen).for_each(|(at, chosen)| goes[at] |= chosen);
        }
        Ok(younger.into_iter().zip(goes).filter_map(|(status, goes)| goes.then_some(status)).collect())
    }

    /// Sends what policies' points the other pools lack, in a task of its own, unless one is at it.
    pub(crate) async fn replicate_due(&self) -> Result<()> {
        let Some(me) = self.me.upgrade() else { return Ok(()) };
        let mut due: Vec<(String, Name)> = Vec::new();
        for policy in self.policies_at_work().await? {
            let due_to = self.is_replica_due(&policy).await?;
            for to in policy.destinations().into_iter().filter(|to| due_to.contains(&to.is_archive())) {
                // Those of one pool go together.
                if !due.iter().any(|(of, _)| *of == to.url) {
                    due.push((to.url, policy.name.clone()));
                }
            }
        }
        if due.is_empty() || self.replicates.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        self.env.spawn("replication", async move {
            for (url, policy) in due {
                match me.replicate_to(&policy, &url).await {
                    Err(error) if error.kind() == Kind::Closed => break,
                    Err(error) => tracing::warn!("not all points are in the other pool: {error}"),
                    Ok(runs) => tracing::info!("{} points more are in the other pool, {url}", runs.len()),
                }
            }
            me.replicates.store(false, Ordering::SeqCst);
        });
        Ok(())
    }

    /// Whether something is to be sent to a policy's archive (`true`), and to its other pool.
    async fn is_replica_due(&self, policy: &Policy) -> Result<Vec<bool>> {
        let now = self.store.time().trusted;
        let mut due = Vec::new();
        for status in self.replicas(policy).await? {
            let rests = status.failed.is_some()
                && status.tried.is_some_and(|tried| now < tried.saturating_add(PAUSE.as_nanos() as u64));
            if (status.behind > 0 || status.failed.is_some()) && !rests {
                due.push(status.archive);
            }
        }
        Ok(due)
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
