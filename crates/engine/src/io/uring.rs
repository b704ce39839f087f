//! A ring per thread, driven by that thread's tokio reactor.
//!
//! Requests are queued as they are made and submitted together, one system call for a few of them, by a driver task
//! at the end of the runtime's turn at the latest; the ring's own descriptor wakes the driver when the kernel has answered.
//! Whoever runs the data path calls [`install`] once on its thread; on every other thread, and where the kernel
//! forbids rings, requests go to ordinary threads instead.
//!
//! *Promises*: a request's memory and file live until the kernel has answered, whoever lets go of its future, of
//! the runtime or of the thread. *Owns*: the ring. This is the only module of the engines with `unsafe` in it.

use super::flight::{Flight, Landing, Work};
use io_uring::{IoUring, opcode, types};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use stonefold_types::{Error, Kind, Result};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Handle, RuntimeFlavor};

/// Requests submitted at once; more in one turn cost another system call.
const SUBMIT_MAX: u32 = 256;
/// Requests that wait for the end of the turn at most: a device that answers in bursts would idle while a long turn
/// works through them (0.75 of fio's random reads at depth 32, against 0.9 to 1.0 so).
const WAITING_MAX: usize = 4;
/// Requests in flight on one ring; more wait their turn, so that no completion overflows.
const FLIGHTS_MAX: usize = 1024;

thread_local! {
    static RING: RefCell<Option<Ring>> = const { RefCell::new(None) };
}

struct Ring {
    uring: IoUring,
    /// What the kernel holds, by the number it was given.
    flights: Vec<Option<Arc<Flight>>>,
    free: Vec<u32>,
    /// Accepted, not yet queued in the ring.
    waiting: VecDeque<Arc<Flight>>,
    driver: Option<Waker>,
    driver_woken: bool,
    driver_lives: Arc<AtomicBool>,
}

/// Gives this thread a ring; does nothing when it has one.
///
/// To be called from a task of a `current_thread` tokio runtime with I/O enabled, on the thread that runs it: the
/// ring is driven by that runtime and ends with it. An error says why there is no ring; I/O works all the same.
pub fn install() -> Result<()> {
    let refused = |why: &str| Error::new(Kind::Unsupported, format!("no ring for this thread: {why}"));
    if installed() {
        return Ok(());
    }
    let runtime = Handle::try_current().map_err(|_| refused("it runs no tokio runtime"))?;
    if runtime.runtime_flavor() != RuntimeFlavor::CurrentThread {
        return Err(refused("its runtime moves tasks between threads; use a current_thread runtime"));
    }
    let uring = build().map_err(|e| {
        Error::io("no ring for this thread: the kernel refuses io_uring", e)
            .remedy("set kernel.io_uring_disabled=0, or go on with plain I/O")
    })?;
    let watched = uring.as_fd().try_clone_to_owned().map_err(|e| Error::io("a ring's descriptor", e))?;
    // SAFETY: the descriptor is owned by the AsyncFd, open as long as it, and always the same.
    let ready = unsafe { AsyncFd::register_with_interest(watched, Interest::READABLE) }
        .map_err(|e| Error::io("watching a ring", e.into_parts().1))?;
    let lives = Arc::new(AtomicBool::new(true));
    RING.set(Some(Ring::new(uring, lives.clone())));
    runtime.spawn(Driver { ready, lives });
    Ok(())
}

/// Whether requests made on this thread go through a ring.
pub fn installed() -> bool {
    with_ring(|_| ()).is_some()
}

/// Hands a request to this thread's ring, or back where there is none.
pub(super) fn start(file: &Arc<File>, work: Work) -> std::result::Result<Landing, Work> {
    let mut work = Some(work);
    let started = with_ring(|ring| {
        let flight = Flight::new(file.clone(), work.take().expect("asked once"));
        ring.waiting.push_back(flight.clone());
        if ring.waiting.len() >= WAITING_MAX {
            // Should the kernel refuse now, the driver sees it again at the end of the turn.
            let _ = ring.submit();
        }
        if !std::mem::replace(&mut ring.driver_woken, true) {
            // Before its first turn the driver has no waker; it looks at the queue then anyway.
            if let Some(driver) = &ring.driver {
                driver.wake_by_ref();
            }
        }
        Landing(flight)
    });
    started.ok_or_else(|| work.take().expect("not used without a ring"))
}

