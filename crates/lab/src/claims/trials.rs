//! Trials of the lab, and its reports as a whole: what speaks against publishing one.

use super::runs::{Told, lint_run};
use super::{Finding, rules};
use crate::stats::compare::{Finding as Says, PAIRS_MIN};
use crate::trial::{Figure, Findings, Trial};
use crate::verdict::{Summary, Verdict};
use serde::Deserialize;

/// Where a page keeps what it shows.
const DATA: &str = "<script type=\"application/json\" id=\"data\">";
const DATA_END: &str = "</script>";
/// What the lab's own pages say of themselves.
const OWN: &str = "<meta name=\"generator\" content=\"stonefold lab\"";

/// A trial as a report's JSON tells it, as far as it is looked at; see [`crate::report::TrialReport`].
#[derive(Debug, Deserialize)]
pub struct ToldTrial {
    trial: Made,
    findings: Shown,
    runs: Vec<Judged>,
}

/// One of its runs.
#[derive(Debug, Deserialize)]
struct Judged {
    verdict: Verdict,
}

#[derive(Debug, Deserialize)]
struct Made {
    profile: String,
    locked: bool,
    quick: bool,
}

#[derive(Debug, Deserialize)]
struct Shown {
    verdict: Verdict,
    contrasts: Vec<Held>,
    #[serde(default)]
    levels: Vec<Loaded>,
    unlike: Vec<String>,
}

/// What the load of a point was, in words.
#[derive(Debug, Deserialize)]
struct Loaded {
    point: String,
    #[serde(default)]
    load: String,
}

/// One figure of one arm against the first.
#[derive(Debug, Deserialize)]
struct Held {
    point: String,
    figure: Figure,
    comparison: Pairs,
    void: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Pairs {
    pairs: Vec<(f64, f64)>,
    finding: Says,
}

/// The JSON of a report, as far as it is looked at.
#[derive(Deserialize)]
struct Report {
    runs: Vec<Told>,
    #[serde(default)]
    trials: Vec<ToldTrial>,
}

/// Either, as a page keeps them.
#[derive(Deserialize)]
#[serde(untagged)]
enum Document {
    Trial(ToldTrial),
    Run(Box<Told>),
}

impl ToldTrial {
    /// Of a trial, what it shows, and what its runs say by themselves.
    pub fn of(trial: &Trial, findings: &Findings, runs: &[Summary]) -> Self {
        let held = |one: &crate::trial::Contrast| Held {
            point: one.point.clone(),
            figure: one.figure,
            comparison: Pairs { pairs: one.comparison.pairs.clone(), finding: one.comparison.finding },
            void: one.void.clone(),
        };
        ToldTrial {
            trial: Made { profile: trial.profile.clone(), locked: trial.locked, quick: trial.quick },
            findings: Shown {
                verdict: findings.verdict,
                contrasts: findings.contrasts.iter().map(held).collect(),
                levels: findings
                    .levels
                    .iter()
                    .map(|level| Loaded { point: level.point.clone(), load: level.load.clone() })
                    .collect(),
                unlike: findings.unlike.clone(),
            },
            runs: runs.iter().map(|summary| Judged { verdict: summary.verdict }).collect(),
        }
    }
}

/// Looks at a trial: at what is said of its arms, and whether its runs are void.
pub fn lint_trial(told: &ToldTrial) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut find = |rule: &'static str, words: &str, why: String| {
        let mend = rules::rule(rule).mend;
        let finding = Finding { rule, line: None, column: None, words: words.to_owned(), why, mend };
        if !found.contains(&finding) {
            found.push(finding);
        }
    };
    let (trial, findings) = (&told.trial, &told.findings);
    let marks = [
        (trial.quick, "it is quick: a sketch, and no result"),
        (!trial.locked, "its profile was modified: not to be held against others"),
        (findings.verdict == Verdict::Invalid, "its verdict is INVALID"),
        (findings.contrasts.is_empty(), "nothing of it was compared"),
    ];
    for (_, why) in marks.iter().filter(|(is, _)| *is) {
        find("sketch", &trial.profile, (*why).to_owned());
    }
    let void = told.runs.iter().filter(|run| run.verdict == Verdict::Invalid).count();
    if void > 0 {
        find("sketch", &trial.profile, format!("{void} of its {} runs are INVALID", told.runs.len()));
    }
    for held in &findings.contrasts {
        if let Some(why) = &held.void {
            find("gate", &held.point, why.clone());
        }
        let pairs = held.comparison.pairs.len();
        if pairs < PAIRS_MIN {
            find(
                "interval",
                &held.point,
                format!("{pairs} pairs of runs, of {PAIRS_MIN} that it takes at least"),
            );
        } else if held.comparison.finding == Says::Inconclusive {
            let why = format!("of its {:?} nothing can be said: the interval has no bound", held.figure);
            find("interval", &held.point, why.to_lowercase());
        }
    }
    for held in findings.contrasts.iter().filter(|one| matches!(one.figure, Figure::Mean | Figure::P99)) {
        let differs = matches!(held.comparison.finding, Says::Higher | Says::Lower) && held.void.is_none();
        let closed = |one: &&Loaded| one.point == held.point && one.load.contains("closed, ");
        if let Some(level) = findings.levels.iter().find(closed).filter(|_| differs) {
            let why =
                format!("response times are held against one another, of a loop that is {}", level.load);
            find("closed-loop", &held.point, why);
        }
    }
    for unlike in &findings.unlike {
        find("same-load", &trial.profile, unlike.clone());
    }
    found
}

