//! The transmission phase of one connection: requests in, replies out, the store between.
//!
//! *Promises*: every request that was taken is answered once; memory stays within [`limits`](crate::limits); a read that
//! is in the cache is answered without an allocation, a task or a second copy. *Never*: touches a socket; the
//! [connection](crate::connection) feeds it and drains it. *Owns*: the input and output buffers and the requests in flight.
//!
//! | room | what is in it |
//! |---|---|
//! | `mod.rs` | the session: its buffers, its turn, its jobs |
//! | `requests.rs` | taking requests from the input, and those that are short |
//! | `check.rs` | whether a request can be carried out |
//! | `large.rs` | reads and writes that are handled in parts |
//! | `reply.rs` | finished work to bytes |
//! | `jobs.rs` | what waits for the store |
//! | `status.rs` | answering `BLOCK_STATUS` |

mod check;
mod jobs;
mod large;
mod reply;
mod requests;
mod status;

use bytes::{BufMut, BytesMut};
use futures::stream::{FuturesUnordered, StreamExt};
use std::borrow::Cow;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

use crate::fault::Fault;
use crate::limits::{INPUT_BYTES, JOBS_MAX, OUTPUT_BYTES_MAX, TURN_BYTES_MAX, TURN_REQUESTS_MAX};
use crate::memory::Lease;
use crate::meta::MetaContext;
use crate::metrics::Tally;
use crate::negotiation::Opened;
use crate::output::Output;
use crate::target::Target;
use crate::wire::reply::Answer;
use crate::wire::{Errno, Style};
use jobs::{Done, InFlight, ReadTo};
use large::{LargeRead, LargeWrite, Wholes};

/// After a large write only this much is read at first, so that the payload of another one behind it can go straight to
/// its own buffer.
const INPUT_AFTER_LARGE_BYTES: usize = 4 << 10;
/// Less room than this in the input buffer is not worth a read.
const INPUT_ROOM_BYTES_MIN: usize = 16 << 10;

/// The transmission phase of one connection.
pub(crate) struct Session<T: Target> {
    /// The export's, for logs.
    name: String,
    target: T,
    size_bytes: u64,
    read_only: bool,
    style: Style,
    contexts: Arc<[MetaContext]>,
    input: BytesMut,
    taking: Taking,
    after_large: bool,
    pub(crate) output: Output,
    jobs: FuturesUnordered<InFlight>,
    /// A job was added that the set has not polled yet, and so would not wake us.
    fresh: bool,
    wholes: Wholes,
    lease: Lease,
    tally: Tally,
    failures: u64,
    over: bool,
}

/// What is being taken from the input.
enum Taking {
    /// A header is next.
    Header,
    /// The rest of a refused payload.
    Discard { left: u64, answer: Answer, refusal: Refusal },
    /// A large write's payload.
    Write(LargeWrite),
    /// A large read, which waits for room.
    Read(LargeRead),
}

/// Why a request is not carried out.
type Refusal = (Errno, Cow<'static, str>);

/// Why taking requests stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// More input is needed.
    Dry,
    /// Something in flight or in the output must leave first.
    Full,
    /// Others have waited long enough.
    Spent,
    /// No more requests will be taken.
    Over,
}

/// How much more may be done before other tasks get their turn.
pub(crate) struct Turn {
    requests: usize,
    bytes: usize,
}

impl Turn {
    pub(crate) fn new() -> Self {
        Turn { requests: TURN_REQUESTS_MAX, bytes: TURN_BYTES_MAX }
    }

    #[inline]
    fn spend(&mut self, bytes: usize) {
        self.requests = self.requests.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    #[inline]
    fn is_spent(&self) -> bool {
        self.requests == 0 || self.bytes == 0
    }
}

impl<T: Target> Session<T> {
    /// `input` is what the client sent beyond the handshake.
    pub(crate) fn new(opened: Opened<T>, input: BytesMut, lease: Lease, tally: Tally) -> Self {
        Session {
            size_bytes: opened.target.size_bytes(),
            read_only: opened.target.read_only(),
            target: opened.target,
            name: opened.name,
            style: opened.style,
            contexts: opened.contexts.into(),
            input,
            taking: Taking::Header,
            after_large: false,
            output: Output::default(),
            jobs: FuturesUnordered::new(),
            fresh: false,
            wholes: Wholes::default(),
            lease,
            tally,
            failures: 0,
            over: false,
        }
    }

    /// Takes no more requests; those in flight are finished.
    pub(crate) fn end(&mut self) {
        self.over = true;
    }

    /// Whether everything taken is answered and gone.
    pub(crate) fn is_finished(&self) -> bool {
        self.over && self.jobs.is_empty() && self.output.is_settled()
    }

