//! What a policy would do: which of its points stay and why, which go, and what that gives back.
//!
//! *Promise*: the plan is what retention does ([`rounds`](crate::rounds)): both come from [`Protection::judge`]. A point goes when no count of the
//! policy's names it, it is whole, it is not locked, and no doubt is cast on the time.

use crate::points::{Point, PointStatus};
use crate::retention::Period;
use crate::{Policy, Protection, catalog};
use stonefold_env::WallNanos;
use stonefold_store::Freed;
use stonefold_types::{Name, PointName, Result, SnapshotName};

/// What a policy would do now; one that is paused, if it were not.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The policy.
    pub policy: Policy,
    /// What it has made of the sources that it is applied to: by source, oldest first.
    pub points: Vec<Planned>,
    /// When each source will be backed up next; of a policy that is paused, none.
    pub next: Vec<(Name, WallNanos)>,
    /// What goes gives back so much, all together. Nothing, where that is not known exactly.
    pub freed: Option<Freed>,
    /// Why that is not known.
    pub unknown: Option<String>,
    /// The machine's clock is doubted: until that is settled nothing goes.
    pub in_doubt: bool,
}

/// What becomes of a point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// The point.
    pub point: PointName,
    /// When it was taken, by trusted time, nanoseconds since 1970.
    pub taken: WallNanos,
    /// Whether it stays.
    pub verdict: Verdict,
    /// What it gives back, when all points above it that go are gone.
    pub freed: Option<Freed>,
}

/// Whether a point stays, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes.
    Goes,
    /// The policy keeps it: it is the last of each of these.
    Kept(Vec<Period>),
    /// The policy does not say that any should go.
    All,
    /// The policy does not keep it; it is the last that was sent to another pool, and stays until the next is, which is told from it. Or it is to go
    /// to an archive, and has not yet.
    Sent,
    /// The policy does not keep it, and nobody can remove it before: trusted time, nanoseconds since 1970.
    Locked(WallNanos),
    /// Somebody has removed a snapshot of it, or one cannot be read. It is not counted, and is left to who looks at it.
    Broken,
    /// The policy does not keep it; it waits until the machine's clock is confirmed.
    InDoubt,
}

impl Protection {
    /// What a policy would do now, and what that would give back.
    pub async fn plan(&self, name: &Name) -> Result<Plan> {
        let policy = self.policy(name).await?;
        let (mut points, mut next, mut sets) = (Vec::new(), Vec::new(), Vec::new());
        for applied in &policy.sources {
            for (verdict, point) in self.judge(&policy, &applied.source).await? {
                if verdict == Verdict::Goes {
                    sets.push(snapshots_of(&point));
                }
                points.push(Planned { point: point.name, taken: point.taken, verdict, freed: None });
            }
            if policy.paused.is_none() {
                next.push((applied.source.clone(), self.next_run(&policy, &applied.source).await?));
            }
        }
        let in_doubt = self.store.time().in_doubt;
        let mut plan = Plan { policy, points, next, freed: None, unknown: None, in_doubt };
        match self.store.freed_by(&sets).await {
            Ok(freed) => plan.tell(&freed),
            // What goes is told all the same; a number that is not exact is none.
            Err(error) => plan.unknown = Some(error.to_string()),
        }
        Ok(plan)
    }

    /// The points that a policy has made of a source, oldest first, without their hardware, and what becomes of each.
    pub(crate) async fn judge(&self, policy: &Policy, source: &Name) -> Result<Vec<(Verdict, Point)>> {
        let mut made = Vec::new();
        for key in catalog::keys::<Point>(&self.store, Some(source.as_str())).await? {
            let Some(point) = self.readable::<Point>(&key).await? else { continue };
            if point.policy.as_ref() == Some(&policy.name) && !point.removing {
                // Descriptions of two thousand points would be hundreds of megabytes.
                made.push(self.status_of(Point { hardware: None, ..point }));
            }
        }
        let Some(keep) = &policy.keep else {
            return Ok(made.into_iter().map(|status| (all_stay(&status), status.point)).collect());
        };
        let whole: Vec<WallNanos> =
            made.iter().filter(|one| one.is_whole()).map(|one| one.point.taken).collect();
        let whole = in_order(whole);
        let mut reasons = keep.reasons(&whole, policy.schedule.zone()).into_iter();
        let in_doubt = self.store.time().in_doubt;
        let sent = self.kept_for_others(policy, source).await?;
        let judged = made.into_iter().map(|status| {
            let verdict = match (status.is_whole(), status.longest_lock) {
                (false, _) => Verdict::Broken,
                (true, locked) => match (reasons.next().unwrap_or_default(), locked) {
                    (kept, _) if !kept.is_empty() => Verdict::Kept(kept),
                    (_, Some(until)) => Verdict::Locked(until),
                    (_, None) if in_doubt => Verdict::InDoubt,
                    (_, None) if sent.contains(&status.point.name) => Verdict::Sent,
                    (_, None) => Verdict::Goes,
                },
            };
            (verdict, status.point)
        });
        Ok(judged.collect())
    }
}

impl Plan {
    /// Puts what is given back to the points that go, in their order.
    fn tell(&mut self, freed: &[Freed]) {
        let going = self.points.iter_mut().filter(|planned| planned.verdict == Verdict::Goes);
        going.zip(freed).for_each(|(planned, freed)| planned.freed = Some(*freed));
        self.freed = Some(Freed {
            blocks: freed.iter().map(|one| one.blocks).sum(),
            bytes: freed.iter().map(|one| one.bytes).sum(),
        });
    }
}

/// Times of points in the order in which they were made: none is later than that of the next. Those that were taken while a clock was ahead
/// would else stand before all that are taken once it is set back.
pub(crate) fn in_order(mut taken: Vec<WallNanos>) -> Vec<WallNanos> {
    let mut next = WallNanos::MAX;
    for at in taken.iter_mut().rev() {
        next = next.min(*at);
        *at = next;
    }
    taken
}

fn all_stay(status: &PointStatus) -> Verdict {
    if status.is_whole() { Verdict::All } else { Verdict::Broken }
}

fn snapshots_of(point: &Point) -> Vec<SnapshotName> {
    point.disks.iter().map(|disk| point.snapshot_of(disk)).collect()
}
