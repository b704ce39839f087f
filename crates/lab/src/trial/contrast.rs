//! What differs between the arms of a trial: each figure of each point, in pairs of runs of one round.

mod levels;

pub use levels::{Beside, Level};

use super::Turn;
use crate::bundle::Bundle;
use crate::measure::Point;
use crate::oltp::Plateau;
use crate::oltp::record::nopm;
use crate::record::Latencies;
use crate::stats::compare::{Comparison, Finding};
use crate::stats::gates::{STEADY, State};
use crate::verdict::{Summary, Verdict};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How far rates that were asked for may differ, as a share, and still count as the same load.
const RATE_APART_MAX: f64 = 0.005;
/// What the best of a ramp is called.
const PLATEAU: &str = "plateau";

/// Of what is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// I/Os a second, of a closed loop.
    Rate,
    /// Nanoseconds of the response time.
    Mean,
    /// The same, at the 99th percentile.
    P99,
    /// Processor seconds of the whole machine for a million I/Os.
    Cpu,
    /// New-Orders that committed, a minute, of a database.
    Orders,
    /// Seconds of what was timed as a whole.
    Took,
}

/// In the order in which they are told.
const FIGURES: [Figure; 6] =
    [Figure::Rate, Figure::Orders, Figure::Took, Figure::Mean, Figure::P99, Figure::Cpu];

impl Figure {
    /// Whether more of it is better.
    pub fn more_is_better(self) -> bool {
        matches!(self, Figure::Rate | Figure::Orders)
    }

    fn of(self, point: &Point) -> Option<f64> {
        let response = || {
            let mut all = Latencies::new();
            for record in &point.streams {
                all.add(&record.read.response);
                all.add(&record.write.response);
            }
            all
        };
        let value = match self {
            Figure::Rate => point.iops(),
            Figure::Mean => response().mean(),
            Figure::P99 => response().percentile(0.99)? as f64,
            Figure::Cpu => point.machine_of_load()?.mean * 1e6 / point.iops(),
            Figure::Took => point.task.as_ref().map(|_| point.seconds)?,
            Figure::Orders => point.database.as_ref().map(|_| nopm(point))?,
        };
        (value.is_finite() && value > 0.0).then_some(value)
    }
}

/// One figure of one point, of one arm against the first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Contrast {
    /// Step and label.
    pub point: String,
    /// Of what.
    pub figure: Figure,
    /// The arm's number, from 1: 0 is the one against which it is held.
    pub arm: usize,
    /// What the pairs say.
    pub comparison: Comparison,
    /// Rounds of which a run did not become steady at this point: they are in no pair.
    pub unsteady: usize,
    /// Why nothing can be concluded: the rule that makes one of the runs void at this point.
    pub void: Option<String>,
    /// No difference was seen, nor would one of a tenth have been: so nothing is told.
    #[serde(default)]
    pub is_wide: bool,
}

/// Where no difference was seen, a smaller one than this would have been, or nothing is told.
const SEEN_MAX: f64 = 0.1;

impl Contrast {
    /// Whether it is one of those that a comparison is about: percentiles and processor time scatter more, and stand beside them.
    pub fn is_main(&self) -> bool {
        !matches!(self.figure, Figure::P99 | Figure::Cpu)
    }
}

/// What a trial shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Findings {
    /// Invalid where a point is void; inconclusive where there are too few pairs, and where of a rate, a mean or a length neither a difference was seen
    /// nor one of a tenth would have been; else pass. Whether intervals became as narrow as was asked for ([`super::Trial::within`]) is not looked at here.
    pub verdict: Verdict,
    /// All that was compared.
    pub contrasts: Vec<Contrast>,
    /// What each arm did, compared or not.
    pub levels: Vec<Level>,
    /// What there is to know of each point beside that.
    #[serde(default)]
    pub beside: Vec<Beside>,
    /// Points that cannot be compared, and why.
    pub left_out: Vec<String>,
    /// In what the arms are not alike, beside what is compared.
    pub unlike: Vec<String>,
    /// Of each point with a closed loop: the best arm's I/Os a second against the worst's.
    pub spread: Vec<(String, f64)>,
}

