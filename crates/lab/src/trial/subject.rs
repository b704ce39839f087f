//! What a trial runs on each of its arms: a load on volumes, or a database.

use super::{Arm, TrialPlan, Turn};
use crate::measure::{self, FleetPlan, Measured, Plan, Point, Reins};
use crate::oltp;
use crate::profile::Profile;
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
                let bytes = profile.bytes(plan.quick);
                let plan = Plan {
                    profile: profile.clone(),
                    quick: plan.quick,
                    targets: arm.targets.clone(),
                    options,
                    fleet: FleetPlan::default(),
                    outages: None,
                    counters: plan.counters.get(turn.arm).cloned().unwrap_or_default(),
                    capacities: plan.capacities.clone(),
                };
                let points = measure::run(env, &plan, reins).and_then(Measured::unbroken)?.points;
                Ok(Ran { points, facts: BTreeMap::new(), bytes })
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
                match outcome.failure {
                    Some(failure) => Err(failure),
                    None => Ok(Ran { points: outcome.points, facts: outcome.facts, bytes: outcome.bytes }),
                }
            }
        }
    }
}
