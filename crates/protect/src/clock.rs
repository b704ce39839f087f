//! A world for tests in which whoever sleeps wakes at once, and it is as much later. For one who sleeps at a time.

use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use stonefold_env::{Env, WallNanos, World};

/// Its time.
#[derive(Clone, Default)]
pub(crate) struct Clock(Arc<Mutex<Duration>>);

impl Clock {
    pub(crate) fn env(&self) -> Env {
        Env::new(self.clone())
    }

    pub(crate) fn now(&self) -> Duration {
        *self.0.lock()
    }

    pub(crate) fn set(&self, to: Duration) {
        *self.0.lock() = to;
    }
}

impl World for Clock {
    fn monotonic(&self) -> Duration {
        self.now()
    }

    fn wall(&self) -> WallNanos {
        self.now().as_nanos() as WallNanos
    }

    fn random(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }

    fn spawn(&self, name: &'static str, _: BoxFuture<'static, ()>) {
        assert_eq!(name, "", "tasks have no place here");
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let clock = self.clone();
        Box::pin(async move { *clock.0.lock() += duration })
    }

    fn offload(&self, job: Box<dyn FnOnce() + Send>) {
        job();
    }
}
