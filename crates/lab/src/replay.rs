//! Traces replayed on a target: each request at its moment, by one clock, on as many tiles as are asked for.
//!
//! A *tile* is one copy of all traces that are named together; each trace of each tile is a volume of its own, with a stream of its own, and
//! begins at a phase of its own, so that copies do not fall into step. *Promises*: nothing is left out of a trace without being counted; no request
//! waits for another; the payload is the lab's, so that what is read can be held against what was written. *Never*: tells what was captured apart from
//! what was asked.

mod layout;
mod rules;

pub(crate) use layout::Lot;
pub use layout::{Layout, StreamPlan};
pub use rules::{DRIFT_MAX, OVERRUN, TILE_RULES, judge, requirements, summarise};
pub(crate) use rules::{END, STRICT};

use crate::counters::{self, Counters, Reconciled};
use crate::load::{Control, Goal, Outcome, Phase};
use crate::machine::CpuWatch;
use crate::measure::{Doing, Point, PointLoad, Reins, Unsettled, ceiling};
use crate::record::StreamRecord;
use crate::reduced::{self, Reduced};
use crate::rig::{Rig, RigOptions};
use crate::target::TargetSpec;
use crate::trace::Trace;
use crate::trace::fit::Mode;
use crate::workload::{Load, Workload};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::Result;
use utoipa::ToSchema;

/// How long I/Os in flight at the end are waited for.
const GRACE: Duration = Duration::from_secs(60);

/// What is replayed, and on what.
#[derive(Clone)]
pub struct Plan {
    /// The traces of one tile, each with its name.
    pub traces: Vec<(String, Arc<Trace>)>,
    /// How many tiles.
    pub tiles: usize,
    /// How much faster than they were captured.
    pub speed: f64,
    /// How long; without it, once through the longest trace.
    pub length: Option<Duration>,
    /// The size of each volume, in bytes; without it that of the trace's device, or less where the targets have not as much.
    pub size: Option<u64>,
    /// What becomes of places beyond a volume that is smaller.
    pub mode: Mode,
    /// One for each volume, or one for all.
    pub targets: Vec<TargetSpec>,
    /// Threads, seed, what is verified and what may go.
    pub options: RigOptions,
    /// Who says what the targets have done; nobody where one of them cannot say it.
    pub counters: Vec<Arc<dyn Counters>>,
}

/// What was replayed, as it is kept in a bundle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Replayed {
    /// Tiles.
    pub tiles: usize,
    /// How much faster than captured.
    pub speed: f64,
    /// How long it was meant to take, in seconds.
    pub seconds: f64,
    /// What became of places beyond a smaller volume.
    pub mode: Mode,
    /// The traces of a tile.
    pub traces: Vec<Source>,
    /// Each stream, in the order of the volumes.
    pub streams: Vec<StreamPlan>,
}

/// A trace that was replayed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Source {
    /// Its name.
    pub name: String,
    /// BLAKE3 of its file.
    pub hash: String,
    /// Requests in it.
    pub requests: u64,
    /// Requests that are missing in it.
    pub dropped: u64,
    /// It was cut short.
    pub cut: bool,
    /// Seconds that were captured.
    pub seconds: f64,
    /// Bytes of its device.
    pub device_bytes: u64,
}

