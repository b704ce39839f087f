//! A profile, run on a target: volumes written whole, then each step, then what it showed.
//!
//! *Promises*: what is not measured is not told; a run that is ended early is marked and keeps what it has. *Never*: counts
//! what was issued before the load had gone on for its precondition.

mod fit;
mod outages;
mod point;
mod tasks;
mod tune;

pub use fit::fit;
pub use tasks::{TaskKind, TaskRecord};
pub use tune::Probe;

use crate::chaos::{OutageRecord, Outages};
use crate::load::{Control, Goal, Outcome, Phase};
use crate::machine::Busy;
use crate::oltp::record::DatabaseRecord;
use crate::profile::{Profile, Step, StepKind, Times};
use crate::record::{Second, StreamRecord};
use crate::rig::{Rig, RigOptions};
use crate::target::TargetSpec;
use crate::verify::Verification;
use crate::worker::{Fleet, Token, WorkerAddress};
use crate::workload::{Arrivals, Load, Workload};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::Result;

/// How long I/Os in flight at the end of a phase are waited for.
const GRACE: Duration = Duration::from_secs(60);
/// How long the generator is measured against a target that answers at once.
const CEILING_TIME: Duration = Duration::from_secs(1);

/// What is run, and on what.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What.
    pub profile: Profile,
    /// At its quick size and times.
    pub quick: bool,
    /// One for each volume, or one for all.
    pub targets: Vec<TargetSpec>,
    /// Threads, seed, what is verified and what may go.
    pub options: RigOptions,
    /// Who loads; nobody where this process does it itself.
    pub fleet: FleetPlan,
    /// What is done to the targets in mid-run.
    pub outages: Option<Outages>,
}

/// Other machines that load.
#[derive(Clone, Debug, Default)]
pub struct FleetPlan {
    /// Where they listen.
    pub workers: Vec<WorkerAddress>,
    /// What both sides know.
    pub token: Option<Token>,
    /// As `targets` of a plan, in the words of the workers, in which `{n}` is a worker's number from 1 on.
    pub targets: Vec<String>,
}

/// One load that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The step it is of.
    pub step: String,
    /// What sets it apart from the others of its step; empty where it is alone.
    pub label: String,
    /// Each stream that ran, with its load.
    pub loads: Vec<PointLoad>,
    /// Of each volume, how much was used, from 0 to 1.
    pub footprint: f64,
    /// How long it was measured.
    pub seconds: f64,
    /// What each of the streams did, in the order of `loads`.
    pub streams: Vec<StreamRecord>,
    /// Second by second.
    pub series: Vec<Second>,
    /// The same of what went before and is not counted.
    pub before: Vec<Second>,
    /// What was read.
    pub verification: Verification,
    /// CPU seconds of the generator's threads, of each second of one.
    pub busy: f64,
    /// I/Os a second that the same load does against a target that answers at once.
    pub ceiling: f64,
    /// How far wall clock and steady clock had come apart by its end, in seconds.
    pub clocks_apart: f64,
    /// It was ended before its time.
    pub cut_short: bool,
    /// Of a step of a database's users; streams are its transactions then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<DatabaseRecord>,
    /// What each worker did, where there were several: its name and its streams, in the order of `loads`.
    #[serde(default)]
    pub workers: Vec<(String, Vec<StreamRecord>)>,
    /// How busy the machine was that the load ran on, whoever used it; nothing where that cannot be told.
    #[serde(default)]
    pub machine_cpu: Option<Busy>,
    /// Of a load in which the target was struck.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outage: Option<OutageRecord>,
    /// Of what was timed as a whole; streams are its volumes then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskRecord>,
    /// Of a step of a search for the best I/Os in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
}

/// The load of one stream in one point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PointLoad {
    /// The stream's number in the workload.
    pub stream: usize,
    /// Its name.
    pub name: String,
    /// I/Os in flight, of a closed loop.
    pub outstanding: Option<u32>,
    /// I/Os a second, of an open one.
    pub rate: Option<f64>,
}

impl Point {
    /// Step and label.
    pub fn name(&self) -> String {
        if self.label.is_empty() { self.step.clone() } else { format!("{}, {}", self.step, self.label) }
    }

