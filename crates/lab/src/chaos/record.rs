//! What came of one outage, as it is kept in a bundle.

use super::{Outage, Promise, Strike, Struck};
use crate::load::Gap;
use crate::verify::Verification;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// One outage. Times are seconds since its sample began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutageRecord {
    /// Its name.
    pub name: String,
    /// What was done.
    pub kind: Strike,
    /// What the target promises.
    pub promise: Promise,
    /// The command that strikes was begun.
    pub struck: f64,
    /// The command that restores was begun.
    pub restored: f64,
    /// The last answer before the silence; nothing where no silence was longer than 250 ms.
    pub last_answer: Option<f64>,
    /// The first answer after it, of the stream that waited longest.
    pub answered: Option<f64>,
    /// Something was answered after the target was brought back.
    pub came_back: bool,
    /// Seconds that it might have taken.
    pub patience: f64,
    /// How often connections to the target broke, each thread's for itself.
    pub breaks: u64,
    /// What was read of every block afterwards, and during the load; nothing where the target did not come back.
    pub verification: Option<Verification>,
    /// Reads of that look that failed, or were never answered: what lies there is gone, too.
    #[serde(default)]
    pub unread: u64,
}

impl OutageRecord {
    pub(crate) fn new(
        outage: &Outage,
        promise: Promise,
        struck: &Struck,
        gaps: &[Gap],
        breaks: u64,
    ) -> OutageRecord {
        let overlaps = |gap: &&Gap| gap.to > struck.struck && gap.from <= struck.restored;
        let seconds = |time: Duration| time.as_secs_f64();
        OutageRecord {
            name: outage.name.clone(),
            kind: outage.kind,
            promise,
            struck: seconds(struck.struck),
            restored: seconds(struck.restored),
            last_answer: gaps.iter().filter(overlaps).map(|gap| gap.from).min().map(seconds),
            answered: gaps.iter().filter(overlaps).map(|gap| gap.to).max().map(seconds),
            came_back: struck.came_back,
            patience: outage.patience,
            breaks,
            verification: None,
            unread: 0,
        }
    }

    /// Seconds from the command that restores to the first answer; 0 where it was answered all the time.
    pub fn resume_seconds(&self) -> Option<f64> {
        match (self.came_back, self.answered) {
            (false, _) => None,
            (true, None) => Some(0.0),
            (true, Some(answered)) => Some((answered - self.restored).max(0.0)),
        }
    }

    /// Seconds without an answer; 0 where no silence was longer than 250 ms.
    pub fn silent_seconds(&self) -> Option<f64> {
        match (self.came_back, self.last_answer, self.answered) {
            (false, _, _) => None,
            (true, Some(last), Some(answered)) => Some(answered - last),
            _ => Some(0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(gaps: &[(u64, u64)], came_back: bool) -> OutageRecord {
        let outage = Outage {
            name: "kill".into(),
            kind: Strike::Kill,
            strike: "a".into(),
            restore: "b".into(),
            after: None,
            lasts: 2.0,
            patience: 60.0,
        };
        let struck = Struck { struck: Duration::from_secs(10), restored: Duration::from_secs(12), came_back };
        let gap = |(from, to): &(u64, u64)| Gap {
            from: Duration::from_millis(*from),
            to: Duration::from_millis(*to),
        };
        let gaps: Vec<Gap> = gaps.iter().map(gap).collect();
        OutageRecord::new(&outage, Promise::Ack, &struck, &gaps, 1)
    }

    #[test]
    fn the_silence_of_an_outage_is_told_from_others() {
        // One long before, one of each of two threads, one long after.
        let record = record(&[(1_000, 2_000), (10_100, 12_700), (10_050, 12_900), (15_000, 16_000)], true);
        assert_eq!((record.last_answer, record.answered), (Some(10.05), Some(12.9)));
        assert!((record.resume_seconds().unwrap() - 0.9).abs() < 1e-9);
        assert!((record.silent_seconds().unwrap() - 2.85).abs() < 1e-9);
    }

    #[test]
    fn whoever_answers_all_the_time_resumes_at_once_and_who_never_does_not_at_all() {
        assert_eq!(record(&[], true).resume_seconds(), Some(0.0));
        assert_eq!(record(&[], true).silent_seconds(), Some(0.0));
        assert_eq!(record(&[(10_100, 90_000)], false).resume_seconds(), None);
    }
}
