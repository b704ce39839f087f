//! What differs between the arms of a trial: each figure of each point, in pairs of runs of one round.

use super::Turn;
use crate::bundle::Bundle;
use crate::measure::Point;
use crate::record::Latencies;
use crate::stats::compare::{Comparison, Finding};
use crate::stats::gates::{STEADY, State};
use crate::stats::median;
use crate::verdict::{Summary, Verdict};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How far rates that were asked for may differ, as a share, and still count as the same load.
const RATE_APART_MAX: f64 = 0.005;

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
}

impl Figure {
    /// Whether more of it is better.
    pub fn more_is_better(self) -> bool {
        self == Figure::Rate
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
            Figure::P99 => response().quantile(0.99) as f64,
            Figure::Cpu => point.machine_cpu?.mean * 1e6 / point.iops(),
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
}

/// What a trial shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Findings {
    /// Invalid where a point is void, inconclusive where there are too few pairs, else pass.
    pub verdict: Verdict,
    /// All that was compared.
    pub contrasts: Vec<Contrast>,
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
    let places = runs.first().map_or(0, |run| run.bundle.points.len());
    for place in 0..places {
        compare_point(place, arms, &runs, &mut found);
    }
    let among = found.contrasts.len();
    for contrast in &mut found.contrasts {
        contrast.comparison = Comparison::of(&contrast.comparison.pairs, seed, among);
    }
    found.verdict = match () {
        () if found.contrasts.iter().any(|one| one.void.is_some()) => Verdict::Invalid,
        () if found.contrasts.is_empty() => Verdict::Inconclusive,
        () if found.contrasts.iter().any(|one| one.comparison.finding == Finding::Inconclusive) => {
            Verdict::Inconclusive
        }
        () => Verdict::Pass,
    };
    found
}

struct Run<'a> {
    turn: &'a Turn,
    bundle: &'a Bundle,
    summary: &'a Summary,
}

impl Run<'_> {
    fn point(&self, place: usize) -> Option<&Point> {
        self.bundle.points.get(place)
    }
}

