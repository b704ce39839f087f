//! Whether a load had settled: the steady state of the SNIA Solid State Storage Performance Test Specification (v2.0.2,
//! section 2.1.24), over IOPS and over p99 of the response time.
//!
//! The measured time is cut into five rounds. Steady is where the highest and the lowest round differ by no more than a
//! fifth of their mean, and the straight line that fits them best rises or falls by no more than a tenth of it from the
//! first round to the last.

use super::mean;
use crate::record::{Latencies, Second};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Rounds that are looked at.
pub const ROUNDS: usize = 5;
/// Highest less lowest, as a share of the mean.
pub const RANGE_MAX: f64 = 0.20;
/// Rise of the best line over the rounds, as a share of the mean.
pub const SLOPE_MAX: f64 = 0.10;

/// How steady one measure was.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Window {
    /// Mean of the rounds.
    pub mean: f64,
    /// Highest less lowest, as a share of the mean.
    pub range: f64,
    /// Rise of the best line over the rounds, as a share of the mean; negative where it falls.
    pub slope: f64,
}

/// What the rounds show.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Steadiness {
    /// Whole seconds of a round.
    pub round_seconds: usize,
    /// I/Os a second.
    pub iops: Window,
    /// The 99th percentile of the response time, in nanoseconds.
    pub p99: Window,
}

impl Window {
    /// Of the rounds' figures.
    pub fn of(rounds: &[f64]) -> Self {
        let mean = mean(rounds);
        if mean <= 0.0 || rounds.len() < 2 {
            return Window { mean, range: 0.0, slope: 0.0 };
        }
        let highest = rounds.iter().copied().fold(f64::MIN, f64::max);
        let lowest = rounds.iter().copied().fold(f64::MAX, f64::min);
        let middle = (rounds.len() - 1) as f64 / 2.0;
        let places = || (0..rounds.len()).map(|place| place as f64 - middle);
        let rise: f64 = places().zip(rounds).map(|(place, value)| place * (value - mean)).sum();
        let spread: f64 = places().map(|place| place * place).sum();
        let over_all = rise / spread * (rounds.len() - 1) as f64;
        Window { mean, range: (highest - lowest) / mean, slope: over_all / mean }
    }

    /// Whether it kept within both bounds.
    pub fn is_steady(&self) -> bool {
        // What is always nothing does not change, and is nothing to build on.
        self.mean > 0.0 && self.range <= RANGE_MAX && self.slope.abs() <= SLOPE_MAX
    }
}

impl Steadiness {
    /// Of a series of whole seconds; the first ones are left out where five rounds do not divide it. Nothing where it has
    /// fewer than five.
    pub fn of(series: &[Second]) -> Option<Self> {
        let round_seconds = series.len() / ROUNDS;
        if round_seconds == 0 {
            return None;
        }
        let last = &series[series.len() - round_seconds * ROUNDS..];
        let (mut iops, mut p99) = (Vec::new(), Vec::new());
        for round in last.chunks_exact(round_seconds) {
            let ios: u64 = round.iter().map(Second::ios).sum();
            let mut response = Latencies::of_a_second();
            round.iter().for_each(|second| response.add(&second.response));
            iops.push(ios as f64 / round_seconds as f64);
            p99.push(response.quantile(0.99) as f64);
        }
        Some(Steadiness { round_seconds, iops: Window::of(&iops), p99: Window::of(&p99) })
    }

    /// Whether IOPS and p99 both were.
    pub fn is_steady(&self) -> bool {
        self.iops.is_steady() && self.p99.is_steady()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(ios: u64, nanos: u64) -> Second {
        let mut second = Second { reads: ios, ..Second::new() };
        (0..ios).for_each(|_| second.response.record(nanos));
        second
    }

    #[test]
    fn a_level_load_is_steady_and_a_drifting_one_is_not() {
        let level: Vec<_> = (0..23).map(|n| second(1000 + n % 7, 200_000)).collect();
        let steady = Steadiness::of(&level).unwrap();
        assert_eq!(steady.round_seconds, 4);
        assert!(steady.is_steady(), "{steady:?}");
        let falling: Vec<_> = (0..20).map(|n| second(1000 - n * 10, 200_000)).collect();
        assert!(!Steadiness::of(&falling).unwrap().iops.is_steady());
        let slower: Vec<_> = (0..20).map(|n| second(1000, 200_000 + n * 5_000)).collect();
        let slower = Steadiness::of(&slower).unwrap();
        assert!(slower.iops.is_steady() && !slower.p99.is_steady());
        assert_eq!(Steadiness::of(&level[..4]), None);
        let silent = vec![Second::new(); 20];
        assert!(!Steadiness::of(&silent).unwrap().is_steady(), "nothing was answered");
    }

    #[test]
    fn the_slope_is_the_rise_from_the_first_round_to_the_last() {
        let window = Window::of(&[96.0, 98.0, 100.0, 102.0, 104.0]);
        assert!((window.slope - 0.08).abs() < 1e-12 && (window.range - 0.08).abs() < 1e-12);
        let jump = Window::of(&[100.0, 100.0, 125.0, 100.0, 100.0]);
        assert!(!jump.is_steady() && jump.slope.abs() < 1e-12, "a jump is a range without a slope");
    }
}
