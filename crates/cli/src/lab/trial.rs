//! What a trial showed, on a terminal.

use super::load::{CACHES, quoted};
use super::report::{longer_words, profile_words, steps_words};
use crate::context::Context;
use crate::failure::Failure;
use crate::table::{Table, count, facts};
use serde::Serialize;
use serde_json::Value;
use std::path::Path;
use std::process::ExitCode;
use stonefold_lab::bundle::Bundle;
use stonefold_lab::machine::Busy;
use stonefold_lab::stats::compare::{CONFIDENCE, Finding, PAIRS_MIN, detectable};
use stonefold_lab::stats::require::time;
use stonefold_lab::system::System;
use stonefold_lab::trial::{
    ARMS_FILE, Beside, Contrast, Figure, Findings, Shared, Trial, Turn, findings, load,
};
use stonefold_lab::verdict::{Summary, Verdict, summarise};

#[derive(Serialize)]
struct Document<'a> {
    trial: &'a Trial,
    findings: &'a Findings,
}

/// A trial as it was kept, with what it found, and its runs with what each says.
pub(super) struct Kept {
    pub(super) trial: Trial,
    pub(super) found: Findings,
    pub(super) runs: Vec<(Bundle, Summary)>,
}

pub(super) fn read(dir: &Path) -> Result<Kept, Failure> {
    let (trial, bundles) = load(dir)?;
    let (summaries, found) = compute(&trial, &bundles)?;
    Ok(Kept { trial, found, runs: bundles.into_iter().zip(summaries).collect() })
}

/// The same for people and as a document, with its exit status.
pub(super) fn told(dir: &Path) -> Result<(String, Value, u8), Failure> {
    let (trial, bundles) = load(dir)?;
    let found = compute(&trial, &bundles)?.1;
    let document = super::folders::value(&Document { trial: &trial, findings: &found })?;
    Ok((text(&trial, &found, Some(dir)), document, found.verdict.status()))
}

pub(super) fn answer(
    context: &Context,
    trial: &Trial,
    bundles: &[Bundle],
    kept: Option<&Path>,
) -> Result<ExitCode, Failure> {
    let found = compute(trial, bundles)?.1;
    context.answer(&Document { trial, findings: &found }, || text(trial, &found, kept))?;
    Ok(ExitCode::from(found.verdict.status()))
}

/// The command that does the same, given from a folder from which the trial's is `dir`. Where the list of the arms is kept the trial names it as it
/// lies in its own folder, so that this can be carried elsewhere.
pub(super) fn again(trial: &Trial, dir: Option<&Path>) -> String {
    match (dir, &trial.arms_hash) {
        (Some(dir), Some(_)) => {
            let path = quoted(&dir.join(ARMS_FILE).display().to_string());
            trial.reproduce.replacen(&format!("--arms {ARMS_FILE}"), &format!("--arms {path}"), 1)
        }
        _ => trial.reproduce.clone(),
    }
}

/// Each run judged, and all of them compared.
pub(super) fn compute(
    trial: &Trial,
    bundles: &[Bundle],
) -> stonefold_types::Result<(Vec<Summary>, Findings)> {
    let summaries = bundles.iter().map(summarise).collect::<stonefold_types::Result<Vec<_>>>()?;
    let turns: Vec<Turn> = trial.runs.iter().map(|(turn, _)| *turn).collect();
    let mut found = findings(trial.arms.len(), &turns, bundles, &summaries, trial.seed);
    found.unlike.extend(trial.unlike(bundles.first().map_or(0, |bundle| bundle.run.bytes)));
    found.verdict = trial.may_conclude(found.verdict);
    Ok((summaries, found))
}

/// After a round: how large a difference this many rounds would show, as these runs scatter.
pub(super) fn tell_progress(trial: &Trial, bundles: &[Bundle]) {
    let whole = trial.runs.len() % trial.arms.len() == 0;
    let rounds = trial.runs.len() / trial.arms.len();
    if !whole || rounds < 2 || rounds == trial.rounds {
        return;
    }
    let Ok((_, found)) = compute(trial, bundles) else { return };
    let Some(first) = found.contrasts.iter().find(|one| one.comparison.pairs.len() > 1) else { return };
    let scatter = first.comparison.deviation();
    let shown = detectable(scatter, trial.rounds.max(PAIRS_MIN), found.contrasts.len());
    eprintln!(
        "after {rounds} of {} rounds: {} differs by {:+.1}%; as these scatter, all rounds would show {:.1}%",
        trial.rounds,
        figure_words(first.figure),
        (first.comparison.ratio - 1.0) * 100.0,
        shown * 100.0
    );
}

