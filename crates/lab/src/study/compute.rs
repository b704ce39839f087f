//! A study's tables, filled from what was measured.

use super::{Here, Study, Table, Unit, named};
use crate::bundle::Bundle;
use crate::measure::Point;
use crate::stats::compare::Comparison;
use crate::stats::gates::Grade;
use crate::stats::median;
use crate::stats::require::Requirement;
use crate::trial::{Figure, Findings, Trial};
use crate::verdict::{Summary, Verdict};
use serde::Serialize;
use stonefold_types::Size;

/// A study, with figures of a run or a trial.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Found {
    /// The study's name.
    pub study: String,
    /// What is compared here, in the order of the columns or rows of arms.
    pub arms: Vec<String>,
    /// Cores that published figures were divided by.
    pub published_cores: Option<f64>,
    /// Cores that ours were divided by.
    pub cores: f64,
    /// By what the report was scaled here, in words: what each run had of volumes, working sets and time.
    pub scaled: Vec<String>,
    /// The report's tables.
    pub tables: Vec<FoundTable>,
}

/// A table, filled.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FoundTable {
    /// As in the report.
    pub title: String,
    /// What its figures are.
    pub unit: Unit,
    /// Heads.
    pub columns: Vec<String>,
    /// Two or more for each row of the report: what was published, what was found.
    pub rows: Vec<FoundRow>,
}

/// Figures of one kind in one row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FoundRow {
    /// The row's head in the report.
    pub name: String,
    /// What these are: `published`, `here`, and the same for each core or as shares of the first.
    pub of: &'static str,
    /// One for each column; nothing where there is none.
    pub figures: Vec<Option<f64>>,
    /// In words, with an interval where there is one.
    pub told: Vec<String>,
}

/// A run, judged.
type Run<'a> = (&'a Bundle, &'a Summary);

/// The runs of one arm, of the study's profiles or of some of them.
#[derive(Clone, Debug)]
pub struct ArmRuns {
    /// What the arm is called.
    pub name: String,
    /// Each with what it says.
    pub runs: Vec<(Bundle, Summary)>,
}

/// Fills the tables from one run.
pub fn of_run(study: &Study, bundle: &Bundle, summary: &Summary, cores: f64) -> Found {
    let look = |here: &Here| match here {
        Here::Point { point, figure, arm: 0 } => Seen::at(&[(bundle, summary)], point, figure),
        Here::Named { name, arm: 0 } => Seen::named(&[(bundle, summary)], name),
        _ => Seen::of(None),
    };
    let found = fill(study, bundle.run.targets.clone(), cores, look);
    Found { scaled: scaled([bundle]), ..found }
}

/// Fills the tables from runs of arms, in the order of the report's.
pub fn of_runs(study: &Study, arms: &[ArmRuns], cores: f64) -> Found {
    let runs_of = |arm: usize| -> Vec<Run<'_>> {
        let runs = arms.get(arm).map_or(&[][..], |arm| &arm.runs);
        runs.iter().map(|(bundle, summary)| (bundle, summary)).collect()
    };
    let look = |here: &Here| match here {
        Here::Point { point, figure, arm } => Seen::at(&runs_of(*arm), point, figure),
        Here::Named { name, arm } => Seen::named(&runs_of(*arm), name),
        Here::Nowhere | Here::Ratio { .. } | Here::Spread { .. } => Seen::of(None),
    };
    let found = fill(study, arms.iter().map(|arm| arm.name.clone()).collect(), cores, look);
    let bundles = arms.iter().flat_map(|arm| &arm.runs).map(|(bundle, _)| bundle);
    Found { scaled: scaled(bundles), ..found }
}