fn with_ring<T>(use_it: impl FnOnce(&mut Ring) -> T) -> Option<T> {
    // A thread that is ending has no ring any more.
    RING.try_with(|cell| {
        let mut ring = cell.borrow_mut();
        if ring.as_ref().is_some_and(|r| !r.driver_lives.load(Ordering::Relaxed)) {
            let dead = ring.take();
            // Outside the borrow, because it wakes those who wait.
            drop(ring);
            drop(dead);
            return None;
        }
        ring.as_mut().map(use_it)
    })
    .ok()
    .flatten()
}

fn build() -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.dontfork().setup_clamp().setup_cqsize(FLIGHTS_MAX as u32);
    // Kernels since 6.0 finish requests at our next system call rather than by interrupting us. Deferring them
    // further, to when we ask, was tried: then nothing wakes a thread that sleeps in epoll (Linux 6.18).
    let mut modern = builder.clone();
    modern.setup_single_issuer().setup_coop_taskrun().setup_taskrun_flag();
    modern.build(SUBMIT_MAX).or_else(|_| builder.build(SUBMIT_MAX))
}

impl Ring {
    fn new(uring: IoUring, driver_lives: Arc<AtomicBool>) -> Self {
        let flights_max = FLIGHTS_MAX.min(uring.params().cq_entries() as usize);
        Ring {
            uring,
            flights: vec![None; flights_max],
            free: (0..flights_max as u32).rev().collect(),
            waiting: VecDeque::new(),
            driver: None,
            driver_woken: true,
            driver_lives,
        }
    }

    fn in_flight(&self) -> usize {
        self.flights.len() - self.free.len()
    }

    /// Moves what waits into the kernel, and collects who can go on. Returns whether another turn could do more.
    fn turn(&mut self, woken: &mut Vec<Waker>) -> io::Result<bool> {
        let submitted = self.submit();
        self.reap(woken);
        match submitted {
            Ok(_) => Ok(!self.waiting.is_empty() && !self.free.is_empty()),
            // Busy: it wanted its answers fetched first. Interrupted: once more.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EBUSY | libc::EAGAIN | libc::EINTR)) => Ok(true),
            Err(e) => Err(e),
        }
    }

    fn submit(&mut self) -> io::Result<usize> {
        while self.queue_next() {}
        let queue = self.uring.submission();
        // The kernel may hold answers back until it is entered.
        let enter = !queue.is_empty() || queue.taskrun() || queue.cq_overflow();
        drop(queue);
        if enter { self.uring.submit() } else { Ok(0) }
    }

    fn queue_next(&mut self) -> bool {
        if self.waiting.is_empty() || self.free.is_empty() || self.uring.submission().is_full() {
            return false;
        }
        let (Some(flight), Some(number)) = (self.waiting.pop_front(), self.free.pop()) else { return false };
        let entry = entry(&flight).user_data(u64::from(number));
        self.flights[number as usize] = Some(flight);
        // SAFETY: descriptor and memory that the entry names belong to the flight, which stays in
        // `self.flights` until the kernel's answer to it is reaped; `Drop` waits for all answers.
        let pushed = unsafe { self.uring.submission().push(&entry) };
        pushed.expect("there was room, and only this thread pushes");
        true
    }

    fn reap(&mut self, woken: &mut Vec<Waker>) {
        for answer in self.uring.completion() {
            let number = answer.user_data() as u32;
            let result = match answer.result() {
                code if code < 0 => Err(io::Error::from_raw_os_error(-code)),
                count => Ok(count as usize),
            };
            if let Some(flight) = self.flights.get_mut(number as usize).and_then(Option::take) {
                self.free.push(number);
                woken.extend(flight.land(result));
            }
        }
    }
}

/// The kernel's form of a request.
fn entry(flight: &Flight) -> io_uring::squeue::Entry {
    let fd = types::Fd(flight.file().as_raw_fd());
    flight.with_work(|work| match work {
        Work::Read { buf, from, offset } => {
            let into = &mut buf[*from..];
            opcode::Read::new(fd, into.as_mut_ptr(), into.len() as u32).offset(*offset).build()
        }
        Work::Write { bytes, offset } => {
            opcode::Write::new(fd, bytes.as_ptr(), bytes.len() as u32).offset(*offset).build()
        }
        Work::Datasync => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
    })
}

