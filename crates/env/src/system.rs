//! The real world: the kernel's clocks and randomness, a tokio runtime's tasks, a few worker threads.

use crate::{BoxFuture, WallNanos, World};
use futures::FutureExt;
use parking_lot::{Condvar, Mutex};
use rustix::time::{ClockId, clock_gettime};
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The real world. Tasks run on the tokio runtime that made it; offloaded jobs on threads of its own, so that a
/// long compression never keeps a request waiting.
pub struct SystemWorld {
    runtime: tokio::runtime::Handle,
    workers: Arc<Workers>,
}

struct Workers {
    queue: Mutex<Queue>,
    wake: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Box<dyn FnOnce() + Send>>,
    closed: bool,
}

impl SystemWorld {
    /// Uses `runtime` for tasks and starts `workers` threads (at least one) for offloaded jobs. They end when
    /// the world is dropped and their queue is empty.
    pub fn new(runtime: tokio::runtime::Handle, workers: usize) -> std::io::Result<Self> {
        let shared = Arc::new(Workers { queue: Mutex::default(), wake: Condvar::new() });
        for index in 0..workers.max(1) {
            let shared = shared.clone();
            std::thread::Builder::new().name(format!("fold-{index}")).spawn(move || shared.run())?;
        }
        Ok(SystemWorld { runtime, workers: shared })
    }
}

impl Workers {
    fn run(&self) {
        while let Some(job) = self.next() {
            job();
        }
    }

    fn next(&self) -> Option<Box<dyn FnOnce() + Send>> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            if queue.closed {
                return None;
            }
            self.wake.wait(&mut queue);
        }
    }
}

impl Drop for SystemWorld {
    fn drop(&mut self) {
        self.workers.queue.lock().closed = true;
        self.workers.wake.notify_all();
    }
}

impl World for SystemWorld {
    #[expect(clippy::disallowed_methods, reason = "this is where the real clock enters")]
    fn monotonic(&self) -> Duration {
        let time = clock_gettime(ClockId::Boottime);
        Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec as u32)
    }

    /// From the C library and not from the kernel at once: whoever tests what a clock does that leaps stands in for that.
    #[expect(clippy::disallowed_methods, reason = "this is where the real clock enters")]
    fn wall(&self) -> WallNanos {
        // It is not negative on a machine whose date is after 1970.
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as WallNanos
    }

    #[expect(clippy::disallowed_methods, reason = "this is where the system's randomness enters")]
    fn random(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the kernel gives random bytes");
    }

    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) {
        // A task that ends in the middle leaves others waiting for it for ever, over state that nobody vouches for.
        // To stop at once is safe: what was acknowledged outlives the process.
        self.runtime.spawn(async move {
            if AssertUnwindSafe(task).catch_unwind().await.is_err() {
                eprintln!("stonefold: the task '{name}' panicked; stopping at once, so that nothing goes on without it");
                std::process::abort();
            }
        });
    }

    #[expect(clippy::disallowed_methods, reason = "this is where the real clock enters")]
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }

    fn offload(&self, job: Box<dyn FnOnce() + Send>) {
        self.workers.queue.lock().jobs.push_back(job);
        self.workers.wake.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Env;

    #[tokio::test]
    async fn offloaded_work_returns_and_time_passes() {
        let env = Env::new(SystemWorld::new(tokio::runtime::Handle::current(), 2).unwrap());
        let before = env.monotonic();
        assert_eq!(env.offload(|| 6 * 7).await, 42);
        env.sleep(Duration::from_millis(5)).await;
        assert!(env.monotonic() >= before + Duration::from_millis(5));
        assert_ne!(env.random::<16>(), env.random::<16>());
    }
}
