//! Whether a copy gains on its guest: what the guest writes meanwhile is copied after it, so that one that is too slow for that never ends.

use std::time::Duration;

/// Where so little is left, in bytes, a guest that stands still has it copied in a moment: it is a second's worth of a slow disk.
const NEARLY_ALL: u64 = 64 << 20;
/// Where no less was left than before for so long, the guest waits for the copy; and where that is nearly nothing.
const PATIENCE: Duration = Duration::from_secs(60);
const PATIENCE_AT_THE_END: Duration = Duration::from_secs(5);
/// And where that did not help, for every write of its own.
const PATIENCE_AT_SPEED: Duration = Duration::from_secs(180);

/// What a copy is to be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// What leaves the guest its speed.
    Pace,
    /// All the speed there is.
    Hurry,
    /// The rest, while the guest stands still: beside it there would always be something left.
    Close,
    /// That the guest's writes go to both ends at once, from now on: then less is left with every moment, however much it writes.
    Bind,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Gain {
    /// The least that was ever left, and since when.
    least: Option<(u64, Duration)>,
    is_bound: bool,
}

impl Gain {
    /// What is to be done at `now`, with so many bytes left.
    pub(super) fn look(&mut self, now: Duration, left: u64) -> Step {
        let (least, since) = *self.least.get_or_insert((left, now));
        if left < least {
            self.least = Some((left, now));
            return Step::Pace;
        }
        let waited = now.saturating_sub(since);
        if left <= NEARLY_ALL && waited >= PATIENCE_AT_THE_END {
            // Should it not come to its end, then not at once again.
            self.least = None;
            return Step::Close;
        }
        match self.is_bound {
            false if waited >= PATIENCE_AT_SPEED => {
                self.is_bound = true;
                // Maybe from the beginning again.
                self.least = None;
                Step::Bind
            }
            false if waited >= PATIENCE => Step::Hurry,
            _ => Step::Pace,
        }
    }

    /// It stood still: that nothing was gained meanwhile says nothing.
    pub(super) fn stood_still(&mut self) {
        self.least = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Goal: a guest keeps its speed while less and less is left, to the end.
    #[test]
    fn one_that_gains_is_paced() {
        let mut gain = Gain::default();
        assert!((0..1000).all(|second| gain.look(at(second), (1000 - second) * (16 << 20)) == Step::Pace));
    }

    /// Goal: a guest stands still for what cannot come to its end beside it, and nearly has; not at once again where that did not help.
    #[test]
    fn the_last_moment_is_a_standstill() {
        let mut gain = Gain::default();
        let swinging: Vec<Step> =
            (0..20).map(|second| gain.look(at(second), NEARLY_ALL - second % 2)).collect();
        let closes = |step: &Step| *step == Step::Close;
        assert_eq!(swinging.iter().filter(|step| closes(step)).count(), 3, "{swinging:?}");
        assert!(swinging[..6].iter().all(|step| *step == Step::Pace) && closes(&swinging[6]), "{swinging:?}");
        assert!((20..30).all(|second| gain.look(at(second), NEARLY_ALL + 1 + second) == Step::Pace));
    }

    /// Goal: however much a guest writes, its copy ends: at first by all the speed there is, then by the guest's writes going to both ends.
    #[test]
    fn one_that_does_not_gain_is_hurried_and_then_bound() {
        let mut gain = Gain::default();
        let steps: Vec<Step> = (0..200).map(|second| gain.look(at(second), GIB + second % 7)).collect();
        assert!(steps[..60].iter().all(|step| *step == Step::Pace), "{steps:?}");
        assert!(steps[60..180].iter().all(|step| *step == Step::Hurry), "{steps:?}");
        assert_eq!(steps[180], Step::Bind);
        // From then on it gains, at the pace that leaves the guest its speed, and once is enough.
        assert!(steps[181..].iter().all(|step| *step == Step::Pace));
        assert!((200..2000).all(|second| gain.look(at(second), GIB) == Step::Pace), "it is bound twice");
    }

    /// Goal: a copy that was paused for a while is not hurried for that.
    #[test]
    fn one_that_stood_still_has_its_patience_anew() {
        let mut gain = Gain::default();
        assert_eq!(gain.look(at(0), GIB), Step::Pace);
        gain.stood_still();
        assert_eq!(gain.look(at(3600), GIB), Step::Pace);
        assert_eq!(gain.look(at(3659), GIB), Step::Pace);
        assert_eq!(gain.look(at(3660), GIB), Step::Hurry);
    }
}