    /// Whether streams ran, and nobody struck.
    pub fn is_load(&self) -> bool {
        self.task.is_none() && self.outage.is_none()
    }

    /// Whether a requirement may be about it: a search tries what does not keep one.
    pub fn is_judged(&self) -> bool {
        self.task.is_none() && self.probe.is_none()
    }

    /// I/Os a second.
    pub fn iops(&self) -> f64 {
        self.streams.iter().map(|record| record.ios() as f64).sum::<f64>() / self.seconds.max(1e-9)
    }
}

/// What goes on, for whoever shows it.
#[derive(Clone, Debug, Default)]
pub struct Doing {
    /// In words.
    pub what: String,
    /// How long it takes, where that is known.
    pub length: Option<Duration>,
    /// Bytes that it moves, where that is known.
    pub bytes: Option<u64>,
    /// When it began, by the steady clock.
    pub since: Duration,
}

/// The reins of a run, in the hands of whoever shows it.
pub struct Reins {
    doing: Mutex<(Doing, Arc<Control>)>,
    /// Said before everything that goes on.
    within: Mutex<String>,
    stopped: std::sync::atomic::AtomicBool,
}

impl Reins {
    /// Of a run that has not begun.
    pub fn new() -> Self {
        let doing = Mutex::new((Doing::default(), Arc::new(Control::new())));
        Reins { doing, within: Mutex::default(), stopped: false.into() }
    }

    /// What goes on from now on is a part of this.
    pub(crate) fn within(&self, what: &str) {
        what.clone_into(&mut self.within.lock());
    }

    /// Ends the run early.
    pub fn stop(&self) {
        self.stopped.store(true, std::sync::atomic::Ordering::SeqCst);
        self.doing.lock().1.stop();
    }

    /// Whether somebody did.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(std::sync::atomic::Ordering::SeqCst)
    }

    /// What goes on now.
    pub fn doing(&self) -> (Doing, Arc<Control>) {
        self.doing.lock().clone()
    }

    pub(crate) fn begin(&self, mut doing: Doing) -> Arc<Control> {
        doing.what.insert_str(0, &self.within.lock());
        let control = Arc::new(Control::new());
        *self.doing.lock() = (doing, control.clone());
        // A stop that came between two phases holds for the next.
        if self.is_stopped() {
            control.stop();
        }
        control
    }
}

impl Default for Reins {
    fn default() -> Self {
        Self::new()
    }
}

/// What came of a plan.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Each load that was measured.
    pub points: Vec<Point>,
    /// What the machines of other workers tell of themselves, by the workers' names.
    pub machines: Vec<(String, BTreeMap<String, String>)>,
}

/// Runs all of a plan.
///
/// # Errors
/// What is wrong with a target; what has been measured until then is lost.
pub fn run(env: &Env, plan: &Plan, reins: &Reins) -> Result<Measured> {
    outages::check(plan)?;
    let workload = plan.profile.workload(plan.quick);
    let depths = depths(workload, &plan.profile.steps);
    let generator = Generator::open(env, plan, &depths)?;
    let tuned = vec![None; workload.streams.len()];
    let mut run =
        Run { env, plan, workload, generator, reins, points: Vec::new(), tuned, target_is_gone: false };
    if !plan.profile.fills_itself() {
        run.fill()?;
    }
    for step in &plan.profile.steps {
        run.step(step)?;
        if reins.is_stopped() || run.target_is_gone {
            break;
        }
    }
    let machines = match &run.generator {
        Generator::Here(_) => Vec::new(),
        Generator::Fleet(fleet) => {
            fleet.machines().map(|(name, machine)| (name.to_owned(), machine.clone())).collect()
        }
    };
    Ok(Measured { points: run.points, machines })
}

/// All loads that each stream will be given.
pub(crate) fn depths(workload: &Workload, steps: &[Step]) -> Vec<Vec<Load>> {
    let mut depths: Vec<Vec<Load>> = workload.streams.iter().map(|stream| vec![stream.load]).collect();
    for step in steps {
        for number in &step.streams {
            match &step.kind {
                StepKind::Sweep(points) => {
                    depths[*number]
                        .extend(points.iter().map(|outstanding| Load::Closed { outstanding: *outstanding }));
                }
                StepKind::Loads(_) => depths[*number].push(open(1.0)),
                StepKind::Tune(tune) if tune.streams.contains(number) => {
                    depths[*number].push(Load::Closed { outstanding: tune.most });
                }
                _ => {}
            }
        }
    }
    depths
}

