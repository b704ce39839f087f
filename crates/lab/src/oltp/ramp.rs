//! When more users gain nothing any more.
//!
//! The sample of a step is cut into ten rounds, whose scatter tells how far its mean may be off (batch means: Law, Simulation
//! Modeling and Analysis, 5th edition, section 9.5.3). A step *gains* when its rate lies above the best one before by more than
//! two standard errors of the difference, and by more than a hundredth.

use super::record::nopm;
use crate::measure::Point;
use crate::record::Second;
use crate::stats::{deviation, mean};

/// Steps in a row that gain nothing, after which the ramp ends.
const STEPS_WITHOUT_GAIN: usize = 2;
/// Rounds of a sample.
const ROUNDS: usize = 10;
/// Standard errors of a difference that are noise.
const ERRORS: f64 = 2.0;
/// The least gain, as a share of the best.
const GAIN_MIN: f64 = 0.01;

/// The step that the ramp has come to, and whether it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plateau {
    /// Number of the last step that gained something.
    pub step: usize,
    /// Steps after it, which gained nothing.
    pub without_gain: usize,
}

impl Plateau {
    /// Of the steps so far; nothing where there are none. One that was cut short counts only where it is the first.
    pub fn of<'a>(points: impl IntoIterator<Item = &'a Point>) -> Option<Self> {
        let (rates, whole): (Vec<(f64, f64)>, Vec<bool>) = points
            .into_iter()
            .map(|point| ((nopm(point), standard_error(&point.series) * nopm(point)), !point.cut_short))
            .unzip();
        plateau(&rates, whole.into_iter())
    }

    /// Whether more users are not worth a try.
    pub fn is_over(self) -> bool {
        self.without_gain >= STEPS_WITHOUT_GAIN
    }
}

/// Of rates with their standard errors.
fn plateau(rates: &[(f64, f64)], whole: impl Iterator<Item = bool>) -> Option<Plateau> {
    let mut best: Option<Plateau> = None;
    for (step, ((rate, error), whole)) in rates.iter().zip(whole).enumerate() {
        best = match best {
            None => Some(Plateau { step, without_gain: 0 }),
            Some(before) => {
                let (least, of_least) = rates[before.step];
                let noise = (ERRORS * error.hypot(of_least)).max(GAIN_MIN * least);
                match whole && rate - least > noise {
                    true => Some(Plateau { step, without_gain: 0 }),
                    false => Some(Plateau { without_gain: before.without_gain + 1, ..before }),
                }
            }
        };
    }
    best
}

/// Of the mean rate, as a share of it.
fn standard_error(series: &[Second]) -> f64 {
    let seconds = series.len() / ROUNDS;
    if seconds == 0 {
        return 0.0;
    }
    let rounds: Vec<f64> = series
        .chunks_exact(seconds)
        .map(|round| round.iter().map(|second| second.ios() as f64).sum::<f64>())
        .collect();
    match mean(&rounds) {
        0.0 => 0.0,
        mean => deviation(&rounds) / (rounds.len() as f64).sqrt() / mean,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rates: &[f64], error: f64) -> Plateau {
        let rates: Vec<(f64, f64)> = rates.iter().map(|rate| (*rate, rate * error)).collect();
        plateau(&rates, rates.iter().map(|_| true)).unwrap()
    }

    #[test]
    fn two_steps_that_gain_nothing_end_it() {
        assert_eq!(of(&[100.0, 250.0, 400.0], 0.01), Plateau { step: 2, without_gain: 0 });
        let over = of(&[100.0, 250.0, 400.0, 402.0, 395.0], 0.01);
        assert!(over.step == 2 && over.is_over());
        assert!(!of(&[100.0, 250.0, 400.0, 402.0], 0.01).is_over());
        assert_eq!(of(&[100.0, 250.0, 240.0, 300.0], 0.01).step, 3, "one step without is a dent");
    }

    #[test]
    fn what_lies_within_the_noise_is_no_gain() {
        assert_eq!(of(&[400.0, 420.0], 0.01).step, 1);
        assert_eq!(of(&[400.0, 420.0], 0.05).step, 0);
        assert_eq!(of(&[400.0, 403.0], 0.0).step, 0, "below a hundredth");
        assert!(plateau(&[], std::iter::empty()).is_none());
        let cut = plateau(&[(1.0, 0.0), (9.0, 0.0)], [true, false].into_iter()).unwrap();
        assert_eq!(cut.step, 0, "a step that was cut short is no plateau");
    }

    #[test]
    fn the_standard_error_is_that_of_the_rounds() {
        let second = |ios| Second { reads: ios, ..Second::new() };
        let level: Vec<Second> = (0..30).map(|_| second(50)).collect();
        assert_eq!(standard_error(&level), 0.0);
        let uneven: Vec<Second> = (0..10).map(|n| second(if n % 2 == 0 { 90 } else { 110 })).collect();
        // Deviation 10.54 of a mean of 100, by the root of ten.
        assert!((standard_error(&uneven) - 0.0333).abs() < 1e-3, "{}", standard_error(&uneven));
    }
}
