//! What a trial runs on each of its arms: a load on volumes, or a database.

use super::{Arm, TrialPlan, Turn};
use crate::machine;
use crate::measure::{self, Measured, Plan, Point, Reins};
use crate::oltp;
use crate::profile::{Profile, Step, StepKind};
use crate::workload::{Load, Workload};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Result};

/// See the module.
#[derive(Clone, Debug)]
pub enum Subject {
    /// A load on volumes.
    Load(Profile),
    /// A database, and where PostgreSQL's programs are; without that they are looked for.
    Database(oltp::Profile, Option<PathBuf>),
}

/// What one run has left.
#[derive(Debug)]
pub struct Ran {
    /// What was measured.
    pub points: Vec<Point>,
    /// What is to be known of it beside the machine, by names.
    pub facts: BTreeMap<String, String>,
    /// Of the volumes, or of the loaded database.
    pub bytes: u64,
    /// What ended it before its time, beside somebody who wished so.
    pub failure: Option<Error>,
}

impl Subject {
    /// By which the profile is run.
    pub fn name(&self) -> &str {
        match self {
            Subject::Load(profile) => &profile.name,
            Subject::Database(profile, _) => &profile.name,
        }
    }

    /// The profile's file.
    pub fn text(&self) -> &str {
        match self {
            Subject::Load(profile) => &profile.text,
            Subject::Database(profile, _) => &profile.text,
        }
    }

    /// How long one run takes at most, without what is written beforehand.
    pub fn duration(&self, quick: bool) -> Duration {
        match self {
            Subject::Load(profile) => profile.duration(quick),
            Subject::Database(profile, _) => profile.duration(quick),
        }
    }

    /// How many figures of one arm will be held against the first's, at most: a ramp may end earlier, and of some machines processor time
    /// cannot be told.
    pub fn figures(&self, quick: bool) -> usize {
        match self {
            Subject::Load(profile) => {
                let workload = profile.workload(quick);
                profile.steps.iter().map(|step| figures_of_step(step, workload)).sum()
            }
            Subject::Database(profile, _) => {
                let steps = profile.scale(quick).users.len();
                // Orders, mean and p99 of each; and the plateau, where that is not the only step.
                3 * steps + usize::from(steps > 1)
            }
        }
    }

    /// Refuses arms that it cannot be run on.
    pub(super) fn check(&self, arms: &[Arm]) -> Result<()> {
        let Subject::Database(profile, _) = self else { return Ok(()) };
        if profile.migration.is_some() || profile.chain.is_some() {
            let what = format!("the profile '{}' moves or recovers the disk of its database", profile.name);
            return Err(Error::new(Kind::Unsupported, what)
                .remedy("take 'lab study recovery --a A --b B', which runs it on each by itself"));
        }
        match arms.iter().find(|arm| arm.targets.len() != 1) {
            Some(arm) => {
                let what = format!(
                    "arm '{}' has {} targets, and a database lies on one",
                    arm.name,
                    arm.targets.len()
                );
                Err(Error::new(Kind::Invalid, what).remedy("name one target for each arm"))
            }
            None => Ok(()),
        }
    }

    /// One run of one arm.
    pub(super) fn run(&self, env: &Env, plan: &TrialPlan, turn: &Turn, reins: &Reins) -> Result<Ran> {
        let (arm, options) = (&plan.arms[turn.arm], plan.options_of(turn));
        match self {
            Subject::Load(profile) => {
                let bytes = profile.bytes(plan.quick) * plan.fleet.workers.len().max(1) as u64;
                let (fleet, targets) = plan.generators(arm);
                let plan = Plan {
                    profile: profile.clone(),
                    quick: plan.quick,
                    targets,
                    options,
                    fleet,
                    outages: None,
                    counters: plan.counters.get(turn.arm).cloned().unwrap_or_default(),
                    capacities: plan.capacities.clone(),
                };
                let Measured { points, machines, failure } = measure::run(env, &plan, reins)?;
                let of = |(name, machine): &(String, _)| (format!("worker {name}"), machine::words(machine));
                Ran { points, facts: machines.iter().map(of).collect(), bytes, failure }.or_nothing()
            }
            Subject::Database(profile, programs) => {
                let plan = oltp::Plan {
                    profile: profile.clone(),
                    quick: plan.quick,
                    target: arm.targets[0].clone(),
                    seed: options.seed,
                    destroy_data: options.destroy_data,
                    programs: programs.clone(),
                    to: None,
                    keeper: None,
                    beside: Vec::new(),
                };
                let outcome = oltp::run(env, &plan, reins)?;
                let oltp::Outcome { points, facts, bytes, failure, .. } = outcome;
                Ran { points, facts, bytes, failure }.or_nothing()
            }
        }
    }
}

impl Ran {
    /// Fails where it broke before anything was measured.
    fn or_nothing(self) -> Result<Ran> {
        match self.failure {
            Some(failure) if self.points.is_empty() => Err(failure),
            _ => Ok(self),
        }
    }
}

/// As [`super::findings`] compares them: mean, p99 and processor time of any point, the rate where a loop is closed, and how long it took of
/// what is timed as a whole.
fn figures_of_step(step: &Step, workload: &Workload) -> usize {
    let is_closed = |number: &usize| matches!(workload.streams[*number].load, Load::Closed { .. });
    let own = if step.streams.iter().any(is_closed) { 4 } else { 3 };
    match &step.kind {
        StepKind::Hold => own,
        StepKind::Sweep(depths) => 4 * depths.len(),
        StepKind::Loads(points) | StepKind::Rates(points) => 3 * points.len(),
        StepKind::Footprints(parts) => own * parts.len(),
        StepKind::Fill(..) | StepKind::Check(..) => 5,
        StepKind::Copy(_, to, _) => 5 * to.len(),
        // Steps of a search are not compared, and what is struck is in no trial.
        StepKind::Tune(_) | StepKind::Outages => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::tests::bundle;
    use crate::machine::Busy;
    use crate::measure::tests::point;
    use crate::profile::shipped;
    use crate::trial::findings;

    /// Goal: what is told beforehand counts what will be compared.
    #[test]
    fn figures_are_counted_as_they_are_compared() {
        let profile = shipped::find("ab").unwrap();
        let names: Vec<String> = profile.steps.iter().map(|step| step.name.clone()).collect();
        let busy = Busy { min: 1.0, mean: 2.0, max: 3.0, of: Some(4), stolen: 0.0 };
        let of_step = |step: &String| {
            let mut point = point(1000);
            (point.step, point.machine_cpu) = (step.clone(), Some(busy));
            point
        };
        let (mut turns, mut bundles) = (Vec::new(), Vec::new());
        for arm in 0..3 {
            turns.push(Turn { round: 0, arm, seed: 1, began: 0, cut_short: false });
            bundles.push(bundle(names.iter().map(of_step).collect()));
        }
        let summaries: Vec<_> =
            bundles.iter().map(|bundle| crate::verdict::summarise(bundle).unwrap()).collect();
        let found = findings(3, &turns, &bundles, &summaries, 1);
        assert_eq!(2 * Subject::Load(profile).figures(true), found.contrasts.len());
        let database = oltp::Profile::shipped().find(|profile| profile.name == "oltp").unwrap();
        let steps = database.scale(true).users.len();
        assert_eq!(Subject::Database(database, None).figures(true), 3 * steps + 1);
    }
}
