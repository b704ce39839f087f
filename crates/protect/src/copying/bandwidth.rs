//! How much may be moved in a second: by all that copies together, runs that read sources and points on their way to other pools; or by one run beside its
//! guest.
//!
//! *Promise*: over any time from the first piece on no more begins than that time and [`SLACK`] allow, and one piece; nothing else is saved
//! up while nothing is copied. Who comes first is served first.

use std::num::NonZeroU64;
use std::time::Duration;
use stonefold_env::Env;
use tokio::sync::{Mutex, watch};

/// How late whoever waits may wake, and have the next make up for it: timers tell milliseconds, in which many small pieces have their turns.
const SLACK: Duration = Duration::from_millis(5);

/// A budget of bytes a second.
#[derive(Debug)]
pub(crate) struct Bandwidth {
    /// When the next piece may begin, on the machine's monotonic clock; whoever waits for that has it.
    next: Mutex<Duration>,
    speed: watch::Sender<Speed>,
}

/// What is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Speed {
    bytes_per_second: NonZeroU64,
    /// Nothing begins.
    stands_still: bool,
}

impl Bandwidth {
    pub(crate) fn new(bytes_per_second: NonZeroU64) -> Bandwidth {
        let speed = Speed { bytes_per_second, stands_still: false };
        Bandwidth { next: Mutex::default(), speed: watch::Sender::new(speed) }
    }

    /// What begins from now on goes by this; who is next waits for the moment that was reckoned before.
    pub(crate) fn set(&self, bytes_per_second: NonZeroU64) {
        self.speed.send_modify(|speed| speed.bytes_per_second = bytes_per_second);
    }

    /// Has nothing begin, or again as much as was said.
    pub(crate) fn stand_still(&self, stands_still: bool) {
        self.speed.send_modify(|speed| speed.stands_still = stands_still);
    }

    /// Until so many bytes may be moved.
    pub(crate) async fn take(&self, env: &Env, bytes: u64) {
        let mut next = self.next.lock().await;
        let mut speed = self.speed.subscribe();
        loop {
            let (allowed, now) = (*speed.borrow_and_update(), env.monotonic());
            let wait = next.saturating_sub(now);
            if wait.is_zero() && !allowed.stands_still {
                *next = (*next).max(now.saturating_sub(SLACK)) + allowed.takes(bytes);
                return;
            }
            let waits = async {
                if allowed.stands_still {
                    std::future::pending::<()>().await;
                }
                env.sleep(wait).await;
            };
            tokio::select! {
                () = waits => {}
                // The sender is this one's own.
                _ = speed.changed() => {}
            }
        }
    }
}

impl Speed {
    fn takes(self, bytes: u64) -> Duration {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second.get());
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests;
