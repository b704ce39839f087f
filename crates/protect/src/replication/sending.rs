//! One attempt: the other pool opened, sent to, closed, and what came of it written down.

use super::{Archived, Destination, Replica, Sender};
use crate::catalog;
use crate::copying::Sent;
use crate::plan::Verdict;
use crate::points::{Point, PointStatus};
use crate::runs::{Run, key};
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
type Senders = BTreeMap<Name, Vec<Sender>>;

/// What the other pool has of a source.
#[derive(Clone)]
enum Seen {
    /// It was not looked at.
    Nothing,
    /// The newest point, and when that was taken; or none.
    Newest(Option<(PointName, WallNanos)>),
}

impl Protection {
    /// Sends what the other pools of a policy lack of its points. Returns what was received there, which is there durably; fails with the first
    /// error, after all have been tried.
    pub async fn replicate(&self, name: &Name) -> Result<Vec<Run>> {
        let destinations = self.policy(name).await?.destinations();
        if destinations.is_empty() {
            let what = format!("policy '{name}' names no other pool");
            return Err(Error::new(Kind::Invalid, what)
                .remedy(format!("name one: stonefold policy set {name} --replicate URL, or --archive URL")));
        }
        let (mut runs, mut failed) = (Vec::new(), None);
        for to in destinations {
            match self.replicate_to(name, &to.url).await {
                Ok(sent) => runs.extend(sent),
                Err(error) if error.kind() == Kind::Closed => return Err(error),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(runs), Err)
    }

    /// The same for one of them, and for other policies that name the same pool: of a source all are sent in the order in which they were made.
    pub(crate) async fn replicate_to(&self, name: &Name, url: &str) -> Result<Vec<Run>> {
        let _alone = self.replicating.lock().await;
        self.check_goes_on()?;
        // It may have been changed while another was waited for.
        if !self.policy(name).await?.destinations().iter().any(|to| to.url == url) {
            return Ok(Vec::new());
        }
        let senders = self.senders(url).await?;
        let (mut runs, mut outcomes) = (Vec::new(), Vec::new());
        let attempt = self.attempt(&senders, url, &mut runs, &mut outcomes).await;
        let attempt = attempt.map_err(|e| e.context(format!("the other pool, {url}")));
        // A server that ends has failed in nothing.
        self.check_goes_on()?;
        for (source, of_source) in &senders {
            let found = outcomes.iter().find(|(of, ..)| of == source);
            let (seen, sent) =
                found.map_or((Seen::Nothing, None), |(_, seen, sent)| (seen.clone(), sent.as_ref()));
            let failed = sent.or(attempt.as_ref().err());
            for sender in of_source {
                self.write_down(sender, source, seen.clone(), failed).await?;
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
        for policy in policies {
            let Some(to) = policy.destinations().into_iter().find(|to| to.url == url) else { continue };
            for applied in &policy.sources {
                let sender = Sender { policy: policy.clone(), to: to.clone() };
                senders.entry(applied.source.clone()).or_default().push(sender);
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
        if let Some(bandwidth) = self.copies.bandwidth.get() {
            // What is sent and what is read share one.
            let _ = other.copies.bandwidth.set(bandwidth.clone());
        }
        self.other.lock().replace(other.clone());
        for (source, of_source) in senders {
            let sent = self.send(of_source, url, source, &other, runs).await.err();
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
        let mut known = catalog::all::<Replica>(&self.store, None).await?;
        known.extend(
            catalog::all::<Archived>(&self.store, None).await?.into_iter().map(|Archived(known)| known),
        );
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
        senders: &[Sender],
        url: &str,
        source: &Name,
        other: &Arc<Protection>,
        runs: &mut Vec<Run>,
    ) -> Result<()> {
        let from = self.me.upgrade().ok_or_else(|| Error::new(Kind::Closed, "the server ends"))?;
        other.check_replica(source, self.store.pool_id()).await?;
        let newest = other.newest_of(source).await?.map(|(name, _)| name);
        for status in self.lacking(senders, source, newest.as_ref()).await? {
            self.check_goes_on()?;
            self.check_still_sent(url, &status).await?;
            let (name, lock_until) = (status.point.name.clone(), status.locked_until);
            // With its hardware.
            let point = catalog::get::<Point>(&self.store, &key(&name)).await?;
            let sent = Sent { from: from.clone(), point, lock_until };
            let run = other.receive(sent).await.map_err(|e| e.context(format!("point '{name}'")))?;
            runs.push(run);
        }
        for sender in senders {
            self.prune_replica(sender, source, other).await?;
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
            policy.destinations().iter().any(|to| to.url == url) && policy.since(&point.name.source).is_some()
        };
        if policy.is_some_and(is_sent) {
            return Ok(());
        }
        let what = format!("the policy of point '{}' does not send it there any more", point.name);
        Err(Error::new(Kind::Conflict, what).remedy("what is sent goes on with the policies as they are now"))
    }

    /// Removes there what a policy, as it is now, does not keep; nothing while it is paused, or this pool's clock is doubted. That pool's is looked at where the points are judged.
    async fn prune_replica(&self, sender: &Sender, source: &Name, other: &Arc<Protection>) -> Result<()> {
        let Some(now) = catalog::find::<Policy>(&self.store, sender.policy.name.as_str()).await? else {
            return Ok(());
        };
        let is_of = |to: &Destination| to.url == sender.to.url && to.is_archive() == sender.to.is_archive();
        let Some(to) = now.destinations().into_iter().find(is_of) else { return Ok(()) };
        let is_at_work =
            now.created == sender.policy.created && now.paused.is_none() && now.since(source).is_some();
        if !is_at_work || self.store.time().in_doubt {
            return Ok(());
        }
        // What is there is judged by what is to be kept there, and waits for no third pool.
        let keep = to.keep.or(now.keep);
        let mut there = now;
        (there.keep, there.replicate, there.archive) = (keep, None, None);
        for (verdict, point) in other.judge(&there, source).await? {
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
        sender: &Sender,
        source: &Name,
        seen: Seen,
        failed: Option<&Error>,
    ) -> Result<()> {
        let policy = &sender.policy;
        let known = self.known_replica(sender, source).await?;
        let newest = match seen {
            Seen::Newest(newest) => newest,
            Seen::Nothing => {
                known.as_ref().and_then(|replica| Some((replica.newest.clone()?, replica.taken?)))
            }
        };
        let replica = Replica {
            policy: policy.name.clone(),
            source: source.clone(),
            url: sender.to.url.clone(),
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
                match sender.to.is_archive() {
                    true => catalog::put(&self.store, &Archived(replica.clone())).await?,
                    false => catalog::put(&self.store, &replica).await?,
                }
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
