//! Runs of the lab: what speaks against publishing one.

use super::{Finding, rules};
use crate::bundle::{Bundle, Run};
use crate::profile::{Profile, StepKind};
use crate::stats::gates::State;
use crate::verdict::{Judged, Summary, Verdict};
use crate::workload::Load;
use serde::Deserialize;

/// A run as a report's JSON tells it; see [`crate::report::RunReport`].
#[derive(Debug, Deserialize)]
pub struct Told {
    /// What was run.
    pub run: Run,
    /// What it says.
    pub summary: Summary,
    /// The profile's file.
    pub profile: String,
}

impl Told {
    /// Of a bundle and what it says.
    pub fn of(bundle: Bundle, summary: Summary) -> Self {
        Told { run: bundle.run, summary, profile: bundle.profile }
    }
}

/// Looks at a run.
pub fn lint_run(told: &Told) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut find = |rule: &'static str, words: String, why: String| {
        found.push(Finding { rule, line: None, column: None, words, why, mend: rules::rule(rule).mend });
    };
    let run = &told.run;
    let marks = [
        (run.quick, "it is quick: a sketch, and no result"),
        (!run.locked, "its profile was modified: not to be held against others"),
        (run.cut_short, "it was ended before its time"),
        (told.summary.verdict == Verdict::Invalid, "its verdict is INVALID"),
    ];
    for (_, why) in marks.iter().filter(|(is, _)| *is) {
        find("sketch", run.profile.clone(), (*why).to_owned());
    }
    for judged in &told.summary.points {
        for gate in judged.gates.iter().filter(|gate| gate.state >= State::Fail) {
            find("gate", judged.name.clone(), format!("{}: {}", gate.name, gate.why));
        }
    }
    let profile = Profile::parse(&run.profile, &told.profile).ok();
    for required in &told.summary.required {
        let Some(judged) = told.summary.points.get(required.point) else { continue };
        let about_latency = ["mean", "max", "p"].iter().any(|figure| {
            let what = required.met.requirement.split(['<', '>']).next().unwrap_or_default().trim();
            let figure_of = what.rsplit(['.', ':']).next().unwrap_or_default();
            figure_of.starts_with(figure)
        });
        if about_latency && profile.as_ref().is_some_and(|profile| is_closed(profile, run.quick, judged)) {
            let why = format!("'{}' was judged on a closed loop", required.met.requirement);
            find("closed-loop", judged.name.clone(), why);
        }
    }
    found
}

/// Whether a point's load was a closed loop.
fn is_closed(profile: &Profile, quick: bool, judged: &Judged) -> bool {
    let is_of = |name: &str| judged.name == name || judged.name.starts_with(&format!("{name}, "));
    let Some(step) = profile.steps.iter().filter(|step| is_of(&step.name)).max_by_key(|step| step.name.len())
    else {
        return false;
    };
    let streams = &profile.workload(quick).streams;
    match step.kind {
        StepKind::Sweep(_) => true,
        StepKind::Loads(_) | StepKind::Rates(_) | StepKind::Outages => false,
        StepKind::Tune(_) => true,
        StepKind::Fill(..) | StepKind::Copy(..) | StepKind::Check(..) => false,
        StepKind::Hold | StepKind::Footprints(_) => {
            step.streams.iter().any(|number| matches!(streams[*number].load, Load::Closed { .. }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::tests::bundle;
    use crate::measure::{Point, tests::point};
    use crate::verdict::summarise;

    fn rules(points: Vec<Point>, steps: &str) -> Vec<&'static str> {
        let mut bundle = bundle(points);
        bundle.run.require = "read.mean<=1s".into();
        bundle.profile.push_str(steps);
        let summary = summarise(&bundle).unwrap();
        lint_run(&Told::of(bundle, summary)).into_iter().map(|finding| finding.rule).collect()
    }

    /// Goal: a time that only a closed loop could answer for is objected to, and no other.
    #[test]
    fn a_time_judged_on_a_closed_loop_is_objected_to() {
        const STEPS: &str = "[[step]]\nname = 'hold'\n[[step]]\nname = 'latency'\nloads = [50]\n";
        let mut open = Point { step: "latency".into(), label: "50% of capacity".into(), ..point(500) };
        (open.loads[0].outstanding, open.loads[0].rate) = (None, Some(500.0));
        assert!(rules(vec![point(1000)], STEPS).contains(&"closed-loop"));
        assert!(!rules(vec![point(1000), open], STEPS).contains(&"closed-loop"));
    }
}
