//! The figures of a run of tiles, for terminals and pages. Times are milliseconds.

use super::applications;
use super::rules::{Held, all_held, best, price};
use super::{OperationRecord, Tiled, VmPlan};
use crate::bundle::Bundle;
use crate::measure::Point;
use crate::record::{Latencies, StreamRecord};
use crate::replay::Replayed;
use crate::stats::mean;
use serde::Serialize;
use utoipa::ToSchema;

/// The bound of a response time of the rules, in nanoseconds.
const BOUND_NANOS: u64 = 20_000_000;
/// What reports tell beside it.
const TOLD_NANOS: u64 = 5_000_000;
const MILLI: f64 = 1e6;

/// What came of tiles.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Tiles {
    /// The most tiles that passed, one after another from the first on; 0 where the first did not.
    pub tiles: usize,
    /// Their machines.
    pub vms: usize,
    /// The most tiles that passed and had 99% of their I/Os within 20 ms.
    pub strict_tiles: usize,
    /// Their machines.
    pub strict_vms: usize,
    /// Whether no further tile was tried or could be: then it may be more.
    pub at_least: bool,
    /// Why there was no further tile, in words.
    pub ended: String,
    /// What a machine costs, and what else the price file gives, or why it gives nothing; empty where there was none.
    pub price: Vec<String>,
    /// What one of the machines that passed costs, in that file's currency; nothing where there is none.
    pub price_each: Option<f64>,
    /// By how much volumes were smaller than they are published.
    pub scale: f64,
    /// The machines of a tile.
    pub plan: Vec<VmPlan>,
    /// Each number of tiles.
    pub steps: Vec<Step>,
    /// Where something was done beside the most tiles that passed: the smaller of the ratios of what was done to what is required.
    pub score: Option<f64>,
    /// The geometric mean of these ratios.
    pub score_mean: Option<f64>,
}

/// Some number of tiles.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = TilesStep)]
pub struct Step {
    /// How many.
    pub tiles: usize,
    /// Their machines.
    pub vms: usize,
    /// Whether every rule was kept; nothing where too little was measured to say.
    pub passed: Option<bool>,
    /// The same, and 99% within 20 ms.
    pub strict: Option<bool>,
    /// The rules that were not kept.
    pub missed: Vec<String>,
    /// All I/Os.
    pub all: Times,
    /// Each application, its machines on all tiles together.
    pub applications: Vec<Times>,
    /// Each machine.
    pub machines: Vec<Machine>,
    /// What was done beside them.
    pub operations: Vec<OperationFigures>,
}

/// Something that was done beside tiles again and again.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct OperationFigures {
    /// What.
    pub name: String,
    /// How often.
    pub done: usize,
    /// How often it is required in the time that was replayed.
    pub required: f64,
    /// The one by the other.
    pub ratio: f64,
    /// Mean seconds of each step; of none where it was never done.
    pub steps: Vec<(String, Option<f64>)>,
    /// What ended it before its time.
    pub failure: Option<String>,
}

impl OperationFigures {
    fn of(record: &OperationRecord, seconds: f64) -> Self {
        let of_step = |at: usize| {
            let took: Vec<f64> = record.rounds.iter().filter_map(|round| round.get(at).copied()).collect();
            (!took.is_empty()).then(|| mean(&took))
        };
        OperationFigures {
            name: record.name.clone(),
            done: record.rounds.len(),
            required: record.required(seconds),
            ratio: record.ratio(seconds),
            steps: record.steps.iter().enumerate().map(|(at, step)| (step.clone(), of_step(at))).collect(),
            failure: record.failure.clone(),
        }
    }
}

/// Response times of reads and writes.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = TilesTimes)]
pub struct Times {
    /// Whose.
    pub name: String,
    /// Machines that they are of.
    pub vms: usize,
    /// I/Os that were answered.
    pub ios: u64,
    /// I/Os a second.
    pub iops: f64,
    /// Share of I/Os within 20 ms, from 0 to 1; nothing of none.
    pub within: Option<f64>,
    /// Share within 5 ms, which no rule asks for and reports tell; nothing of none.
    pub within_5ms: Option<f64>,
    /// Mean; nothing of none.
    pub mean: Option<f64>,
    /// Nothing from fewer than 1,000 I/Os.
    pub p99: Option<f64>,
    /// The longest; nothing of none.
    pub max: Option<f64>,
}

/// One machine of one tile.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = TilesMachine)]
pub struct Machine {
    /// Its name within the tile.
    pub vm: String,
    /// The tile, from 1 on.
    pub tile: usize,
    /// Bytes of its volume that it touched, in pieces of 64 KiB.
    pub footprint_bytes: u64,
    /// I/Os a second.
    pub iops: f64,
    /// Mean; nothing of none.
    pub mean: Option<f64>,
    /// Nothing from fewer than 1,000 I/Os.
    pub p99: Option<f64>,
}

