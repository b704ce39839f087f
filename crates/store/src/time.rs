//! The time that locks are judged by.
//!
//! *Promises*: trusted time runs as fast as time does, and no faster: while the store is open it follows the monotonic clock
//! and not the wall's; over a restart it takes the wall's word only for a bounded step ([`Options::time_step_max`](crate::Options)), and for
//! no more than that in all until as much time was lived through or an operator has confirmed. Beyond that it is *in doubt* and stands where
//! it was recorded, running on from there. So a clock that was set forward, while the store runs or between two starts, opens no
//! lock. A clock that is behind changes nothing.
//!
//! The record is part of the pool's ([`stonefold_format::pool`]), which every opening swaps anyway; while the store runs it is
//! swapped each hour, at the end, and when an operator confirms.

use crate::planted;
use crate::store::Store;
use std::sync::{Arc, Weak};
use std::time::Duration;
use stonefold_engine::{Engine, Key, Version};
use stonefold_env::{Env, WallNanos};
use stonefold_format::pool::{Pool, TrustedTime};
use stonefold_types::{Error, Kind, Result};

/// Trusted time is recorded so often: what a crash takes of it is lived through again.
const RECORD_INTERVAL: Duration = Duration::from_secs(3600);
/// A wall clock that is further ahead than this is doubted: more than clocks drift and are set right by.
const AHEAD_MAX: u64 = 3600 * 1_000_000_000;

/// Trusted time, and how the wall clock stands to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeStatus {
    /// What locks are judged by, nanoseconds since 1970.
    pub trusted: WallNanos,
    /// What the machine's clock says, nanoseconds since 1970.
    pub wall: WallNanos,
    /// The machine's clock is ahead by more than can be explained: nothing is unlocked by it until an admin confirms it.
    pub in_doubt: bool,
}

/// See the module.
pub(crate) struct Clock {
    env: Env,
    engine: Arc<dyn Engine>,
    stored: tokio::sync::Mutex<Stored>,
    /// Trusted time at an instant of the monotonic clock.
    base: parking_lot::Mutex<(WallNanos, Duration)>,
}

struct Stored {
    pool: Pool,
    version: Version,
    /// When `pool` was recorded, by the monotonic clock.
    at: Duration,
}

/// What trusted time is at an opening, of a record and the wall clock; both in nanoseconds.
pub(crate) fn at_opening(record: TrustedTime, wall: WallNanos, step_max: Duration) -> TrustedTime {
    let step = wall.saturating_sub(record.trusted);
    let unproven = record.unproven.saturating_add(step);
    let doubted = record.in_doubt && step > AHEAD_MAX;
    if (doubted || u128::from(unproven) > step_max.as_nanos()) && !planted::is("wall-clock-believed") {
        return TrustedTime { in_doubt: true, ..record };
    }
    TrustedTime { trusted: record.trusted.max(wall), unproven, in_doubt: false }
}

impl Clock {
    /// Of a record that this opening has stored.
    pub(crate) fn new(env: Env, engine: Arc<dyn Engine>, pool: Pool, version: Version) -> Self {
        let at = env.monotonic();
        let base = parking_lot::Mutex::new((pool.time.trusted, at));
        Clock { env, engine, stored: tokio::sync::Mutex::new(Stored { pool, version, at }), base }
    }

    /// Trusted time.
    pub(crate) fn now(&self) -> WallNanos {
        if planted::is("locks-by-wall-clock") {
            return self.env.wall();
        }
        let (base, at) = *self.base.lock();
        base.saturating_add((self.env.monotonic() - at).as_nanos() as u64)
    }

    pub(crate) fn status(&self) -> TimeStatus {
        let (trusted, wall) = (self.now(), self.env.wall());
        TimeStatus { trusted, wall, in_doubt: wall > trusted.saturating_add(AHEAD_MAX) }
    }

    /// Records trusted time; what was lived through since the last record proves as much of earlier steps.
    async fn record(&self) -> Result<()> {
        let mut stored = self.stored.lock().await;
        let lived = (self.env.monotonic() - stored.at).as_nanos() as u64;
        let status = self.status();
        let unproven = stored.pool.time.unproven.saturating_sub(lived);
        let time = TrustedTime { trusted: status.trusted, unproven, in_doubt: status.in_doubt };
        self.swap(&mut stored, time).await
    }

