//! What the charts of a report show, as numbers: times in milliseconds, rates a second.

use super::phases::{OutageFigures, TaskFigures, outages, tasks};
use super::streams::{StreamFigures, WorkerFigures, streams, together, workers};
use crate::bundle::Bundle;
use crate::machine::Busy;
use crate::measure::{CpuCost, Point, Probe};
use crate::oltp::figures::{Step, ramp};
use crate::oltp::{chain, migration};
use crate::record::{ABOVE_MIN, Direction, Latencies, Second};
use crate::reduced::Reduced;
use crate::space::Space;
use crate::system::System;
use crate::tiles::{self, figures::Tiles};
use serde::Serialize;
use std::collections::BTreeSet;
use stonefold_types::BLOCK_BYTES;
use utoipa::ToSchema;

/// Points of a spectrum at most.
const SPECTRUM_POINTS: usize = 120;
/// Nanoseconds.
pub(super) const MILLI: f64 = 1e6;

/// Every chart of a run.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Charts {
    /// Each point that was measured, in order.
    pub points: Vec<PointChart>,
    /// Points of sweeps and shares of capacity: rate against latency.
    pub curve: Vec<CurvePoint>,
    /// Points on parts of the volumes: rate against the part.
    pub cliff: Vec<CliffPoint>,
    /// Steps of a database's users; times in nanoseconds.
    pub ramp: Vec<Step>,
    /// What was timed as a whole, in order.
    pub tasks: Vec<TaskFigures>,
    /// Searches for the best I/Os in flight, step by step in the order in which they were made.
    pub probes: Vec<Probe>,
    /// Each outage, in order.
    pub outages: Vec<OutageFigures>,
    /// Bytes by their kinds: logical, written, physical; nothing of a database.
    pub space: Option<Space>,
    /// Tiles of virtual machines.
    pub tiles: Option<Tiles>,
    /// A disk that was moved below its database.
    pub migration: Option<migration::Figures>,
    /// Of a database that was recovered from points.
    pub chain: Option<chain::ChainFigures>,
}

/// One measured point.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct PointChart {
    /// Step and label.
    pub name: String,
    /// I/Os a second.
    pub iops: f64,
    /// Bytes a second.
    pub bytes: f64,
    /// Processor seconds of the busiest thread of the load, of each second.
    pub busy: f64,
    /// How busy the whole machine was, where that could be told.
    pub machine: Option<Busy>,
    /// What each of its I/Os took of processors.
    pub cpu: CpuCost,
    /// How far what its volumes held at its end reduces.
    pub reduced: Vec<ReducedFigures>,
    /// Its I/Os for each of what the target is declared to be made of.
    pub shares: Vec<String>,
    /// Each stream's figures.
    pub streams: Vec<StreamFigures>,
    /// The same of streams that do alike on a volume each (numbered, of one name) as of one; empty where that is no other.
    pub together: Vec<StreamFigures>,
    /// What each worker did, where there were several.
    pub workers: Vec<WorkerFigures>,
    /// Second by second; what was before counts from below 0 and is not in any figure.
    pub timeline: Vec<TimelinePoint>,
    /// Response and service time against how rare it is.
    pub spectrum: Vec<SpectrumPoint>,
    /// Share of I/Os that took no longer.
    pub cumulative: Vec<CumulativePoint>,
}

/// How far what a volume holds reduces: blocks of 4 KiB for each different one, and bytes for each that compression leaves.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ReducedFigures {
    /// The volume.
    pub volume: String,
    /// As declared.
    pub dedupe_declared: f64,
    /// As counted.
    pub dedupe: f64,
    /// As declared.
    pub compression_declared: f64,
    /// As counted, half way between what LZ4 and zstd leave.
    pub compression: f64,
    /// Bytes that hold what was written.
    pub held_bytes: u64,
}

/// One second.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct TimelinePoint {
    /// Which.
    pub second: f64,
    /// I/Os that ended in it.
    pub iops: u64,
    /// Milliseconds.
    pub p50: f64,
    /// Milliseconds, of however few: it is drawn, and told nowhere.
    pub p99: f64,
}

/// A percentile.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct SpectrumPoint {
    /// One in so many takes longer.
    pub one_in: f64,
    /// Milliseconds.
    pub millis: f64,
    /// Response or service.
    pub of: &'static str,
}

/// A share.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct CumulativePoint {
    /// Milliseconds.
    pub within: f64,
    /// Share of all I/Os, from 0 to 1.
    pub share: f64,
}

