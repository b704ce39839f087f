//! A profile, run on a target: volumes written whole, then each step, then what it showed.
//!
//! *Promises*: what is not measured is not told; a run that is ended early is marked and keeps what it has. *Never*: counts
//! what was issued before the load had gone on for its precondition.

mod alike;
mod capacity;
mod cost;
mod fit;
mod generator;
mod outages;
mod point;
mod reins;
mod tasks;
mod tune;

pub use capacity::Capacity;
pub use cost::CpuCost;
pub use fit::fit;
pub(crate) use generator::ceiling;
pub use reins::{Doing, Reins};
pub use tasks::{TaskKind, TaskRecord};
pub use tune::Probe;

use crate::chaos::{OutageRecord, Outages};
use crate::counters::{Counters, Reconciled};
use crate::load::{Effort, Goal, Outcome, Phase};
use crate::machine::Busy;
use crate::oltp::record::DatabaseRecord;
use crate::profile::{Profile, Step, StepKind, Times};
use crate::record::{Second, StreamRecord};
use crate::reduced::Reduced;
use crate::rig::RigOptions;
use crate::target::TargetSpec;
use crate::verify::Verification;
use crate::worker::{Token, WorkerAddress};
use crate::workload::{Arrivals, Load, Workload};
use generator::Generator;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::{Error, Result};

/// How long I/Os in flight at the end of a phase are waited for.
const GRACE: Duration = Duration::from_secs(60);

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
    /// Who says what the targets have done; nobody where one of them cannot say it.
    pub counters: Vec<Arc<dyn Counters>>,
    /// Of which open loops are given shares, of streams of which the run's own is not to count.
    pub capacities: Vec<Capacity>,
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
    /// I/Os of it that failed, and that were never answered.
    #[serde(default, skip_serializing_if = "Unsettled::is_none")]
    pub unsettled: Unsettled,
    /// What was read.
    pub verification: Verification,
    /// CPU seconds of the generator's busiest thread, of each second.
    pub busy: f64,
    /// What all of its threads used of the processors, and what of it was work; nothing of a database, and of a bundle that does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
    /// I/Os a second that the same load does against a target that answers at once.
    pub ceiling: f64,
    /// How far wall clock and steady clock had come apart by its end, in seconds.
    pub clocks_apart: f64,
    /// How far what the volumes held at its end reduces; of those of which that is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reduced: Vec<Reduced>,
    /// What the target has counted beside what it answered, where it can say that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reconciled: Option<Reconciled>,
    /// Why the target did not say at the end what it had counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncounted: Option<String>,
    /// Bytes that were written since the point before it, or since the run began: before it, while it settled, and while it was measured; nothing of a
    /// database, and of a bundle that does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<u64>,
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

/// I/Os that were not counted, and went wrong all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unsettled {
    /// Answered with an error.
    pub failed: u64,
    /// Never answered.
    pub unanswered: u64,
}

impl Unsettled {
    fn is_none(&self) -> bool {
        *self == Unsettled::default()
    }
}

/// The load of one stream in one point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PointLoad {
    /// The stream's number in the workload.
    pub stream: usize,
    /// Its name.
    pub name: String,
    /// I/Os in flight, of a closed loop; of all workers together.
    pub outstanding: Option<u32>,
    /// I/Os a second, of an open one; of all workers together.
    pub rate: Option<f64>,
    /// How these are spaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<Arrivals>,
}

impl PointLoad {
    /// Whether it was an open or a closed loop, and how much of one.
    pub fn words(&self) -> String {
        match (self.outstanding, self.rate) {
            (Some(outstanding), _) => format!("closed, {outstanding} in flight"),
            (None, Some(rate)) => format!("open, {rate:.0}/s"),
            // By the stream that it follows, or by its trace.
            (None, None) => "paced".into(),
        }
    }
}

impl Point {
    /// Step and label.
    pub fn name(&self) -> String {
        if self.label.is_empty() { self.step.clone() } else { format!("{}, {}", self.step, self.label) }
    }

    /// Its load in words, of streams that are asked for the same once: whether it was a closed loop or an open one, and how much of it.
    pub fn load_words(&self) -> String {
        if self.task.is_some() {
            return "timed as a whole".into();
        }
        if let Some(database) = &self.database {
            return format!("closed, {} in flight", database.users);
        }
        match &PointLoad::together(&self.loads)[..] {
            [(_, one)] => one.words(),
            several => {
                let of = |(_, load): &(_, PointLoad)| format!("{}: {}", load.name, load.words());
                several.iter().map(of).collect::<Vec<_>>().join("; ")
            }
        }
    }

    /// Whether streams ran, and nobody struck.
    pub fn is_load(&self) -> bool {
        self.task.is_none() && self.outage.is_none()
    }

    /// Whether a requirement may be about it: a search tries what does not keep one.
    pub fn is_judged(&self) -> bool {
        self.task.is_none() && self.probe.is_none()
    }

    /// How busy the machine was on which the load was made; nothing where workers on others made it.
    pub fn machine_of_load(&self) -> Option<Busy> {
        self.machine_cpu.filter(|_| self.workers.is_empty())
    }

    /// I/Os a second.
    pub fn iops(&self) -> f64 {
        self.streams.iter().map(|record| record.ios() as f64).sum::<f64>() / self.seconds.max(1e-9)
    }
}