    /// Whether the client is in the middle of a request.
    pub(crate) fn is_mid_request(&self) -> bool {
        !self.input.is_empty() || matches!(self.taking, Taking::Discard { .. } | Taking::Write(_))
    }

    /// Carries through what was begun and may change the disk, when the client is gone: a write the store has half
    /// taken is not for the door to interrupt.
    pub(crate) async fn finish_changes(self) {
        let changes = self.jobs.into_iter().filter(InFlight::changes);
        changes.collect::<FuturesUnordered<_>>().for_each(|_nobody_waits| std::future::ready(())).await;
    }

    /// Gives back the buffers of a connection that has been quiet.
    pub(crate) fn shrink(&mut self) {
        if self.input.is_empty() {
            self.input = BytesMut::new();
        }
        if self.output.is_settled() {
            self.output = Output::default();
        }
    }

    /// Makes what was counted visible.
    pub(crate) fn publish(&mut self) {
        self.tally.publish();
    }

    /// Collects finished jobs. True when there were any, or when jobs were added since, so that this must be called again
    /// before waiting.
    pub(crate) fn harvest(&mut self, cx: &mut Context<'_>, turn: &mut Turn) -> bool {
        self.fresh = false;
        let mut any = false;
        while !turn.is_spent() {
            let Poll::Ready(Some(done)) = self.jobs.poll_next_unpin(cx) else { break };
            any = true;
            turn.spend(done.bytes());
            self.complete(done, cx);
        }
        any
    }

    pub(crate) fn has_fresh_jobs(&self) -> bool {
        self.fresh
    }

    /// Takes requests from the input until something stops it.
    pub(crate) fn digest(&mut self, cx: &mut Context<'_>, turn: &mut Turn) -> Result<Stop, Fault> {
        loop {
            // First, because after it the jobs may not have been asked, and so would not wake us.
            if turn.is_spent() {
                return Ok(Stop::Spent);
            }
            if self.over {
                return Ok(Stop::Over);
            }
            if self.output.len() >= OUTPUT_BYTES_MAX || self.jobs.len() >= JOBS_MAX {
                return Ok(Stop::Full);
            }
            let stop = match self.taking {
                Taking::Header => self.take_request(cx, turn)?,
                Taking::Discard { .. } => self.discard(),
                Taking::Write(_) => self.take_write_part(cx, turn),
                Taking::Read(_) => self.issue_read_part(turn),
            };
            if let Some(stop) = stop {
                return Ok(stop);
            }
        }
    }

    /// Reads from the stream where the next bytes belong. 0 is the end.
    pub(crate) fn poll_fill<S: AsyncRead + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut S,
    ) -> Poll<io::Result<usize>> {
        if self.input.is_empty() {
            if let Taking::Write(LargeWrite { part: Some(part), .. }) = &mut self.taking {
                let mut buf = ReadBuf::new(part.unfilled());
                ready!(Pin::new(stream).poll_read(cx, &mut buf))?;
                let read = buf.filled().len();
                part.filled += read;
                return Poll::Ready(Ok(read));
            }
            self.input.reserve(INPUT_BYTES);
        } else if self.input.capacity() - self.input.len() < INPUT_ROOM_BYTES_MIN {
            self.input.reserve(INPUT_BYTES.saturating_sub(self.input.len()));
        }
        let limit = if self.after_large { INPUT_AFTER_LARGE_BYTES } else { INPUT_BYTES };
        let mut room = (&mut self.input).limit(limit);
        pin!(stream.read_buf(&mut room)).poll(cx)
    }

    /// Starts a job that may change the disk and holds `bytes` of payload, and finishes it at once if it can.
    fn launch_change(
        &mut self,
        cx: &mut Context<'_>,
        bytes: usize,
        job: impl Future<Output = Done> + Send + 'static,
    ) {
        let mut job = Box::pin(job);
        match job.as_mut().poll(cx) {
            Poll::Ready(done) => self.complete(done, cx),
            Poll::Pending => {
                let charge = (bytes > 0).then(|| self.lease.charge(bytes));
                self.push(InFlight::change(job, charge));
            }
        }
    }

    fn push(&mut self, job: InFlight) {
        self.jobs.push(job);
        self.fresh = true;
    }

    /// Starts a read that will have to wait.
    fn push_read(&mut self, to: ReadTo, at: u64, mut buffer: crate::memory::Buffer) {
        let target = self.target.clone();
        let job = Box::pin(async move {
            let result = target.read(at, &mut buffer).await;
            Done::Read { to, at, buffer, result }
        });
        self.push(InFlight::look(job));
    }
}
