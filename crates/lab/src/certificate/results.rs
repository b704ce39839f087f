//! The figures of a run as a certificate prints them: for each point and each application, in decimal text.

use crate::bundle::Bundle;
use crate::measure::Point;
use crate::record::{Latencies, StreamRecord};
use crate::stats::gates::State;
use crate::verdict::Summary;
use serde::{Deserialize, Serialize};

/// The bound of IOmark-VM for a response time, in nanoseconds.
const BOUND_NANOS: u64 = 20_000_000;

/// One point that was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Step and label.
    pub point: String,
    /// Trust, from A to F.
    pub grade: String,
    /// What speaks against it.
    pub against: Vec<String>,
    /// How the load came: closed loop with its depths, or open loop with its rates.
    pub load: String,
    /// Seconds that were measured.
    pub seconds: String,
    /// I/Os a second.
    pub iops: String,
    /// MB (10^6 bytes) a second.
    pub mb_per_second: String,
    /// Each stream.
    pub applications: Vec<Application>,
}

/// One stream of a point. Times are milliseconds of the response time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Application {
    /// The stream's name.
    pub name: String,
    /// I/Os that were counted.
    pub ios: u64,
    /// I/Os a second.
    pub iops: String,
    /// Mean of all.
    pub mean: String,
    /// Mean of reads.
    pub read_mean: Option<String>,
    /// Mean of writes.
    pub write_mean: Option<String>,
    /// Nothing from fewer than 1,000 I/Os.
    pub p99: Option<String>,
    /// The longest.
    pub max: String,
    /// Percent that took 20 ms at most.
    pub within_20_ms: String,
}

pub(super) fn of(bundle: &Bundle, summary: &Summary) -> Vec<Measured> {
    let points = bundle.points.iter().zip(&summary.points);
    points
        .map(|(point, judged)| {
            let bytes: u64 = point.streams.iter().map(|record| record.read.bytes + record.write.bytes).sum();
            let against = judged.gates.iter().filter(|gate| gate.state > State::Pass);
            Measured {
                point: judged.name.clone(),
                grade: format!("{:?}", judged.grade),
                against: against.map(|gate| format!("{}: {}", gate.name, gate.why)).collect(),
                load: load(point),
                seconds: format!("{:.1}", point.seconds),
                iops: format!("{:.2}", point.iops()),
                mb_per_second: format!("{:.2}", bytes as f64 / point.seconds.max(1e-9) / 1e6),
                applications: applications(bundle, point),
            }
        })
        .collect()
}

/// Each stream, or of tiles each application: its machines on all of them together.
fn applications(bundle: &Bundle, point: &Point) -> Vec<Application> {
    if let Some(tiled) = &bundle.run.tiles {
        let together = crate::tiles::applications(point, &tiled.vms);
        return together.iter().map(|(name, record)| application(name, record, point.seconds)).collect();
    }
    let streams = point.loads.iter().zip(&point.streams);
    streams.map(|(load, record)| application(&load.name, record, point.seconds)).collect()
}

/// The point whose rate stands for the run, and the rate: of those that are required the first, else the highest that is
/// not void.
pub(super) fn headline<'a>(summary: &Summary, results: &'a [Measured]) -> Option<(&'a str, &'a str)> {
    let void = |number: usize| summary.points[number].gates.iter().any(|gate| gate.state == State::Void);
    let required = summary.required.first().map(|required| required.point);
    let highest = || {
        let valid = (0..results.len()).filter(|number| !void(*number));
        valid.max_by(|a, b| summary.points[*a].iops.total_cmp(&summary.points[*b].iops))
    };
    required
        .or_else(highest)
        .and_then(|number| results.get(number))
        .map(|one| (one.point.as_str(), one.iops.as_str()))
}

fn load(point: &Point) -> String {
    let each = point.loads.iter().map(|load| match (load.outstanding, load.rate) {
        (Some(outstanding), _) => format!("'{}' closed loop, {outstanding} in flight", load.name),
        (None, Some(rate)) => format!("'{}' open loop, {rate:.1} a second", load.name),
        (None, None) => format!("'{}' follows another", load.name),
    });
    let footprint = match point.footprint {
        footprint if footprint < 1.0 => format!("; on {:.1}% of each volume", footprint * 100.0),
        _ => String::new(),
    };
    each.collect::<Vec<_>>().join("; ") + &footprint
}

fn application(name: &str, record: &StreamRecord, seconds: f64) -> Application {
    let mut all = Latencies::new();
    all.add(&record.read.response);
    all.add(&record.write.response);
    let millis = |nanos: f64| format!("{:.3}", nanos / 1e6);
    let mean = |latencies: &Latencies| (latencies.count() > 0).then(|| millis(latencies.mean()));
    let within: u64 = all.counts().filter(|(nanos, _)| *nanos <= BOUND_NANOS).map(|(_, count)| count).sum();
    Application {
        name: name.to_owned(),
        ios: record.ios(),
        iops: format!("{:.2}", record.ios() as f64 / seconds.max(1e-9)),
        mean: millis(all.mean()),
        read_mean: mean(&record.read.response),
        write_mean: mean(&record.write.response),
        p99: all.percentile(0.99).map(|nanos| millis(nanos as f64)),
        max: millis(all.max() as f64),
        within_20_ms: format!("{:.2}", within as f64 / all.count().max(1) as f64 * 100.0),
    }
}
