//! What waits for the store.

use futures::future::BoxFuture;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use stonefold_types::Result;

use super::status::Status;
use crate::memory::{Buffer, Charge};
use crate::wire::reply::Answer;

/// What a finished job leaves to be answered.
pub(super) enum Done {
    /// Data.
    Read { to: ReadTo, at: u64, buffer: Buffer, result: Result<()> },
    /// Something that is answered with success or an error.
    Acted { answer: Answer, result: Result<()> },
    /// A part of a large write.
    WritePart { whole: usize, result: Result<()> },
    /// A status.
    Status { answer: Answer, result: Result<Vec<Status>> },
}

/// What a read is for.
pub(super) enum ReadTo {
    /// A request of its own.
    Whole(Answer),
    /// A part of the large read in that slot.
    Part(usize),
}

impl Done {
    pub(super) fn acted(answer: Answer, result: Result<()>) -> Self {
        Done::Acted { answer, result }
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Done::Read { buffer, .. } => buffer.len(),
            _ => 0,
        }
    }
}

/// A job and the memory it holds.
pub(super) struct InFlight {
    job: BoxFuture<'static, Done>,
    changes: bool,
    _charge: Option<Charge>,
}

impl InFlight {
    /// A job that only looks.
    pub(super) fn look(job: BoxFuture<'static, Done>) -> Self {
        InFlight { job, changes: false, _charge: None }
    }

    /// A job that may change the disk.
    pub(super) fn change(job: BoxFuture<'static, Done>, charge: Option<Charge>) -> Self {
        InFlight { job, changes: true, _charge: charge }
    }

    /// Whether it may change the disk, and so is carried through even when nobody waits for the answer.
    pub(super) fn changes(&self) -> bool {
        self.changes
    }
}

impl Future for InFlight {
    type Output = Done;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Done> {
        self.job.as_mut().poll(cx)
    }
}
