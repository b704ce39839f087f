//! What recoveries from a chain say: whether every point that was asked for came back, with everything that was acknowledged until then.

use super::record::ChainRecord;
use super::{NATIVE, name_of};
use crate::bundle::{Bundle, ENDED_BY};
use crate::oltp::ramp::Plateau;
use crate::oltp::{Profile, audit};
use crate::stats::require::{self, Met};
use crate::verdict::{Judged, Required, Summary};
use stonefold_types::Result;

/// Computes all that a run says. Requirements are about the plateau of each point that was recovered, the worst of them.
pub(in crate::oltp) fn summarise(bundle: &Bundle, record: &ChainRecord) -> Result<Summary> {
    let points: Vec<Judged> = bundle.points.iter().map(audit::judge).collect();
    let asked = Profile::parse(&bundle.run.profile, &bundle.profile)?
        .chain
        .map_or_else(Vec::new, |chain| chain.recover);
    let native = plateau(bundle, NATIVE);
    let recovered: Vec<Option<usize>> = asked.iter().map(|point| plateau(bundle, &name_of(*point))).collect();
    let measured: Vec<usize> = recovered.iter().flatten().copied().collect();
    let mut required: Vec<Required> = came_back(bundle, record, &asked, &recovered).into_iter().collect();
    for requirement in require::parse(&bundle.run.require)? {
        let judged = measured.iter().map(|point| audit::at(&requirement, bundle, *point));
        let judged = judged.collect::<Result<Vec<_>>>()?;
        required.extend(judged.into_iter().min_by(|a, b| a.met.worst_first(&b.met)));
    }
    // What is native is what they are held against.
    let rests_on: Vec<usize> = native.into_iter().chain(measured).collect();
    let verdict = audit::conclude(bundle, &points, &rests_on, &required);
    Ok(Summary { verdict, points, required, beside: Vec::new() })
}

/// The number of the point at which a ramp came to its plateau.
fn plateau(bundle: &Bundle, step: &str) -> Option<usize> {
    let numbers: Vec<usize> =
        (0..bundle.points.len()).filter(|number| bundle.points[*number].step == step).collect();
    let plateau = Plateau::of(numbers.iter().map(|number| &bundle.points[*number]))?;
    Some(numbers[plateau.step])
}

/// Nothing where not even what is native was measured.
fn came_back(
    bundle: &Bundle,
    record: &ChainRecord,
    asked: &[u32],
    recovered: &[Option<usize>],
) -> Option<Required> {
    let point = bundle.points.len().checked_sub(1)?;
    let missing: Vec<String> = asked
        .iter()
        .zip(recovered)
        .filter(|(_, recovered)| recovered.is_none())
        .map(|(point, _)| format!("'{}'", name_of(*point)))
        .collect();
    let there = asked.len() - missing.len();
    let mut told = match &missing[..] {
        [] => format!("{there} of {} did", asked.len()),
        missing => format!("{there} of {} did, and not {}", asked.len(), missing.join(", ")),
    };
    for complaint in &record.complaints {
        told.push_str(&format!("; {complaint}"));
    }
    // Of a run that somebody ended early nobody knows what would have come back.
    let is_stopped = bundle.run.cut_short && !bundle.run.machine.contains_key(ENDED_BY);
    let met = (missing.is_empty() || !is_stopped).then_some(missing.is_empty());
    let requirement = "every point comes back and is worked on".into();
    Some(Required {
        point,
        met: Met { requirement, measured: Some(there as f64), told, headroom: None, met },
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::chain;
    use super::*;
    use crate::bundle::Run;
    use crate::verdict::Verdict;

    fn bundle() -> Bundle {
        let (record, points) = chain();
        let profile = "title = 't'\nabout = 'a'\n[database]\nwarehouses = 2\nbuffers = '32M'\nusers = [10]\nwarm_up = '10s'\n\
            sample = '100s'\n[chain]\nchanges = 2\nusers = 1\nbetween = '1s'\nrecover = [0, 2]\n";
        let run = Run { profile: "test".into(), chain: Some(record), ..Run::default() };
        Bundle { run, profile: profile.into(), points, hash: String::new() }
    }

    fn summarised(bundle: &Bundle) -> Summary {
        summarise(bundle, bundle.run.chain.as_ref().unwrap()).unwrap()
    }

    #[test]
    fn every_point_that_was_asked_for_has_to_come_back() {
        let summary = summarised(&bundle());
        let first = &summary.required[0];
        assert_eq!((first.met.met, first.met.told.as_str()), (Some(true), "2 of 2 did"));
        let mut less = bundle();
        less.points.pop();
        let first = summarised(&less).required.remove(0);
        assert_eq!(first.met.met, Some(false));
        assert!(first.met.told.contains("not '2nd'"), "{}", first.met.told);
    }

    #[test]
    fn what_was_not_tried_any_more_did_not_fail() {
        let mut less = bundle();
        less.points.pop();
        less.run.cut_short = true;
        let summary = summarised(&less);
        assert_eq!((summary.required[0].met.met, summary.verdict), (None, Verdict::Inconclusive));
    }

    #[test]
    fn a_requirement_is_about_the_worst_of_them() {
        let mut asks = bundle();
        asks.run.require = "nopm>=1500".into();
        let summary = summarised(&asks);
        // Half of 4,455 in 100 s are some 1,336 a minute.
        assert_eq!((summary.required[1].met.met, summary.required[1].point), (Some(false), 2));
    }

    #[test]
    fn what_a_point_has_lost_voids_all() {
        let mut lost = bundle();
        let checks = &mut lost.points[1].database.as_mut().unwrap().checks;
        checks.iter_mut().find(|check| check.name.starts_with("acknowledged")).unwrap().violations = 3;
        assert_eq!(summarised(&lost).verdict, Verdict::Invalid);
    }
}
