//! `stonefold lab study`.

mod runs;

use super::compare::{Arms, Compare};
use super::load::Load;
use super::run::Run;
use super::trial;
use super::worker::Workers;
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
/// A study runs a profile on one target, or on several arms in turn, as 'lab run' and 'lab compare' do, and keeps the same; some run several
/// profiles, one after the other, on one target or on each of two (--a, --b) once. With --from it measures nothing, and reads what was kept; where arms are runs of
/// their own, of each once, or of both together. Figures for a core and shares of the first are what can be held against the report; the
/// figures themselves are of other machines. Exit status as of 'lab run' and 'lab compare'.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    stonefold lab study                                       # the studies there are\n  \
    stonefold lab study corners --target file:/srv/t.img --cache 256M --quick --out runs/corners\n  \
    stonefold lab study filesystems --a file:/srv/ext4/t.img --b file:/srv/xfs/t.img --quick --out runs/fs\n  \
    stonefold lab study ladder --arms tuning.toml --out runs/ladder\n  \
    stonefold lab study recovery --target stonefold:db --to file:/srv/home.img --quick --out runs/ours\n  \
    stonefold lab study storage-nodes --a nbd://four/test --b nbd://eight/test --quick --out runs/nodes\n  \
    stonefold lab study tiles --target nbd://host/test --ops ops.toml --quick --out runs/tiles\n  \
    stonefold lab study recovery --from runs/ours --from runs/theirs\n  \
    stonefold lab study corners --from runs/corners")]
pub(crate) struct Study {
    /// Which; without it they are listed
    name: Option<String>,
    /// What to measure, where the report has a single system
    #[arg(long, value_name = "TARGET", conflicts_with_all = ["a", "b", "arms", "from"])]
    target: Vec<String>,
    #[command(flatten)]
    arms: Arms,
    /// Where a disk is moved to, of a study that has migrate-live; without it that is left out. Of two arms once for each, in their order
    #[arg(long, value_name = "TARGET", conflicts_with = "from")]
    to: Vec<String>,
    /// Who keeps points of a target that is no disk of a server, as 'lab run' takes it. Of two arms once for each, or once: for both, or for the one
    /// that is no disk of a server
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    recovery: Vec<PathBuf>,
    /// Where the loads go on that a profile has beside its database, as 'lab run' takes them: once for each, in their order; of both arms the same
    #[arg(long, value_name = "TARGET", conflicts_with = "from")]
    beside: Vec<String>,
    /// Of tiles: what is done beside them, as 'lab run vm-ops' takes it: then that is run
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    ops: Option<PathBuf>,
    /// Measure nothing: read the folder that an earlier run of the study, or of its profile, has kept; once for each arm where arms are runs
    /// of their own
    #[arg(long, value_name = "DIR", conflicts_with_all = ["a", "b", "arms", "out", "quick", "size", "cache", "destroy_data"])]
    from: Vec<PathBuf>,
    /// Of tiles: how many to begin with, or from how many to how many, as 'lab run' takes it
    #[arg(long, value_name = "N[..M]", value_parser = super::tiles::tile_range, conflicts_with = "from")]
    tiles: Option<(usize, Option<usize>)>,
    /// Of tiles: how large volumes are, as a share of what is published, in place of what the profile says
    #[arg(long, value_name = "SHARE", value_parser = super::run::scale, conflicts_with = "from")]
    scale: Option<f64>,
    /// Of tiles: a TOML file of price lines, to say what a virtual machine costs
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    price: Option<PathBuf>,
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
    /// The size of the cache that is measured, of a study of working sets: 'corners'
    #[arg(long, conflicts_with = "size")]
    cache: Option<Size>,
    /// The targets may hold data of others: it goes
    #[arg(long)]
    destroy_data: bool,
}

