//! What a run showed, on a terminal.

use super::by_worker::{self, Part};
use super::cost::{self, PointCost};
use super::timed;
use crate::context::Context;
use crate::failure::Failure;
use crate::table::{Table, facts};
use serde::Serialize;
use serde_json::Value;
use std::ops::Range;
use std::path::Path;
use std::process::ExitCode;
use stonefold_lab::bundle::{self, Bundle, Run};
use stonefold_lab::machine;
use stonefold_lab::measure::{Point, PointLoad};
use stonefold_lab::oltp::figures::{Step, ramp};
use stonefold_lab::oltp::{chain, migration};
use stonefold_lab::record::{Direction, Latencies, StreamRecord};
use stonefold_lab::report::{OutageFigures, TaskFigures, outages, tasks};
use stonefold_lab::space::Space;
use stonefold_lab::stats::gates::{Grade, STEADY, State};
use stonefold_lab::stats::require::time;
use stonefold_lab::tiles::figures::{Tiles, figures as tiles};
use stonefold_lab::verdict::{self, Judged, Summary};
use stonefold_types::Size;

#[derive(Serialize)]
struct Document<'a> {
    run: &'a Run,
    summary: &'a Summary,
    figures: Vec<Figures>,
    /// For a terminal: streams that do the same on a volume each are one.
    #[serde(skip)]
    together: Vec<Figures>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    workers: Vec<Part>,
    /// Of a database.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ramp: Vec<Step>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tasks: Vec<TaskFigures>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cpu: Vec<PointCost>,
    /// Of a load on volumes.
    #[serde(skip_serializing_if = "Option::is_none")]
    space: Option<Space>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    outages: Vec<OutageFigures>,
    /// Of tiles of virtual machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    tiles: Option<Tiles>,
    /// Of a disk that was moved below its database.
    #[serde(skip_serializing_if = "Option::is_none")]
    migration: Option<migration::Figures>,
    /// Of a database that was recovered from points.
    #[serde(skip_serializing_if = "Option::is_none")]
    chain: Option<chain::ChainFigures>,
    bundle: &'a str,
}

impl<'a> Document<'a> {
    fn of(bundle: &'a Bundle, summary: &'a Summary) -> Self {
        Document {
            run: &bundle.run,
            summary,
            figures: figures(bundle, summary, |loads| {
                loads.iter().enumerate().map(|(at, load)| (at..at + 1, load.clone())).collect()
            }),
            together: figures(bundle, summary, PointLoad::together),
            workers: by_worker::parts(&bundle.points),
            ramp: ramp(&bundle.points),
            tasks: tasks(&bundle.points),
            cpu: cost::costs(&bundle.points),
            space: Space::of(bundle),
            outages: outages(&bundle.points),
            tiles: tiles(bundle),
            migration: migration::figures(bundle),
            chain: chain::figures(bundle),
            bundle: &bundle.hash,
        }
    }
}

/// The figures of one stream of one point.
#[derive(Serialize)]
struct Figures {
    point: String,
    stream: String,
    /// Whether it was an open or a closed loop, and how much of one.
    load: String,
    grade: Grade,
    iops: f64,
    bytes_per_second: f64,
    response_nanos: Spectrum,
    service_nanos: Spectrum,
}

#[derive(Serialize)]
struct Spectrum {
    mean: f64,
    /// As every percentile nothing where fewer than ten I/Os are above it.
    p50: Option<u64>,
    p90: Option<u64>,
    p99: Option<u64>,
    p99_9: Option<u64>,
    max: u64,
}

pub(super) fn answer(
    context: &Context,
    bundle: &Bundle,
    summary: &Summary,
    kept: Option<&Path>,
) -> Result<ExitCode, Failure> {
    let document = Document::of(bundle, summary);
    context.answer(&document, || text(&document, kept))?;
    Ok(ExitCode::from(summary.verdict.status()))
}

/// A run as it was kept, for people and as a document, with its exit status.
pub(super) fn told(dir: &Path) -> Result<(String, Value, u8), Failure> {
    let bundle = bundle::load(dir)?;
    let summary = verdict::summarise(&bundle)?;
    let document = Document::of(&bundle, &summary);
    let words =
        text(&document, Some(dir)) + &format!("its files are what the run wrote: bundle {}\n", bundle.hash);
    Ok((words, super::folders::value(&document)?, summary.verdict.status()))
}

/// Of each point the streams that `together` names.
fn figures(
    bundle: &Bundle,
    summary: &Summary,
    together: impl Fn(&[PointLoad]) -> Vec<(Range<usize>, PointLoad)>,
) -> Vec<Figures> {
    let of_point = |(point, judged): (&Point, &Judged)| {
        let of = |(streams, load)| Figures::of(point, judged, streams, &load);
        together(&point.loads).into_iter().map(of).collect::<Vec<_>>()
    };
    bundle
        .points
        .iter()
        .zip(&summary.points)
        .filter(|(point, _)| point.task.is_none())
        .flat_map(of_point)
        .collect()
}