/// Fills the tables from the runs of a trial, each with its summary: of each arm the median.
pub fn of_trial(
    study: &Study,
    trial: &Trial,
    bundles: &[Bundle],
    summaries: &[Summary],
    found: &Findings,
    cores: f64,
) -> Found {
    let runs_of = |arm: usize| -> Vec<Run<'_>> {
        let turns = trial.runs.iter().zip(bundles.iter().zip(summaries));
        turns.filter(|((turn, _), _)| turn.arm == arm && !turn.cut_short).map(|(_, run)| run).collect()
    };
    let look = |here: &Here| match here {
        Here::Nowhere => Seen::of(None),
        Here::Point { point, figure, arm } => Seen::at(&runs_of(*arm), point, figure),
        Here::Named { name, arm } => Seen::named(&runs_of(*arm), name),
        Here::Ratio { point, arm } => {
            let is_it = |one: &&crate::trial::Contrast| {
                one.arm == *arm && one.point == *point && one.figure == Figure::Rate && one.void.is_none()
            };
            let contrast = found.contrasts.iter().find(is_it).filter(|one| !one.comparison.pairs.is_empty());
            let words = |one: &Comparison| match one.pairs.as_slice() {
                [_] => format!("{:.3} (one pair)", one.ratio),
                _ => format!("{:.3} ({:.3} to {:.3})", one.ratio, one.low, one.high),
            };
            Seen {
                figure: contrast.map(|one| one.comparison.ratio),
                words: contrast.map(|one| words(&one.comparison)),
                is_void: false,
            }
        }
        Here::Spread { point } => {
            Seen::of(found.spread.iter().find(|(name, _)| name == point).map(|(_, spread)| *spread))
        }
    };
    Found { scaled: scaled(bundles), ..fill(study, trial.arms.clone(), cores, look) }
}

/// What runs had of volumes, working sets and time; of those that are alike once.
fn scaled<'a>(bundles: impl IntoIterator<Item = &'a Bundle>) -> Vec<String> {
    let mut told: Vec<String> = Vec::new();
    for bundle in bundles {
        let words = scale_of(bundle);
        if !told.contains(&words) {
            told.push(words);
        }
    }
    told
}

fn scale_of(bundle: &Bundle) -> String {
    let run = &bundle.run;
    let mut words = vec![format!("{} in all", Size(run.bytes))];
    words.extend(run.scale.map(|scale| format!("{scale:.4} times the profile's")));
    words.extend(run.tiles.as_ref().map(|tiled| format!("{} of the published size", tiled.scale)));
    let mut parts: Vec<f64> = bundle.points.iter().map(|point| point.footprint).collect();
    parts.sort_by(f64::total_cmp);
    parts.dedup();
    let cache = run.system.as_ref().and_then(|system| system.cache).filter(|cache| *cache > 0);
    let of = |part: &f64| {
        let bytes = run.bytes as f64 * part;
        let times =
            cache.map(|cache| format!(", {:.2} times the cache", bytes / cache as f64)).unwrap_or_default();
        format!("{}{times}", Size(bytes as u64))
    };
    if parts.len() > 1 {
        words.push(format!("working sets of {}", parts.iter().map(of).collect::<Vec<_>>().join("; ")));
    }
    let seconds = || bundle.points.iter().map(|point| point.seconds);
    if let (Some(least), Some(most)) = (seconds().min_by(f64::total_cmp), seconds().max_by(f64::total_cmp)) {
        let range =
            if most - least < 1.0 { format!("{most:.0}") } else { format!("{least:.0} to {most:.0}") };
        words.push(format!("measured for {range} s each"));
    }
    format!("{}: {}", run.profile, words.join(", "))
}

/// A figure.
struct Seen {
    figure: Option<f64>,
    /// In what words it is told where its unit's do not do.
    words: Option<String>,
    /// A rule says that nothing can be concluded from it.
    is_void: bool,
}

impl Seen {
    fn of(figure: Option<f64>) -> Self {
        Seen { figure, words: None, is_void: false }
    }

    /// The median of what these runs did at a point.
    fn at(runs: &[Run<'_>], point: &str, figure: &str) -> Self {
        let of_point = |(_, summary): &Run<'_>| {
            summary.points.iter().any(|one| one.name == point && one.grade == Grade::F)
        };
        let figures = figures_of(runs.iter().map(|(bundle, _)| *bundle), point, figure);
        Seen { is_void: runs.iter().any(of_point), ..Seen::of(median(figures)) }
    }

