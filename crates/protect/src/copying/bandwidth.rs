//! How much all that copies may move in a second, together: runs that read sources, and points on their way to other pools.
//!
//! *Promise*: over any time from the first piece on no more begins than that time allows and one piece for each that is under way; nothing is saved
//! up while nothing is copied. Who comes first is served first.

use parking_lot::Mutex;
use std::num::NonZeroU64;
use std::time::Duration;
use stonefold_env::Env;

/// A budget of bytes a second.
#[derive(Debug)]
pub(crate) struct Bandwidth {
    bytes_per_second: NonZeroU64,
    /// When the next piece may begin, on the machine's monotonic clock.
    next: Mutex<Duration>,
}

impl Bandwidth {
    pub(crate) fn new(bytes_per_second: NonZeroU64) -> Bandwidth {
        Bandwidth { bytes_per_second, next: Mutex::default() }
    }

    /// Until so many bytes may be moved.
    pub(crate) async fn take(&self, env: &Env, bytes: u64) {
        let wait = self.reserve(env.monotonic(), bytes);
        if !wait.is_zero() {
            env.sleep(wait).await;
        }
    }

    fn reserve(&self, now: Duration, bytes: u64) -> Duration {
        let mut next = self.next.lock();
        let begins = (*next).max(now);
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second.get());
        *next = begins + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        begins - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_is_what_the_time_allows() {
        let budget = Bandwidth::new(NonZeroU64::new(1 << 20).unwrap());
        let at = Duration::from_millis;
        assert_eq!(budget.reserve(at(5_000), 1 << 20), at(0), "the first waits for nothing");
        assert_eq!(budget.reserve(at(5_000), 512 << 10), at(1_000));
        assert_eq!(budget.reserve(at(5_100), 1), at(1_400), "they are served in turn");
        assert_eq!(budget.reserve(at(60_000), 1 << 20), at(0), "nothing is saved up");
        assert_eq!(budget.reserve(at(60_000), 1), at(1_000));
    }
}
