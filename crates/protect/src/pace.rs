//! How fast a guest's disks are read while it uses them: as fast as it is not held up by that.
//!
//! The guest's own latency is the measure: the mean time of its requests, as QEMU counts them at its devices. Without the copy it is measured before the
//! first byte and again every minute, while the copy stands still for a moment; a guest that waits for its disks keeps `floor` of its speed while its
//! requests take no longer than 1/`floor` of that. Above it the copy gives way by a third, below it it gets an eighth more, and some MiB.
//! A guest that does next to nothing is not held up by anything; one that begins to work is looked at without the copy then, and so is one that seems to
//! be held up however slow the copy is: what it does may have changed.

use crate::hypervisor::ANSWER_MAX;
use crate::qmp::Qmp;
use serde_json::json;
use std::future::Future;
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::Result;

/// How often.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// A look that tells of a guest that has become slower by more than this may have met a moment of something else's: another one soon is to confirm it, and
/// until then no more of it is believed than that.
const RISE: f64 = 1.25;
const RISE_BELIEVED: f64 = 2.0;
/// How often at most, where that would tell something new.
const LOOK_SOON: Duration = Duration::from_secs(5);
/// Requests in a second below which a guest says nothing of its speed.
const OPERATIONS_MIN: f64 = 5.0;
/// What a copy begins with that nothing is known of.
pub(crate) const SPEED_BEGINNING: u64 = 64 << 20;
/// QEMU's mirror is slower than this on any disk; without a bound it would have to be caught from there.
pub(crate) const SPEED_MAX: u64 = 4 << 30;
/// A bound above this is none for most disks: whoever is to give way begins here.
const SPEED_FELT: u64 = 1 << 30;
const STEP: u64 = 4 << 20;

/// What a guest's devices have counted since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) operations: u64,
    pub(crate) nanos: u64,
}

impl Counted {
    /// Of all devices of a QEMU.
    pub(crate) async fn by(qmp: &Qmp) -> Result<Counted> {
        let told = qmp.execute("query-blockstats", json!({}), ANSWER_MAX).await?;
        let mut counted = Counted::default();
        for one in told.as_array().into_iter().flatten() {
            let of = |name: &str| one["stats"][name].as_u64().unwrap_or(0);
            counted.operations += of("rd_operations") + of("wr_operations") + of("flush_operations");
            counted.nanos += of("rd_total_time_ns") + of("wr_total_time_ns") + of("flush_total_time_ns");
        }
        Ok(counted)
    }
}

/// What is copied beside a guest.
pub(crate) trait Paced: Sync {
    /// How long the guest is looked at without the copy; and how long one that does nothing.
    const LOOK: Duration;
    const LOOK_AT_IDLE: Duration;
    /// What the copy begins with beside one that does nothing, in bytes a second.
    const SPEED_AT_IDLE: u64;
    /// The same, beside one that works.
    const SPEED_AT_WORK: u64;
    /// What the copy has in any case, in bytes a second: it is to come to an end.
    const SPEED_MIN: u64;
    /// How far below its bound a guest's latency is to be kept, as it swings.
    const MARGIN: f64;

    /// What the guest's devices have done.
    fn counted(&self) -> impl Future<Output = Result<Counted>> + Send;

    /// Has the copy stand still.
    fn pause(&self) -> impl Future<Output = Result<()>> + Send;

    fn resume(&self) -> impl Future<Output = Result<()>> + Send;

    /// Bytes a second, of all disks together.
    fn set_speed(&self, bytes: u64) -> impl Future<Output = Result<()>> + Send;
}

/// How fast a copy is, and what its guest keeps of its speed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyRate {
    /// What the copy may read in a second, in bytes.
    pub speed_bytes: u64,
    /// What the guest keeps; nothing where that is not known.
    pub guest_percent: Option<u64>,
}

/// See the module.
pub(crate) struct Pace {
    floor: f64,
    /// The mean time of a request without the copy, in nanoseconds; nothing while the guest did too little.
    alone: Option<f64>,
    /// That has risen, and is to be confirmed.
    is_doubted: bool,
    measured: Duration,
    before: (Duration, Counted),
    /// The guest asked for enough, when it was looked at last.
    is_busy: bool,
    speed: u64,
}