    /// The median of what these runs have under a name. Where one of those says that nothing can be concluded from it, it is void.
    fn named(runs: &[Run<'_>], name: &str) -> Self {
        let found =
            runs.iter().filter_map(|(bundle, summary)| Some((named::of(bundle, name)?, summary.verdict)));
        let found: Vec<(f64, Verdict)> = found.collect();
        Seen {
            is_void: found.iter().any(|(_, verdict)| *verdict == Verdict::Invalid),
            ..Seen::of(median(found.iter().map(|(figure, _)| *figure).collect()))
        }
    }

    fn told(&self, unit: Unit) -> String {
        let words =
            self.words.clone().unwrap_or_else(|| told(unit, self.figure.map(|figure| unit.of(figure))));
        if self.is_void && self.figure.is_some() { format!("{words} (void)") } else { words }
    }
}

fn fill(study: &Study, arms: Vec<String>, cores: f64, look: impl Fn(&Here) -> Seen) -> Found {
    let tables = study.tables.iter().map(|table| fill_table(study, table, cores, &look)).collect();
    let scaled = Vec::new();
    Found { study: study.name.clone(), arms, published_cores: study.cores, cores, scaled, tables }
}

fn fill_table(study: &Study, table: &Table, cores: f64, look: &impl Fn(&Here) -> Seen) -> FoundTable {
    let mut rows = Vec::new();
    for row in &table.rows {
        let published: Vec<Option<f64>> = row.cells.iter().map(|cell| cell.published).collect();
        let mut seen: Vec<Seen> = row.cells.iter().map(|cell| look(&cell.here)).collect();
        if table.relative {
            let first = seen.first().and_then(|seen| seen.figure).filter(|first| *first > 0.0);
            for one in &mut seen {
                one.figure = one.figure.zip(first).map(|(figure, first)| figure / first);
            }
        }
        let here: Vec<Option<f64>> =
            seen.iter().map(|seen| seen.figure.map(|figure| table.unit.of(figure))).collect();
        let told: Vec<String> = seen.iter().map(|seen| seen.told(table.unit)).collect();
        let plain = |of, figures: Vec<Option<f64>>| FoundRow {
            name: row.name.clone(),
            of,
            told: figures.iter().map(|figure| super::compute::told(table.unit, *figure)).collect(),
            figures,
        };
        rows.push(plain("published", published.clone()));
        rows.push(FoundRow { name: row.name.clone(), of: "here", figures: here.clone(), told });
        if let (true, Some(theirs)) = (table.per_core, study.cores) {
            rows.push(plain("published, a core", divided(&published, theirs)));
            rows.push(plain("here, a core", divided(&here, cores)));
        }
        if table.shape {
            rows.push(shares(&row.name, "published, of the first", &published));
            rows.push(shares(&row.name, "here, of the first", &here));
        }
    }
    FoundTable { title: table.title.clone(), unit: table.unit, columns: table.columns.clone(), rows }
}

fn told(unit: Unit, figure: Option<f64>) -> String {
    figure.map_or_else(|| "-".to_owned(), |figure| unit.told(figure))
}

fn divided(figures: &[Option<f64>], by: f64) -> Vec<Option<f64>> {
    figures.iter().map(|figure| figure.map(|figure| figure / by)).collect()
}

fn shares(name: &str, of: &'static str, figures: &[Option<f64>]) -> FoundRow {
    let first = figures.first().copied().flatten().filter(|first| *first > 0.0);
    let shares: Vec<Option<f64>> =
        figures.iter().map(|figure| first.and_then(|first| figure.map(|figure| figure / first))).collect();
    let told =
        shares.iter().map(|share| share.map_or_else(|| "-".into(), |share| format!("{:.0}%", share * 100.0)));
    FoundRow { name: name.into(), of, told: told.collect(), figures: shares }
}

/// The figure in each of these runs that has the point.
fn figures_of<'a>(bundles: impl IntoIterator<Item = &'a Bundle>, point: &str, figure: &str) -> Vec<f64> {
    let of_point = |one: &Point| {
        let streams: Vec<_> = one.loads.iter().map(|load| load.name.as_str()).zip(&one.streams).collect();
        requirement(figure)?.judge(&streams, one.seconds).ok()?.measured
    };
    let points =
        bundles.into_iter().filter_map(|bundle| bundle.points.iter().find(|one| one.name() == point));
    points.filter_map(of_point).collect()
}

/// A figure by its name is what a requirement that is always met measures.
pub(super) fn requirement(figure: &str) -> Option<Requirement> {
    [">=0", "<=1s"].iter().find_map(|bound| format!("{figure}{bound}").parse().ok())
}