impl Figures {
    fn of(point: &Point, judged: &Judged, streams: Range<usize>, load: &PointLoad) -> Self {
        let records = &point.streams[streams];
        let sum = |of: fn(&StreamRecord) -> u64| records.iter().map(of).sum::<u64>() as f64 / point.seconds;
        let sides = || records.iter().flat_map(|record| [&record.read, &record.write]);
        Figures {
            point: judged.name.clone(),
            stream: load.name.clone(),
            load: load.words(),
            grade: judged.grade,
            iops: sum(StreamRecord::ios),
            bytes_per_second: sum(|record| record.read.bytes + record.write.bytes),
            response_nanos: Spectrum::of(sides(), |side| &side.response),
            service_nanos: Spectrum::of(sides(), |side| &side.service),
        }
    }
}

impl Spectrum {
    fn of<'a>(sides: impl Iterator<Item = &'a Direction>, which: impl Fn(&Direction) -> &Latencies) -> Self {
        let mut all = Latencies::new();
        sides.for_each(|side| all.add(which(side)));
        Spectrum {
            mean: all.mean(),
            p50: all.percentile(0.5),
            p90: all.percentile(0.9),
            p99: all.percentile(0.99),
            p99_9: all.percentile(0.999),
            max: all.max(),
        }
    }
}

fn text(document: &Document<'_>, kept: Option<&Path>) -> String {
    let run = document.run;
    let mut text = String::new();
    let grades: Vec<String> =
        document.summary.points.iter().map(|judged| format!("{:?}", judged.grade)).collect();
    text.push_str(&super::oltp::tables(&document.ramp, &grades));
    text.push_str(&super::tiles::tables(document.tiles.as_ref()));
    if document.ramp.is_empty() && document.tiles.is_none() {
        text.push_str(&of_streams(&document.together));
        if document.together.len() < document.figures.len() {
            text.push_str("streams that do the same on a volume each are together; --json has each\n");
        }
        text.push_str(&by_worker::table(&document.workers));
    }
    text.push_str(&cost::of_cpu(&document.cpu));
    text.push_str(&timed::of_tasks(&document.tasks));
    text.push_str(&timed::of_outages(&document.outages));
    text.push_str(&timed::of_migration(document.migration.as_ref()));
    text.push_str(&timed::of_chain(document.chain.as_ref()));
    against(&mut text, document.summary);
    text.push('\n');
    for required in &document.summary.required {
        let met = &required.met;
        let word = match met.met {
            Some(true) => "met",
            Some(false) => "NOT MET",
            None => "cannot be said",
        };
        let headroom =
            met.headroom.map(|more| format!(", headroom {:+.0}%", more * 100.0)).unwrap_or_default();
        let point = &document.summary.points[required.point].name;
        text.push_str(&format!("{}: {word}: {} in '{point}'{headroom}\n", met.requirement, met.told));
    }
    for beside in &document.summary.beside {
        let word = if beside.met.met == Some(true) { "met" } else { "not met" };
        text.push_str(&format!(
            "beside, deciding nothing: {}: {word}: {}\n",
            beside.met.requirement, beside.met.told
        ));
    }
    let profile = profile_words(&run.profile, run.locked, run.quick);
    text.push_str(&facts([
        ("verdict", verdict_words(document.summary, run.cut_short)),
        ("profile", profile + &steps_words(&run.only) + &longer_words(run.least_seconds)),
        ("target", run.targets.join(", ")),
        ("size", size_words(run)),
        ("bytes", cost::space_words(document.space.as_ref())),
        ("system", system_words(run)),
        ("of its system", shares_words(document)),
        ("machine", machine::words(&run.machine)),
        (
            "raw data",
            kept.map(|dir| {
                format!("{}, {}", dir.display(), &document.bundle[..document.bundle.len().min(16)])
            })
            .unwrap_or_default(),
        ),
        ("again", run.reproduce.clone()),
    ]));
    text
}

/// A profile's name, and what keeps its figures from being held against others'.
pub(super) fn profile_words(name: &str, locked: bool, quick: bool) -> String {
    match (locked, quick) {
        (true, false) => name.to_owned(),
        (true, true) => format!("{name} (quick: a sketch, no result)"),
        (false, false) => format!("{name} (modified: not to be held against others)"),
        (false, true) => format!("{name} (modified, and quick: a sketch, not to be held against others)"),
    }
}

/// Where not all steps of the profile were run; else nothing.
pub(super) fn steps_words(only: &[String]) -> String {
    match only {
        [] => String::new(),
        names => format!(", of its steps only '{}'", names.join("', '")),
    }
}