/// Looks at a report of the lab, its page or its JSON; nothing where a text is neither.
///
/// # Errors
/// Where it is JSON, and no report's.
pub fn lint_report(text: &str) -> Option<serde_json::Result<Vec<Finding>>> {
    if text.trim_start().starts_with('{') {
        return Some(serde_json::from_str(text).map(|Report { runs, trials }| {
            runs.iter().flat_map(lint_run).chain(trials.iter().flat_map(lint_trial)).collect()
        }));
    }
    let (_, rest) = text.split_once(DATA)?;
    let (data, _) = rest.split_once(DATA_END)?;
    let documents: serde_json::Result<Vec<Document>> = serde_json::from_str(data);
    // Another's page may keep its data by the same name.
    if documents.is_err() && !text.contains(OWN) {
        return None;
    }
    Some(documents.map(|documents| {
        let of = |document: &Document| match document {
            Document::Trial(told) => lint_trial(told),
            Document::Run(told) => lint_run(told),
        };
        documents.iter().flat_map(of).collect()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::tests::bundle;
    use crate::measure::tests::point;
    use crate::report::{Report as Written, TrialReport, html, json, trial_html};
    use crate::trial::{Turn, findings};
    use crate::verdict::summarise;

    fn rules(found: &[Finding]) -> Vec<&str> {
        found.iter().map(|finding| finding.rule).collect()
    }

    /// Goal: what speaks against a run speaks against its page and its JSON, too.
    #[test]
    fn a_page_is_no_better_than_its_run() {
        let bundle = bundle(vec![point(1000)]);
        let summary = summarise(&bundle).unwrap();
        let runs = [(bundle, summary)];
        let of_page = lint_report(&html(&runs).unwrap()).unwrap().unwrap();
        let of_json = lint_report(&json(&Written::of(&runs)).unwrap()).unwrap().unwrap();
        assert!(of_page == of_json && rules(&of_page).contains(&"sketch"), "{of_page:?}");
        assert!(lint_report("# An article\n").is_none() && lint_report("{}").unwrap().is_err());
        let cut = html(&runs).unwrap().replace("\"summary\"", "\"other\"");
        assert!(lint_report(&cut).unwrap().is_err(), "what cannot be read is not taken for sound");
    }

    /// Goal: a comparison of too few pairs says so, in each form that it is published in.
    #[test]
    fn a_comparison_of_too_few_pairs_is_objected_to() {
        let turn = |arm| Turn { round: 0, arm, seed: 1, began: 1, cut_short: false };
        let bundles = vec![bundle(vec![point(1000)]), bundle(vec![point(1100)])];
        let summaries: Vec<_> = bundles.iter().map(|bundle| summarise(bundle).unwrap()).collect();
        let turns = [turn(0), turn(1)];
        let found = findings(2, &turns, &bundles, &summaries, 1);
        let names = vec!["a".to_owned(), "b".to_owned()];
        let runs = turns.iter().map(|turn| (*turn, String::new())).collect();
        let trial = Trial { profile: "ab".to_owned(), locked: true, arms: names, runs, ..Trial::default() };
        let direct = lint_trial(&ToldTrial::of(&trial, &found, &summaries));
        assert!(rules(&direct).contains(&"interval"), "{direct:?}");
        assert!(!direct.iter().any(|one| one.why.contains("of its 2 runs")), "both are valid: {direct:?}");
        let mut void = summaries.clone();
        void[1].verdict = Verdict::Invalid;
        let of_void = lint_trial(&ToldTrial::of(&trial, &found, &void));
        assert!(of_void.iter().any(|one| one.why == "1 of its 2 runs are INVALID"), "{of_void:?}");
        let told: Vec<_> = bundles.into_iter().zip(summaries).collect();
        let page = trial_html(&trial, &found, &told).unwrap();
        let written = json(&Written::of_trial(TrialReport::of(&trial, &found, &told))).unwrap();
        for text in [page, written] {
            assert_eq!(lint_report(&text).unwrap().unwrap(), direct);
        }
        let unlike = Findings { unlike: vec!["more in flight".to_owned()], ..found };
        assert!(rules(&lint_trial(&ToldTrial::of(&trial, &unlike, &[]))).contains(&"same-load"));
        let of_another = "<script type=\"application/json\" id=\"data\">[1]</script> and no more";
        assert!(lint_report(of_another).is_none(), "it is a text like any");
    }

    /// Goal: that times of a closed loop are longer or shorter is objected to, which goes with what was in flight; that its rate is higher is not.
    #[test]
    fn times_of_a_closed_loop_that_are_held_against_one_another_are_objected_to() {
        let turn = |round, arm| Turn { round, arm, seed: 1, began: 1, cut_short: false };
        let turns: Vec<Turn> = (0..5).flat_map(|round| [turn(round, 0), turn(round, 1)]).collect();
        let bundles: Vec<_> = turns.iter().map(|turn| bundle(vec![point(1000 + turn.arm as u64)])).collect();
        let summaries: Vec<_> = bundles.iter().map(|bundle| summarise(bundle).unwrap()).collect();
        let mut found = findings(2, &turns, &bundles, &summaries, 1);
        let told = |found: &Findings| {
            let trial = Trial { profile: "ab".to_owned(), locked: true, ..Trial::default() };
            rules(&lint_trial(&ToldTrial::of(&trial, found, &summaries))).contains(&"closed-loop")
        };
        let say = |found: &mut Findings, of: Figure| {
            let says = |figure| if figure == of { Says::Higher } else { Says::NoDifference };
            found.contrasts.iter_mut().for_each(|one| one.comparison.finding = says(one.figure));
        };
        say(&mut found, Figure::Rate);
        assert!(!told(&found), "{:?}", found.levels);
        say(&mut found, Figure::Mean);
        assert!(told(&found), "{:?}", found.levels);
        found.levels.iter_mut().for_each(|level| level.load = "open, 100/s".to_owned());
        assert!(!told(&found));
    }
}