fn text(trial: &Trial, found: &Findings, kept: Option<&Path>) -> String {
    let first = &trial.arms[0];
    let interval = format!("{:.0}% INTERVAL", CONFIDENCE * 100.0);
    let ratio = format!("÷ {first}>").to_uppercase();
    let heads = [
        "POINT",
        "LOOP",
        "FIGURE",
        "ARM",
        "MEDIAN>",
        "TRUST",
        &ratio,
        &interval,
        "SAYS",
        "WOULD HAVE SHOWN>",
    ];
    let mut table = Table::new(&heads);
    for level in &found.levels {
        for (arm, median) in level.medians.iter().enumerate() {
            let of_it =
                |one: &&Contrast| (&one.point, one.figure, one.arm) == (&level.point, level.figure, arm);
            let [ratio, interval, says, shown] =
                found.contrasts.iter().find(of_it).map(compared).unwrap_or_default();
            table.row([
                level.point.clone(),
                level.load.clone(),
                figure_words(level.figure).to_owned(),
                trial.arms[arm].clone(),
                median.map_or_else(|| "-".into(), |median| amount(level.figure, median)),
                level.grades[arm].map_or_else(String::new, |grade| format!("{grade:?}")),
                ratio,
                interval,
                says,
                shown,
            ]);
        }
    }
    let mut text = table.or("nothing could be compared");
    if found.contrasts.len() > 1 {
        text.push_str(
            "intervals: of arms that are equal all of them together hold 1 in 98 of 100 comparisons\n",
        );
    }
    let mut unsteady: Vec<(&str, usize)> =
        found.contrasts.iter().map(|one| (&*one.point, one.unsteady)).collect();
    unsteady.dedup();
    for (point, rounds) in unsteady.into_iter().filter(|(_, rounds)| *rounds > 0) {
        text.push_str(&format!(
            "{point}: {} did not become steady and {} left out\n",
            count(rounds as u64, "round"),
            if rounds == 1 { "is" } else { "are" }
        ));
    }
    text.push_str(&against_words(&found.beside));
    text.push_str(&busy_table(trial, &found.beside));
    for one in &trial.shared {
        text.push_str(&format!("{}\n", shared_words(trial, one)));
    }
    for one in &found.unlike {
        text.push_str(&format!("not alike: {one}\n"));
    }
    for one in &found.left_out {
        text.push_str(&format!("not compared: {one}\n"));
    }
    let mut told = Vec::new();
    for one in found.contrasts.iter().filter(|one| one.void.is_some()) {
        let line = format!("{}: void: {}\n", one.point, one.void.as_deref().unwrap_or_default());
        if !told.contains(&line) {
            told.push(line);
        }
    }
    text.extend(told);
    if trial.arms.len() > 2 {
        for (point, spread) in &found.spread {
            text.push_str(&format!("{point}: the best arm does {spread:.2} times the I/Os of the worst\n"));
        }
    }
    text.push('\n');
    let profile = profile_words(&trial.profile, trial.locked, trial.quick);
    text.push_str(&facts([
        ("verdict", verdict_words(found, trial).into()),
        ("rounds", rounds_words(trial)),
        ("system", system_words(trial)),
        ("caches", trial.machine.get(CACHES).cloned().unwrap_or_default()),
        ("profile", profile + &steps_words(&trial.only) + &longer_words(trial.least_seconds)),
        ("raw data", kept.map(|dir| dir.display().to_string()).unwrap_or_default()),
        ("again", again(trial, kept)),
    ]));
    text
}

/// What is behind each arm, as far as it was told.
fn system_words(trial: &Trial) -> String {
    const NOT_TOLD: &str = "not told: --system-a FILE and --system-b FILE, or 'system' of an arm, say what these are the figures of";
    if trial.systems.iter().all(Option::is_none) {
        return NOT_TOLD.into();
    }
    let of = |(arm, system): (&String, &Option<System>)| {
        format!("{arm}: {}", system.as_ref().map_or(NOT_TOLD, |system| &system.hardware))
    };
    trial.arms.iter().zip(&trial.systems).map(of).collect::<Vec<_>>().join("\n")
}

/// The rules that were not kept, each set of them once, with the points of which that is so.
fn against_words(beside: &[Beside]) -> String {
    let mut sets: Vec<(&[String], Vec<&str>)> = Vec::new();
    for one in beside.iter().filter(|one| !one.against.is_empty()) {
        match sets.iter_mut().find(|(rules, _)| *rules == one.against) {
            Some((_, points)) => points.push(&one.point),
            None => sets.push((&one.against, vec![&one.point])),
        }
    }
    let line = |(rules, points): &(&[String], Vec<&str>)| {
        let place = if points.len() == beside.len() { "every point".to_owned() } else { points.join("; ") };
        format!("not kept, or to know, in a run: {}: at {place}\n", rules.join(", "))
    };
    sets.iter().map(line).collect()
}

/// How busy processors were, at each point and of each arm.
fn busy_table(trial: &Trial, beside: &[Beside]) -> String {
    let mut table = Table::new(&["POINT", "ARM", "PROCESSORS BUSY: LEAST / MEAN / MOST"]);
    for one in beside {
        for (arm, busy) in trial.arms.iter().zip(&one.busy) {
            let words = busy.as_ref().map(busy_words);
            words.into_iter().for_each(|words| {
                table.row([one.point.clone(), arm.clone(), words]);
            });
        }
    }
    let text = table.or("");
    if text.trim().is_empty() { String::new() } else { format!("\n{text}\n") }
}

