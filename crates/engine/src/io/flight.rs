//! One request on its way: what the kernel holds on to, and who waits for it.

use bytes::Bytes;
use parking_lot::Mutex;
use std::fs::File;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use stonefold_types::AlignedBuf;

/// What is asked of a file, with the memory it needs.
pub(super) enum Work {
    /// Fill `buf[from..]` from `offset`.
    Read { buf: AlignedBuf, from: usize, offset: u64 },
    /// Write `bytes` at `offset`.
    Write { bytes: Bytes, offset: u64 },
    /// fdatasync.
    Datasync,
}

/// A request in the kernel's hands. The ring keeps a reference until the kernel has answered, so that its memory
/// and its file live that long, whoever else lets go.
pub(super) struct Flight {
    file: Arc<File>,
    state: Mutex<State>,
}

enum State {
    /// The kernel may be using the work's memory.
    Flying(Work, Option<Waker>),
    Landed(io::Result<usize>, Work),
    Taken,
}

impl Flight {
    pub(super) fn new(file: Arc<File>, work: Work) -> Arc<Self> {
        Arc::new(Flight { file, state: Mutex::new(State::Flying(work, None)) })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Looks at the work while it is being submitted. The memory it points to does not move afterwards: a buffer
    /// owns its pages on the heap.
    pub(super) fn with_work<T>(&self, look: impl FnOnce(&mut Work) -> T) -> T {
        match &mut *self.state.lock() {
            State::Flying(work, _) => look(work),
            _ => unreachable!("a request is submitted once"),
        }
    }

    /// The kernel has answered.
    pub(super) fn land(&self, result: io::Result<usize>) -> Option<Waker> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Taken) {
            State::Flying(work, waker) => {
                *state = State::Landed(result, work);
                waker
            }
            other => {
                *state = other;
                None
            }
        }
    }
}

/// Waits for a request. Dropping it forgets the answer, not the request.
pub(super) struct Landing(pub(super) Arc<Flight>);

impl Future for Landing {
    type Output = (io::Result<usize>, Work);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.state.lock();
        if let State::Flying(_, waker) = &mut *state {
            if !waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
                *waker = Some(cx.waker().clone());
            }
            return Poll::Pending;
        }
        match std::mem::replace(&mut *state, State::Taken) {
            State::Landed(result, work) => Poll::Ready((result, work)),
            _ => unreachable!("a landing is awaited once"),
        }
    }
}
