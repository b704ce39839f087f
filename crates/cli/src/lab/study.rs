//! `stonefold lab study`.

use super::compare::{Arms, Compare};
use super::load::Load;
use super::run::Run;
use super::trial;
use crate::context::Context;
use crate::failure::Failure;
use crate::table::Table;
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use stonefold_lab::bundle::{self, Bundle};
use stonefold_lab::study::{self, Found, FoundTable, Study as Report};
use stonefold_lab::trial::Trial;
use stonefold_lab::{machine, verdict};
use stonefold_types::{Error, Kind, Size};

/// Repeat a published report: its own tables, and beside each figure what was measured here
///
/// A study runs a profile on one target, or on several arms in turn, as 'lab run' and 'lab compare' do, and keeps the same; with --from
/// it measures nothing, and reads what was kept. Figures for a core and shares of the first are what can be held against the report; the
/// figures themselves are of other machines. Exit status as of 'lab run' and 'lab compare'.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    stonefold lab study                                       # the studies there are\n  \
    stonefold lab study corners --target file:/srv/t.img --size 256M --quick --out runs/corners\n  \
    stonefold lab study filesystems --a file:/srv/ext4/t.img --b file:/srv/xfs/t.img --quick --out runs/fs\n  \
    stonefold lab study ladder --arms tuning.toml --out runs/ladder\n  \
    stonefold lab study corners --from runs/corners")]
pub(crate) struct Study {
    /// Which; without it they are listed
    name: Option<String>,
    /// What to measure, where the report has a single system
    #[arg(long, value_name = "TARGET", conflicts_with_all = ["a", "b", "arms", "from"])]
    target: Vec<String>,
    #[command(flatten)]
    arms: Arms,
    /// Measure nothing: read the folder that an earlier run of the study, or of its profile, has kept
    #[arg(long, value_name = "DIR", conflicts_with_all = ["a", "b", "arms", "out", "quick", "size", "destroy_data"])]
    from: Option<PathBuf>,
    /// Processor cores of the storage that is measured, to divide by [default: those of this machine]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    cores: Option<u32>,
    /// Smaller and shorter; the report says so
    #[arg(long)]
    quick: bool,
    /// Where the raw data go: a folder that is empty or does not exist yet [default: nothing is kept]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The size of each volume, in place of the profile's
    #[arg(long)]
    size: Option<Size>,
    /// The targets may hold data of others: it goes
    #[arg(long)]
    destroy_data: bool,
}

impl Study {
    pub(super) fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let Some(name) = &self.name else { return ls(context).map(|()| ExitCode::SUCCESS) };
        let study = study::find(name).map_err(Failure::Misuse)?;
        let cores = self.cores.map_or_else(|| machine::cores() as f64, f64::from);
        if let Some(dir) = &self.from {
            return read(context, &study, dir, cores);
        }
        self.check(&study)?;
        let load = Load::plain(&study.profile, self.quick, self.out.clone(), self.size, self.destroy_data);
        if study.arms.is_empty() {
            let run = Run::plain(load, self.target.clone());
            let (bundle, summary) = run.measure(context)?;
            return answer(
                context,
                &study,
                &study::of_run(&study, &bundle, &summary, cores),
                &About::of(&bundle),
                summary.verdict,
            );
        }
        let (trial, bundles) = Compare { load, arms: self.arms }.measure(context)?;
        tell_trial(context, &study, &trial, &bundles, cores)
    }

    fn check(&self, study: &Report) -> Result<(), Failure> {
        let given = self.arms.are_given();
        let (what, remedy) = match (study.arms.is_empty(), given, self.target.is_empty()) {
            (true, _, true) => {
                ("measures one target".to_owned(), "name it with --target, or a folder with --from")
            }
            (true, true, false) => ("measures one target".to_owned(), "leave --a, --b and --arms out"),
            (false, false, _) => (
                format!("holds arms against one another (there: {})", study.arms.join(", ")),
                "name two with --a and --b, or a file of arms with --arms",
            ),
            _ => return Ok(()),
        };
        let what = format!("the study '{}' {what}", study.name);
        Err(Failure::Misuse(Error::new(Kind::Invalid, what).remedy(remedy)))
    }
}

