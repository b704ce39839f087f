//! How fast a machine's disks are copied: as fast as its guest is not held up by it.
//!
//! The guest's own latency is the measure: the mean time of its requests, as QEMU counts them at its devices. Without the copy it is measured before the
//! first byte and again every minute, while the copy stands still for [`LOOK`]; a guest that waits for its disks keeps `floor` of its speed while its
//! requests take no longer than 1/`floor` of that. Above it the copy gives way by a third, below it it gets an eighth more, and some MiB.
//! A guest that does next to nothing is not held up by anything.

use super::MigrationRate;
use super::jobs::{Counted, Jobs};
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::Result;

/// How long the guest is looked at without the copy.
const LOOK: Duration = Duration::from_secs(3);
/// How often.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// Requests in a second below which a guest says nothing of its speed.
const OPERATIONS_MIN: f64 = 5.0;
const SPEED_MIN: u64 = 1 << 20;
/// What a copy begins with.
pub(super) const SPEED_BEGINNING: u64 = 64 << 20;
/// QEMU's mirror is slower than this on any disk; without a bound it would have to be caught from there.
const SPEED_MAX: u64 = 4 << 30;
const STEP: u64 = 4 << 20;
/// How far below its bound a guest's latency is to be kept: it swings.
const MARGIN: f64 = 0.9;

/// See the module.
pub(super) struct Pace {
    floor: f64,
    /// The mean time of a request without the copy, in nanoseconds; nothing while the guest did too little.
    alone: Option<f64>,
    measured: Duration,
    before: (Duration, Counted),
    speed: u64,
}

impl Pace {
    /// Looks at the guest before the first byte.
    pub(super) async fn begin(env: &Env, jobs: &Jobs, floor_percent: u8) -> Result<Pace> {
        // What an earlier server had begun goes on.
        jobs.pause().await?;
        let alone = look(env, jobs).await;
        jobs.resume().await?;
        let alone = alone?;
        let now = env.monotonic();
        let before = (now, jobs.counted().await?);
        Ok(Pace {
            floor: f64::from(floor_percent) / 100.0,
            alone,
            measured: now,
            before,
            speed: SPEED_BEGINNING,
        })
    }

    /// Sets the speed by what the guest did since the last time.
    pub(super) async fn set(&mut self, env: &Env, jobs: &Jobs) -> Result<MigrationRate> {
        if env.monotonic().saturating_sub(self.measured) > LOOK_AGAIN {
            jobs.pause().await?;
            let alone = look(env, jobs).await;
            jobs.resume().await?;
            self.alone = alone?.or(self.alone);
            self.measured = env.monotonic();
            self.before = (self.measured, jobs.counted().await?);
            return Ok(self.rate(None));
        }
        let now = (env.monotonic(), jobs.counted().await?);
        let since = now.0.saturating_sub(self.before.0);
        let latency = latency(&self.before.1, &now.1, since);
        self.before = now;
        self.speed = next(self.speed, kept(self.alone, latency), self.floor);
        jobs.set_speed(self.speed).await?;
        Ok(self.rate(kept(self.alone, latency)))
    }

    fn rate(&self, kept: Option<f64>) -> MigrationRate {
        MigrationRate {
            speed_bytes: self.speed,
            guest_percent: kept.map(|kept| (kept * 100.0).min(100.0) as u64),
        }
    }
}

async fn look(env: &Env, jobs: &Jobs) -> Result<Option<f64>> {
    let (began, before) = (env.monotonic(), jobs.counted().await?);
    env.sleep(LOOK).await;
    let after = jobs.counted().await?;
    Ok(latency(&before, &after, env.monotonic().saturating_sub(began)))
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

fn next(speed: u64, kept: Option<f64>, floor: f64) -> u64 {
    let faster = |speed: u64| speed + speed / 8 + STEP;
    let next = match kept {
        Some(kept) if kept * MARGIN < floor => speed / 3 * 2,
        Some(_) => faster(speed),
        None => faster(speed) * 2,
    };
    next.clamp(SPEED_MIN, SPEED_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_gives_way_until_the_guest_keeps_its_share() {
        // A guest whose requests take longer by what the copy takes: at 100 MiB/s twice as long.
        let kept_at = |speed: u64| 1.0 / (1.0 + speed as f64 / f64::from(100 << 20));
        let mut speed = SPEED_BEGINNING;
        let mut worst: f64 = 1.0;
        for round in 0..200 {
            speed = next(speed, Some(kept_at(speed)), 0.75);
            if round > 20 {
                worst = worst.min(kept_at(speed));
            }
        }
        assert!(worst > 0.74, "it keeps {worst}");
        assert!(speed > 8 << 20, "the copy gets nowhere: {speed}");
    }

    #[test]
    fn a_guest_that_sleeps_is_no_reason_to_be_slow() {
        let mut speed = SPEED_MIN;
        for _ in 0..20 {
            speed = next(speed, None, 0.75);
        }
        assert_eq!(speed, SPEED_MAX);
        assert_eq!(next(SPEED_MIN, Some(0.1), 0.75), SPEED_MIN);
    }

    #[test]
    fn too_few_requests_say_nothing() {
        let counted = |operations, nanos| Counted { operations, nanos };
        let second = Duration::from_secs(1);
        assert_eq!(latency(&counted(0, 0), &counted(4, 400), second), None);
        assert_eq!(latency(&counted(0, 0), &counted(10, 400), second), Some(40.0));
        assert_eq!(kept(None, Some(1.0)), None);
    }
}
