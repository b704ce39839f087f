//! A trial: one profile on several arms in turn, so that what differs between them can be told from what differs with time.
//!
//! Each round runs every arm once; orders are drawn and mirrored ([`crate::stats::compare::order`]). Every run writes its volumes
//! anew, with contents of its own, so that no arm finds what another has left. *Promises*: a run that was made is kept, whatever
//! comes after it. *Never*: compares what was not asked for alike. *May be used by*: the command line.

mod arms;
mod contrast;
mod kept;
mod shared;
mod subject;

pub use arms::{Arm, arms_of_file, file_of_arms};
pub use contrast::{Beside, Contrast, Figure, Findings, Level, findings};
pub use kept::{ARMS_FILE, Trial, hash_of_arms, load, run_folder, save, save_arms};
pub use shared::{Shared, finding_takes, share};
pub use subject::{Ran, Subject};

use crate::counters::Counters;
use crate::measure::{Capacity, FleetPlan, Reins};
use crate::payload::mix;
use crate::rig::RigOptions;
use crate::stats::compare::order;
use crate::target::TargetSpec;
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;
use std::sync::Arc;
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Result};
use utoipa::ToSchema;

/// Arms of one trial at most.
pub const ARMS_MAX: usize = 32;

/// What is run, on what, and how often.
#[derive(Clone, Debug)]
pub struct TrialPlan {
    /// What.
    pub subject: Subject,
    /// At its quick size and times.
    pub quick: bool,
    /// At least two; all are held against the first.
    pub arms: Vec<Arm>,
    /// How often each arm is run, at most.
    pub rounds: usize,
    /// Threads, seed, what is verified and what may go.
    pub options: RigOptions,
    /// Other machines that make the load, on each arm's targets as they are named there; nobody: this one does.
    pub fleet: FleetPlan,
    /// Of each arm, who says what its targets have done; nobody where one of them cannot say it.
    pub counters: Vec<Vec<Arc<dyn Counters>>>,
    /// Of which open loops of every arm are given shares, as [`share`] finds it; of streams that are not in it each run takes its own.
    pub capacities: Vec<Capacity>,
}

/// One run of one arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Turn {
    /// From 0.
    pub round: usize,
    /// The arm's number.
    pub arm: usize,
    /// Of everything that was drawn in it.
    pub seed: u64,
    /// When it began: seconds since 1970.
    pub began: u64,
    /// It was ended before its time.
    pub cut_short: bool,
}

impl TrialPlan {
    /// Refuses what is no trial.
    ///
    /// # Errors
    /// [`Kind::Invalid`].
    pub fn check(&self) -> Result<()> {
        let invalid = |what: String| Err(Error::new(Kind::Invalid, what));
        if !(2..=ARMS_MAX).contains(&self.arms.len()) {
            return invalid(format!("a trial has from 2 to {ARMS_MAX} arms, not {}", self.arms.len()));
        }
        for (number, arm) in self.arms.iter().enumerate() {
            if self.arms[..number].iter().any(|other| other.name == arm.name) {
                return invalid(format!("two arms are called '{}'", arm.name));
            }
        }
        self.subject.check(&self.arms)
    }

    /// Who loads the targets of an arm, and those that this machine does.
    pub fn generators(&self, arm: &Arm) -> (FleetPlan, Vec<TargetSpec>) {
        match self.fleet.workers.is_empty() {
            true => (FleetPlan::default(), arm.targets.clone()),
            false => (FleetPlan { targets: arm.words.clone(), ..self.fleet.clone() }, Vec::new()),
        }
    }

    /// The options of one arm's run.
    pub fn options_of(&self, turn: &Turn) -> RigOptions {
        RigOptions { seed: turn.seed, ..self.options.clone() }
    }
}

/// Runs all of it; `each` is given every run as soon as it is made, and says whether that is enough.
///
/// # Errors
/// What is wrong with a target, with a command of an arm, or what `each` says.
pub fn run(
    env: &Env,
    plan: &TrialPlan,
    reins: &Reins,
    mut each: impl FnMut(Turn, Ran) -> Result<ControlFlow<()>>,
) -> Result<()> {
    plan.check()?;
    for (round, arms) in order(plan.arms.len(), plan.rounds, plan.options.seed).into_iter().enumerate() {
        for number in arms {
            let arm = &plan.arms[number];
            if reins.is_stopped() {
                return Ok(());
            }
            reins.within(&format!("round {} of {}, '{}': ", round + 1, plan.rounds, arm.name));
            let seed = mix(plan.options.seed ^ mix((round * ARMS_MAX + number) as u64)) >> 16;
            let mut turn =
                Turn { round, arm: number, seed, began: env.wall() / 1_000_000_000, cut_short: false };
            arm.prepare()?;
            let ran = plan.subject.run(env, plan, &turn, reins);
            // However it ended, what was prepared is put away.
            let after = arm.put_away();
            let of_arm = |e: Error| e.context(format!("arm '{}'", arm.name));
            let mut ran = ran.map_err(of_arm)?;
            let broken = ran.failure.take();
            turn.cut_short = reins.is_stopped() || broken.is_some();
            let enough = each(turn, ran)?.is_break();
            broken.map_or(Ok(()), |e| Err(of_arm(e)))?;
            after?;
            if enough || reins.is_stopped() {
                return Ok(());
            }
        }
    }
    Ok(())
}