/// A number of tiles in words.
pub fn of_tiles(tiles: usize) -> String {
    format!("{tiles} {}", if tiles == 1 { "tile" } else { "tiles" })
}

/// What a bundle of tiles shows; nothing where it is of another load, or where a requirement cannot be read, of which the summary tells.
pub fn figures(bundle: &Bundle) -> Option<Tiles> {
    let tiled = bundle.run.tiles.as_ref()?;
    let held = all_held(&bundle.points, tiled, &bundle.run.require, bundle.run.verified).ok()?;
    let most = |passes: &dyn Fn(&Held) -> bool| best(&held, passes).map_or(0, |at| tiled.steps[at].tiles);
    let tiles = most(&|one| one.passes() == Some(true));
    let strict_tiles = most(&|one| is_strict(one) == Some(true));
    let steps = bundle.points.iter().zip(&tiled.steps).zip(&held);
    let vms = tiles * tiled.vms.len();
    let (price, price_each) = match price(bundle) {
        Ok(Some(price)) => {
            let total: Option<f64> = price.total.parse().ok();
            (price.per, total.filter(|_| vms > 0).map(|total| total / vms as f64))
        }
        Ok(None) => (Vec::new(), None),
        Err(error) => (vec![format!("none: {}", error.what())], None),
    };
    let steps: Vec<Step> = steps
        .enumerate()
        .map(|(number, ((point, replayed), held))| {
            let beside = tiled.beside(number).iter().map(|one| OperationFigures::of(one, replayed.seconds));
            Step { operations: beside.collect(), ..step(point, replayed, held, tiled) }
        })
        .collect();
    let ratios: Vec<f64> = steps
        .iter()
        .find(|step| step.tiles == tiles)
        .map_or_else(Vec::new, |step| step.operations.iter().map(|one| one.ratio).collect());
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    Some(Tiles {
        tiles,
        vms,
        strict_tiles,
        strict_vms: strict_tiles * tiled.vms.len(),
        at_least: tiles > 0 && tiled.steps.last().is_some_and(|step| step.tiles == tiles),
        ended: tiled.ended.told(),
        price,
        price_each,
        scale: tiled.scale,
        plan: tiled.vms.clone(),
        steps,
        score: ratios.iter().copied().min_by(f64::total_cmp),
        score_mean: (!logs.is_empty()).then(|| mean(&logs).exp()),
    })
}

fn is_strict(held: &Held) -> Option<bool> {
    match (held.passes(), held.strict.met) {
        (Some(true), strict) => strict,
        (other, _) => other,
    }
}

fn step(point: &Point, replayed: &Replayed, held: &Held, tiled: &Tiled) -> Step {
    let mut all = StreamRecord::default();
    point.streams.iter().for_each(|record| all.add(record));
    let per_tile = |application: &str| tiled.vms.iter().filter(|vm| vm.application == application).count();
    let of_each = applications(point, &tiled.vms);
    let applications = of_each.iter().map(|(name, record)| {
        times((*name).to_owned(), per_tile(name) * replayed.tiles, record, point.seconds)
    });
    let machines = point.streams.iter().zip(&replayed.streams).zip(tiled.vms.iter().cycle());
    let missed = held.rules.iter().filter(|met| met.met != Some(true));
    Step {
        tiles: replayed.tiles,
        vms: replayed.streams.len(),
        passed: held.passes(),
        strict: is_strict(held),
        missed: missed.map(|met| format!("{}: {}", met.requirement, met.told)).collect(),
        all: times("all".into(), replayed.streams.len(), &all, point.seconds),
        applications: applications.collect(),
        machines: machines
            .map(|((record, plan), vm)| {
                let times = times(vm.name.clone(), 1, record, point.seconds);
                Machine {
                    vm: times.name,
                    tile: plan.tile,
                    footprint_bytes: plan.footprint_bytes,
                    iops: times.iops,
                    mean: times.mean,
                    p99: times.p99,
                }
            })
            .collect(),
        operations: Vec::new(),
    }
}

fn times(name: String, vms: usize, record: &StreamRecord, seconds: f64) -> Times {
    let mut response = Latencies::new();
    response.add(&record.read.response);
    response.add(&record.write.response);
    let count = response.count();
    let within = |bound: u64| -> f64 {
        let quick = response.counts().filter(|(nanos, _)| *nanos <= bound);
        quick.map(|(_, count)| count).sum::<u64>() as f64 / count.max(1) as f64
    };
    let any = |value: f64| (count > 0).then_some(value);
    Times {
        name,
        vms,
        ios: record.ios(),
        iops: record.ios() as f64 / seconds.max(1e-9),
        within: any(within(BOUND_NANOS)),
        within_5ms: any(within(TOLD_NANOS)),
        mean: any(response.mean() / MILLI),
        p99: response.percentile(0.99).map(|nanos| nanos as f64 / MILLI),
        max: any(response.max() as f64 / MILLI),
    }
}
