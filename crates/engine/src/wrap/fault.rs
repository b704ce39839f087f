//! Faults on demand.
//!
//! It throws no dice: for every operation it asks a function what shall happen, and that function is the
//! simulation's, a function of its seed.

use super::{Answer, Hook, Operation, Wrapped};
use crate::Engine;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use stonefold_env::Env;
use stonefold_types::{Error, Kind, Result};

/// An engine that fails when it is told to.
pub type FaultEngine = Wrapped<Faults>;

/// What shall happen to one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// How long before it begins: a crash in that time means that it never happened.
    pub delay_before: Duration,
    /// How it ends.
    pub outcome: Outcome,
    /// How long before its caller is told: a crash in that time means that it happened and nobody knows.
    pub delay_after: Duration,
}

/// How an operation ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// As it would without us.
    #[default]
    Proceed,
    /// With this error, and it did not happen. The only way for `NoSpace`, which leaves nothing changed.
    Fail(Kind),
    /// With this error, although it happened.
    FailAfter(Kind),
    /// With this bit of what was read flipped, counted modulo its length; the object itself is sound.
    /// For rot that stays see [`MemoryEngine::rot`](crate::MemoryEngine::rot).
    Rot(u64),
}

impl Decision {
    /// Nothing unusual.
    pub const PROCEED: Decision =
        Decision { delay_before: Duration::ZERO, outcome: Outcome::Proceed, delay_after: Duration::ZERO };

    /// The operation fails with this error and does not happen.
    pub fn fail(kind: Kind) -> Decision {
        Decision { outcome: Outcome::Fail(kind), ..Decision::PROCEED }
    }
}

type Decide = dyn Fn(&Operation<'_>) -> Decision + Send + Sync;

/// The hook of a [`FaultEngine`].
pub struct Faults {
    env: Env,
    decide: Box<Decide>,
}

impl FaultEngine {
    /// Asks `decide` about every operation on `inner`.
    pub fn new(
        inner: Arc<dyn Engine>,
        env: Env,
        decide: impl Fn(&Operation<'_>) -> Decision + Send + Sync + 'static,
    ) -> Self {
        Wrapped::around(inner, Faults { env, decide: Box::new(decide) })
    }
}

impl Faults {
    async fn wait(&self, duration: Duration) {
        if !duration.is_zero() {
            self.env.sleep(duration).await;
        }
    }
}

impl Hook for Faults {
    fn describe(&self, inner: String) -> String {
        format!("{inner}, with faults")
    }

    async fn around<T: Answer>(
        &self,
        operation: Operation<'_>,
        run: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        let decision = (self.decide)(&operation);
        let error = |kind| {
            let why = format!("{} of {}: a fault was asked for", operation.ask.name(), operation.subject);
            Error::new(kind, why)
        };
        self.wait(decision.delay_before).await;
        let result = match decision.outcome {
            Outcome::Proceed => run.await,
            Outcome::Fail(kind) | Outcome::FailAfter(kind @ Kind::NoSpace) => Err(error(kind)),
            Outcome::FailAfter(kind) => run.await.and_then(|_| Err(error(kind))),
            Outcome::Rot(bit) => run.await.map(|answer| answer.rotten(bit)),
        };
        self.wait(decision.delay_after).await;
        result
    }
}
