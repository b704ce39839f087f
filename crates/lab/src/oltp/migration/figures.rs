//! The figures of a migration: how fast it was, and how much of the rate before it was kept.
//!
//! The rate is told of windows of ten seconds, cut from the beginning of each cycle, warm-ups among them: users are as busy
//! then, only that it is not counted elsewhere. The *baseline* is the rate of the samples before the move.

use super::record::MigrationRecord;
use crate::bundle::Bundle;
use crate::measure::Point;
use crate::oltp::record::tpm;
use crate::record::Second;
use crate::stats::mean;
use serde::Serialize;
use utoipa::ToSchema;

/// Seconds of a window.
const WINDOW: usize = 10;
/// A rate is low under this share of the baseline.
const LOW: f64 = 0.5;

/// See the module. Rates are transactions of all kinds, a minute.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = MigrationFigures)]
pub struct Figures {
    /// Where to.
    pub to: String,
    /// Version of QEMU's storage daemon, which moved it.
    pub front: String,
    /// When it began, in seconds since the first cycle began.
    pub began: Option<f64>,
    /// When both homes were alike.
    pub alike: Option<f64>,
    /// When the load was on its new home alone.
    pub moved: Option<f64>,
    /// Seconds that it took; nothing where it did not end.
    pub seconds: Option<f64>,
    /// Bytes that were copied.
    pub bytes: u64,
    /// Of those, in a second.
    pub bytes_per_second: Option<f64>,
    /// Before it.
    pub baseline: f64,
    /// While it went on.
    pub during: Option<f64>,
    /// Of its worst window.
    pub least: Option<f64>,
    /// Seconds of windows under half of the baseline.
    pub low_seconds: u64,
    /// After it.
    pub after: Option<f64>,
    /// What ended it before its time.
    pub failure: Option<String>,
    /// Of all cycles, in order.
    pub windows: Vec<Window>,
}

/// Ten seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = MigrationWindow)]
pub struct Window {
    /// When it began, in seconds since the first cycle began.
    pub second: f64,
    /// Transactions a minute.
    pub rate: f64,
}

/// Those of a bundle; nothing where nothing was moved.
pub fn figures(bundle: &Bundle) -> Option<Figures> {
    bundle.run.migration.as_ref().map(|record| Figures::new(record, &bundle.points))
}

impl Figures {
    /// Of a run's record and its points, of which each is a cycle.
    pub fn new(record: &MigrationRecord, points: &[Point]) -> Self {
        let began = record.began.unwrap_or(f64::INFINITY);
        let ended = record.moved.unwrap_or(f64::INFINITY);
        let of = |rates: Vec<f64>| (!rates.is_empty()).then(|| mean(&rates));
        let cycles = || points.iter().zip(&record.cycles);
        let is_before = |(point, from): &(&Point, &f64)| **from + record.warm_up + point.seconds <= began;
        let baseline = of(cycles().filter(is_before).map(|(point, _)| tpm(point)).collect());
        let after = of(cycles().filter(|(_, from)| **from >= ended).map(|(point, _)| tpm(point)).collect());
        let baseline = baseline.unwrap_or(0.0);
        let windows: Vec<Window> = cycles().flat_map(|(point, from)| windows(record, point, *from)).collect();
        let within = windows.iter().filter(|window| window.is_within(record));
        let during: Vec<f64> = within.map(|window| window.rate).collect();
        let low = during.iter().filter(|rate| **rate < LOW * baseline).count();
        let seconds = record.began.zip(record.moved).map(|(began, moved)| moved - began);
        Figures {
            to: record.to.clone(),
            front: record.front.clone(),
            began: record.began,
            alike: record.alike,
            moved: record.moved,
            seconds,
            bytes: record.copied,
            bytes_per_second: seconds.map(|seconds| record.copied as f64 / seconds.max(1e-9)),
            baseline,
            least: during.iter().copied().min_by(f64::total_cmp),
            low_seconds: (low * WINDOW) as u64,
            during: of(during),
            after,
            failure: record.failure.clone(),
            windows,
        }
    }

