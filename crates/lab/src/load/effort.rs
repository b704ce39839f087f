//! What the threads of a load use of the processors, and what of it is work.
//!
//! A thread sleeps until something is answered or due. But nobody is woken to the microsecond: where the next I/O of an open loop is nearer than
//! that its thread stays awake, and looks at the clock until the moment is there. That takes a whole processor where many I/Os are due and few are
//! answered, and says nothing of how much more the thread could do; so it is told apart.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::ToSchema;

/// Processor seconds of the threads of a load in one phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Effort {
    /// Of all of them, for what they did: issuing, taking answers, looking at what was read, and what the kernel did for that.
    pub work: f64,
    /// The same of the one that worked most.
    pub most: f64,
    /// Of all of them, for waiting awake until a moment that was near.
    pub awake: f64,
}

impl Effort {
    /// Of one thread that used so much, and was awake for nothing for so long.
    pub(super) fn of_thread(used: Duration, awake: Duration) -> Self {
        // Awake is by the clock: a thread from which the processor was taken meanwhile has used less.
        let awake = awake.min(used);
        let work = (used - awake).as_secs_f64();
        Effort { work, most: work, awake: awake.as_secs_f64() }
    }

    /// Adds what others used in the same phase.
    pub(crate) fn add(&mut self, other: &Effort) {
        self.work += other.work;
        self.most = self.most.max(other.most);
        self.awake += other.awake;
    }
}

/// How long a thread waited awake. Moments are nanoseconds of one clock.
#[derive(Default)]
pub(super) struct Awake {
    since: Option<u64>,
    nanos: u64,
}

impl Awake {
    /// A turn begins; what the last was for nothing is over.
    pub(super) fn turn(&mut self, now: u64) {
        self.nanos += self.since.take().map_or(0, |since| now.saturating_sub(since));
    }

    /// The turn that began then did nothing, and the next follows at once.
    pub(super) fn idle(&mut self, since: u64) {
        self.since = Some(since);
    }

    pub(super) fn total(&self) -> Duration {
        Duration::from_nanos(self.nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_awake_is_no_work() {
        let mut awake = Awake::default();
        awake.turn(100);
        awake.idle(100);
        awake.turn(150);
        awake.turn(900);
        awake.idle(900);
        awake.turn(1000);
        assert_eq!(awake.total(), Duration::from_nanos(150));
        let one = Effort::of_thread(Duration::from_secs(4), Duration::from_secs(3));
        assert_eq!(one, Effort { work: 1.0, most: 1.0, awake: 3.0 });
        // The processor was somebody else's for a while.
        let mut all = Effort::of_thread(Duration::from_secs(2), Duration::from_secs(3));
        assert_eq!(all, Effort { work: 0.0, most: 0.0, awake: 2.0 });
        all.add(&one);
        assert_eq!(all, Effort { work: 1.0, most: 1.0, awake: 5.0 });
    }
}
