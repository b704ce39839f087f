//! The real clock, in the two forms that this crate needs.
//!
//! Guests run in real time, beside any simulation: this is the one place of the crate that asks the system's clock.

use std::time::{Duration, Instant};

/// Measures how long something took.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Begins to measure.
    #[must_use]
    #[allow(clippy::disallowed_methods)]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since [`Stopwatch::start`].
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// A moment after which a wait is given up.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    started: Stopwatch,
    allowed: Duration,
}

impl Deadline {
    /// A deadline this far from now.
    #[must_use]
    pub fn after(allowed: Duration) -> Self {
        Self { started: Stopwatch::start(), allowed }
    }

    /// How much time is left; zero when it has passed.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.allowed.saturating_sub(self.started.elapsed())
    }

    /// Whether it has passed.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.remaining().is_zero()
    }

    /// The whole time that was allowed, for the message of a wait that failed.
    #[must_use]
    pub fn allowed(&self) -> Duration {
        self.allowed
    }
}
