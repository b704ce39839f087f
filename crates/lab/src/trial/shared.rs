//! What open loops of a trial are asked for: of every arm the same, shares of what the one that can do least does at most.
//!
//! A run gives shares of what it has found itself, and loads of different arms would differ by that. So each arm is run once before the rounds,
//! only so far as finds what it can do; that is no run of the trial, and its points are not kept. Of the *least*, so that no arm is asked for more than it can:
//! one that is has a queue that grows for as long as it is measured, and a mean that tells how long that was.

use super::{Subject, TrialPlan};
use crate::measure::{self, Capacity, Measured, Reins};
use crate::payload::mix;
use crate::profile::{Profile, Step, StepKind, Times};
use crate::rig::RigOptions;
use crate::workload::Load;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::Result;
use utoipa::ToSchema;

/// What was found of streams that open loops are given shares of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Shared {
    /// The streams' names.
    pub streams: Vec<String>,
    /// What each arm did at most, of all of these streams together: I/Os a second, in the order of the arms.
    pub arms: Vec<f64>,
    /// The number of the arm that did least: shares are of what that did.
    pub least: usize,
}

/// How long it takes for one arm to find it, without what is written beforehand; nothing where the plan has no such loads.
pub fn finding_takes(plan: &TrialPlan) -> Option<Duration> {
    let Subject::Load(profile) = &plan.subject else { return None };
    finding(profile).map(|profile| profile.duration(plan.quick))
}

/// Runs each arm as far as it must be, and chooses; nothing where the plan has no such loads, or where somebody ended it.
///
/// # Errors
/// What is wrong with a target, or with a command of an arm.
pub fn share(env: &Env, plan: &TrialPlan, reins: &Reins) -> Result<Vec<(Capacity, Shared)>> {
    let Subject::Load(profile) = &plan.subject else { return Ok(Vec::new()) };
    let Some(finding) = finding(profile) else { return Ok(Vec::new()) };
    let mut of_arms = Vec::new();
    for (number, arm) in plan.arms.iter().enumerate() {
        reins.within(&format!("what '{}' can do: ", arm.name));
        // Apart from those of the rounds.
        let seed = mix(plan.options.seed ^ mix(u64::MAX - number as u64)) >> 16;
        let (fleet, targets) = plan.generators(arm);
        let of_arm = measure::Plan {
            profile: finding.clone(),
            quick: plan.quick,
            targets,
            options: RigOptions { seed, ..plan.options.clone() },
            fleet,
            outages: None,
            counters: Vec::new(),
            capacities: Vec::new(),
        };
        arm.prepare()?;
        let measured = measure::run(env, &of_arm, reins).and_then(Measured::unbroken);
        // However it ended, what was prepared is put away.
        let after = arm.put_away();
        of_arms.push(measured.map_err(|e| e.context(format!("arm '{}'", arm.name)))?.points);
        after?;
        if reins.is_stopped() {
            return Ok(Vec::new());
        }
    }
    let names = &profile.workload(plan.quick).streams;
    let found = wanted(profile).into_iter().filter_map(|streams| {
        let capacities = of_arms.iter().map(|points| Capacity::of(points, streams));
        let names = streams.iter().map(|number| names[*number].name.clone()).collect();
        least(capacities.collect::<Option<_>>()?, names)
    });
    Ok(found.collect())
}

/// Of what arms can do the least.
fn least(capacities: Vec<Capacity>, streams: Vec<String>) -> Option<(Capacity, Shared)> {
    let arms: Vec<f64> = capacities.iter().map(Capacity::total).collect();
    let (least, _) = arms.iter().enumerate().min_by(|(_, a), (_, b)| a.total_cmp(b))?;
    Some((capacities[least].clone(), Shared { streams, arms, least }))
}

fn is_shares(step: &Step) -> bool {
    matches!(step.kind, StepKind::Loads(_))
}

/// The streams of each step whose loads are shares; of several that run the same once.
fn wanted(profile: &Profile) -> Vec<&[usize]> {
    let mut wanted: Vec<&[usize]> = Vec::new();
    for step in profile.steps.iter().filter(|step| is_shares(step)) {
        if !wanted.contains(&&step.streams[..]) {
            wanted.push(&step.streams);
        }
    }
    wanted
}

/// The part of a profile that finds what the streams of its open loops can do, no longer than it must be; nothing where there are none.
fn finding(profile: &Profile) -> Option<Profile> {
    let last = profile.steps.iter().rposition(is_shares)?;
    let (before, wanted) = (&profile.steps[..last], wanted(profile));
    let is_wanted = |step: &Step| wanted.contains(&&step.streams[..]);
    let is_swept = |of: &Step| {
        let varies = |step: &&Step| matches!(step.kind, StepKind::Sweep(_) | StepKind::Tune(_));
        before.iter().filter(varies).any(|step| step.streams == of.streams)
    };
    let is_closed = |step: &Step| {
        let load = |number: &usize| profile.full.streams[*number].load;
        step.streams.iter().any(|number| matches!(load(number), Load::Closed { .. }))
    };
    let kept = |step: &Step| match &step.kind {
        StepKind::Fill(..) | StepKind::Copy(..) => Some(step.clone()),
        StepKind::Sweep(_) | StepKind::Tune(_) => is_wanted(step).then(|| step.clone()),
        // One load for as long as a point of a sweep is enough to know a rate, and a whole volume is what shares are of.
        StepKind::Hold | StepKind::Footprints(_) => {
            let finds = is_wanted(step) && is_closed(step) && !is_swept(step);
            finds.then(|| Step { kind: StepKind::Hold, ..step.clone() })
        }
        _ => None,
    };
    let steps = before.iter().filter_map(kept).collect();
    let short = |Times { point, .. }: Times| Times { precondition: point / 4, sample: point, point };
    Some(Profile { steps, times: profile.times.map(short), ..profile.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::shipped::find;

    #[test]
    fn only_what_finds_a_capacity_is_run_for_it() {
        let poltp = find("poltp").unwrap();
        let found = finding(&poltp).unwrap();
        assert_eq!(found.steps.iter().map(|step| step.name.as_str()).collect::<Vec<_>>(), ["depth"]);
        assert!(found.duration(false) < poltp.duration(false) / 2);
        assert_eq!(finding(&find("ab").unwrap()), None, "no loads of it are shares");
        // Without a sweep the load that is held says it, for as long as one point.
        let held =
            Profile::parse("x", &poltp.text.replace("outstanding = [1, 2, 4, 8, 16, 32]", "")).unwrap();
        let found = finding(&held).unwrap();
        assert!(found.steps.iter().all(|step| step.kind == StepKind::Hold) && !found.steps.is_empty());
        let times = found.times(false);
        assert_eq!((times.sample, times.precondition), (times.point, times.point / 4));
    }

    #[test]
    fn shares_are_of_the_arm_that_does_least() {
        let capacity = |rates: [f64; 2]| Capacity { streams: vec![0, 1], rates: rates.to_vec() };
        let arms = vec![capacity([900.0, 100.0]), capacity([500.0, 200.0]), capacity([700.0, 10.0])];
        let (chosen, told) = least(arms, vec!["db".into(), "log".into()]).unwrap();
        assert_eq!(chosen, capacity([500.0, 200.0]), "and not the least of each stream");
        assert_eq!((told.arms, told.least), (vec![1000.0, 700.0, 710.0], 1));
    }
}
