//! Rounds: runs that are due are made, and what their policies no longer keep is removed.
//!
//! *Promises*: a run is made for the newest slot that is over, so what was missed is caught up once; which slot that was stands in the run's own
//! document, which comes first, so no start makes it again, but one of a copy that ended with its server. Of a policy that is paused nothing is
//! made and nothing goes; resumed, it catches up in the same way. Guests that were left standing still are told to go on first. After each run the points that its policy no longer keeps go,
//! oldest first, one change each: a crash in between leaves fewer to go. What fails for one source is told, and keeps no other from its run; nor
//! does one that is copied, for hours perhaps, or whose guest has to stand still first: it has a task of its own, and where it has not ended when
//! its next slot comes, that is passed over; but what another policy wants of the source meanwhile is made when it has ended ([`apart`]).
//! *Never*: removes anything while the machine's clock is doubted; nothing goes because time has passed, only because a newer point
//! has come ([`retention`](crate::retention)). Time is the store's trusted time.

mod apart;

pub(crate) use apart::Apart;

use crate::catalog::{self, Entry};
use crate::plan::Verdict;
use crate::points::{Consistency, Point};
use crate::runs::{CUT_OFF_MAX, Run, Slot};
use crate::{Policy, Protection, Source};
use std::collections::HashSet;
use std::sync::Weak;
use std::time::Duration;
use stonefold_env::{Env, WallNanos};
use stonefold_store::TimeStatus;
use stonefold_types::{Error, Kind, Name, PointName, Result};

/// Looked at so often even when nothing is due for longer: the clock may have been set.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);
/// How soon at the earliest: a run that could not be begun is not tried again without a pause.
const PAUSE: Duration = Duration::from_secs(1);

/// No slot: before all.
const NONE: WallNanos = 0;

/// What became of a source whose turn it was.
enum Made {
    /// Nothing is due.
    Nothing,
    /// A run, and its point.
    Point(Box<Run>),
    /// It has a task of its own.
    Begun,
}

/// What a round did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Runs that made a point.
    pub done: Vec<PointName>,
    /// Sources whose runs have tasks of their own, by policy: nobody waits for these.
    pub begun: Vec<(Name, Name)>,
    /// Sources whose runs failed, by policy.
    pub failed: Vec<(Name, Name)>,
    /// Points that were removed.
    pub removed: Vec<PointName>,
}

