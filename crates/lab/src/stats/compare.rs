//! Whether one arm is faster than another, and by how much: pairs of runs, and an interval for the ratio.
//!
//! Runs come in pairs whose order is drawn (ABBA blocks), so that what drifts with time falls on both arms alike. Of each
//! pair the logarithm of the ratio is taken. The interval of their mean is what two ones cover together: that of the
//! bootstrap's percentiles (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13), which needs no normal
//! distribution, and Student's, which holds for few pairs, where a bootstrap alone is too narrow.
//!
//! Whoever looks at many figures finds one that differs by chance. So intervals that are told together are as wide as makes *all* of them
//! right as surely as one alone would be (Bonferroni's inequality; Dunn, Journal of the American Statistical Association 56, 1961).

use super::{deviation, mean};
use crate::chance::Chance;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};
use utoipa::ToSchema;

/// How sure all intervals are together. 98 and not 95 in 100, because of a hundred comparisons of equals at most five may be told
/// as different, and with 95 every second hundred would have more.
pub const CONFIDENCE: f64 = 0.98;
/// The fewest pairs from which anything is concluded.
pub const PAIRS_MIN: usize = 5;
/// Samples of the bootstrap.
const RESAMPLES: usize = 9_999;
/// How likely an effect of the size that is told beforehand is found.
const POWER: f64 = 0.8;

/// What a comparison says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    /// B is above A: the interval lies above 1.
    Higher,
    /// B is below A.
    Lower,
    /// The interval holds 1.
    NoDifference,
    /// Too few pairs to say.
    Inconclusive,
}

/// B against A, of one figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Comparison {
    /// Each pair's figures, of A and of B.
    pub pairs: Vec<(f64, f64)>,
    /// B ÷ A: the geometric mean over the pairs. Without bound it is null in JSON.
    #[schema(value_type = Option<f64>)]
    pub ratio: f64,
    /// The interval of the ratio. Without bound it is null in JSON.
    #[schema(value_type = Option<f64>)]
    pub low: f64,
    /// See `low`. Without bound it is null in JSON.
    #[schema(value_type = Option<f64>)]
    pub high: f64,
    /// The smallest change of the ratio, as a share, that these pairs would show four times out of five. Without bound it is null in JSON.
    #[schema(value_type = Option<f64>)]
    pub detectable: f64,
    /// What it says.
    pub finding: Finding,
}

impl Comparison {
    /// Of pairs of figures, all above 0; `among` is how many figures are told together, with this one. The same pairs and seed give the same
    /// interval.
    pub fn of(pairs: &[(f64, f64)], seed: u64, among: usize) -> Self {
        let logs: Vec<f64> = pairs.iter().map(|(a, b)| (b / a).ln()).collect();
        let (low, high) = interval(&logs, seed, among);
        let finding = match () {
            () if logs.len() < PAIRS_MIN || !(low.is_finite() && high.is_finite()) => Finding::Inconclusive,
            () if low > 0.0 => Finding::Higher,
            () if high < 0.0 => Finding::Lower,
            () => Finding::NoDifference,
        };
        Comparison {
            pairs: pairs.to_vec(),
            ratio: mean(&logs).exp(),
            low: low.exp(),
            high: high.exp(),
            detectable: detectable(deviation(&logs), logs.len(), among),
            finding,
        }
    }
}

impl Comparison {
    /// How the logarithms of the pairs' ratios scatter.
    pub fn deviation(&self) -> f64 {
        deviation(&self.pairs.iter().map(|(a, b)| (b / a).ln()).collect::<Vec<_>>())
    }
}

/// The smallest change of a ratio, as a share, that so many pairs show four times out of five, where logarithms of ratios
/// of equals deviate so much (Cohen, Statistical Power Analysis, 1988, by Student's quantiles), as one `among` so many figures.
pub fn detectable(deviation: f64, pairs: usize, among: usize) -> f64 {
    if pairs < 2 {
        return f64::INFINITY;
    }
    let student = student(pairs);
    let quantiles = student.inverse_cdf(1.0 - tail(among)) + student.inverse_cdf(POWER);
    (quantiles * deviation / (pairs as f64).sqrt()).exp_m1()
}

/// The order of the arms in each round, by their numbers: drawn for every other round, and mirrored in the one after it, so
/// that of two arms each four runs are ABBA or BAAB.
pub fn order(arms: usize, rounds: usize, seed: u64) -> Vec<Vec<usize>> {
    let mut chance = Chance::new(seed);
    let mut order: Vec<Vec<usize>> = Vec::with_capacity(rounds + 1);
    while order.len() < rounds {
        let mut drawn: Vec<usize> = (0..arms).collect();
        // Fisher and Yates, as Durstenfeld (1964) does it.
        (1..arms).rev().for_each(|last| drawn.swap(last, chance.below(last as u64 + 1) as usize));
        order.push(drawn.clone());
        drawn.reverse();
        order.push(drawn);
    }
    order.truncate(rounds);
    order
}

fn student(pairs: usize) -> StudentsT {
    StudentsT::new(0.0, 1.0, (pairs - 1) as f64).expect("a distribution with at least one degree of freedom")
}

