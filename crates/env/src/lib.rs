//! Time, chance, tasks and offloaded work.
//!
//! *Promises*: everything in Stonefold that is not a function of its input comes through an [`Env`], so that a
//! simulated [`World`] makes the whole store a function of a seed. *Owns*: the real clock, the system's
//! randomness, the runtime's spawn and the worker threads. *May be used by*: everyone above; the lints point here.

mod giving_way;
mod system;

pub use futures::future::BoxFuture;
pub use giving_way::give_way;
pub use system::SystemWorld;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Nanoseconds since the Unix epoch, for people and records; never for measuring.
pub type WallNanos = u64;

/// Where time, chance and tasks come from: the real system, or a simulation.
pub trait World: Send + Sync + 'static {
    /// Time since some fixed instant that never jumps and counts suspended time (CLOCK_BOOTTIME).
    fn monotonic(&self) -> Duration;
    /// The wall clock, which can jump.
    fn wall(&self) -> WallNanos;
    /// Fills the buffer with unpredictable bytes.
    fn random(&self, bytes: &mut [u8]);
    /// Runs a task until it ends or the world does. `name` is for traces.
    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>);
    /// Completes no sooner than `duration` from now.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;
    /// Runs `job` where it may take its time: on a worker thread in the real world.
    fn offload(&self, job: Box<dyn FnOnce() + Send>);
}

/// A handle on a [`World`]; cheap to clone.
#[derive(Clone)]
pub struct Env(Arc<dyn World>);

impl Env {
    /// Wraps a world.
    pub fn new(world: impl World) -> Self {
        Env(Arc::new(world))
    }

    /// See [`World::monotonic`].
    pub fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }

    /// See [`World::wall`].
    pub fn wall(&self) -> WallNanos {
        self.0.wall()
    }

    /// Unpredictable bytes.
    pub fn random<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.random(&mut bytes);
        bytes
    }

    /// Runs a task until it ends or the world does.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(name, Box::pin(task));
    }

    /// Completes no sooner than `duration` from now.
    pub fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.0.sleep(duration)
    }

    /// Lets every other task that can go on run first, and looks what came in meanwhile; other threads too, see [`give_way`]. For long work in
    /// steps on a thread that others share: a millisecond a step at most.
    pub async fn yield_now(&self) {
        give_way();
        tokio::task::yield_now().await;
    }

    /// Runs `job` on a worker and waits for what it returns.
    ///
    /// # Panics
    /// When the job panicked or the world ended under it: both end the caller too.
    pub async fn offload<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = oneshot::channel();
        self.0.offload(Box::new(move || {
            // The caller may have been dropped meanwhile; then nobody wants the result.
            let _ = tell.send(job());
        }));
        told.await.expect("an offloaded job ran to its end")
    }
}
