//! One attempt: the other pool opened, sent to, closed, and what came of it written down.

use super::Replica;
use crate::catalog;
use crate::copying::Sent;
use crate::plan::Verdict;
use crate::points::{Point, PointStatus};
use crate::runs::Run;
use crate::sources::{ReplicaOf, Source, SourceOf};
use crate::{Policy, Protection};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stonefold_env::WallNanos;
use stonefold_store::Store;
use stonefold_types::{Error, Kind, Name, PointName, Result};

/// How long whoever still has the other pool is waited for, once it is closed.
const LET_GO_MAX: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The policies that send to one pool, by the sources that they are applied to.
type Senders = BTreeMap<Name, Vec<Policy>>;

/// What the other pool has of a source.
#[derive(Clone)]
enum Seen {
    /// It was not looked at.
    Nothing,
    /// The newest point, and when that was taken; or none.
    Newest(Option<(PointName, WallNanos)>),
}

impl Protection {
    /// Sends what the other pool lacks of a policy's points, and of those of others that name the same pool: of a source all are sent in the
    /// order in which they were made. Returns what was received there, which is there durably; fails with the first error, after all sources have been tried.
    pub async fn replicate(&self, name: &Name) -> Result<Vec<Run>> {
        let _alone = self.replicating.lock().await;
        self.check_goes_on()?;
        let Some(url) = self.policy(name).await?.replicate else {
            let what = format!("policy '{name}' names no other pool");
            return Err(Error::new(Kind::Invalid, what)
                .remedy(format!("name one: stonefold policy set {name} --replicate URL")));
        };
        let senders = self.senders(&url).await?;
        let (mut runs, mut outcomes) = (Vec::new(), Vec::new());
        let attempt = self.attempt(&senders, &url, &mut runs, &mut outcomes).await;
        let attempt = attempt.map_err(|e| e.context(format!("the other pool, {url}")));
        // A server that ends has failed in nothing.
        self.check_goes_on()?;
        for (source, policies) in &senders {
            let found = outcomes.iter().find(|(of, ..)| of == source);
            let (seen, sent) =
                found.map_or((Seen::Nothing, None), |(_, seen, sent)| (seen.clone(), sent.as_ref()));
            let failed = sent.or(attempt.as_ref().err());
            for policy in policies {
                self.write_down(policy, &url, source, seen.clone(), failed).await?;
            }
        }
        let first = outcomes.into_iter().find_map(|(source, _, sent)| Some((source, sent?)));
        match first {
            Some((source, error)) => Err(error.context(format!("source '{source}'"))),
            None => attempt.map(|()| runs),
        }
    }

    /// The policies that send to a pool, by their sources.
    async fn senders(&self, url: &str) -> Result<Senders> {
        let mut senders = Senders::new();
        let policies = self.policies().await?.into_iter();
        for policy in policies.filter(|policy| policy.replicate.as_deref() == Some(url)) {
            for applied in &policy.sources {
                senders.entry(applied.source.clone()).or_default().push(policy.clone());
            }
        }
        Ok(senders)
    }

    /// Tries each source; what came of it is put into `outcomes`. Fails where the pool does not open, or close.
    async fn attempt(
        &self,
        senders: &Senders,
        url: &str,
        runs: &mut Vec<Run>,
        outcomes: &mut Vec<(Name, Seen, Option<Error>)>,
    ) -> Result<()> {
        let there = self.open_other(url).await?;
        let other = Protection::receiving(self.env.clone(), there.clone());
        self.other.lock().replace(other.clone());
        for (source, policies) in senders {
            let sent = self.send(policies, url, source, &other, runs).await.err();
            let seen = other.newest_of(source).await.map_or(Seen::Nothing, Seen::Newest);
            outcomes.push((source.clone(), seen, sent));
        }
        self.other.lock().take();
        drop(other);
        self.close_other(there).await
    }

    /// Makes one only where none was known: of a disk that is not there today no empty pool is to take the place.
    async fn open_other(&self, url: &str) -> Result<Arc<Store>> {
        let pools = self.pools.get().ok_or_else(|| {
            let error = Error::new(Kind::Unsupported, "this server opens no other pools");
            error.remedy("name none with --replicate")
        })?;
        let known = catalog::all::<Replica>(&self.store, None).await?;
        let is_known = known.iter().any(|replica| replica.url == url && replica.newest.is_some());
        let there = pools.open(url.to_owned(), !is_known).await?;
        match self.check_other(&there).await {
            Ok(()) => Ok(there),
            Err(error) => {
                // The first error is the one to tell.
                let _ = self.close_other(there).await;
                Err(error)
            }
        }
    }

    async fn check_other(&self, there: &Store) -> Result<()> {
        if there.pool_id() == self.store.pool_id() {
            let error = Error::new(Kind::Invalid, "it is this very pool");
            return Err(error.remedy("name another one"));
        }
        if !there.time().in_doubt {
            return Ok(());
        }
        // It is open for minutes only, and so proves little of the time that passes; a pool that has sent to it before has lived through that.
        let mine = ReplicaOf::new(self.store.pool_id());
        let sources = catalog::all::<Source>(there, None).await?;
        let is_known =
            sources.iter().any(|source| matches!(&source.of, SourceOf::Replica(of) if of.pool == mine.pool));
        if !is_known || self.store.time().in_doubt {
            let error = Error::new(Kind::Denied, "the time of the other pool is in doubt");
            return Err(
                error.remedy("serve it, look at its clock, and say 'stonefold pool confirm-time' there")
            );
        }
        there.confirm_time().await.map(drop)
    }