fn ls(context: &Context) -> Result<(), Failure> {
    let studies: Vec<Report> = study::all().collect();
    let document: Vec<_> = studies
        .iter()
        .map(|one| json!({ "name": one.name, "title": one.title, "report": one.report, "profile": one.profile, "arms": one.arms }))
        .collect();
    context.answer(&document, || {
        let mut text = String::new();
        for one in &studies {
            text.push_str(&format!("{}\n  {}\n  {}\n", one.name, one.title, one.report));
        }
        text
    })
}

/// What an earlier run has kept.
fn read(context: &Context, study: &Report, dir: &Path, cores: f64) -> Result<ExitCode, Failure> {
    let other = |profile: &str| {
        let what = format!(
            "'{}' is a run of {profile}, and the study '{}' is of {}",
            dir.display(),
            study.name,
            study.profile
        );
        Failure::Misuse(
            Error::new(Kind::Invalid, what).remedy("name a folder that this study, or its profile, has kept"),
        )
    };
    if Trial::is_in(dir) {
        let (trial, bundles) = stonefold_lab::trial::load(dir)?;
        if trial.profile != study.profile || study.arms.is_empty() {
            return Err(other(&format!("{} on several arms", trial.profile)));
        }
        return tell_trial(context, study, &trial, &bundles, cores);
    }
    let bundle = bundle::load(dir)?;
    if bundle.run.profile != study.profile || !study.arms.is_empty() {
        return Err(other(&format!("{} on one target", bundle.run.profile)));
    }
    let summary = verdict::summarise(&bundle)?;
    let found = study::of_run(study, &bundle, &summary, cores);
    answer(context, study, &found, &About::of(&bundle), summary.verdict)
}

fn tell_trial(
    context: &Context,
    study: &Report,
    trial: &Trial,
    bundles: &[Bundle],
    cores: f64,
) -> Result<ExitCode, Failure> {
    let (summaries, findings) = trial::compute(trial, bundles)?;
    let found = study::of_trial(study, trial, bundles, &summaries, &findings, cores);
    let about = About { quick: trial.quick, locked: trial.locked, again: &trial.reproduce };
    answer(context, study, &found, &about, findings.verdict)
}

/// How it was measured.
struct About<'a> {
    quick: bool,
    locked: bool,
    again: &'a str,
}

impl<'a> About<'a> {
    fn of(bundle: &'a Bundle) -> Self {
        About { quick: bundle.run.quick, locked: bundle.run.locked, again: &bundle.run.reproduce }
    }
}

fn answer(
    context: &Context,
    study: &Report,
    found: &Found,
    about: &About<'_>,
    verdict: verdict::Verdict,
) -> Result<ExitCode, Failure> {
    let document = json!({
        "report": study.report, "about": study.about, "quick": about.quick, "locked": about.locked,
        "verdict": verdict, "reproduce": about.again, "found": found,
    });
    context.answer(&document, || text(study, found, about, verdict))?;
    Ok(ExitCode::from(verdict.status()))
}

fn text(study: &Report, found: &Found, about: &About<'_>, verdict: verdict::Verdict) -> String {
    let mut text = format!("{}\n{}\n\n{}\n", study.title, study.report, study.about);
    for table in &found.tables {
        text.push_str(&format!("\n{} ({})\n{}", table.title, table.unit.words(), lines(table)));
    }
    let cores = found
        .published_cores
        .map_or(String::new(), |theirs| format!("; a core: {theirs} there, {} here", found.cores));
    text.push_str(&format!("\nhere: {}{cores}\n", found.arms.join("; ")));
    let kind = match (about.locked, about.quick) {
        (true, false) => study.profile.clone(),
        (true, true) => format!("{}, quick: a sketch, no result", study.profile),
        (false, _) => format!("{}, modified: not to be held against others", study.profile),
    };
    text.push_str(&format!("profile: {kind}; verdict: {}\n", json!(verdict).as_str().unwrap_or_default()));
    text.push_str(&format!("again: {}\n", about.again));
    text
}

fn lines(table: &FoundTable) -> String {
    let numbers: Vec<String> = table.columns.iter().map(|head| format!("{head}>")).collect();
    let heads: Vec<&str> = ["", ""].into_iter().chain(numbers.iter().map(String::as_str)).collect();
    let mut columns = Table::new(&heads);
    let mut last = "";
    for row in &table.rows {
        // A row's head stands once, before all that belongs to it.
        let head = if row.name == last { String::new() } else { row.name.clone() };
        last = &row.name;
        columns.row([head, row.of.to_owned()].into_iter().chain(row.told.clone()));
    }
    columns.text()
}
