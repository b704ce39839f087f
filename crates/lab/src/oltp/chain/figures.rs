//! The figures of recoveries from a chain: how soon there was work, how soon as much as natively, and how much in the end.
//!
//! Times are seconds since the point was asked for; where it was recovered for several steps, their median. The rate is told of
//! windows of five seconds from the moment when all users began, warm-up and sample together: the moment at which it is *native again*
//! is the end of the first window with nine tenths of the rate that as many users had natively, in their sample.

use super::neighbours::NeighbourRecord;
use super::record::{ChainRecord, Recovery};
use super::{NATIVE, name_of};
use crate::bundle::Bundle;
use crate::measure::Point;
use crate::oltp::ramp::Plateau;
use crate::oltp::record::{nopm, tpm};
use crate::record::Second;
use crate::stats::median;
use serde::Serialize;
use utoipa::ToSchema;

/// Seconds of a window.
const WINDOW: usize = 5;
/// The share of the native rate that counts as native.
const NATIVE_SHARE: f64 = 0.9;

/// See the module. Rates are transactions of all kinds, a minute.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ChainFigures {
    /// Who kept the points.
    pub keeper: String,
    /// How many were kept.
    pub kept: usize,
    /// Seconds that it took to keep one: their median, and the most.
    pub keep_seconds: f64,
    /// See [`ChainFigures::keep_seconds`].
    pub keep_seconds_max: f64,
    /// Transactions between two of them, their mean.
    pub change: f64,
    /// Before any was kept; nothing where that was not measured.
    pub native: Option<Native>,
    /// Each that was recovered.
    pub points: Vec<OfPoint>,
    /// Other machines' loads meanwhile.
    pub neighbours: Vec<NeighbourRecord>,
    /// What went wrong with what was recovered after it had been measured.
    pub complaints: Vec<String>,
}

/// The plateau of the database as it was.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = NativePlateau)]
pub struct Native {
    /// Users at it.
    pub users: u32,
    /// Their rate.
    pub tpm: f64,
    /// Their New-Orders, a minute.
    pub nopm: f64,
}

/// A point that was recovered.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = RecoveredPoint)]
pub struct OfPoint {
    /// Its number.
    pub point: u32,
    /// What it is called.
    pub name: String,
    /// How often it was brought back.
    pub recoveries: usize,
    /// Until its disk was there.
    pub recovered: f64,
    /// Until the file system was mounted.
    pub mounted: f64,
    /// Until PostgreSQL answered.
    pub started: f64,
    /// Until an order was committed.
    pub first: f64,
    /// Until it was as fast as natively, of as many users as at the plateau; nothing where it never was.
    pub native_again: Option<f64>,
    /// Its own plateau; nothing where none was measured.
    pub plateau: Option<Native>,
    /// Of the native plateau's rate.
    pub share: Option<f64>,
    /// Of each second since it was asked for, transactions a minute, in windows of five seconds.
    pub windows: Vec<(f64, f64)>,
}

/// Those of a bundle; nothing where nothing was recovered.
pub fn figures(bundle: &Bundle) -> Option<ChainFigures> {
    bundle.run.chain.as_ref().map(|record| ChainFigures::new(record, &bundle.points))
}

impl ChainFigures {
    /// Of a run's record and its points.
    pub fn new(record: &ChainRecord, points: &[Point]) -> Self {
        let seconds: Vec<f64> = record.points.iter().map(|point| point.seconds).collect();
        let changes = record.points.iter().skip(1);
        let changed: u64 = changes.clone().map(|point| point.transactions).sum();
        let natives = of_step(points, NATIVE);
        let native = plateau(&natives);
        let mut numbers: Vec<u32> = record.recoveries.iter().map(|recovery| recovery.point).collect();
        numbers.dedup();
        ChainFigures {
            keeper: record.keeper.clone(),
            kept: record.points.len(),
            keep_seconds: middle(seconds.clone()),
            keep_seconds_max: seconds.into_iter().fold(0.0, f64::max),
            change: changed as f64 / changes.count().max(1) as f64,
            native,
            points: numbers
                .into_iter()
                .map(|number| OfPoint::new(number, record, points, &natives, native))
                .collect(),
            neighbours: record.neighbours.clone(),
            complaints: record.complaints.clone(),
        }
    }
}