    /// What was received is durable; what could not be folded is in its journal. Returns when nobody has the place any more.
    async fn close_other(&self, there: Arc<Store>) -> Result<()> {
        let closed = there.close().await;
        let left = Arc::downgrade(&there);
        drop(there);
        let until = self.env.monotonic() + LET_GO_MAX;
        while left.strong_count() > 0 && self.env.monotonic() < until {
            self.env.sleep(LOOK_EVERY).await;
        }
        closed
    }

    /// Sends what the other pool lacks of a source, and has go there what the policies do not keep.
    async fn send(
        &self,
        policies: &[Policy],
        url: &str,
        source: &Name,
        other: &Arc<Protection>,
        runs: &mut Vec<Run>,
    ) -> Result<()> {
        let from = self.me.upgrade().ok_or_else(|| Error::new(Kind::Closed, "the server ends"))?;
        other.check_replica(source, self.store.pool_id()).await?;
        let newest = other.newest_of(source).await?.map(|(name, _)| name);
        for status in self.lacking(policies, source, newest.as_ref()).await? {
            self.check_goes_on()?;
            self.check_still_sent(url, &status).await?;
            let (name, lock_until) = (status.point.name.clone(), status.locked_until);
            let sent = Sent { from: from.clone(), point: status.point, lock_until };
            let run = other.receive(sent).await.map_err(|e| e.context(format!("point '{name}'")))?;
            runs.push(run);
        }
        for policy in policies {
            self.prune_replica(policy, url, source, other).await?;
        }
        Ok(())
    }

    /// Fails where the policy of a point does not send it there any more: hours may have passed.
    async fn check_still_sent(&self, url: &str, status: &PointStatus) -> Result<()> {
        let point = &status.point;
        let policy = match &point.policy {
            Some(policy) => catalog::find::<Policy>(&self.store, policy.as_str()).await?,
            None => None,
        };
        let is_sent = |policy: Policy| {
            policy.replicate.as_deref() == Some(url) && policy.since(&point.name.source).is_some()
        };
        if policy.is_some_and(is_sent) {
            return Ok(());
        }
        let what = format!("the policy of point '{}' does not send it there any more", point.name);
        Err(Error::new(Kind::Conflict, what).remedy("what is sent goes on with the policies as they are now"))
    }

    /// Removes there what a policy, as it is now, does not keep; nothing while it is paused, or this pool's clock is doubted. That pool's is looked at where the points are judged.
    async fn prune_replica(
        &self,
        policy: &Policy,
        url: &str,
        source: &Name,
        other: &Arc<Protection>,
    ) -> Result<()> {
        let now = catalog::find::<Policy>(&self.store, policy.name.as_str()).await?;
        let is_at_work = |now: &Policy| {
            now.created == policy.created
                && now.paused.is_none()
                && now.replicate.as_deref() == Some(url)
                && now.since(source).is_some()
        };
        let Some(now) = now.filter(|now| is_at_work(now) && !self.store.time().in_doubt) else {
            return Ok(());
        };
        for (verdict, point) in other.judge(&now, source).await? {
            if verdict == Verdict::Goes {
                self.check_goes_on()?;
                let removed = other.remove_point(&point.name).await;
                removed.map_err(|e| e.context("removing there what the policy does not keep"))?;
            }
        }
        Ok(())
    }

    /// The newest point of a source that is whole, and when it was taken.
    async fn newest_of(&self, source: &Name) -> Result<Option<(PointName, WallNanos)>> {
        let found: Option<Point> = self.last_point(source).await?;
        Ok(found.map(|point| (point.name, point.taken)))
    }

    /// Keeps what is there; of an attempt that saw nothing what was known before.
    async fn write_down(
        &self,
        policy: &Policy,
        url: &str,
        source: &Name,
        seen: Seen,
        failed: Option<&Error>,
    ) -> Result<()> {
        let known = self.known_replica(policy, source).await?;
        let newest = match seen {
            Seen::Newest(newest) => newest,
            Seen::Nothing => {
                known.as_ref().and_then(|replica| Some((replica.newest.clone()?, replica.taken?)))
            }
        };
        let replica = Replica {
            policy: policy.name.clone(),
            source: source.clone(),
            url: url.to_owned(),
            taken: newest.as_ref().map(|(_, taken)| *taken),
            newest: newest.map(|(name, _)| name),
            tried: self.store.time().trusted,
            failed: failed.map(ToString::to_string),
            unknown: known.as_ref().map(|replica| replica.unknown.clone()).unwrap_or_default(),
        };
        let written = self.change(async {
            // It may have been removed, or taken from the source, meanwhile.
            let now = catalog::find::<Policy>(&self.store, policy.name.as_str()).await?;
            let is_applied = now.is_some_and(|now| now.since(source).is_some());
            if is_applied {
                catalog::put(&self.store, &replica).await?;
            }
            Ok(is_applied)
        });
        let had_failed = known.is_some_and(|replica| replica.failed.is_some());
        if written.await? && had_failed != replica.failed.is_some() {
            self.tell_sending(policy, source, replica.newest, replica.failed);
        }
        Ok(())
    }
}