    /// A rate as a share of the baseline.
    pub fn share(&self, rate: f64) -> f64 {
        rate / self.baseline.max(1e-9)
    }
}

impl Window {
    fn is_within(self, record: &MigrationRecord) -> bool {
        let ends = self.second + WINDOW as f64;
        record.began.is_some_and(|began| self.second >= began)
            && record.moved.is_none_or(|moved| ends <= moved)
    }
}

/// Those of a cycle that began at `from`.
fn windows(record: &MigrationRecord, point: &Point, from: f64) -> Vec<Window> {
    let warm_up = record.warm_up as usize;
    let mut seconds: Vec<u64> = point.before.iter().map(Second::ios).take(warm_up).collect();
    // Of its last seconds nothing is kept in which nothing ended.
    seconds.resize(warm_up, 0);
    seconds.extend(point.series.iter().map(Second::ios));
    let rate = |window: &[u64]| window.iter().sum::<u64>() as f64 * 60.0 / WINDOW as f64;
    let windows = seconds.chunks_exact(WINDOW).enumerate();
    windows
        .map(|(number, window)| Window { second: from + (number * WINDOW) as f64, rate: rate(window) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oltp::audit::tests::point;

    /// A cycle of 10 s and 30 s with so many transactions in each second.
    fn cycle(rates: &[u64; 4]) -> Point {
        let second = |rate: u64| Second { writes: rate, ..Second::new() };
        let all: Vec<Second> = rates.iter().flat_map(|rate| (0..10).map(move |_| second(*rate))).collect();
        let mut cycle = point();
        (cycle.before, cycle.series) = (all[..10].to_vec(), all[10..].to_vec());
        let sum: u64 = rates[1..].iter().sum::<u64>() * 10;
        cycle.seconds = 30.0;
        cycle.streams.iter_mut().for_each(|stream| (stream.read.ios, stream.write.ios) = (0, 0));
        cycle.streams[0].write.ios = sum;
        cycle
    }

    #[test]
    fn what_was_kept_is_told_of_the_time_of_the_move_alone() {
        let record = MigrationRecord {
            cycles: vec![0.0, 40.0, 80.0, 120.0],
            warm_up: 10.0,
            began: Some(40.0),
            moved: Some(100.0),
            copied: 600,
            ..MigrationRecord::default()
        };
        let cycles = [
            cycle(&[10, 100, 100, 100]),
            cycle(&[80, 60, 40, 60]),
            cycle(&[50, 30, 1, 1]),
            cycle(&[1, 90, 90, 90]),
        ];
        let figures = Figures::new(&record, &cycles);
        assert_eq!((figures.baseline, figures.after), (6000.0, Some(5400.0)));
        // 80, 60, 40, 60, and of the third cycle 50 and 30: its later windows end after the move.
        assert_eq!(figures.least, Some(1800.0));
        assert!((figures.during.unwrap() - 6400.0 / 2.0).abs() < 1e-9, "{figures:?}");
        assert_eq!((figures.low_seconds, figures.share(1800.0)), (20, 0.3));
        assert_eq!((figures.seconds, figures.bytes_per_second), (Some(60.0), Some(10.0)));
        assert_eq!(figures.windows.len(), 16);
    }

    #[test]
    fn a_move_that_did_not_end_has_no_duration() {
        let record = MigrationRecord {
            cycles: vec![0.0, 40.0],
            warm_up: 10.0,
            began: Some(40.0),
            failure: Some("no room".into()),
            ..MigrationRecord::default()
        };
        let figures = Figures::new(&record, &[cycle(&[10, 100, 100, 100]), cycle(&[80, 60, 40, 60])]);
        assert_eq!((figures.seconds, figures.after, figures.least), (None, None, Some(2400.0)));
    }
}