impl Drop for Ring {
    /// The kernel may still write into memory that the flights own: wait for it. Whoever waits for a request
    /// that never reached the kernel learns that it was interrupted.
    fn drop(&mut self) {
        let mut woken = Vec::new();
        for flight in std::mem::take(&mut self.waiting) {
            woken.extend(flight.land(Err(io::ErrorKind::Interrupted.into())));
        }
        while self.in_flight() > 0 {
            match self.uring.submit_and_wait(1) {
                Ok(_) => {}
                Err(e) if e.raw_os_error() == Some(libc::EINTR) => {}
                Err(error) => {
                    // Memory in the kernel's hands must never be freed, and those who wait would wait forever.
                    tracing::error!(%error, "a ring cannot be drained");
                    std::process::abort();
                }
            }
            self.reap(&mut woken);
        }
        woken.into_iter().for_each(Waker::wake);
    }
}

/// The task that submits and reaps for one thread.
struct Driver {
    ready: AsyncFd<OwnedFd>,
    lives: Arc<AtomicBool>,
}

impl Driver {
    /// `None` when this thread's ring is gone.
    fn turn(&self, waker: &Waker) -> Option<bool> {
        let mut woken = Vec::new();
        let moved = with_ring(|ring| {
            if !ring.driver.as_ref().is_some_and(|w| w.will_wake(waker)) {
                ring.driver = Some(waker.clone());
            }
            ring.driver_woken = false;
            ring.turn(&mut woken)
        });
        // Outside the borrow: a waker may run anything.
        woken.into_iter().for_each(Waker::wake);
        match moved? {
            Ok(moved) => Some(moved),
            Err(error) => {
                tracing::error!(%error, "a ring failed; this thread goes on with plain I/O");
                None
            }
        }
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match self.turn(cx.waker()) {
                None => return Poll::Ready(()),
                Some(true) => continue,
                Some(false) => {}
            }
            match self.ready.poll_read_ready(cx) {
                // Cleared before the next look at the ring, so that nothing arrives unseen in between.
                Poll::Ready(Ok(mut guard)) => guard.clear_ready(),
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.lives.store(false, Ordering::Relaxed);
        // Lets go of the ring at once when this is its thread; else its thread does at its next request.
        let _ = with_ring(|_| ());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::Io;
    use stonefold_types::AlignedBuf;

    fn file(bytes: usize) -> Arc<File> {
        let file = tempfile::tempfile().unwrap();
        file.set_len(bytes as u64).unwrap();
        Arc::new(file)
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    /// A ring ends with its runtime, requests and dropped futures in flight or not, and its thread can have another.
    #[test]
    fn a_ring_ends_with_its_runtime() {
        let file = file(64 << 20);
        for round in 0..20 {
            let io = Io::new();
            let reads = runtime().block_on(async {
                if install().is_err() {
                    return Vec::new();
                }
                let mut reads: Vec<_> = (0..50u64)
                    .map(|n| {
                        let (io, file) = (io.clone(), file.clone());
                        Box::pin(async move { io.read_at(&file, AlignedBuf::zeroed(1 << 20), n << 20).await })
                    })
                    .collect();
                for read in &mut reads {
                    let _ = futures::poll!(read);
                }
                if round % 2 == 0 {
                    tokio::task::yield_now().await;
                }
                reads.truncate(25);
                reads
            });
            assert!(!installed(), "no runtime, no ring");
            // Begun by a ring that is gone: each either landed before, or is told that it did not.
            for read in reads {
                match futures::executor::block_on(read) {
                    Ok(buf) => assert_eq!(buf.len(), 1 << 20),
                    Err(error) => assert_eq!(error.kind(), io::ErrorKind::Interrupted),
                }
            }
        }
    }

    /// More requests than a ring holds wait their turn.
    #[test]
    fn many_requests_wait_their_turn() {
        let file = file(1 << 20);
        runtime().block_on(async {
            let _ = install();
            let io = Io::new();
            let reads = (0..5000u64).map(|n| io.read_at(&file, AlignedBuf::zeroed(100), n % 256 * 4096));
            for buf in futures::future::join_all(reads).await {
                assert_eq!(buf.unwrap().len(), 100);
            }
        });
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_runtime_of_many_threads_has_no_ring() {
        assert!(install().unwrap_err().to_string().contains("current_thread"));
    }
}
