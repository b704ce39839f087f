//! One flag for the whole process: when it is raised, every wait of this crate ends with [`Cancelled`] within a fraction
//! of a second, and what was started is stopped by the values going out of scope.
//!
//! A signal handler can do no more than raise a flag, and unwinding through `Drop` is the one way of stopping that also
//! serves failures: so Ctrl-C takes the road of every other error.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// How often a wait looks at the flag: often enough to feel immediate, rarely enough to cost nothing.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(50);

static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// The flag itself, to hand to a signal handler.
pub fn flag() -> Arc<AtomicBool> {
    Arc::clone(FLAG.get_or_init(Arc::default))
}

/// Whether the process was asked to stop.
#[must_use]
pub fn requested() -> bool {
    FLAG.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// Fails when the process was asked to stop.
///
/// # Errors
/// [`Cancelled`].
pub fn check() -> Result<(), Cancelled> {
    if requested() { Err(Cancelled) } else { Ok(()) }
}

/// The error of a wait that ended because the process was asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancelled;

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stopped on request")
    }
}

impl std::error::Error for Cancelled {}