fn open(rate: f64) -> Load {
    Load::Open { from: rate, to: rate, arrivals: Arrivals::Poisson }
}

/// Who makes the load.
enum Generator {
    Here(Rig),
    Fleet(Fleet),
}

impl Generator {
    fn open(env: &Env, plan: &Plan, depths: &[Vec<Load>]) -> Result<Self> {
        let workload = plan.profile.workload(plan.quick);
        match &plan.fleet.token {
            Some(token) => Fleet::open(env, plan, &plan.fleet.workers, token).map(Generator::Fleet),
            None => Rig::open(env, workload, &plan.targets, depths, &plan.options).map(Generator::Here),
        }
    }

    fn run(&mut self, phase: &Phase, control: &Control) -> Result<Outcome> {
        match self {
            Generator::Here(rig) => rig.run(phase, control),
            Generator::Fleet(fleet) => fleet.run(phase, control),
        }
    }

    /// I/Os a second that it does with this load when nothing holds it up.
    fn ceiling(&mut self, env: &Env, plan: &Plan, loads: &[Option<Load>], footprint: f64) -> Result<f64> {
        match self {
            Generator::Here(_) => {
                ceiling(env, plan.profile.workload(plan.quick), &plan.options, loads, footprint)
            }
            Generator::Fleet(fleet) => fleet.ceiling(loads, footprint),
        }
    }
}

/// I/Os a second that this process does with a load when nothing holds it up; what comes by itself is taken as a closed loop.
pub(crate) fn ceiling(
    env: &Env,
    workload: &Workload,
    options: &RigOptions,
    loads: &[Option<Load>],
    footprint: f64,
) -> Result<f64> {
    let closed = |load: &Option<Load>| match load {
        Some(Load::Open { .. } | Load::Replay { .. }) => Some(Load::Closed { outstanding: 32 }),
        other => *other,
    };
    let loads: Vec<Option<Load>> = loads.iter().map(closed).collect();
    let depths: Vec<Vec<Load>> = loads.iter().map(|load| load.iter().copied().collect()).collect();
    let mut rig = Rig::open(env, workload, &[TargetSpec::Null], &depths, options)?;
    let phase = Phase { goal: Goal::For(CEILING_TIME), loads, footprint, grace: GRACE };
    let outcome = rig.run(&phase, &Control::new())?;
    let ios: u64 = outcome.streams.iter().map(StreamRecord::ios).sum();
    Ok(ios as f64 / outcome.elapsed.as_secs_f64())
}

struct Run<'a> {
    env: &'a Env,
    plan: &'a Plan,
    workload: &'a Workload,
    generator: Generator,
    reins: &'a Reins,
    points: Vec<Point>,
    /// The load of each stream that a step has found to be the best.
    tuned: Vec<Option<Load>>,
    /// It did not come back: nothing more can be measured.
    target_is_gone: bool,
}