/// Replays. Returns the one point that it makes.
///
/// # Errors
/// What is wrong with a trace, a target or a size.
pub fn run(env: &Env, plan: &Plan, layout: &Layout, reins: &Reins) -> Result<Vec<Point>> {
    let depths: Vec<Vec<Load>> = layout.workload.streams.iter().map(|stream| vec![stream.load]).collect();
    let mut rig = Rig::open(env, &layout.workload, &plan.targets, &depths, &plan.options)?;
    rig.give(&layout.plays);
    let filled = fill(env, &mut rig, &layout.workload, reins)?;
    if reins.is_stopped() {
        return Ok(Vec::new());
    }
    let length = Duration::from_secs_f64(layout.replayed.seconds);
    let loads: Vec<Option<Load>> = layout.workload.streams.iter().map(|stream| Some(stream.load)).collect();
    let ceiling = ceiling(env, &layout.workload, &plan.targets, &plan.options, &loads, 1.0)?;
    let phase = Phase { goal: Goal::Replay(length, OVERRUN), loads, footprint: 1.0, grace: GRACE };
    let what = format!("replaying {}", title(&layout.replayed));
    let clocks = |env: &Env| env.wall() as f64 / 1e9 - env.monotonic().as_secs_f64();
    let before = clocks(env);
    let doing = Doing { what, length: Some(length), since: env.monotonic(), ..Doing::default() };
    let counted = counters::sum(&plan.counters)?;
    let watch = CpuWatch::start();
    let outcome = rig.run(&phase, &reins.begin(doing))?;
    let written = Some(filled + outcome.written());
    let machine_cpu = watch.and_then(CpuWatch::end);
    let (said, uncounted) = counters::since(&plan.counters, counted);
    let reconciled = Reconciled::of(said, &outcome.streams);
    let reduced = survey(&mut rig, &layout.workload)?;
    let point = point(&layout.workload, outcome, ceiling, clocks(env) - before, reins.is_stopped());
    Ok(vec![Point { machine_cpu, reduced, reconciled, uncounted, written, ..point }])
}

/// What was replayed, in words.
pub fn title(replayed: &Replayed) -> String {
    let names: Vec<&str> = replayed.traces.iter().map(|trace| trace.name.as_str()).collect();
    let tiles = if replayed.tiles > 1 { format!(" on {} tiles", replayed.tiles) } else { String::new() };
    let speed =
        if replayed.speed == 1.0 { String::new() } else { format!(" at {} times its speed", replayed.speed) };
    format!("{}{tiles}{speed}", names.join(", "))
}

/// Returns the bytes that were written.
fn fill(env: &Env, rig: &mut Rig, workload: &Workload, reins: &Reins) -> Result<u64> {
    let bytes = workload.volumes.iter().map(|volume| volume.bytes).sum();
    let what = "writing every block once".to_owned();
    let doing = Doing { what, bytes: Some(bytes), since: env.monotonic(), ..Doing::default() };
    let loads = vec![None; workload.streams.len()];
    let phase = Phase { goal: Goal::Fill, loads, footprint: 1.0, grace: GRACE };
    let outcome = rig.run(&phase, &reins.begin(doing))?;
    if !reins.is_stopped() {
        outcome.check_filled()?;
    }
    Ok(outcome.written())
}

/// How far what the volumes hold in the end reduces, beside what is declared.
fn survey(rig: &mut Rig, workload: &Workload) -> Result<Vec<Reduced>> {
    let loads = vec![None; workload.streams.len()];
    let phase = Phase { goal: Goal::Survey, loads, footprint: 1.0, grace: GRACE };
    Ok(reduced::declared(workload, rig.run(&phase, &Control::new())?.reduced))
}

fn point(workload: &Workload, outcome: Outcome, ceiling: f64, clocks_apart: f64, cut_short: bool) -> Point {
    let seconds = outcome.elapsed.as_secs_f64();
    let mut streams = outcome.streams;
    streams.resize_with(workload.streams.len(), StreamRecord::default);
    let loads = workload.streams.iter().enumerate().map(|(stream, of)| PointLoad {
        stream,
        name: of.name.clone(),
        outstanding: None,
        rate: None,
        arrivals: None,
    });
    Point {
        step: "replay".into(),
        label: String::new(),
        loads: loads.collect(),
        footprint: 1.0,
        seconds,
        streams,
        series: outcome.series,
        before: Vec::new(),
        unsettled: Unsettled::default(),
        verification: outcome.verification,
        busy: outcome.busiest.as_secs_f64() / seconds.max(1e-9),
        effort: Some(outcome.effort),
        ceiling,
        clocks_apart,
        reduced: Vec::new(),
        reconciled: None,
        uncounted: None,
        written: None,
        cut_short,
        machine_cpu: None,
        database: None,
        workers: Vec::new(),
        outage: None,
        task: None,
        probe: None,
    }
}