impl Study {
    pub(super) fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let Some(name) = &self.name else { return ls(context).map(|()| ExitCode::SUCCESS) };
        let study = study::find(name).map_err(Failure::Misuse)?;
        let cores = self.cores.map_or_else(|| machine::cores() as f64, f64::from);
        if !self.from.is_empty() {
            return read(context, &study, &self.from, cores);
        }
        self.check(&study)?;
        let profile = match &study.load {
            study::Load::Runs(_) => return self.run_each(context, &study, cores),
            study::Load::Profile(profile) => profile,
        };
        let mut load = Load::plain(profile, self.quick, self.out.clone(), self.size, self.destroy_data);
        load.cache = self.cache;
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
        let (trial, bundles) =
            Compare { load, arms: self.arms, workers: Workers::default(), warehouses: None, postgres: None }
                .measure(context)?;
        tell_trial(context, &study, (&trial, &bundles), self.out.as_deref(), cores)
    }

    fn check(&self, study: &Report) -> Result<(), Failure> {
        let of_databases = !self.to.is_empty() || !self.recovery.is_empty() || !self.beside.is_empty();
        let of_tiles = self.tiles.is_some() || self.scale.is_some() || self.price.is_some();
        let words = [
            (
                of_databases && !study.load.is_of_runs(),
                "moves and recovers nothing",
                "leave --to, --recovery and --beside out, or take 'recovery'",
            ),
            (
                of_tiles && study.with_operations.is_none(),
                "has no tiles",
                "leave --tiles, --scale and --price out, or take 'tiles'",
            ),
            (
                self.ops.is_some() && study.with_operations.is_none(),
                "does nothing beside what it runs",
                "leave --ops out, or take 'tiles'",
            ),
        ];
        let (given, targets) = (self.arms.are_given(), !self.target.is_empty());
        let wrong = words.iter().find(|(is_wrong, ..)| *is_wrong);
        let wrong = wrong.map(|(_, what, remedy)| ((*what).to_owned(), *remedy));
        let wrong = wrong.or_else(|| match (study.load.is_of_runs(), study.arms.is_empty()) {
            (true, false) => self.check_sides(),
            (_, true) if !targets => Some((
                "measures one target".to_owned(),
                "name it with --target, or a folder that was kept with --from",
            )),
            (_, true) => given.then(|| ("measures one target".to_owned(), "leave --a, --b and --arms out")),
            (false, false) => (!given).then(|| {
                let what = format!("holds arms against one another (there: {})", study.arms.join(", "));
                (what, "name two with --a and --b, or a file of arms with --arms")
            }),
        });
        let Some((what, remedy)) = wrong else { return Ok(()) };
        let what = format!("the study '{}' {what}", study.name);
        Err(Failure::Misuse(Error::new(Kind::Invalid, what).remedy(remedy)))
    }
}

fn ls(context: &Context) -> Result<(), Failure> {
    let studies: Vec<Report> = study::all().collect();
    let document: Vec<_> = studies
        .iter()
        .map(|one| json!({ "name": one.name, "title": one.title, "report": one.report, "profiles": one.load.profiles(), "with_operations": one.with_operations, "arms": one.arms }))
        .collect();
    context.answer(&document, || {
        let mut text = String::new();
        for one in &studies {
            text.push_str(&format!("{}\n  {}\n  {}\n", one.name, one.title, one.report));
        }
        text
    })
}

/// What earlier runs have kept.
fn read(context: &Context, study: &Report, dirs: &[PathBuf], cores: f64) -> Result<ExitCode, Failure> {
    let profile = match (&study.load, dirs) {
        (study::Load::Runs(_), dirs) => return runs::read(context, study, dirs, cores),
        (study::Load::Profile(profile), [_]) => profile,
        _ => {
            let what = format!("the study '{}' reads one folder, whatever its arms are", study.name);
            return Err(Failure::Misuse(Error::new(Kind::Invalid, what).remedy("say --from once")));
        }
    };
    let dir = &dirs[0];
    if Trial::is_in(dir) {
        let (trial, bundles) = stonefold_lab::trial::load(dir)?;
        if trial.profile != *profile || study.arms.is_empty() {
            return Err(other(study, dir, &format!("{} on several arms", trial.profile)));
        }
        return tell_trial(context, study, (&trial, &bundles), Some(dir), cores);
    }
    let bundle = bundle::load(dir)?;
    if bundle.run.profile != *profile || !study.arms.is_empty() {
        return Err(other(study, dir, &format!("{} on one target", bundle.run.profile)));
    }
    let summary = verdict::summarise(&bundle)?;
    let found = study::of_run(study, &bundle, &summary, cores);
    answer(context, study, &found, &About::of(&bundle), summary.verdict)
}

fn other(study: &Report, dir: &Path, is_of: &str) -> Failure {
    let what = format!(
        "'{}' is a run of {is_of}, and the study '{}' is of {}",
        dir.display(),
        study.name,
        study.load.profiles().join(" and ")
    );
    Failure::Misuse(
        Error::new(Kind::Invalid, what).remedy("name a folder that this study, or its profile, has kept"),
    )
}

fn tell_trial(
    context: &Context,
    study: &Report,
    (trial, bundles): (&Trial, &[Bundle]),
    kept: Option<&Path>,
    cores: f64,
) -> Result<ExitCode, Failure> {
    let (summaries, findings) = trial::compute(trial, bundles)?;
    let found = study::of_trial(study, trial, bundles, &summaries, &findings, cores);
    let again = trial::again(trial, kept);
    let about = About { quick: trial.quick, locked: trial.locked, again: &again };
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
    for scaled in &found.scaled {
        text.push_str(&format!("scaled to: {scaled}\n"));
    }
    let profiles = study.load.profiles().join(" and ");
    let kind = match (about.locked, about.quick) {
        (true, false) => profiles,
        (true, true) => format!("{profiles}, quick: a sketch, no result"),
        (false, _) => format!("{profiles}, modified: not to be held against others"),
    };
    text.push_str(&format!("profile: {kind}; verdict: {}\n", json!(verdict).as_str().unwrap_or_default()));
    if study.load.is_of_runs() && found.arms.len() > 1 {
        text.push_str("each arm was run once: what they differ by has no interval, and nothing follows from it; 'lab compare' takes turns\n");
    }
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
