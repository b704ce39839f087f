//! An engine made slow: so many operations and bytes a second, so much latency.
//!
//! Operations take their turn on a line of time: each occupies it for as long as the limits say, and begins when those
//! before it are through. What a read brought is charged to whoever comes next.

use super::{Answer, Hook, Operation, Wrapped};
use crate::Engine;
use parking_lot::Mutex;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::Result;

/// An engine with a speed limit.
pub type ThrottleEngine = Wrapped<Throttle>;

/// How slow an engine is made. The default is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Operations a second.
    pub operations_per_second: Option<u64>,
    /// Bytes a second, read and written together.
    pub bytes_per_second: Option<u64>,
    /// Added to every operation.
    pub latency: Duration,
}

/// The hook of a [`ThrottleEngine`].
pub struct Throttle {
    env: Env,
    state: Mutex<State>,
}

struct State {
    limits: Limits,
    /// When the line of time is free again.
    free_at: Duration,
}

impl ThrottleEngine {
    /// Slows `inner` down.
    pub fn new(inner: Arc<dyn Engine>, env: Env, limits: Limits) -> Self {
        Wrapped::around(inner, Throttle { env, state: Mutex::new(State { limits, free_at: Duration::ZERO }) })
    }

    /// Changes the limits for what begins from now on.
    pub fn set_limits(&self, limits: Limits) {
        self.hook().state.lock().limits = limits;
    }
}

impl Throttle {
    /// Occupies the line of time; returns how long to wait for one's turn.
    pub(super) fn charge(&self, operations: u64, bytes: usize) -> Duration {
        let now = self.env.monotonic();
        let mut state = self.state.lock();
        let Limits { operations_per_second, bytes_per_second, latency } = state.limits;
        let time = |amount: u64, per_second: Option<u64>| match per_second {
            Some(rate) => Duration::from_secs_f64(amount as f64 / rate.max(1) as f64),
            None => Duration::ZERO,
        };
        let begin = state.free_at.max(now);
        state.free_at =
            begin + time(operations, operations_per_second).max(time(bytes as u64, bytes_per_second));
        begin - now + latency
    }
}

impl Hook for Throttle {
    fn describe(&self, inner: String) -> String {
        format!("{inner}, throttled")
    }

    async fn around<T: Answer>(
        &self,
        operation: Operation<'_>,
        run: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        let wait = self.charge(1, operation.bytes);
        if !wait.is_zero() {
            self.env.sleep(wait).await;
        }
        let result = run.await;
        if let Ok(answer) = &result {
            self.charge(0, answer.bytes_read());
        }
        result
    }
}
