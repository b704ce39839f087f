//! What an engine is asked, how often, and how long it takes.
//!
//! Cheap enough to be always on: two readings of the clock and a few relaxed additions per operation. An event for each
//! goes to `tracing` at level TRACE, which costs one check where nobody listens.

use super::{Answer, Ask, Hook, Operation, Wrapped};
use crate::Engine;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::{Kind, Result};

/// An engine that counts.
pub type TraceEngine = Wrapped<Trace>;

/// Bounds of the latency classes: class `n` holds what took less than `2^n` microseconds, the last one all else.
const CLASSES: usize = 24;

/// What was counted of one kind of operation since the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// The operation.
    pub ask: Ask,
    /// How often it ended.
    pub operations: u64,
    /// How often in an error that is no answer: an absent object, a lost race and an object that exists are answers.
    pub errors: u64,
    /// Bytes read or written.
    pub bytes: u64,
    /// The sum of the time they took.
    pub busy: Duration,
    /// How many took less than `2^n` microseconds but not less than `2^(n-1)`.
    pub classes: [u64; CLASSES],
}

impl Count {
    /// The time that `part` (0.0 to 1.0) of the operations stayed under, to the next power of two of microseconds.
    pub fn quantile(&self, part: f64) -> Duration {
        let wanted = (self.operations as f64 * part).ceil() as u64;
        let mut seen = 0;
        let class = self.classes.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        Duration::from_micros(1 << class.unwrap_or(CLASSES - 1))
    }
}

#[derive(Default)]
struct Counters {
    operations: AtomicU64,
    errors: AtomicU64,
    bytes: AtomicU64,
    busy_nanos: AtomicU64,
    classes: [AtomicU64; CLASSES],
}

/// The hook of a [`TraceEngine`].
pub struct Trace {
    env: Env,
    counters: [Counters; Ask::ALL.len()],
}

impl TraceEngine {
    /// Counts what `inner` is asked.
    pub fn new(inner: Arc<dyn Engine>, env: Env) -> Self {
        Wrapped::around(inner, Trace { env, counters: Default::default() })
    }

    /// What was counted, one for each kind of operation.
    pub fn counts(&self) -> Vec<Count> {
        Ask::ALL.iter().map(|ask| self.hook().count(*ask)).collect()
    }
}

impl Trace {
    /// What was counted of one kind of operation.
    pub fn count(&self, ask: Ask) -> Count {
        let counters = &self.counters[ask as usize];
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Count {
            ask,
            operations: read(&counters.operations),
            errors: read(&counters.errors),
            bytes: read(&counters.bytes),
            busy: Duration::from_nanos(read(&counters.busy_nanos)),
            classes: std::array::from_fn(|class| read(&counters.classes[class])),
        }
    }

    fn add(&self, ask: Ask, took: Duration, bytes: usize, failed: bool) {
        let counters = &self.counters[ask as usize];
        let add = |counter: &AtomicU64, n: u64| counter.fetch_add(n, Ordering::Relaxed);
        add(&counters.operations, 1);
        add(&counters.errors, u64::from(failed));
        add(&counters.bytes, bytes as u64);
        add(&counters.busy_nanos, took.as_nanos() as u64);
        let class = (u64::BITS - (took.as_micros() as u64).leading_zeros()) as usize;
        add(&counters.classes[class.min(CLASSES - 1)], 1);
    }
}

impl Hook for Trace {
    fn describe(&self, inner: String) -> String {
        inner
    }

    async fn around<T: Answer>(
        &self,
        operation: Operation<'_>,
        run: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        let began = self.env.monotonic();
        let result = run.await;
        let took = self.env.monotonic().saturating_sub(began);
        let bytes = operation.bytes + result.as_ref().map_or(0, Answer::bytes_read);
        let error = result.as_ref().err();
        let failed = error.is_some_and(|error| {
            !matches!(error.kind(), Kind::NotFound | Kind::AlreadyExists | Kind::Conflict)
        });
        self.add(operation.ask, took, bytes, failed);
        let (ask, subject) = (operation.ask.name(), operation.subject);
        tracing::trace!(target: "stonefold::engine", ask, %subject, bytes, ?took, error = error.map(tracing::field::display));
        result
    }
}
