//! The pool's own work beside that of clients: the fold, reclaim, and what changes of directories move, step by step.
//!
//! A step is paid for before the next one begins. What it cost is paid off by three things, whichever are there: by clients
//! being served, in proportion to the shares (when a disk of share 400 has been served 8 MiB, a class of share 50 has earned
//! 1 MiB); by time, at the class's reservation; and at once by there being nobody to disturb. So it takes the engine for itself
//! while clients are quiet, its part when they are not, and goes on however busy they are. Beside others of whom the pool knows nothing, whose disks may lie
//! on the same devices, neither clients nor their absence earn anything: so it goes evenly, at the reservation, and in no bursts.
//!
//! *Promises*: nothing here waits for a client's request to end, so that clients may wait for the fold. *Pressure*: the fold earns
//! the more the fuller the journal is, reclaim the fuller the pool, and from [`PRESSURE_FULL`] on neither is held up at all.

use super::lanes::{VIRTUAL, cost};
use super::limit::Limit;
use std::time::Duration;
use stonefold_types::QosFigures;

/// Work with a class of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Background {
    Fold,
    Reclaim,
    /// Bringing objects to other directories: of the same class as reclaim, with a debt of its own.
    Moving,
}

impl Background {
    /// The class.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Background::Fold => "fold",
            Background::Reclaim | Background::Moving => "reclaim",
        }
    }
}

/// How often whoever has to wait looks again: as fine as timers are.
pub(crate) const TICK: Duration = Duration::from_millis(1);
/// Clients are quiet when nothing of theirs is under way and nothing came for this long: a guest with one request at a time takes
/// less than that to send the next.
const QUIET: Duration = Duration::from_millis(5);
/// The part of the journal's room, in thousandths, from which on the fold goes unhindered: a quarter is left for the writes that
/// come while it makes room. Reclaim's pressure is told in the same measure.
pub(crate) const PRESSURE_FULL: u64 = 750;

/// What there is to know when a step wants to begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) now: Duration,
    /// See [`super::lanes::Lanes::progress`].
    pub(crate) progress: u64,
    /// Nothing of clients is under way.
    pub(crate) idle: bool,
    /// There are others than clients to be disturbed.
    pub(crate) beside: bool,
    /// How urgent it is, in thousandths of [`PRESSURE_FULL`] and beyond; 0 where nothing presses.
    pub(crate) pressure: u64,
}

/// What a class has done and not paid for.
#[derive(Default)]
pub(crate) struct Pace {
    figures: QosFigures,
    limit: Limit,
    owed: u64,
    looked_at: Duration,
    progress: u64,
    moved_at: Duration,
    pub(crate) waited: Duration,
}

impl Pace {
    pub(crate) fn set(&mut self, figures: QosFigures, now: Duration) {
        self.limit.set(&figures, now);
        self.figures = figures;
    }

    /// Whether a step may begin now.
    pub(crate) fn may_begin(&mut self, look: Look) -> bool {
        let Look { now, progress, idle, beside, pressure } = look;
        let served = progress - self.progress;
        let elapsed = now.saturating_sub(self.looked_at);
        if served > 0 {
            self.moved_at = now;
        }
        (self.progress, self.looked_at) = (progress, now);
        let quiet = idle && !beside && now.saturating_sub(self.moved_at) >= QUIET;
        if quiet || pressure >= PRESSURE_FULL {
            self.owed = 0;
        }
        // At half of what is full twice as much, at two thirds three times. What is earned beyond a debt is not kept.
        let urgent = |earned: u128| {
            earned * u128::from(PRESSURE_FULL) / u128::from(PRESSURE_FULL - pressure.min(PRESSURE_FULL - 1))
        };
        let served = if beside { 0 } else { served };
        let by_share = u128::from(served) * u128::from(self.figures.share) / u128::from(VIRTUAL);
        let by_time = u128::from(self.figures.min_bytes) * elapsed.as_nanos() / 1_000_000_000;
        let earned = urgent(by_share + by_time).min(u128::from(u64::MAX)) as u64;
        self.owed = self.owed.saturating_sub(earned);
        self.owed == 0 && self.limit.is_open(now)
    }

    /// Counts what a step costs.
    pub(crate) fn owe(&mut self, now: Duration, bytes: u64) {
        self.owed += cost(bytes);
        self.limit.count(now, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn pace(share: u32, min_bytes: u64) -> Pace {
        let mut pace = Pace::default();
        let figures = QosFigures { share, min_bytes, ..QosFigures::default() };
        pace.set(figures, Duration::ZERO);
        pace
    }

    /// Steps of 1 MiB in ten seconds, while a disk of share 400 is served `per_ms` bytes in each millisecond.
    fn steps(pace: &mut Pace, per_ms: u64, pressure: u64) -> u64 {
        steps_beside(pace, per_ms, pressure, false)
    }

    fn steps_beside(pace: &mut Pace, per_ms: u64, pressure: u64, beside: bool) -> u64 {
        let mut progress = 0;
        let mut steps = 0;
        for ms in 1..=10_000 {
            progress += per_ms * VIRTUAL / 400;
            let now = Duration::from_millis(ms);
            let look = Look { now, progress, idle: per_ms == 0, beside, pressure };
            // More in a millisecond than this the machine would not do either.
            for _ in 0..4 {
                if pace.may_begin(look) {
                    pace.owe(now, MIB);
                    steps += 1;
                }
            }
        }
        steps
    }

    #[test]
    fn it_gets_its_part_beside_clients_and_everything_without_them() {
        // 200 MB/s of clients; an eighth of that is 25 MB/s.
        let beside = steps(&mut pace(50, 0), 200_000, 0);
        assert!((225..=240).contains(&beside), "{beside} MiB");
        let alone = steps(&mut pace(50, 0), 0, 0);
        assert!(alone >= 39_900, "{alone} MiB of 40,000 with nobody to disturb");
    }

    #[test]
    fn it_goes_on_however_little_it_is_given() {
        // A request of a client now and then, never quiet for long enough, and next to no share.
        let steps = steps(&mut pace(1, 8 * MIB), 400, 0);
        assert!((76..=82).contains(&steps), "{steps} MiB");
    }

    #[test]
    fn beside_others_it_goes_evenly_and_faster_where_it_has_to() {
        let beside = |per_ms, pressure| steps_beside(&mut pace(400, 32 * MIB), per_ms, pressure, true);
        for per_ms in [0, 20_000] {
            let (low, half, full) = (beside(per_ms, 0), beside(per_ms, 500), beside(per_ms, PRESSURE_FULL));
            assert!((300..=325).contains(&low) && (890..=970).contains(&half), "{low}, {half} MiB");
            assert_eq!(full, 40_000);
        }
    }

    #[test]
    fn a_full_journal_lets_the_fold_go() {
        let by_pressure = |pressure| steps(&mut pace(1, 32 * MIB), 400, pressure);
        let (low, half, high) = (by_pressure(0), by_pressure(500), by_pressure(PRESSURE_FULL));
        assert!((300..=325).contains(&low) && (890..=970).contains(&half), "{low}, {half} MiB");
        assert_eq!(high, 40_000);
    }

    #[test]
    fn a_limit_holds_even_when_nobody_is_disturbed() {
        let mut pace = pace(50, 0);
        let figures = QosFigures { max_bytes: Some(10 * MIB), ..QosFigures::default() };
        pace.set(figures, Duration::ZERO);
        let steps = steps(&mut pace, 0, 0);
        assert!((99..=103).contains(&steps), "{steps} MiB");
    }
}
