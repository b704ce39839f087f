//! How long a move will yet take, by how fast it was lately: its guest's work and the data's holes let that change.

use std::collections::VecDeque;
use std::time::Duration;

/// What is looked back at.
const LATELY: Duration = Duration::from_secs(30);
/// Of less than this nothing is said.
const LEAST: Duration = Duration::from_secs(5);

/// What was done by when, oldest first.
#[derive(Default)]
pub(super) struct Left(VecDeque<(Duration, u64)>);

impl Left {
    /// Seconds; nothing while that is not known, or nothing is done.
    pub(super) fn seconds(&mut self, now: Duration, (done, total): (u64, u64)) -> Option<u64> {
        self.0.push_back((now, done));
        while self.0.get(1).is_some_and(|(at, _)| now.saturating_sub(*at) >= LATELY) {
            self.0.pop_front();
        }
        let (since, before) = self.0.front()?;
        let (took, moved) = (now.saturating_sub(*since), done.saturating_sub(*before));
        let known = took >= LEAST && moved > 0;
        known.then(|| (total.saturating_sub(done) as f64 * took.as_secs_f64() / moved as f64).ceil() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_by_how_fast_it_was_lately() {
        let (mut left, at) = (Left::default(), Duration::from_secs);
        assert_eq!(left.seconds(at(0), (0, 1000)), None);
        assert_eq!(left.seconds(at(4), (40, 1000)), None, "after a moment nothing is known");
        assert_eq!(left.seconds(at(10), (100, 1000)), Some(90));
        // Twice as fast, which counts alone after a while.
        for second in 11..=60 {
            left.seconds(at(second), (100 + (second - 10) * 15, 1000));
        }
        assert_eq!(left.seconds(at(61), (100 + 51 * 15, 1000)), Some(9));
        for second in 62..=100 {
            left.seconds(at(second), (865, 1000));
        }
        assert_eq!(left.seconds(at(101), (865, 1000)), None, "it stands still");
    }
}
