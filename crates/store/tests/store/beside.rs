//! Calls that go on beside the test that made them.

use crate::pool::env;
use futures::FutureExt;
use std::panic::{AssertUnwindSafe, resume_unwind};
use tokio::sync::oneshot::{Receiver, channel};

/// What a call will have returned.
pub(crate) struct Beside<T>(Receiver<std::thread::Result<T>>);

/// Begins `work`, which goes on whenever the test waits.
pub(crate) fn beside<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> Beside<T> {
    let (tell, told) = channel();
    env().spawn("beside", async move {
        // A panic is this test's, and not the end of all.
        let _ = tell.send(AssertUnwindSafe(work).catch_unwind().await);
    });
    Beside(told)
}

impl<T> Beside<T> {
    pub(crate) fn is_finished(&self) -> bool {
        !self.0.is_empty()
    }

    /// Waits for its end.
    pub(crate) async fn ended(self) -> T {
        self.0.await.expect("it is sent, also of a panic").unwrap_or_else(|panic| resume_unwind(panic))
    }
}
