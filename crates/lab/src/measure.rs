//! A profile, run on a target: volumes written whole, then each step, then what it showed.
//!
//! *Promises*: what is not measured is not told; a run that is ended early is marked and keeps what it has. *Never*: counts
//! what was issued before the load had gone on for its precondition.

use crate::load::{Control, Goal, Outcome, Phase};
use crate::oltp::record::DatabaseRecord;
use crate::profile::{Profile, Step, StepKind, Times};
use crate::record::{Second, StreamRecord};
use crate::rig::{Rig, RigOptions};
use crate::target::TargetSpec;
use crate::verify::Verification;
use crate::workload::{Arrivals, Load, Workload};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
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
    stopped: std::sync::atomic::AtomicBool,
}

impl Reins {
    /// Of a run that has not begun.
    pub fn new() -> Self {
        Reins { doing: Mutex::new((Doing::default(), Arc::new(Control::new()))), stopped: false.into() }
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

    pub(crate) fn begin(&self, doing: Doing) -> Arc<Control> {
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

/// Runs all of a plan.
///
/// # Errors
/// What is wrong with a target; what has been measured until then is lost.
pub fn run(env: &Env, plan: &Plan, reins: &Reins) -> Result<Vec<Point>> {
    let workload = plan.profile.workload(plan.quick);
    let depths = depths(workload, &plan.profile.steps);
    let rig = Rig::open(env, workload, &plan.targets, &depths, &plan.options)?;
    let mut run = Run { env, plan, workload, rig, reins, points: Vec::new() };
    run.fill()?;
    for step in &plan.profile.steps {
        run.step(step)?;
        if reins.is_stopped() {
            break;
        }
    }
    Ok(run.points)
}

/// All loads that each stream will be given.
fn depths(workload: &Workload, steps: &[Step]) -> Vec<Vec<Load>> {
    let mut depths: Vec<Vec<Load>> = workload.streams.iter().map(|stream| vec![stream.load]).collect();
    for step in steps {
        for number in &step.streams {
            match &step.kind {
                StepKind::Sweep(points) => {
                    depths[*number]
                        .extend(points.iter().map(|outstanding| Load::Closed { outstanding: *outstanding }));
                }
                StepKind::Loads(_) => depths[*number].push(open(1.0)),
                StepKind::Hold | StepKind::Footprints(_) => {}
            }
        }
    }
    depths
}

fn open(rate: f64) -> Load {
    Load::Open { from: rate, to: rate, arrivals: Arrivals::Poisson }
}

struct Run<'a> {
    env: &'a Env,
    plan: &'a Plan,
    workload: &'a Workload,
    rig: Rig,
    reins: &'a Reins,
    points: Vec<Point>,
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
        let own = |number: &usize| (*number, self.workload.streams[*number].load);
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

    fn point(
        &mut self,
        step: &Step,
        label: &str,
        loads: Vec<(usize, Load)>,
        footprint: f64,
        before: Duration,
        sample: Duration,
    ) -> Result<()> {
        if self.reins.is_stopped() {
            return Ok(());
        }
        let name = if label.is_empty() { step.name.clone() } else { format!("{}, {label}", step.name) };
        let mut all = vec![None; self.workload.streams.len()];
        loads.iter().for_each(|(number, load)| all[*number] = Some(*load));
        let ceiling = self.ceiling(&all, footprint)?;
        let phase = |length| Phase { goal: Goal::For(length), loads: all.clone(), footprint, grace: GRACE };
        let doing = |what: String, length| Doing { what, length: Some(length), ..Doing::default() };
        let settling = self.phase(doing(format!("{name}: settling, not counted"), before), phase(before))?;
        if self.reins.is_stopped() {
            return Ok(());
        }
        let clocks = self.clocks();
        let outcome = self.phase(doing(name, sample), phase(sample))?;
        let clocks_apart = self.clocks() - clocks;
        let mut verification = settling.verification;
        verification.add(&outcome.verification);
        let seconds = outcome.elapsed.as_secs_f64();
        let record = |(number, _): &(usize, Load)| outcome.streams.get(*number).cloned().unwrap_or_default();
        self.points.push(Point {
            step: step.name.clone(),
            label: label.into(),
            streams: loads.iter().map(record).collect(),
            loads: loads.iter().map(|(number, load)| self.told(*number, *load)).collect(),
            footprint,
            seconds,
            series: outcome.series,
            before: settling.series,
            verification,
            busy: outcome.cpu.as_secs_f64() / (seconds * outcome.threads as f64).max(1e-9),
            ceiling,
            clocks_apart,
            cut_short: self.reins.is_stopped(),
            database: None,
        });
        Ok(())
    }

    fn told(&self, stream: usize, load: Load) -> PointLoad {
        let (outstanding, rate) = match load {
            Load::Closed { outstanding } => (Some(outstanding), None),
            Load::Open { from, to, .. } => (None, Some((from + to) / 2.0)),
            Load::Follow { .. } => (None, None),
        };
        PointLoad { stream, name: self.workload.streams[stream].name.clone(), outstanding, rate }
    }

    /// What the generator does with this load when nothing holds it up; an open one is taken as a closed one.
    fn ceiling(&self, loads: &[Option<Load>], footprint: f64) -> Result<f64> {
        let closed = |load: &Option<Load>| match load {
            Some(Load::Open { .. }) => Some(Load::Closed { outstanding: 32 }),
            other => *other,
        };
        let loads: Vec<Option<Load>> = loads.iter().map(closed).collect();
        let depths: Vec<Vec<Load>> = loads.iter().map(|load| load.iter().copied().collect()).collect();
        let mut rig = Rig::open(self.env, self.workload, &[TargetSpec::Null], &depths, &self.plan.options)?;
        let phase = Phase { goal: Goal::For(CEILING_TIME), loads, footprint, grace: GRACE };
        let outcome = rig.run(&phase, &Control::new())?;
        let ios: u64 = outcome.streams.iter().map(StreamRecord::ios).sum();
        Ok(ios as f64 / outcome.elapsed.as_secs_f64())
    }

    fn phase(&mut self, doing: Doing, phase: Phase) -> Result<Outcome> {
        let control = self.reins.begin(Doing { since: self.env.monotonic(), ..doing });
        self.rig.run(&phase, &control)
    }

    /// Wall clock less steady clock, in seconds.
    fn clocks(&self) -> f64 {
        self.env.wall() as f64 / 1e9 - self.env.monotonic().as_secs_f64()
    }
}