impl OfPoint {
    fn new(
        number: u32,
        record: &ChainRecord,
        points: &[Point],
        natives: &[&Point],
        native: Option<Native>,
    ) -> Self {
        let all: Vec<&Recovery> = record.recoveries.iter().filter(|one| one.point == number).collect();
        let time = |of: fn(&Recovery) -> f64| middle(all.iter().map(|one| of(one)).collect());
        let steps = of_step(points, &name_of(number));
        let plateau = plateau(&steps);
        // With as many users as natively at the plateau, or as came nearest to them.
        let wanted = native.map_or(0, |native| native.users);
        let shown = steps.iter().min_by_key(|step| users(step).abs_diff(wanted)).copied();
        let recovery = shown.and_then(|step| all.iter().find(|one| one.users == users(step)));
        let windows = shown.zip(recovery).map_or_else(Vec::new, |(step, one)| windows(step, one.began));
        let same = shown.and_then(|step| natives.iter().find(|native| users(native) == users(step)));
        let native_again = same.and_then(|same| {
            let enough = NATIVE_SHARE * tpm(same);
            windows.iter().find(|(_, rate)| *rate >= enough).map(|(second, _)| *second)
        });
        OfPoint {
            point: number,
            name: name_of(number),
            recoveries: all.len(),
            recovered: time(|one| one.recovered),
            mounted: time(|one| one.mounted),
            started: time(|one| one.started),
            first: time(|one| one.first),
            native_again,
            plateau,
            share: plateau.zip(native).map(|(plateau, native)| plateau.tpm / native.tpm.max(1e-9)),
            windows,
        }
    }
}

fn of_step<'a>(points: &'a [Point], step: &str) -> Vec<&'a Point> {
    points.iter().filter(|point| point.step == step).collect()
}

fn users(point: &Point) -> u32 {
    point.database.as_ref().map_or(0, |database| database.users)
}

fn plateau(steps: &[&Point]) -> Option<Native> {
    let plateau = steps[Plateau::of(steps.iter().copied())?.step];
    Some(Native { users: users(plateau), tpm: tpm(plateau), nopm: nopm(plateau) })
}

/// The end of each window, in seconds since the point was asked for, and its rate.
fn windows(point: &Point, began: f64) -> Vec<(f64, f64)> {
    let seconds: Vec<u64> = point.before.iter().chain(&point.series).map(Second::ios).collect();
    let rate = |window: &[u64]| window.iter().sum::<u64>() as f64 * 60.0 / WINDOW as f64;
    seconds
        .windows(WINDOW)
        .enumerate()
        .map(|(at, window)| (began + (at + WINDOW) as f64, rate(window)))
        .collect()
}

/// 0 of nothing.
fn middle(values: Vec<f64>) -> f64 {
    median(values).unwrap_or(0.0)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::oltp::audit::tests::point;
    use crate::oltp::chain::KeptPoint;

    /// Of a step: 100 transactions a second (with `rate`), of 10 users, in 100 s of which the first ones have `cold`.
    fn step(name: &str, rate: u64, cold: &[u64]) -> Point {
        let mut point = point();
        point.step = name.into();
        point.label = format!("{name}, 10 users");
        point.series.iter_mut().for_each(|second| second.writes = rate);
        point.before = cold.iter().map(|writes| Second { writes: *writes, ..Second::new() }).collect();
        let factor = rate as f64 / 100.0;
        for record in &mut point.streams {
            record.read.ios = (record.read.ios as f64 * factor) as u64;
            record.write.ios = (record.write.ios as f64 * factor) as u64;
        }
        point
    }

    pub(crate) fn chain() -> (ChainRecord, Vec<Point>) {
        let recovery = |point, users, late: f64| Recovery {
            point,
            users,
            recovered: 0.1 + late,
            mounted: 0.2 + late,
            started: 0.5 + late,
            first: 0.6 + late,
            began: 1.0 + late,
        };
        let kept = |number, seconds| KeptPoint { number, seconds, transactions: 40 * u64::from(number) };
        let record = ChainRecord {
            keeper: "a test".into(),
            points: vec![kept(0, 0.3), kept(1, 0.1), kept(2, 0.2)],
            recoveries: vec![recovery(0, 10, 0.0), recovery(2, 10, 1.0)],
            neighbours: Vec::new(),
            complaints: Vec::new(),
        };
        let cold = [0, 10, 20, 60, 100, 100, 100, 100, 100, 100];
        let points = vec![step(NATIVE, 100, &[]), step("full", 100, &cold), step("2nd", 50, &[50; 10])];
        (record, points)
    }

    #[test]
    fn times_rates_and_shares_are_those_of_the_record() {
        let (record, points) = chain();
        let found = ChainFigures::new(&record, &points);
        assert_eq!((found.kept, found.keep_seconds, found.keep_seconds_max), (3, 0.2, 0.3));
        assert!((found.change - 60.0).abs() < 1e-9, "two changes of 40 and 80");
        let native = found.native.unwrap();
        assert_eq!(native.users, 10);
        let [full, second] = &found.points[..] else { panic!("{found:?}") };
        assert_eq!((full.name.as_str(), full.recoveries, full.first), ("full", 1, 0.6));
        assert!((full.share.unwrap() - 1.0).abs() < 0.01);
        // The first five seconds in a row with 90 a second on average: 60, 100 … are 92.
        assert_eq!(full.native_again, Some(1.0 + 8.0));
        assert!((second.share.unwrap() - 0.5).abs() < 0.01);
        assert_eq!(second.native_again, None, "half the rate is never native");
        assert_eq!(second.recovered, 1.1);
    }
}
