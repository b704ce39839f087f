//! A few threads for what blocks.
//!
//! They start when they are needed and end when they have been idle for a while, or with the pool.

use crate::medium;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Threads at most: without a ring this is the depth at which a disk is read, and 16 keep most disks busy.
const THREADS_MAX: usize = 16;
/// How long a thread stays without work.
const IDLE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

/// Threads that take jobs in the order they came.
#[derive(Default)]
pub(super) struct Pool {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Pool {
    /// Runs `job` on a thread and waits for what it returns. Dropping the future does not stop the job.
    pub(super) async fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = oneshot::channel();
        self.push(Box::new(medium::carried(move || {
            // The caller may have been dropped meanwhile; then nobody wants the result.
            let _ = tell.send(job());
        })));
        told.await.expect("a job on an I/O thread ran to its end")
    }

    fn push(&self, job: Job) {
        let mut queue = self.shared.queue.lock();
        queue.jobs.push_back(job);
        if queue.idle >= queue.jobs.len() || queue.threads == THREADS_MAX {
            self.shared.wake.notify_one();
            return;
        }
        queue.threads += 1;
        drop(queue);
        let shared = self.shared.clone();
        let started = std::thread::Builder::new().name("stonefold-io".into()).spawn(move || shared.work());
        if let Err(error) = started {
            let threads = {
                let mut queue = self.shared.queue.lock();
                queue.threads -= 1;
                queue.threads
            };
            // With any thread left the job is only late.
            assert!(threads > 0, "no thread for I/O can be started: {error}");
        }
    }
}

impl Shared {
    fn work(&self) {
        while let Some(job) = self.next() {
            // Whoever waits for the job learns that it ended without a result; the thread lives on for the others.
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    }

    fn next(&self) -> Option<Job> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            queue.idle += 1;
            let timed_out = !queue.closed && self.wake.wait_for(&mut queue, IDLE).timed_out();
            queue.idle -= 1;
            if queue.jobs.is_empty() && (queue.closed || timed_out) {
                queue.threads -= 1;
                return None;
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.queue.lock().closed = true;
        self.shared.wake.notify_all();
    }
}