/// Computes all of it; runs, bundles and summaries in the same order. Intervals are drawn by `seed`.
pub fn findings(
    arms: usize,
    turns: &[Turn],
    bundles: &[Bundle],
    summaries: &[Summary],
    seed: u64,
) -> Findings {
    let mut found = Findings {
        verdict: Verdict::Inconclusive,
        contrasts: Vec::new(),
        levels: Vec::new(),
        beside: Vec::new(),
        left_out: Vec::new(),
        unlike: Vec::new(),
        spread: Vec::new(),
    };
    let runs: Vec<Run<'_>> = turns
        .iter()
        .zip(bundles.iter().zip(summaries))
        .filter(|(turn, _)| !turn.cut_short)
        .map(|(turn, (bundle, summary))| Run { turn, bundle, summary })
        .collect();
    for name in names(&runs) {
        compare_point(&name, arms, &runs, &mut found);
    }
    compare_plateaus(arms, &runs, &mut found);
    let among = found.contrasts.len();
    for contrast in &mut found.contrasts {
        contrast.comparison = Comparison::of(&contrast.comparison.pairs, seed, among);
        let Comparison { finding, detectable, .. } = contrast.comparison;
        contrast.is_wide = finding == Finding::NoDifference && detectable > SEEN_MAX;
    }
    found.verdict = match () {
        () if found.contrasts.iter().any(|one| one.void.is_some()) => Verdict::Invalid,
        () if found.contrasts.is_empty() => Verdict::Inconclusive,
        () if found.are_too_few() => Verdict::Inconclusive,
        () if found.contrasts.iter().any(|one| one.is_wide && one.is_main()) => Verdict::Inconclusive,
        () => Verdict::Pass,
    };
    found
}

impl Findings {
    /// Whether of a rate, a mean or a length too few rounds were whole and steady. Percentiles that too few I/Os tell leave the others as they are.
    pub fn are_too_few(&self) -> bool {
        let few = |one: &Contrast| one.is_main() && one.comparison.finding == Finding::Inconclusive;
        self.contrasts.is_empty() || self.contrasts.iter().any(few)
    }

    /// Whether the interval of each rate and each mean reaches so far either way at most, as a share of its ratio, so that more rounds are not
    /// worth their time. That rounds end by the *width* of intervals, and never by what these say, keeps them true (fixed-width
    /// sequential intervals: Chow and Robbins, Annals of Mathematical Statistics 36, 1965). Percentiles and processor time need not be so narrow.
    pub fn are_within(&self, share: f64) -> bool {
        let counts = |one: &&Contrast| one.is_main() && one.figure != Figure::Took;
        let narrow = |one: &Contrast| {
            let Comparison { ratio, low, high, finding, .. } = one.comparison;
            finding != Finding::Inconclusive && high / ratio - 1.0 <= share && 1.0 - low / ratio <= share
        };
        let mut told = self.contrasts.iter().filter(|one| one.void.is_none()).filter(counts).peekable();
        told.peek().is_some() && told.all(narrow)
    }
}

struct Run<'a> {
    turn: &'a Turn,
    bundle: &'a Bundle,
    summary: &'a Summary,
}

impl Run<'_> {
    /// Whether its I/Os in flight were searched for.
    fn is_tuned(&self) -> bool {
        self.bundle.points.iter().any(|point| point.probe.is_some())
    }

    /// The number of a point.
    fn place(&self, name: &str) -> Option<usize> {
        self.bundle.points.iter().position(|point| point.probe.is_none() && point.name() == name)
    }

    fn point(&self, name: &str) -> Option<&Point> {
        self.place(name).map(|place| &self.bundle.points[place])
    }
}