fn busy_words(busy: &Busy) -> String {
    let of = busy.of.map(|of| format!(" of {of}")).unwrap_or_default();
    format!("{:.2} / {:.2} / {:.2}{of}", busy.min, busy.mean, busy.max)
}

/// What open loops were given shares of.
fn shared_words(trial: &Trial, one: &Shared) -> String {
    let arms = trial.arms.iter().zip(&one.arms).map(|(arm, rate)| format!("{arm} {rate:.0}"));
    format!(
        "shares of a capacity: of what '{}' does at most, for every arm, as it does least: {} I/Os a second of {}",
        trial.arms.get(one.least).map_or("", String::as_str),
        arms.collect::<Vec<_>>().join(", "),
        one.streams.join(", ")
    )
}

/// Ratio, interval, what it says, and how large a difference would have shown.
fn compared(one: &Contrast) -> [String; 4] {
    let comparison = &one.comparison;
    let ratio = if comparison.pairs.is_empty() { "-".into() } else { format!("{:.3}", comparison.ratio) };
    [ratio, bounds(comparison.low, comparison.high), finding_words(one), share(comparison.detectable)]
}

fn bounds(low: f64, high: f64) -> String {
    if low > 0.0 && high < 100.0 { format!("{low:.3} to {high:.3}") } else { "-".into() }
}

fn share(share: f64) -> String {
    if share < 10.0 { format!("{:.1}%", share * 100.0) } else { "-".into() }
}

fn amount(figure: Figure, value: f64) -> String {
    match figure {
        Figure::Rate | Figure::Orders => format!("{value:.0}"),
        Figure::Mean | Figure::P99 => time(value),
        Figure::Took => format!("{value:.1} s"),
        Figure::Cpu => format!("{value:.1} s"),
    }
}

fn figure_words(figure: Figure) -> &'static str {
    match figure {
        Figure::Rate => "I/Os a second",
        Figure::Mean => "mean response",
        Figure::P99 => "p99 response",
        Figure::Cpu => "CPU for a million I/Os",
        Figure::Orders => "New-Orders a minute",
        Figure::Took => "how long it took",
    }
}

fn finding_words(one: &Contrast) -> String {
    if one.void.is_some() {
        return "nothing: void".into();
    }
    let (better, worse) = match one.figure {
        Figure::Cpu => ("less CPU", "more CPU"),
        _ => ("faster", "slower"),
    };
    let good = one.figure.more_is_better();
    match one.comparison.finding {
        Finding::Higher => if good { better } else { worse }.into(),
        Finding::Lower => if good { worse } else { better }.into(),
        Finding::NoDifference if one.is_wide => "too wide to tell".into(),
        Finding::NoDifference => "no difference".into(),
        Finding::Inconclusive => "too few rounds".into(),
    }
}

/// Nothing where as many as were asked for were made.
fn rounds_words(trial: &Trial) -> String {
    let made = trial.runs.len() / trial.arms.len().max(1);
    match (trial.within, trial.narrow) {
        (Some(within), true) => {
            format!("{made}, until intervals reached {:.1}% either way at most", within * 100.0)
        }
        (Some(within), false) => {
            format!("{made} of {}: not every interval reaches {:.1}% or less", trial.rounds, within * 100.0)
        }
        (None, _) if made < trial.rounds => format!("{made} of {}: ended before its time", trial.rounds),
        (None, _) => String::new(),
    }
}

fn verdict_words(found: &Findings, trial: &Trial) -> &'static str {
    match found.verdict {
        Verdict::Pass => "valid: what is said above holds for this load on this machine",
        Verdict::Invalid => "INVALID: what is void allows no conclusion",
        _ if !found.are_too_few() && found.contrasts.iter().any(|one| one.is_wide && one.is_main()) => {
            "INCONCLUSIVE: where it is too wide to tell, a difference of a tenth would not have shown either; --within 5% makes more rounds, --point 60s longer ones"
        }
        _ if !found.are_too_few() => {
            "INCONCLUSIVE: intervals did not become as narrow as asked; --most allows more rounds"
        }
        _ if trial.rounds < PAIRS_MIN => "INCONCLUSIVE: from five pairs on something can be concluded",
        _ => {
            "INCONCLUSIVE: fewer than five rounds were whole and steady; say --pairs 8, or let each run go on for longer"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: of twenty points that all are alike in this one line is told, and not twenty.
    #[test]
    fn rules_that_were_not_kept_are_told_once() {
        let beside = |point: &str, rules: &[&str]| Beside {
            point: point.to_owned(),
            busy: Vec::new(),
            against: rules.iter().map(|rule| (*rule).to_owned()).collect(),
        };
        let all = [beside("a", &["cache"]), beside("b", &["cache"])];
        assert_eq!(against_words(&all), "not kept, or to know, in a run: cache: at every point\n");
        let some = [beside("a", &["cache"]), beside("b", &[]), beside("c", &["cache", "clock"])];
        assert_eq!(
            against_words(&some),
            "not kept, or to know, in a run: cache: at a\nnot kept, or to know, in a run: cache, clock: at c\n"
        );
        assert_eq!(against_words(&[beside("a", &[])]), "");
    }
}