/// Finds the pairs. What they say hangs on how many of them there are in all.
fn compare_point(place: usize, arms: usize, runs: &[Run<'_>], found: &mut Findings) {
    let first = &runs[0].bundle.points[place];
    let name = first.name();
    if let Some(why) = runs.iter().filter_map(|run| run.point(place)).find_map(|point| unlike(first, point)) {
        found.left_out.push(format!("{name}: {why}"));
        return;
    }
    let closed = first.loads.iter().any(|load| load.outstanding.is_some());
    let void = runs.iter().find_map(|run| void_at(run, place));
    let rounds = runs.iter().map(|run| run.turn.round).max().map_or(0, |last| last + 1);
    let (steady, unsteady): (Vec<usize>, Vec<usize>) = (0..rounds).partition(|round| {
        runs.iter().filter(|run| run.turn.round == *round).all(|run| is_steady(run, place))
    });
    let figures = [Figure::Rate, Figure::Mean, Figure::P99, Figure::Cpu];
    for figure in figures.into_iter().filter(|figure| closed || *figure != Figure::Rate) {
        for arm in 1..arms {
            let pairs = pairs(place, arm, runs, figure, &steady);
            let is_told =
                runs.iter().any(|run| run.point(place).is_some_and(|point| figure.of(point).is_some()));
            if !is_told {
                continue;
            }
            found.contrasts.push(Contrast {
                point: name.clone(),
                figure,
                arm,
                comparison: Comparison { pairs, ..Comparison::of(&[], 0, 1) },
                unsteady: unsteady.len(),
                void: void.clone(),
            });
        }
    }
    if closed {
        found.spread.extend(spread(place, arms, runs).map(|spread| (name, spread)));
    }
}

/// Why two points were not asked for the same.
fn unlike(one: &Point, other: &Point) -> Option<String> {
    if one.name() != other.name() {
        return Some(format!("another arm has '{}' in its place", other.name()));
    }
    let apart = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => (a / b - 1.0).abs() > RATE_APART_MAX,
        (None, None) => false,
        _ => true,
    };
    let differs = |(a, b): (&crate::measure::PointLoad, &crate::measure::PointLoad)| {
        a.outstanding != b.outstanding || apart(a.rate, b.rate)
    };
    one.loads
        .iter()
        .zip(&other.loads)
        .any(differs)
        .then(|| "each arm was given a share of its own capacity, so that loads differ".into())
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
fn pairs(place: usize, arm: usize, runs: &[Run<'_>], figure: Figure, rounds: &[usize]) -> Vec<(f64, f64)> {
    let of = |round: usize, arm: usize| {
        let run = runs.iter().find(|run| run.turn.round == round && run.turn.arm == arm)?;
        figure.of(run.point(place)?)
    };
    rounds.iter().filter_map(|round| Some((of(*round, 0)?, of(*round, arm)?))).collect()
}

/// The best arm's median rate against the worst's.
fn spread(place: usize, arms: usize, runs: &[Run<'_>]) -> Option<f64> {
    let of_arm = |arm: usize| {
        let runs = runs.iter().filter(|run| run.turn.arm == arm);
        median(runs.filter_map(|run| Figure::Rate.of(run.point(place)?)).collect())
    };
    let medians: Vec<f64> = (0..arms).map(of_arm).collect::<Option<_>>()?;
    let least = medians.iter().copied().min_by(f64::total_cmp)?;
    Some(medians.iter().copied().max_by(f64::total_cmp)? / least)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{PointLoad, tests::point};

    /// A trial of two arms, the second `factor` times as fast, with noise that goes over both arms of a round alike.
    fn trial(rounds: usize, factor: f64, change: impl Fn(&Turn, &mut Point)) -> Findings {
        let mut chance = crate::chance::Chance::new(9);
        let (mut turns, mut bundles, mut summaries) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..rounds {
            let drift = 1.0 + round as f64 / 2.0;
            for arm in 0..2 {
                let turn = Turn { round, arm, seed: 1, began: 0, cut_short: false };
                let speed = if arm == 1 { factor } else { 1.0 };
                let rate = 10_000.0 * drift * speed * (1.0 + 0.01 * chance.fraction());
                let mut one = point(rate as u64);
                change(&turn, &mut one);
                let bundle = crate::bundle::tests::bundle(vec![one]);
                summaries.push(crate::verdict::summarise(&bundle).unwrap());
                turns.push(turn);
                bundles.push(bundle);
            }
        }
        findings(2, &turns, &bundles, &summaries, 1)
    }

    fn of(found: &Findings, figure: Figure) -> &Contrast {
        found.contrasts.iter().find(|one| one.figure == figure).unwrap()
    }

    #[test]
    fn a_faster_arm_is_found_whatever_drifts_between_rounds() {
        let found = trial(6, 1.2, |_, _| {});
        assert_eq!(found.verdict, Verdict::Pass);
        let rate = &of(&found, Figure::Rate).comparison;
        assert_eq!(rate.finding, Finding::Higher);
        assert!((rate.ratio - 1.2).abs() < 0.02 && rate.low > 1.15, "{rate:?}");
        assert!((found.spread[0].1 - 1.2).abs() < 0.03);
        assert_eq!(trial(6, 1.0, |_, _| {}).contrasts[0].comparison.finding, Finding::NoDifference);
        assert_eq!(trial(3, 1.2, |_, _| {}).verdict, Verdict::Inconclusive);
    }

    #[test]
    fn rounds_that_did_not_become_steady_are_in_no_pair() {
        let unsteady = |turn: &Turn, point: &mut Point| {
            if (turn.round, turn.arm) == (2, 0) {
                point.series.truncate(3);
            }
        };
        let found = trial(6, 1.2, unsteady);
        assert_eq!((found.verdict, found.contrasts[0].comparison.pairs.len()), (Verdict::Pass, 5));
        assert_eq!(found.contrasts[0].unsteady, 1);
        assert_eq!(trial(5, 1.2, unsteady).verdict, Verdict::Inconclusive);
        let never = trial(5, 1.2, |_, point| point.series.truncate(3));
        assert_eq!((never.verdict, never.contrasts[0].unsteady), (Verdict::Inconclusive, 5));
    }

    #[test]
    fn what_is_void_or_unlike_is_not_concluded_from() {
        let void = trial(5, 1.2, |turn, point| {
            if (turn.round, turn.arm) == (3, 1) {
                point.verification.stale = 1;
            }
        });
        assert_eq!(void.verdict, Verdict::Invalid);
        assert!(void.contrasts[0].void.as_deref().is_some_and(|why| why.contains("round 4")));
        let unlike = trial(5, 1.2, |turn, point| {
            let rate = if turn.arm == 1 { 100.0 } else { 120.0 };
            point.loads[0] = PointLoad { outstanding: None, rate: Some(rate), ..point.loads[0].clone() };
        });
        assert!(unlike.contrasts.is_empty() && unlike.left_out.len() == 1);
    }
}
