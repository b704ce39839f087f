//! Who makes the load of a run: this process, or workers elsewhere.

use super::{GRACE, Plan};
use crate::load::{Control, Goal, Outcome, Phase};
use crate::record::StreamRecord;
use crate::rig::{Rig, RigOptions};
use crate::target::TargetSpec;
use crate::worker::Fleet;
use crate::workload::{Load, Workload};
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::Result;

/// How long the generator is measured against a target that answers at once.
const CEILING_TIME: Duration = Duration::from_secs(1);

/// Who makes the load.
pub(super) enum Generator {
    Here(Rig),
    Fleet(Fleet),
}

impl Generator {
    pub(super) fn open(env: &Env, plan: &Plan, depths: &[Vec<Load>]) -> Result<Self> {
        let workload = plan.profile.workload(plan.quick);
        match &plan.fleet.token {
            Some(token) => Fleet::open(env, plan, &plan.fleet.workers, token).map(Generator::Fleet),
            None => Rig::open(env, workload, &plan.targets, depths, &plan.options).map(Generator::Here),
        }
    }

    /// How many make each load: with workers each has volumes of its own, and all of the load on them.
    pub(super) fn copies(&self) -> usize {
        match self {
            Generator::Here(_) => 1,
            Generator::Fleet(fleet) => fleet.size(),
        }
    }

    pub(super) fn run(&mut self, phase: &Phase, control: &Control) -> Result<Outcome> {
        match self {
            Generator::Here(rig) => rig.run(phase, control),
            Generator::Fleet(fleet) => fleet.run(phase, control),
        }
    }

    /// I/Os a second that it does with this load when nothing holds it up.
    pub(super) fn ceiling(
        &mut self,
        env: &Env,
        plan: &Plan,
        loads: &[Option<Load>],
        footprint: f64,
    ) -> Result<f64> {
        match self {
            Generator::Here(_) => {
                let workload = plan.profile.workload(plan.quick);
                ceiling(env, workload, &plan.targets, &plan.options, loads, footprint)
            }
            Generator::Fleet(fleet) => fleet.ceiling(loads, footprint),
        }
    }
}

/// I/Os a second that this process does with a load when nothing holds it up; what comes by itself is taken as a closed loop. Where what
/// `targets` answer is looked at, as much is done here with every read.
pub(crate) fn ceiling(
    env: &Env,
    workload: &Workload,
    targets: &[TargetSpec],
    options: &RigOptions,
    loads: &[Option<Load>],
    footprint: f64,
) -> Result<f64> {
    let closed = |load: &Option<Load>| match load {
        Some(Load::Open { .. } | Load::Replay { .. }) => Some(Load::Closed { outstanding: 32 }),
        other => *other,
    };
    let comes_by_itself = loads.iter().any(|load| matches!(load, Some(Load::Replay { .. })));
    let loads: Vec<Option<Load>> = loads.iter().map(closed).collect();
    let depths: Vec<Vec<Load>> = loads.iter().map(|load| load.iter().copied().collect()).collect();
    let mut rig = match options.verify && !targets.contains(&TargetSpec::Null) {
        true => Rig::rehearse(env, workload, &depths, options),
        false => Rig::open(env, workload, &[TargetSpec::Null], &depths, options),
    }?;
    let phase = Phase { goal: Goal::For(CEILING_TIME), loads, footprint, grace: GRACE };
    if comes_by_itself {
        // A trace's volumes are many, and so are the buffers: their first touch is the kernel's time, and not this process's.
        rig.run(&phase, &Control::new())?;
    }
    let outcome = rig.run(&phase, &Control::new())?;
    let ios: u64 = outcome.streams.iter().map(StreamRecord::ios).sum();
    Ok(ios as f64 / outcome.elapsed.as_secs_f64())
}