/// Makes rounds as long as anybody else needs what protects, and its store is open.
pub async fn keep(env: Env, protection: Weak<Protection>) {
    loop {
        let Some(here) = protection.upgrade() else { return };
        let wait = match here.round().await {
            Ok(_) => match here.replicate_due().await {
                Ok(()) => here.wait().await,
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        let wait = match wait {
            Ok(wait) => wait,
            Err(error) if error.kind() == Kind::Closed => return,
            Err(error) => {
                tracing::warn!("policies are looked at again in a minute: {error}");
                LOOK_INTERVAL
            }
        };
        let changed = here.policies_changed.clone();
        // While it waits it keeps nobody from ending.
        drop(here);
        tokio::select! {
            () = env.sleep(wait) => {}
            () = changed.notified() => {}
        }
    }
}

impl Protection {
    /// Makes all runs that are due now, and removes what their policies no longer keep. Fails only where nothing can be done at all.
    pub async fn round(&self) -> Result<Round> {
        let mut round = Round::default();
        self.give_back_left().await?;
        for policy in self.policies_at_work().await? {
            for applied in &policy.sources {
                let source = &applied.source;
                match self.run_if_due(&policy, source).await {
                    Ok(Made::Nothing) => continue,
                    Ok(Made::Begun) => {
                        round.begun.push((policy.name.clone(), source.clone()));
                        continue;
                    }
                    Ok(Made::Point(run)) => {
                        self.tell_done(&policy, &run).await;
                        round.done.push(run.name);
                    }
                    Err(error) if error.kind() == Kind::Closed => return Err(error),
                    Err(error) => {
                        tracing::warn!("policy '{}', source '{source}': no point: {error}", policy.name);
                        self.tell_failed(&policy, source, &error.to_string()).await;
                        round.failed.push((policy.name.clone(), source.clone()));
                        continue;
                    }
                }
                if let Err(error) = self.prune(&policy, source, &mut round.removed).await {
                    let name = &policy.name;
                    tracing::warn!("policy '{name}', source '{source}': points stay for now: {error}");
                }
            }
        }
        Ok(round)
    }

    /// Gives guests back that runs of before have left as no guest is to stay.
    pub(crate) async fn give_back_left(&self) -> Result<()> {
        self.wake_left().await?;
        self.release_left().await?;
        self.release_left_domains().await
    }

    /// Takes the machine's clock for right, as [`Store::confirm_time`](stonefold_store::Store::confirm_time) does; what is due by it is made at once.
    pub async fn confirm_time(&self) -> Result<TimeStatus> {
        let confirmed = self.store.confirm_time().await?;
        self.policies_changed.notify_one();
        Ok(confirmed)
    }

    /// Those that are not paused.
    pub(crate) async fn policies_at_work(&self) -> Result<Vec<Policy>> {
        let mut policies = self.policies().await?;
        policies.retain(|policy| policy.paused.is_none());
        Ok(policies)
    }

    async fn run_if_due(&self, policy: &Policy, source: &Name) -> Result<Made> {
        let since = self.last_slot(policy, source).await?;
        let now = self.store.time().trusted;
        let Some(at) = policy.schedule.due(since, now) else { return Ok(Made::Nothing) };
        let slot = Slot { policy: policy.name.clone(), at };
        let found = catalog::find::<Source>(&self.store, source.as_str()).await;
        let is_copied = matches!(&found, Ok(Some(found)) if found.of.machine().is_none());
        let is_slow = is_copied || policy.consistency == Consistency::App;
        if let Some(me) = self.me.upgrade().filter(|_| is_slow) {
            if self.is_taken_by_another(policy, source) {
                return Ok(Made::Nothing);
            }
            self.slots.lock().insert((policy.name.clone(), source.clone()), at);
            // Hours may pass, and other sources have their turn.
            me.begin_apart(policy.clone(), source.clone(), slot);
            return Ok(Made::Begun);
        }
        let run = self.back_up_for(source, policy, slot).await;
        if !matches!(run, Ok(None)) {
            // Whatever became of it: the next is for a later slot.
            self.slots.lock().insert((policy.name.clone(), source.clone()), at);
        }
        run.map(|run| run.map_or(Made::Nothing, |run| Made::Point(Box::new(run))))
    }

    /// The slot of the last run of a source for a policy, or since when there is to be one. What lies ahead, because the clock was set back,
    /// counts as now, once: else it would stop all runs until then.
    pub(crate) async fn last_slot(&self, policy: &Policy, source: &Name) -> Result<WallNanos> {
        let of = (policy.name.clone(), source.clone());
        let (now, since) = (self.store.time().trusted, policy.since(source).unwrap_or(NONE));
        let known = self.slots.lock().get(&of).copied();
        let found = match known {
            Some(last) => last,
            None => self.slot_of_last_run(policy, source).await?,
        };
        let is_ahead = found > now || found == NONE && since > now;
        let last = if is_ahead { now } else { found };
        if known != Some(last) {
            self.slots.lock().insert(of, last);
        }
        Ok(if since > now { last } else { last.max(since) })
    }

    /// Read from the runs' documents, once after a start. A slot whose copy ended with its server is to be made yet; but one in which servers end
    /// again and again is passed over like one that fails.
    async fn slot_of_last_run(&self, policy: &Policy, source: &Name) -> Result<WallNanos> {
        let keys = catalog::keys::<Run>(&self.store, Some(source.as_str())).await?;
        let mut cut_off = 0;
        for key in keys.iter().rev() {
            let Some(run) = self.readable::<Run>(key).await? else { continue };
            let Some(slot) = run.slot.filter(|slot| slot.policy == policy.name) else { continue };
            cut_off += u32::from(run.cut_off);
            if !run.cut_off || cut_off == CUT_OFF_MAX {
                return Ok(slot.at);
            }
        }
        Ok(NONE)
    }

    /// When a source will next be backed up for a policy, by trusted time; now, if that is due.
    pub(crate) async fn next_run(&self, policy: &Policy, source: &Name) -> Result<WallNanos> {
        let since = self.last_slot(policy, source).await?;
        Ok(policy.schedule.next(since, self.store.time().trusted))
    }

    /// How long nothing is due.
    async fn wait(&self) -> Result<Duration> {
        let mut next = WallNanos::MAX;
        for policy in self.policies_at_work().await? {
            for applied in &policy.sources {
                // One that waits for another's run is looked at when that ends.
                if !self.is_taken_by_another(&policy, &applied.source) {
                    next = next.min(self.next_run(&policy, &applied.source).await?);
                }
            }
        }
        let wait = next.saturating_sub(self.store.time().trusted);
        Ok(Duration::from_nanos(wait).clamp(PAUSE, LOOK_INTERVAL))
    }

    /// Removes what a policy no longer keeps of a source's points. One that cannot go now keeps no other; the first error is told.
    async fn prune(&self, policy: &Policy, source: &Name, removed: &mut Vec<PointName>) -> Result<()> {
        if policy.keep.is_none() {
            return Ok(());
        }
        let judged = self.judge(policy, source).await?;
        let (going, staying): (Vec<_>, Vec<_>) = judged.into_iter().partition(|(v, _)| *v == Verdict::Goes);
        let kept = staying.into_iter().filter(|(verdict, _)| matches!(verdict, Verdict::Kept(_)));
        let kept: Vec<Point> = kept.map(|(_, point)| point).collect();
        let mut told = Ok(());
        for (_, point) in going {
            match self.remove_for(policy, &kept, &point).await {
                Ok(()) => removed.push(point.name),
                Err(error) if matches!(error.kind(), Kind::Closed | Kind::Conflict) => return Err(error),
                Err(error) => told = told.and(Err(error)),
            }
        }
        told
    }

    /// Removes a point for a policy, if all that it went by still holds: the policy itself, the points that stay instead, and the time.
    async fn remove_for(&self, policy: &Policy, kept: &[Point], point: &Point) -> Result<()> {
        self.change(async {
            let now = catalog::find::<Policy>(&self.store, policy.name.as_str()).await?;
            let there = catalog::keys::<Point>(&self.store, Some(point.name.source.as_str())).await?;
            let there: HashSet<String> = there.into_iter().collect();
            let is_there =
                |kept: &Point| there.contains(&kept.key()) && self.status_of(kept.clone()).is_whole();
            let is_same = now.as_ref() == Some(policy) && kept.iter().all(is_there);
            if !is_same || self.store.time().in_doubt {
                let what = format!("what policy '{}' went by has changed", policy.name);
                return Err(Error::new(Kind::Conflict, what).remedy("its next run judges anew"));
            }
            self.remove_now(&point.name).await
        })
        .await
    }
}