/// A load and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct CurvePoint {
    /// The step.
    pub step: String,
    /// What was asked for.
    pub label: String,
    /// Closed or open.
    pub kind: &'static str,
    /// I/Os a second.
    pub iops: f64,
    /// Milliseconds.
    pub mean: f64,
    /// Milliseconds; nothing from fewer than 1,000 I/Os.
    pub p99: Option<f64>,
    /// Of its step's closed loops the one with the most throughput for its response time.
    pub knee: bool,
}

/// A working set and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct CliffPoint {
    /// The step.
    pub step: String,
    /// Part of each volume that was used, from 0 to 1.
    pub footprint: f64,
    /// I/Os a second.
    pub iops: f64,
}

/// A load whose I/Os in flight are given.
const CLOSED: &str = "closed loop";

/// Computes all of them.
pub fn charts(bundle: &Bundle) -> Charts {
    Charts {
        points: bundle.points.iter().map(|point| point_chart(point, bundle.run.system.as_ref())).collect(),
        curve: curve(&bundle.points),
        cliff: bundle
            .points
            .iter()
            .filter(|point| point.is_load())
            .filter(|point| {
                bundle.points.iter().any(|other| other.step == point.step && other.footprint < 1.0)
            })
            .map(|point| CliffPoint {
                step: point.step.clone(),
                footprint: point.footprint,
                iops: point.iops(),
            })
            .collect(),
        ramp: ramp(&bundle.points),
        tasks: tasks(&bundle.points),
        probes: bundle.points.iter().filter_map(|point| point.probe.clone()).collect(),
        outages: outages(&bundle.points),
        space: Space::of(bundle),
        tiles: tiles::figures::figures(bundle),
        migration: migration::figures(bundle),
        chain: chain::figures(bundle),
    }
}

fn point_chart(point: &Point, system: Option<&System>) -> PointChart {
    let (response, service) = (all(point, |side| &side.response), all(point, |side| &side.service));
    let bytes: u64 = point.streams.iter().map(|record| record.read.bytes + record.write.bytes).sum();
    let mut spectrum = spectrum(&response, "response");
    spectrum.extend(self::spectrum(&service, "service"));
    let before = point.before.len() as f64;
    let past =
        point.before.iter().enumerate().map(|(second, record)| timeline(second as f64 - before, record));
    let counted = point.series.iter().enumerate().map(|(second, record)| timeline(second as f64, record));
    PointChart {
        name: point.name(),
        iops: point.iops(),
        bytes: bytes as f64 / point.seconds,
        busy: point.busy,
        machine: point.machine_cpu,
        cpu: point.cpu_cost(),
        reduced: point.reduced.iter().map(reduced).collect(),
        shares: system
            .filter(|_| point.is_load())
            .map(|system| system.shares(point.iops()))
            .unwrap_or_default(),
        streams: streams(point),
        together: together(point),
        workers: workers(point),
        timeline: past.chain(counted).collect(),
        spectrum,
        cumulative: cumulative(&response),
    }
}

fn reduced(of: &Reduced) -> ReducedFigures {
    ReducedFigures {
        volume: of.name.clone(),
        dedupe_declared: of.dedupe_declared,
        dedupe: of.dedupe(),
        compression_declared: of.compression_declared,
        compression: of.compression(),
        held_bytes: of.blocks * BLOCK_BYTES as u64,
    }
}

fn all(point: &Point, which: impl Fn(&Direction) -> &Latencies) -> Latencies {
    let mut all = Latencies::new();
    for record in &point.streams {
        all.add(which(&record.read));
        all.add(which(&record.write));
    }
    all
}

fn timeline(second: f64, record: &Second) -> TimelinePoint {
    TimelinePoint {
        second,
        iops: record.ios(),
        p50: record.response.quantile(0.5) as f64 / MILLI,
        p99: record.response.quantile(0.99) as f64 / MILLI,
    }
}

/// Evenly spaced by the logarithm of how rare a time is, as far as there are I/Os to say.
fn spectrum(latencies: &Latencies, of: &'static str) -> Vec<SpectrumPoint> {
    // Ten are above the rarest: fewer say nothing of it. The slowest of all stands in the tables.
    let rarest = (latencies.count() as f64 / ABOVE_MIN).log10();
    if rarest <= 0.0 {
        return Vec::new();
    }
    (0..=SPECTRUM_POINTS)
        .map(|place| 10f64.powf(rarest * place as f64 / SPECTRUM_POINTS as f64))
        .map(|one_in| SpectrumPoint {
            one_in,
            millis: latencies.quantile(1.0 - 1.0 / one_in) as f64 / MILLI,
            of,
        })
        .collect()
}