    async fn swap(&self, stored: &mut Stored, time: TrustedTime) -> Result<()> {
        let at = self.env.monotonic();
        let pool = Pool { time, ..stored.pool.clone() };
        let (key, bytes) = (Key::new("pool"), pool.encode());
        let mut again = true;
        let version = loop {
            let put = self.engine.put_if(&key, bytes.clone().into(), &stored.version).await;
            let error = match put {
                Ok(version) => break version,
                Err(error) => error,
            };
            // An error does not say whether it happened: what is stored does.
            match self.engine.get(&key).await {
                Ok((found, version)) if found == bytes => break version,
                // What an earlier attempt stored, which failed: another attempt puts it right.
                Ok((found, version)) if Pool::decode(&found).is_ok_and(|f| f.sessions == pool.sessions) => {
                    stored.version = version;
                    if error.kind() != Kind::Conflict || !std::mem::take(&mut again) {
                        return Err(error.context("recording the time"));
                    }
                }
                _ => return Err(error.context("recording the time")),
            }
        };
        *stored = Stored { pool, version, at };
        Ok(())
    }
}

/// Records trusted time every hour while the store is open.
pub(crate) async fn keep(env: Env, store: Weak<Store>) {
    loop {
        env.sleep(RECORD_INTERVAL).await;
        let Some(store) = store.upgrade().filter(|store| store.check_open().is_ok()) else { return };
        if let Err(error) = store.record_time().await {
            tracing::warn!("trusted time was not recorded, and is tried again in an hour: {error}");
        }
    }
}

impl Store {
    /// Trusted time, and whether the machine's clock is doubted.
    pub fn time(&self) -> TimeStatus {
        self.clock.status()
    }

    /// Takes the machine's clock for right: trusted time becomes what it says, also when that is earlier. For an admin who has looked
    /// at it.
    pub async fn confirm_time(&self) -> Result<TimeStatus> {
        self.check_open()?;
        let mut stored = self.clock.stored.lock().await;
        let wall = self.env.wall();
        let time = TrustedTime { trusted: wall, unproven: 0, in_doubt: false };
        self.clock.swap(&mut stored, time).await?;
        *self.clock.base.lock() = (wall, stored.at);
        Ok(self.clock.status())
    }

    /// Records trusted time once more: at the end.
    pub(crate) async fn record_time(&self) -> Result<()> {
        self.clock.record().await
    }

    /// Whether a lock until then, of `what`, holds no more.
    ///
    /// # Errors
    /// `locked` while it does, with what to do about it: where the clock is doubted that is something else than to wait.
    pub fn check_unlocked(&self, what: &str, until: WallNanos) -> Result<()> {
        let time = self.clock.status();
        if until <= time.trusted {
            return Ok(());
        }
        let text = crate::snapshots::text_of(until);
        let remedy = match time.in_doubt && until <= time.wall {
            true => {
                "the machine's clock is past that, but it jumped and is not believed: look at it, then 'stonefold pool confirm-time'"
            }
            false => "a lock cannot be taken off or shortened; wait",
        };
        Err(Error::new(Kind::Locked, format!("{what} is locked until {text}")).remedy(remedy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400_000_000_000;
    const WEEK: Duration = Duration::from_secs(7 * 86_400);

    fn record(trusted: u64, unproven: u64, in_doubt: bool) -> TrustedTime {
        TrustedTime { trusted, unproven, in_doubt }
    }

    /// Goal: an opening believes the wall clock for a week in all, and not at all after a jump that was seen.
    #[test]
    fn a_restart_believes_the_wall_clock_so_far() {
        let at = 20_000 * DAY;
        assert_eq!(at_opening(record(at, 0, false), at + DAY, WEEK), record(at + DAY, DAY, false));
        assert_eq!(at_opening(record(at, 0, false), at + 8 * DAY, WEEK), record(at, 0, true));
        assert_eq!(at_opening(record(at, 6 * DAY, false), at + 2 * DAY, WEEK), record(at, 6 * DAY, true));
        assert_eq!(at_opening(record(at, 0, false), at - DAY, WEEK), record(at, 0, false), "behind");
        assert_eq!(at_opening(record(at, 0, true), at + DAY, WEEK), record(at, 0, true), "seen to jump");
        assert_eq!(at_opening(record(at, 0, true), at + 60, WEEK), record(at + 60, 60, false), "set right");
    }
}
