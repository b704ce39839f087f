//! A completion that many can wait for, with one result.

use parking_lot::Mutex;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use stonefold_types::Result;

/// Opens once, with a result, for everyone who waits.
#[derive(Default)]
pub(crate) struct Gate(Mutex<State>);

enum State {
    Shut(Vec<Waker>),
    Open(Result<()>),
}

impl Default for State {
    fn default() -> Self {
        State::Shut(Vec::new())
    }
}

impl Gate {
    /// Lets everyone through with `result`. The first call counts.
    pub(crate) fn open(&self, result: Result<()>) {
        let mut state = self.0.lock();
        if let State::Shut(wakers) = &mut *state {
            let wakers = std::mem::take(wakers);
            *state = State::Open(result);
            drop(state);
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    /// Waits until it is open.
    pub(crate) fn wait(self: &Arc<Self>) -> Wait {
        Wait { gate: self.clone(), place: None }
    }
}

/// See [`Gate::wait`].
pub(crate) struct Wait {
    gate: Arc<Gate>,
    place: Option<usize>,
}

impl Future for Wait {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let gate = self.gate.clone();
        match &mut *gate.0.lock() {
            State::Open(result) => Poll::Ready(result.clone()),
            State::Shut(wakers) => {
                match self.place {
                    Some(place) => wakers[place].clone_from(context.waker()),
                    None => {
                        self.place = Some(wakers.len());
                        wakers.push(context.waker().clone());
                    }
                }
                Poll::Pending
            }
        }
    }
}
