//! Other machines' loads while a database is recovered: open loops at a fixed rate, on targets of their own, for as long as it takes.
//!
//! After DeepStorage's report, in which a file server (600 I/Os a second) and a transactional load (1,450) ran beside. *Promises*: they have begun
//! before the database is loaded, and go on until its last step has ended; what each was given and how long it took is kept. *Never*:
//! decides a verdict: they are what the database is recovered beside.

use crate::measure::{self, FleetPlan, Measured, Reins};
use crate::profile::{Profile, StepKind, Times, shipped};
use crate::record::Latencies;
use crate::rig::RigOptions;
use crate::target::TargetSpec;
use crate::workload::{Arrivals, Load};
use serde::{Deserialize, Serialize};
use std::thread::ScopedJoinHandle;
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Result};
use utoipa::ToSchema;

/// Longer than any run: they are ended when the database is done.
const LONG: Duration = Duration::from_secs(365 * 24 * 3600);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Sets a neighbour's draws apart from those of others.
const SEEDS_APART: u64 = 0x6e65_6967_6862;

/// A neighbour, as a profile has it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Neighbour {
    /// One of the lab's profiles of a load on volumes.
    pub profile: String,
    /// I/Os a second of each of its streams that follows no other.
    pub iops: f64,
}

/// What a neighbour did meanwhile. Times are nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NeighbourRecord {
    /// Its profile.
    pub profile: String,
    /// Where.
    pub target: String,
    /// I/Os a second that were asked of it.
    pub asked: f64,
    /// I/Os a second of all of its streams.
    pub iops: f64,
    /// Mean response time.
    pub mean: f64,
    /// At the 99th percentile; nothing from fewer than 1,000 I/Os.
    pub p99: Option<u64>,
    /// What ended it before its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl Neighbour {
    pub(in crate::oltp) fn check(&self) -> Result<()> {
        shipped::find(&self.profile)?;
        match self.iops.is_finite() && (1.0..=10_000_000.0).contains(&self.iops) {
            true => Ok(()),
            false => {
                Err(Error::new(Kind::Invalid, format!("{} I/Os a second of '{}'", self.iops, self.profile))
                    .remedy("choose from 1 to 10,000,000"))
            }
        }
    }

    /// One step at its rate, of the streams of the profile's first.
    fn profile(&self) -> Result<Profile> {
        let mut profile = shipped::find(&self.profile)?;
        profile.steps.truncate(1);
        profile.steps.iter_mut().for_each(|step| step.kind = StepKind::Hold);
        let rate = Load::Open { from: self.iops, to: self.iops, arrivals: Arrivals::Poisson };
        for stream in profile.full.streams.iter_mut().chain(&mut profile.quick.streams) {
            if !matches!(stream.load, Load::Follow { .. }) {
                stream.load = rate;
            }
        }
        profile.times = [Times { precondition: Duration::ZERO, sample: LONG, point: LONG }; 2];
        Ok(profile)
    }
}

/// Where they are, and how much of everything is drawn and looked at.
pub(super) struct Beside<'a> {
    pub env: &'a Env,
    pub neighbours: &'a [Neighbour],
    /// One for each of them, or none at all.
    pub targets: &'a [TargetSpec],
    pub quick: bool,
    pub seed: u64,
    pub destroy_data: bool,
}