/// Where loads were measured for longer than the profile says; else nothing.
pub(super) fn longer_words(least: Option<f64>) -> String {
    least.map(|seconds| format!(", each load for {seconds} s at least")).unwrap_or_default()
}

fn size_words(run: &Run) -> String {
    match run.scale {
        Some(scale) => format!("{}, {scale:.4} times the profile's", Size(run.bytes)),
        None => Size(run.bytes).to_string(),
    }
}

fn system_words(run: &Run) -> String {
    let Some(system) = &run.system else {
        return "not told; --system FILE says what the figures are those of".into();
    };
    let mut words: Vec<String> =
        system.facts().into_iter().map(|(name, what)| format!("{name} {what}")).collect();
    words.extend(system.of_cache(run.bytes).map(|times| format!("the volumes are {times}")));
    words.join("; ")
}

/// What the load that did most did for each of what the target is made of.
fn shares_words(document: &Document<'_>) -> String {
    let Some(system) = &document.run.system else { return String::new() };
    let best = document.summary.points.iter().max_by(|a, b| a.iops.total_cmp(&b.iops));
    let shares = |point: &Judged| format!("{}: {}", point.name, system.shares(point.iops).join("; "));
    best.filter(|point| !system.shares(point.iops).is_empty()).map(shares).unwrap_or_default()
}

fn of_streams(figures: &[Figures]) -> String {
    let mut table = Table::new(&[
        "POINT", "STREAM", "LOOP", "IOPS>", "BYTES/S>", "MEAN>", "P50>", "P99>", "P99.9>", "MAX>",
        "SERVICE>", "TRUST",
    ]);
    for one in figures {
        let took = |nanos: Option<u64>| nanos.map_or_else(|| "-".into(), |nanos| time(nanos as f64));
        table.row([
            one.point.clone(),
            one.stream.clone(),
            one.load.clone(),
            format!("{:.0}", one.iops),
            Size(one.bytes_per_second as u64).to_string(),
            time(one.response_nanos.mean),
            took(one.response_nanos.p50),
            took(one.response_nanos.p99),
            took(one.response_nanos.p99_9),
            time(one.response_nanos.max as f64),
            time(one.service_nanos.mean),
            format!("{:?}", one.grade),
        ]);
    }
    table.or("nothing was measured")
}

/// What speaks against each point, in words.
fn against(text: &mut String, summary: &Summary) {
    for judged in &summary.points {
        for gate in judged.gates.iter().filter(|gate| gate.state > State::Pass) {
            let word = match gate.state {
                State::Void => "void",
                State::Fail => "against it",
                _ => "to know",
            };
            text.push_str(&format!("{}: {word}: {}: {}\n", judged.name, gate.name, gate.why));
        }
    }
}

fn verdict_words(summary: &Summary, cut_short: bool) -> String {
    use verdict::Verdict;
    let ended = if cut_short { "; it was ended before its time" } else { "" };
    let words = match (summary.verdict, summary.required.is_empty()) {
        (Verdict::Pass, true) => "valid; nothing was required: say what you need, as in --require 'p99<=20ms', and it is PASS or FAIL".into(),
        (Verdict::Pass, false) => "PASS".into(),
        (Verdict::Fail, _) => "FAIL".into(),
        (Verdict::Invalid, _) => invalid(summary),
        (Verdict::Inconclusive, _) => "INCONCLUSIVE: too little was measured".into(),
    };
    words + ended
}

/// What there is to do about what is void, where more time may mend it.
fn invalid(summary: &Summary) -> String {
    let of_points = summary.points.iter().flat_map(|point| &point.gates);
    let unsteady = of_points.filter(|gate| gate.state == State::Void).any(|gate| gate.name == STEADY);
    let hint = match unsteady {
        true => ". Not steady: measure for longer, or warm up for longer, with nothing else on the machine",
        false => "",
    };
    format!("INVALID: what is marked as void allows no conclusion{hint}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: whoever reads one line of a run that was ended sees that, whatever the line says beside it.
    #[test]
    fn a_run_that_was_ended_says_so_in_its_verdict() {
        use verdict::Verdict::{Fail, Inconclusive, Invalid, Pass};
        for verdict in [Pass, Fail, Invalid, Inconclusive] {
            let summary = Summary { verdict, points: Vec::new(), required: Vec::new(), beside: Vec::new() };
            let ended = |cut_short| verdict_words(&summary, cut_short).contains("ended before its time");
            assert!(ended(true) && !ended(false), "{verdict:?}");
        }
    }

    #[test]
    fn a_quick_run_of_a_modified_profile_is_told_as_both() {
        let words = profile_words("mine", false, true);
        assert!(words.contains("modified") && words.contains("quick"), "{words}");
        assert_eq!(profile_words("ab", true, false), "ab");
    }
}