/// What came of a plan.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Each load that was measured.
    pub points: Vec<Point>,
    /// What the machines of other workers tell of themselves, by the workers' names.
    pub machines: Vec<(String, BTreeMap<String, String>)>,
    /// What ended it before its time, beside somebody who wished so.
    pub failure: Option<Error>,
}

impl Measured {
    /// Fails where it was ended by an error, and lets go of what was measured until then.
    ///
    /// # Errors
    /// What ended it.
    pub fn unbroken(self) -> Result<Measured> {
        self.failure.map_or_else(|| Ok(Measured { failure: None, ..self }), Err)
    }
}

/// Runs all of a plan.
///
/// # Errors
/// What is wrong with a target, before anything is measured; what fails later is in the outcome.
pub fn run(env: &Env, plan: &Plan, reins: &Reins) -> Result<Measured> {
    outages::check(plan)?;
    let workload = plan.profile.workload(plan.quick);
    let depths = depths(workload, &plan.profile.steps);
    let generator = Generator::open(env, plan, &depths)?;
    let tuned = vec![None; workload.streams.len()];
    let mut run = Run {
        env,
        plan,
        workload,
        generator,
        reins,
        points: Vec::new(),
        written: 0,
        tuned,
        target_is_gone: false,
    };
    if !plan.profile.fills_itself() {
        run.fill()?;
    }
    let mut failure = None;
    for step in &plan.profile.steps {
        failure = run.step(step).err();
        if failure.is_some() || reins.is_stopped() || run.target_is_gone {
            break;
        }
    }
    if let Some(error) = failure.take_if(|_| run.points.is_empty()) {
        return Err(error);
    }
    let machines = match &run.generator {
        Generator::Here(_) => Vec::new(),
        Generator::Fleet(fleet) => {
            fleet.machines().map(|(name, machine)| (name.to_owned(), machine.clone())).collect()
        }
    };
    Ok(Measured { points: run.points, machines, failure })
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
                StepKind::Loads(_) | StepKind::Rates(_) => depths[*number].push(open(1.0)),
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

struct Run<'a> {
    env: &'a Env,
    plan: &'a Plan,
    workload: &'a Workload,
    generator: Generator,
    reins: &'a Reins,
    points: Vec<Point>,
    /// Bytes, since the last of them.
    written: u64,
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
        let outcome = self.phase(doing, Phase { goal: Goal::Fill, loads, footprint: 1.0, grace: GRACE })?;
        // One that was ended has I/Os that nobody waited for.
        if self.reins.is_stopped() { Ok(()) } else { outcome.check_filled() }
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
            StepKind::Rates(rates) => rates.iter().try_for_each(|rate| {
                let loads = as_they_are.iter().map(|(number, load)| match load {
                    Load::Follow { .. } => (*number, *load),
                    _ => (*number, open(*rate)),
                });
                self.point(step, &format!("{rate}/s"), loads.collect(), 1.0, point / 4, point)
            }),
            StepKind::Footprints(parts) => parts.iter().try_for_each(|part| {
                let label = format!("{:.0}% of each volume", part * 100.0);
                let (before, sample) = self.plan.profile.footprint_times(self.plan.quick);
                self.point(step, &label, as_they_are.clone(), *part, before, sample)
            }),
            StepKind::Fill(volumes, share) => self.fill_step(step, volumes, *share),
            StepKind::Copy(from, to, share) => self.copy_step(step, *from, to, *share),
            StepKind::Check(volumes, share) => self.check_step(step, volumes, *share),
            StepKind::Tune(tune) => self.tune(step, tune, &as_they_are),
            StepKind::Outages => self.outages(step, &as_they_are),
        }
    }

    /// Open loads for streams of which it is given, or the closed ones before have shown, what they can do. Each generator makes its part.
    fn share_of_capacity(&self, streams: &[(usize, Load)], share: f64) -> Vec<(usize, Load)> {
        let numbers: Vec<usize> = streams.iter().map(|(number, _)| *number).collect();
        let given = self.plan.capacities.iter().find(|one| one.streams == numbers).cloned();
        let capacity = given.or_else(|| Capacity::of(&self.points, &numbers));
        let rate = |number| capacity.as_ref().map_or(0.0, |capacity| capacity.of_stream(number));
        let share = share / self.generator.copies() as f64;
        let leads = |(number, load): &(usize, Load)| match load {
            Load::Follow { .. } => (*number, *load),
            _ => (*number, open((rate(*number) * share).max(1.0))),
        };
        streams.iter().map(leads).collect()
    }

    fn phase(&mut self, doing: Doing, phase: Phase) -> Result<Outcome> {
        let control = self.reins.begin(Doing { since: self.env.monotonic(), ..doing });
        let outcome = self.generator.run(&phase, &control)?;
        self.written += outcome.written();
        Ok(outcome)
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
            loads: vec![PointLoad {
                stream: 0,
                name: "s".into(),
                outstanding: Some(8),
                rate: None,
                arrivals: None,
            }],
            footprint: 1.0,
            seconds: SECONDS as f64,
            streams: vec![record],
            series: vec![second; SECONDS as usize],
            before: Vec::new(),
            verification: Verification { right: 1, ..Verification::default() },
            busy: 0.1,
            effort: None,
            ceiling: 1e6,
            clocks_apart: 0.0,
            reduced: Vec::new(),
            reconciled: None,
            uncounted: None,
            unsettled: Unsettled::default(),
            written: None,
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