impl Run<'_> {
    fn fill(&mut self) -> Result<()> {
        let bytes = self.workload.volumes.iter().map(|volume| volume.bytes).sum();
        let doing = Doing { what: "writing every block once".into(), bytes: Some(bytes), ..Doing::default() };
        let loads = vec![None; self.workload.streams.len()];
        self.phase(doing, Phase { goal: Goal::Fill, loads, footprint: 1.0, grace: GRACE }).map(drop)
    }

    fn step(&mut self, step: &Step) -> Result<()> {
        let Times { precondition, sample, point } = self.plan.profile.times(self.plan.quick);
        let own =
            |number: &usize| (*number, self.tuned[*number].unwrap_or(self.workload.streams[*number].load));
        let as_they_are: Vec<(usize, Load)> = step.streams.iter().map(own).collect();
        match &step.kind {
            StepKind::Hold => self.point(step, "", as_they_are, 1.0, precondition, sample),
            StepKind::Sweep(depths) => depths.iter().try_for_each(|outstanding| {
                let loads = as_they_are.iter().map(|(number, load)| match load {
                    Load::Follow { .. } => (*number, *load),
                    _ => (*number, Load::Closed { outstanding: *outstanding }),
                });
                self.point(step, &format!("depth {outstanding}"), loads.collect(), 1.0, point / 4, point)
            }),
            StepKind::Loads(shares) => shares.iter().try_for_each(|share| {
                let loads = self.share_of_capacity(&as_they_are, *share);
                self.point(step, &format!("{:.0}% of capacity", share * 100.0), loads, 1.0, point / 4, point)
            }),
            StepKind::Footprints(parts) => parts.iter().try_for_each(|part| {
                let label = format!("{:.0}% of each volume", part * 100.0);
                self.point(step, &label, as_they_are.clone(), *part, point / 4, point)
            }),
            StepKind::Fill(volumes, share) => self.fill_step(step, volumes, *share),
            StepKind::Copy(from, to, share) => self.copy_step(step, *from, to, *share),
            StepKind::Check(volumes, share) => self.check_step(step, volumes, *share),
            StepKind::Tune(tune) => self.tune(step, tune, &as_they_are),
            StepKind::Outages => self.outages(step, &as_they_are),
        }
    }

    /// Open loads for streams of which the closed ones before have shown what they can do.
    fn share_of_capacity(&self, streams: &[(usize, Load)], share: f64) -> Vec<(usize, Load)> {
        let leads = |(number, load): &(usize, Load)| match load {
            Load::Follow { .. } => (*number, *load),
            _ => (*number, open((self.capacity(streams, *number) * share).max(1.0))),
        };
        streams.iter().map(leads).collect()
    }

    /// What a stream did in the point in which all of these together did most.
    fn capacity(&self, streams: &[(usize, Load)], number: usize) -> f64 {
        let same = |point: &&Point| {
            point.footprint == 1.0
                && point.is_load()
                && point.loads.iter().map(|load| load.stream).eq(streams.iter().map(|(number, _)| *number))
        };
        let closed = |point: &&Point| point.loads.iter().any(|load| load.outstanding.is_some());
        let best =
            self.points.iter().filter(same).filter(closed).max_by(|a, b| a.iops().total_cmp(&b.iops()));
        best.map_or(0.0, |point| {
            let place =
                point.loads.iter().position(|load| load.stream == number).expect("the streams are the same");
            point.streams[place].ios() as f64 / point.seconds
        })
    }

    fn phase(&mut self, doing: Doing, phase: Phase) -> Result<Outcome> {
        let control = self.reins.begin(Doing { since: self.env.monotonic(), ..doing });
        self.generator.run(&phase, &control)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// One second after another of 4K reads, 8 in flight, as steady as can be.
    pub(crate) fn point(iops: u64) -> Point {
        const SECONDS: u64 = 12;
        let mut record = StreamRecord::default();
        let mut second = Second::new();
        let nanos = 8_000_000_000 / iops;
        for _ in 0..iops {
            record.read.response.record(nanos);
            second.response.record(nanos);
        }
        record.read.response = (0..SECONDS).fold(crate::record::Latencies::new(), |mut all, _| {
            all.add(&record.read.response);
            all
        });
        record.read.service = record.read.response.clone();
        record.read.ios = iops * SECONDS;
        record.read.bytes = record.read.ios * 4096;
        record.sizes = [(4096, record.read.ios)].into();
        record.random = record.read.ios;
        second.reads = iops;
        second.read_bytes = iops * 4096;
        Point {
            step: "hold".into(),
            label: String::new(),
            loads: vec![PointLoad { stream: 0, name: "s".into(), outstanding: Some(8), rate: None }],
            footprint: 1.0,
            seconds: SECONDS as f64,
            streams: vec![record],
            series: vec![second; SECONDS as usize],
            before: Vec::new(),
            verification: Verification { right: 1, ..Verification::default() },
            busy: 0.1,
            ceiling: 1e6,
            clocks_apart: 0.0,
            cut_short: false,
            machine_cpu: None,
            database: None,
            workers: Vec::new(),
            outage: None,
            task: None,
            probe: None,
        }
    }
}
