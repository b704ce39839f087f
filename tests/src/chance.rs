//! Randomness from a seed: what a test does can be done again, though not when it happens.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// A stream of numbers (splitmix64).
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Chance(seed)
    }

    /// A new seed, or the one that the environment names in `variable`.
    pub fn seed(variable: &str) -> u64 {
        let named = std::env::var(variable).ok();
        named.map_or_else(
            || RandomState::new().build_hasher().finish() >> 16,
            |text| text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")),
        )
    }

    /// Another stream that begins here.
    pub fn fork(&mut self) -> Self {
        Chance(self.number())
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.number() % end
    }

    /// From `from` to `to`, both included.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }

    /// True in so many of a hundred.
    pub fn percent(&mut self, of_hundred: u64) -> bool {
        self.below(100) < of_hundred
    }

    /// A time between two numbers of milliseconds.
    pub fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_micros(self.between(from * 1000, to * 1000))
    }

    /// One of them.
    pub fn one_of<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }
}

/// Spreads a number over all bits.
pub fn mix(number: u64) -> u64 {
    let mut z = number;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