/// Of all points but those of searches, in the order in which they were made.
fn names(runs: &[Run<'_>]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for point in runs.iter().flat_map(|run| &run.bundle.points).filter(|point| point.probe.is_none()) {
        let name = point.name();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Finds the pairs. What they say hangs on how many of them there are in all.
fn compare_point(name: &str, arms: usize, runs: &[Run<'_>], found: &mut Findings) {
    let Some(first) = runs.iter().find_map(|run| run.point(name)) else { return };
    let levels = levels::of_point(name, arms, runs);
    found.levels.extend(levels.iter().cloned());
    found.beside.push(Beside::of(name, arms, runs));
    let others = || runs.iter().filter_map(|run| run.point(name));
    if let Some(why) = others().find_map(|point| unlike(first, point, runs.iter().any(Run::is_tuned))) {
        found.left_out.push(format!("{name}: {why}"));
        return;
    }
    // Nothing is asked of the points of a search, and loads that it has found may differ.
    if others().any(|point| in_flight(point) != in_flight(first)) {
        found.unlike.push(format!("{name}: each run had the I/Os in flight that were found best for it"));
    }
    if runs.iter().any(|run| run.point(name).is_none()) {
        let why = match first.database {
            Some(_) => "not every run's ramp went so far",
            None => "not every run has it",
        };
        found.left_out.push(format!("{name}: {why}"));
        return;
    }
    let closed = first.loads.iter().any(|load| load.outstanding.is_some());
    let void = runs.iter().find_map(|run| void_at(run, run.place(name)?));
    let rounds = runs.iter().map(|run| run.turn.round).max().map_or(0, |last| last + 1);
    let (steady, unsteady): (Vec<usize>, Vec<usize>) = (0..rounds).partition(|round| {
        runs.iter()
            .filter(|run| run.turn.round == *round)
            .all(|run| run.place(name).is_some_and(|place| is_steady(run, place)))
    });
    for figure in levels.iter().map(|level| level.figure).filter(|figure| closed || *figure != Figure::Rate) {
        for arm in 1..arms {
            let pairs = pairs(name, arm, runs, figure, &steady);
            found.contrasts.push(Contrast {
                point: name.to_owned(),
                figure,
                arm,
                comparison: Comparison { pairs, ..Comparison::of(&[], 0, 1) },
                unsteady: unsteady.len(),
                void: void.clone(),
                is_wide: false,
            });
        }
    }
    let rate = levels.iter().find(|level| closed && level.figure == Figure::Rate);
    found.spread.extend(rate.and_then(Level::spread).map(|spread| (name.to_owned(), spread)));
}

/// Of databases: what each run came to, with as many users as that took.
fn compare_plateaus(arms: usize, runs: &[Run<'_>], found: &mut Findings) {
    let of = |run: &Run<'_>| Some(Plateau::of(&run.bundle.points)?.step);
    let is_database = |run: &Run<'_>| run.bundle.points.first().is_some_and(|point| point.database.is_some());
    // A single step is its own plateau, and is told already.
    if !runs.iter().all(is_database) || runs.iter().all(|run| run.bundle.points.len() == 1) {
        return;
    }
    found.levels.push(levels::of_plateaus(arms, runs));
    let void = runs.iter().find_map(|run| void_at(run, of(run)?));
    let value = |round: usize, arm: usize| {
        let run = runs.iter().find(|run| run.turn.round == round && run.turn.arm == arm)?;
        let place = of(run).filter(|place| is_steady(run, *place))?;
        Figure::Orders.of(&run.bundle.points[place])
    };
    let rounds = runs.iter().map(|run| run.turn.round).max().map_or(0, |last| last + 1);
    for arm in 1..arms {
        let pairs: Vec<(f64, f64)> =
            (0..rounds).filter_map(|round| Some((value(round, 0)?, value(round, arm)?))).collect();
        found.contrasts.push(Contrast {
            point: PLATEAU.into(),
            figure: Figure::Orders,
            arm,
            unsteady: rounds - pairs.len(),
            comparison: Comparison { pairs, ..Comparison::of(&[], 0, 1) },
            void: void.clone(),
            is_wide: false,
        });
    }
}

/// Why two points were not asked for the same.
fn unlike(one: &Point, other: &Point, tuned: bool) -> Option<String> {
    let apart = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => (a / b - 1.0).abs() > RATE_APART_MAX,
        (None, None) => false,
        _ => true,
    };
    let differs = |(a, b): (&crate::measure::PointLoad, &crate::measure::PointLoad)| {
        // That each is tuned for itself is what such a profile is about.
        (a.outstanding != b.outstanding && !tuned) || apart(a.rate, b.rate)
    };
    one.loads
        .iter()
        .zip(&other.loads)
        .any(differs)
        .then(|| "each arm was given a share of its own capacity, so that loads differ".into())
}

/// Of each stream.
fn in_flight(point: &Point) -> Vec<Option<u32>> {
    point.loads.iter().map(|load| load.outstanding).collect()
}

fn void_at(run: &Run<'_>, place: usize) -> Option<String> {
    let judged = run.summary.points.get(place)?;
    let gate = judged.gates.iter().find(|gate| gate.state == State::Void && gate.name != STEADY)?;
    Some(format!("{} in round {}: {}", gate.name, run.turn.round + 1, gate.why))
}

fn is_steady(run: &Run<'_>, place: usize) -> bool {
    let gates = run.summary.points.get(place).map_or(&[][..], |judged| &judged.gates);
    gates.iter().all(|gate| gate.name != STEADY || gate.state != State::Void)
}

/// Of each of these rounds in which both arms were run.
fn pairs(name: &str, arm: usize, runs: &[Run<'_>], figure: Figure, rounds: &[usize]) -> Vec<(f64, f64)> {
    let of = |round: usize, arm: usize| {
        let run = runs.iter().find(|run| run.turn.round == round && run.turn.arm == arm)?;
        figure.of(run.point(name)?)
    };
    rounds.iter().filter_map(|round| Some((of(*round, 0)?, of(*round, arm)?))).collect()
}

#[cfg(test)]
mod tests;
