//! Chance of a load, from its seed: the same I/Os in the same order on every machine and in every release.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

/// A stream of numbers (xoshiro256++, Blackman and Vigna 2019, which is the same everywhere).
#[derive(Clone, Debug)]
pub struct Chance(Xoshiro256PlusPlus);

impl Chance {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Chance(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Below `end`, which is not 0, by multiplication (Lemire 2019); the bias, below `end` / 2^64, is left.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(end)) >> 64) as u64
    }

    /// True in a share of cases.
    pub fn is(&mut self, share: Share) -> bool {
        self.number() >> 1 < share.0
    }

    /// From 0, included, to 1, excluded, in steps of 2^-53.
    pub fn fraction(&mut self) -> f64 {
        (self.number() >> 11) as f64 * (-53f64).exp2()
    }

    /// How long until the next of events that come by themselves (a Poisson process), in mean gaps.
    pub fn gap(&mut self) -> f64 {
        // 1 - fraction is never 0.
        -(1.0 - self.fraction()).ln()
    }
}

/// A share, from 0 (never) to 1 (always), held as a threshold of 63 bits so that "always" is exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(u64);

impl Share {
    /// Of a fraction from 0 to 1.
    pub fn new(fraction: f64) -> Self {
        debug_assert!((0.0..=1.0).contains(&fraction));
        Share((fraction * 2f64.powi(63)).round() as u64)
    }
}

/// Several things, each with its share.
#[derive(Clone, Debug)]
pub struct Shares<T> {
    /// Each with the upper end of its part of 0..2^63.
    ends: Vec<(u64, T)>,
}

impl<T: Copy> Shares<T> {
    /// From weights, of which the sum is what counts as the whole; none is negative and one is not 0.
    pub fn new(weighted: &[(T, f64)]) -> Self {
        let whole: f64 = weighted.iter().map(|(_, weight)| weight).sum();
        debug_assert!(whole > 0.0);
        let mut sum = 0.0;
        let mut ends: Vec<(u64, T)> = Vec::with_capacity(weighted.len());
        for (thing, weight) in weighted.iter().filter(|(_, weight)| *weight > 0.0) {
            sum += weight;
            ends.push(((sum / whole * 2f64.powi(63)) as u64, *thing));
        }
        if let Some(last) = ends.last_mut() {
            last.0 = 1 << 63;
        }
        Shares { ends }
    }

    /// One of them.
    pub fn draw(&self, chance: &mut Chance) -> T {
        if let [(_, only)] = self.ends[..] {
            return only;
        }
        let point = chance.number() >> 1;
        let (_, thing) = self.ends.iter().find(|(end, _)| point < *end).expect("the last end is the whole");
        *thing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_fractions_of_a_percent() {
        let (mut chance, mut drawn) = (Chance::new(1), [0u32; 3]);
        let shares = Shares::new(&[(0usize, 3.5), (1, 96.25), (2, 0.25), (9, 0.0)]);
        for _ in 0..1_000_000 {
            drawn[shares.draw(&mut chance)] += 1;
        }
        for (got, expected) in drawn.iter().zip([35_000f64, 962_500.0, 2_500.0]) {
            assert!((f64::from(*got) - expected).abs() < 5.0 * expected.sqrt(), "{drawn:?}");
        }
    }

    #[test]
    fn never_and_always_are_exact() {
        let mut chance = Chance::new(2);
        assert!((0..10_000).all(|_| chance.is(Share::new(1.0)) && !chance.is(Share::new(0.0))));
    }

    #[test]
    fn events_that_come_by_themselves_are_exponentially_apart() {
        let mut chance = Chance::new(3);
        let gaps: Vec<f64> = (0..100_000).map(|_| chance.gap()).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.02, "exponential: deviation equals mean");
    }

    /// Bundles name their seeds: what they lead to must not change.
    #[test]
    fn a_seed_leads_to_the_same_for_ever() {
        let mut chance = Chance::new(42);
        assert_eq!(
            [chance.number(), chance.number()],
            [15_021_278_609_987_233_951, 5_881_210_131_331_364_753]
        );
    }
}