/// How likely one interval of so many lies above, or below, what it is of.
fn tail(among: usize) -> f64 {
    (1.0 - CONFIDENCE) / 2.0 / among.max(1) as f64
}

/// Of the mean of logarithms.
fn interval(logs: &[f64], seed: u64, among: usize) -> (f64, f64) {
    if logs.len() < 2 {
        return (f64::NEG_INFINITY, f64::INFINITY);
    }
    let (centre, error) = (mean(logs), deviation(logs) / (logs.len() as f64).sqrt());
    let by_student = student(logs.len()).inverse_cdf(1.0 - tail(among)) * error;
    let (low, high) = by_bootstrap(logs, seed, tail(among));
    (low.min(centre - by_student), high.max(centre + by_student))
}

/// Percentiles of the means of samples that are drawn again from what was measured.
fn by_bootstrap(logs: &[f64], seed: u64, tail: f64) -> (f64, f64) {
    let mut chance = Chance::new(seed);
    let draw = |chance: &mut Chance| logs[chance.below(logs.len() as u64) as usize];
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|_| logs.iter().map(|_| draw(&mut chance)).sum::<f64>() / logs.len() as f64)
        .collect();
    means.sort_by(f64::total_cmp);
    let at = |share: f64| means[((RESAMPLES - 1) as f64 * share).round() as usize];
    (at(tail), at(1.0 - tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A figure near `at` with noise of `share`, by the sum of twelve even numbers.
    fn noisy(chance: &mut Chance, at: f64, share: f64) -> f64 {
        let normal: f64 = (0..12).map(|_| chance.fraction()).sum::<f64>() - 6.0;
        at * (normal * share).exp()
    }

    fn compared(seed: u64, pairs: usize, effect: f64, noise: f64) -> Comparison {
        compared_among(1, seed, pairs, effect, noise)
    }

    fn compared_among(among: usize, seed: u64, pairs: usize, effect: f64, noise: f64) -> Comparison {
        let mut chance = Chance::new(seed);
        let pairs: Vec<(f64, f64)> = (0..pairs)
            .map(|_| (noisy(&mut chance, 1000.0, noise), noisy(&mut chance, 1000.0 * effect, noise)))
            .collect();
        Comparison::of(&pairs, seed, among)
    }

    /// The lab's acceptance: equals are told as equals at least 95 times in 100, whatever the noise.
    #[test]
    fn equals_are_not_told_apart() {
        for (pairs, noise) in [(5, 0.01), (5, 0.2), (8, 0.05), (20, 0.05)] {
            let equal =
                (0..500).filter(|seed| compared(*seed, pairs, 1.0, noise).finding == Finding::NoDifference);
            let equal = equal.count();
            assert!(equal >= 475, "{pairs} pairs, noise {noise}: {equal} of 500");
        }
    }

    /// Goal: the same of a whole table of a dozen figures: not one of them is told as different, 95 times in 100.
    #[test]
    fn of_many_figures_of_equals_none_is_told_apart() {
        const FIGURES: usize = 12;
        let equal = |table: &u64| {
            (0..FIGURES as u64).all(|figure| {
                let of = compared_among(FIGURES, table * 100 + figure, 6, 1.0, 0.03);
                of.finding == Finding::NoDifference
            })
        };
        let tables = (0..200).filter(equal).count();
        assert!(tables >= 190, "{tables} of 200");
    }

    /// The lab's acceptance: a slowdown of 5% is found, alone and among others.
    #[test]
    fn a_slowdown_of_a_twentieth_is_found() {
        for among in [1, 4] {
            let lower = |seed: &u64| compared_among(among, *seed, 5, 0.95, 0.007).finding == Finding::Lower;
            let found = (0..100).filter(lower).count();
            assert!(found >= 90, "{found} of 100, among {among}");
        }
    }

    #[test]
    fn what_is_told_as_detectable_is_found_four_times_out_of_five() {
        for pairs in [5, 10] {
            let noise = 0.02;
            // Both arms have the noise.
            let effect = 1.0 + detectable(noise * 2f64.sqrt(), pairs, 1);
            let found = (0..300)
                .filter(|seed| compared(*seed, pairs, effect, noise).finding == Finding::Higher)
                .count();
            assert!((210..=295).contains(&found), "{pairs} pairs, an effect of {effect}: {found} of 300");
        }
    }

    #[test]
    fn few_pairs_conclude_nothing() {
        assert_eq!(compared(1, 4, 3.0, 0.001).finding, Finding::Inconclusive);
        assert_eq!(Comparison::of(&[(1.0, 2.0)], 1, 1).finding, Finding::Inconclusive);
        assert_eq!(Comparison::of(&[], 1, 1).finding, Finding::Inconclusive);
    }

    #[test]
    fn the_order_is_mirrored_and_drawn() {
        let mut firsts = [0; 3];
        for seed in 0..60 {
            let order = order(3, 6, seed);
            assert!(order.chunks(2).all(|block| block[0].iter().eq(block[1].iter().rev())));
            for round in &order {
                let mut sorted = round.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, [0, 1, 2], "each arm runs once in each round");
            }
            firsts[order[0][0]] += 1;
        }
        assert!(firsts.iter().all(|many| (8..=32).contains(many)), "{firsts:?}");
        assert_eq!(order(2, 3, 1).len(), 3);
    }
}