impl Pace {
    /// Looks at the guest before the first byte. `floor_percent` is what it is to keep of its speed.
    pub(crate) async fn begin<P: Paced>(env: &Env, paced: &P, floor_percent: u8) -> Result<Pace> {
        // What an earlier server had begun goes on.
        paced.pause().await?;
        let alone = look(env, paced).await;
        let speed = if let Ok(Some(_)) = alone { P::SPEED_AT_WORK } else { P::SPEED_AT_IDLE };
        let set = paced.set_speed(speed).await;
        paced.resume().await?;
        let (alone, ()) = (alone?, set?);
        let measured = env.monotonic();
        let before = (measured, paced.counted().await?);
        let floor = f64::from(floor_percent) / 100.0;
        Ok(Pace { floor, alone, is_doubted: false, measured, before, is_busy: alone.is_some(), speed })
    }

    /// Sets the speed by what the guest did since the last time.
    pub(crate) async fn set<P: Paced>(&mut self, env: &Env, paced: &P) -> Result<CopyRate> {
        let now = (env.monotonic(), paced.counted().await?);
        let latency = latency(&self.before.1, &now.1, now.0.saturating_sub(self.before.0));
        self.is_busy = latency.is_some();
        let looked = now.0.saturating_sub(self.measured);
        let is_soon = self.is_doubted || self.is_to_look(latency, P::SPEED_MIN, P::MARGIN);
        if looked > LOOK_AGAIN || looked > LOOK_SOON && is_soon {
            paced.pause().await?;
            let alone = look(env, paced).await;
            if self.alone.is_none() && matches!(alone, Ok(Some(_))) {
                self.speed = self.speed.min(P::SPEED_AT_WORK);
                paced.set_speed(self.speed).await?;
            }
            paced.resume().await?;
            (self.alone, self.is_doubted) = believed(self.alone, alone?);
            self.measured = env.monotonic();
            self.before = (self.measured, paced.counted().await?);
            return Ok(self.rate(None));
        }
        self.before = now;
        self.speed = next(self.speed, kept(self.alone, latency), self.floor / P::MARGIN).max(P::SPEED_MIN);
        paced.set_speed(self.speed).await?;
        Ok(self.rate(kept(self.alone, latency)))
    }

    /// Whether the guest does something that could be held up.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// Whether a look without the copy would tell something new.
    fn is_to_look(&self, latency: Option<f64>, speed_min: u64, margin: f64) -> bool {
        let is_held_up = kept(self.alone, latency).is_some_and(|kept| kept * margin < self.floor);
        self.alone.is_none() && latency.is_some() || is_held_up && self.speed == speed_min
    }

    fn rate(&self, kept: Option<f64>) -> CopyRate {
        let guest_percent = kept.map(|kept| (kept * 100.0).min(100.0) as u64);
        CopyRate { speed_bytes: self.speed, guest_percent }
    }
}

async fn look<P: Paced>(env: &Env, paced: &P) -> Result<Option<f64>> {
    let (began, before) = (env.monotonic(), paced.counted().await?);
    env.sleep(P::LOOK_AT_IDLE).await;
    if paced.counted().await?.operations == before.operations {
        return Ok(None);
    }
    env.sleep(P::LOOK.saturating_sub(P::LOOK_AT_IDLE)).await;
    let after = paced.counted().await?;
    Ok(latency(&before, &after, env.monotonic().saturating_sub(began)))
}

/// What is taken for the mean time of a request without the copy, after another look; and whether that is to be confirmed.
fn believed(before: Option<f64>, looked: Option<f64>) -> (Option<f64>, bool) {
    match (before, looked) {
        (Some(before), Some(now)) => (Some(now.min(before * RISE_BELIEVED)), now > before * RISE),
        (before, looked) => (looked.or(before), false),
    }
}

/// The mean time of a request, in nanoseconds; nothing where there were too few.
fn latency(before: &Counted, after: &Counted, since: Duration) -> Option<f64> {
    let operations = after.operations.saturating_sub(before.operations) as f64;
    let nanos = after.nanos.saturating_sub(before.nanos) as f64;
    (operations >= OPERATIONS_MIN * since.as_secs_f64()).then(|| nanos / operations)
}

/// The share of its speed that a guest keeps which waits for its disks.
fn kept(alone: Option<f64>, now: Option<f64>) -> Option<f64> {
    match (alone, now) {
        (Some(alone), Some(now)) if now > 0.0 => Some(alone / now),
        _ => None,
    }
}

/// The speed that comes next; `aim` is the share of its speed that the guest is to have.
fn next(speed: u64, kept: Option<f64>, aim: f64) -> u64 {
    let faster = |speed: u64| speed + speed / 8 + STEP;
    let next = match kept {
        Some(kept) if kept < aim => speed.min(SPEED_FELT) / 3 * 2,
        Some(_) => faster(speed),
        None => faster(speed) * 2,
    };
    next.min(SPEED_MAX)
}

#[cfg(test)]
mod tests;