impl Beside<'_> {
    /// Does `work` beside all of them.
    ///
    /// # Errors
    /// Why one of them did not begin.
    pub(super) fn run<T>(
        &self,
        reins: &Reins,
        work: impl FnOnce() -> T,
    ) -> Result<(T, Vec<NeighbourRecord>)> {
        if self.targets.is_empty() {
            return Ok((work(), Vec::new()));
        }
        let own: Vec<Reins> = self.targets.iter().map(|_| Reins::new()).collect();
        std::thread::scope(|scope| {
            let stop = Stop(&own);
            let mut threads = Vec::new();
            for ((number, target), reins) in self.targets.iter().enumerate().zip(&own) {
                let named = std::thread::Builder::new().name(format!("neighbour-{}", number + 1));
                let spawned = named.spawn_scoped(scope, move || self.load(number, target, reins));
                threads.push(spawned.map_err(|e| Error::io("starting a neighbour's thread", e))?);
            }
            reins.begin(measure::Doing {
                what: "writing the neighbours' volumes".into(),
                ..Default::default()
            });
            while !own.iter().zip(&threads).all(|(reins, thread)| has_begun(reins) || thread.is_finished()) {
                if reins.is_stopped() {
                    own.iter().for_each(Reins::stop);
                }
                std::thread::sleep(LOOK_EVERY);
            }
            if let Some(early) = threads.iter().position(ScopedJoinHandle::is_finished) {
                own.iter().for_each(Reins::stop);
                let why = joined(threads.swap_remove(early)).err();
                let ended = || Error::new(Kind::Closed, "it was ended before it had begun");
                let name = &self.neighbours[early].profile;
                return Err(why.unwrap_or_else(ended).context(format!("the neighbour '{name}'")));
            }
            let done = work();
            drop(stop);
            let records =
                threads.into_iter().enumerate().map(|(number, thread)| self.record(number, joined(thread)));
            Ok((done, records.collect()))
        })
    }

    fn load(&self, number: usize, target: &TargetSpec, reins: &Reins) -> Result<Measured> {
        let plan = measure::Plan {
            profile: self.neighbours[number].profile()?,
            quick: self.quick,
            targets: vec![target.clone()],
            options: RigOptions {
                threads: 1,
                seed: self.seed ^ (SEEDS_APART + number as u64),
                verify: false,
                destroy_data: self.destroy_data,
                lasting: false,
            },
            fleet: FleetPlan::default(),
            outages: None,
            counters: Vec::new(),
            capacities: Vec::new(),
        };
        measure::run(self.env, &plan, reins)
    }

    fn record(&self, number: usize, measured: Result<Measured>) -> NeighbourRecord {
        let Neighbour { profile, iops } = &self.neighbours[number];
        let mut record = NeighbourRecord {
            profile: profile.clone(),
            target: self.targets[number].to_string(),
            asked: *iops,
            ..NeighbourRecord::default()
        };
        match measured {
            Ok(measured) => {
                record.failure = measured.failure.map(|failure| failure.what());
                if let Some(point) = measured.points.last() {
                    let mut all = Latencies::new();
                    for stream in &point.streams {
                        all.add(&stream.read.response);
                        all.add(&stream.write.response);
                    }
                    (record.iops, record.mean, record.p99) = (point.iops(), all.mean(), all.percentile(0.99));
                }
            }
            Err(error) => record.failure = Some(error.what()),
        }
        record
    }
}

fn has_begun(reins: &Reins) -> bool {
    let (doing, control) = reins.doing();
    doing.length.is_some() && control.start().is_some()
}

fn joined(thread: ScopedJoinHandle<'_, Result<Measured>>) -> Result<Measured> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Ends them, however what they are beside ends.
struct Stop<'a>(&'a [Reins]);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(Reins::stop);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stonefold_env::SystemWorld;

    fn beside(targets: &[TargetSpec]) -> Result<((), Vec<NeighbourRecord>)> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let env = Env::new(SystemWorld::new(runtime.handle().clone(), 1).unwrap());
        let neighbours = [
            Neighbour { profile: "fileserver".into(), iops: 600.0 },
            Neighbour { profile: "poltp".into(), iops: 1450.0 },
        ];
        let beside =
            Beside { env: &env, neighbours: &neighbours, targets, quick: true, seed: 3, destroy_data: false };
        beside.run(&Reins::new(), || std::thread::sleep(Duration::from_secs(3)))
    }

    #[test]
    fn they_go_on_at_their_rates_while_something_else_does() {
        let records = beside(&[TargetSpec::Null, TargetSpec::Null]).unwrap().1;
        let [files, database] = &records[..] else { panic!("{records:?}") };
        assert!(files.failure.is_none() && database.failure.is_none(), "{records:?}");
        // Of three seconds, on a machine that may be busy; the database has a log beside it.
        assert!((500.0..700.0).contains(&files.iops), "{files:?}");
        assert!((1300.0..1900.0).contains(&database.iops), "{database:?}");
        assert!(files.p99 > Some(0) && files.mean > 0.0, "{files:?}");
    }

    #[test]
    fn one_that_cannot_begin_is_told_and_ends_the_others() {
        let nowhere = TargetSpec::Device("/nowhere/at/all".into());
        let error = beside(&[TargetSpec::Null, nowhere]).unwrap_err().to_string();
        assert!(error.contains("the neighbour 'poltp'"), "{error}");
        assert!(beside(&[]).unwrap().1.is_empty());
    }
}