fn cumulative(latencies: &Latencies) -> Vec<CumulativePoint> {
    let (count, mut sum) = (latencies.count() as f64, 0);
    let mut points: Vec<CumulativePoint> = latencies
        .counts()
        .map(|(nanos, many)| {
            sum += many;
            CumulativePoint { within: nanos as f64 / MILLI, share: sum as f64 / count }
        })
        .collect();
    // More than a screen has points are of no use.
    let every = points.len().div_ceil(300).max(1);
    let last = points.len().saturating_sub(1);
    let mut place = 0;
    points.retain(|_| {
        place += 1;
        (place - 1) % every == 0 || place - 1 == last
    });
    points
}

/// Where more load begins to buy waiting instead of throughput is taken to be where throughput ÷ response time is greatest: the *power* of
/// L. Kleinrock (ICC 1979). Of fewer points than this nobody can say.
const KNEE_POINTS_MIN: usize = 3;

fn curve(points: &[Point]) -> Vec<CurvePoint> {
    // A step on parts of the volumes is a curve of its own kind, its largest part with it.
    let of_parts: BTreeSet<&str> =
        points.iter().filter(|point| point.footprint < 1.0).map(|point| point.step.as_str()).collect();
    let is_swept = |point: &&Point| {
        !point.label.is_empty()
            && !of_parts.contains(point.step.as_str())
            && point.database.is_none()
            && point.is_load()
    };
    let mut curve: Vec<CurvePoint> = points.iter().filter(is_swept).map(curve_point).collect();
    let steps: BTreeSet<String> = curve.iter().map(|point| point.step.clone()).collect();
    for step in steps {
        let mut of_step: Vec<&mut CurvePoint> =
            curve.iter_mut().filter(|point| point.step == step && point.kind == CLOSED).collect();
        if of_step.len() < KNEE_POINTS_MIN {
            continue;
        }
        let power = |point: &CurvePoint| point.iops / point.mean;
        if let Some(knee) = of_step.iter_mut().max_by(|a, b| power(a).total_cmp(&power(b))) {
            knee.knee = true;
        }
    }
    curve
}

fn curve_point(point: &Point) -> CurvePoint {
    let response = all(point, |side| &side.response);
    CurvePoint {
        step: point.step.clone(),
        label: point.label.clone(),
        kind: if point.loads.iter().any(|load| load.rate.is_some()) { "open loop" } else { CLOSED },
        iops: point.iops(),
        mean: response.mean() / MILLI,
        p99: response.percentile(0.99).map(|nanos| nanos as f64 / MILLI),
        knee: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::tests::point;

    /// Goal: the knee is where more in flight begins to buy waiting, one of each sweep; open loops and two points have none.
    #[test]
    fn the_knee_of_a_sweep_is_where_power_is_greatest() {
        let swept = |step: &str, depth: u64, iops: u64| {
            let nanos = depth * 1_000_000_000 / iops;
            let mut one = Point { step: step.into(), label: format!("depth {depth}"), ..point(iops) };
            one.streams[0].read.response = Latencies::new();
            (0..100).for_each(|_| one.streams[0].read.response.record(nanos));
            one
        };
        // Four at a time go at once; more of them wait.
        let mut points: Vec<Point> =
            [1, 2, 4, 8, 16].map(|depth: u64| swept("a", depth, depth.min(4) * 1000 + depth)).to_vec();
        points.extend([swept("b", 1, 1000), swept("b", 2, 1100)]);
        let mut open = swept("a", 1, 9000);
        (open.loads[0].outstanding, open.loads[0].rate) = (None, Some(9000.0));
        points.push(open);
        let knees: Vec<_> = curve(&points).into_iter().filter(|point| point.knee).collect();
        assert_eq!(
            knees.iter().map(|knee| (&*knee.step, &*knee.label)).collect::<Vec<_>>(),
            [("a", "depth 4")]
        );
    }

    /// Goal: what was measured on all of the volumes is no sweep of load where it was on parts of them, too.
    #[test]
    fn footprints_are_on_no_curve_of_throughput() {
        let on = |footprint: f64| Point {
            step: "read".into(),
            label: format!("{footprint} of each"),
            footprint,
            ..point(1000)
        };
        assert!(curve(&[on(0.1), on(0.5), on(1.0)]).is_empty());
        assert_eq!(curve(&[on(1.0)]).len(), 1);
    }

    /// Goal: a percentile is drawn as far as ten I/Os are above it, and no farther.
    #[test]
    fn what_few_have_shown_is_not_drawn() {
        let mut latencies = Latencies::new();
        (0..10).for_each(|_| latencies.record(1000));
        assert!(spectrum(&latencies, "response").is_empty());
        (0..990).for_each(|_| latencies.record(1000));
        let drawn = spectrum(&latencies, "response");
        assert!((drawn.last().unwrap().one_in - 100.0).abs() < 1e-6);
    }
}
