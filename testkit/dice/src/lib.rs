//! Chance from a seed.
//!
//! *Promises*: a seed throws the same numbers on every machine and in every release; seeds of the simulation that once
//! failed, and those by which planted bugs are found, rest on it. *Never does*: secrets; what ships takes its randomness from
//! `stonefold_env::Env`. *May be used by*: tests and test kits, and nobody else.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// A stream of numbers (SplitMix64, Steele, Lea and Flood 2014).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Dice(seed)
    }

    /// A new seed, or the one that the environment names in `variable`.
    ///
    /// # Panics
    /// When what it names is not a number.
    #[expect(clippy::disallowed_methods, reason = "a new seed must come from somewhere, and is told")]
    pub fn seed(variable: &str) -> u64 {
        let named = std::env::var(variable).ok();
        named.map_or_else(
            || RandomState::new().build_hasher().finish() >> 16,
            |text| text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")),
        )
    }

    /// Another stream that begins here.
    pub fn fork(&mut self) -> Self {
        Dice(self.number())
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.number() % end
    }

    /// A place in what has `len` places, which is not 0.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// From `from` to `to`, both included.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }

    /// True once in `times`, which is not 0.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// True in so many of a hundred.
    pub fn percent(&mut self, of_hundred: u64) -> bool {
        self.below(100) < of_hundred
    }

    /// A time between two numbers of milliseconds.
    pub fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_micros(self.between(from * 1000, to * 1000))
    }

    /// One of them; there is at least one.
    pub fn one_of<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.index(of.len())]
    }

    /// Fills the buffer with bytes that neither compress nor repeat.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for word in bytes.chunks_mut(8) {
            word.copy_from_slice(&self.number().to_le_bytes()[..word.len()]);
        }
    }
}

/// Spreads a number over all bits.
pub fn mix(number: u64) -> u64 {
    let mut z = number;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Bytes that are like no others: they neither compress, nor repeat, nor stand in another seed's. Fewer are the beginning
/// of more.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Dice::new(seed).fill(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: no seed that is written down anywhere ever means something else. The numbers are those of the generator's
    /// published reference.
    #[test]
    fn a_seed_throws_what_it_always_threw() {
        let mut dice = Dice::new(1_234_567);
        let thrown = [(); 5].map(|()| dice.number());
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(thrown, published);
    }

    #[test]
    fn bounds_are_kept_and_reached() {
        let mut dice = Dice::new(1);
        let mut seen = [0; 5];
        for _ in 0..500 {
            seen[dice.between(3, 5) as usize - 1] += 1;
            assert!(dice.below(7) < 7 && dice.index(2) < 2);
            let time = dice.millis(1, 2);
            assert!((Duration::from_millis(1)..=Duration::from_millis(2)).contains(&time));
        }
        assert_eq!(seen.map(|times| times > 0), [false, false, true, true, true]);
        assert!(!dice.percent(0) && dice.percent(100) && dice.one_in(1));
        assert_eq!(*dice.one_of(&[9]), 9);
    }

    #[test]
    fn noise_begins_alike_at_any_length_and_is_its_seeds_own() {
        let long = noise(7, 4099);
        assert!(noise(7, 1001) == long[..1001] && noise(8, 1001) != long[..1001]);
        let mut words: Vec<&[u8]> = long.chunks_exact(8).collect();
        words.sort();
        words.dedup();
        assert_eq!(words.len(), 4099 / 8);
    }
}
