//! The transmission phase of one connection: requests in, replies out, the store between.
//!
//! *Promises*: every request that was taken is answered once; memory stays within [`limits`](crate::limits); a read that
//! is in the cache is answered without an allocation, a task or a second copy. *Never*: touches a socket; the
//! [connection](crate::connection) feeds it and drains it. *Owns*: the input and output buffers and the requests in flight.
//!
//! | room | what is in it |
//! |---|---|
//! | `mod.rs` | taking requests: framing, checks, the short ones |
//! | `large.rs` | reads and writes that are handled in parts |
//! | `reply.rs` | finished work to bytes |
//! | `jobs.rs` | what waits for the store |
//! | `status.rs` | answering `BLOCK_STATUS` |

mod jobs;
mod large;
mod reply;
mod status;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures::stream::{FuturesUnordered, StreamExt};
use std::borrow::Cow;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

use crate::fault::Fault;
use crate::handshake::Opened;
use crate::limits::{
    CONTEXTS_MAX, DISCARD_BYTES_MAX, INLINE_READ_BYTES_MAX, INLINE_WRITE_BYTES_MAX, INPUT_BYTES, JOBS_MAX,
    OUTPUT_BYTES_MAX, PART_BYTES, REQUEST_BYTES_MAX, TURN_BYTES_MAX, TURN_REQUESTS_MAX,
};
use crate::memory::Lease;
use crate::meta::MetaContext;
use crate::metrics::Tally;
use crate::output::Output;
use crate::target::Target;
use crate::wire::reply::Answer;
use crate::wire::request::{Command, Request, StatusPayload, flag, header_bytes};
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
        self.over && self.jobs.is_empty() && self.output.is_empty()
    }

    /// Whether the client is in the middle of a request.
    pub(crate) fn is_mid_request(&self) -> bool {
        !self.input.is_empty() || matches!(self.taking, Taking::Discard { .. } | Taking::Write(_))
    }

    /// Gives back the buffers of a connection that has been quiet.
    pub(crate) fn shrink(&mut self) {
        if self.input.is_empty() {
            self.input = BytesMut::new();
        }
        if self.output.is_empty() {
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

    #[inline]
    fn take_request(&mut self, cx: &mut Context<'_>, turn: &mut Turn) -> Result<Option<Stop>, Fault> {
        let request = match Request::parse(&self.input, self.style) {
            Ok(Some(request)) => request,
            Ok(None) => return Ok(Some(Stop::Dry)),
            Err(bad) => return Err(Fault::Protocol(format!("{:#010x} is not a request", bad.0))),
        };
        let answer = Answer { style: self.style, cookie: request.cookie, offset: request.offset };
        if let Err(refusal) = self.check(&request) {
            return self.refuse_and_discard(&request, answer, refusal).map(|()| None);
        }
        match request.command {
            Command::Read if request.length <= INLINE_READ_BYTES_MAX as u64 => {
                return Ok(self.read_short(&request, answer, turn));
            }
            Command::Write if request.length <= INLINE_WRITE_BYTES_MAX as u64 => {
                return Ok(self.write_short(&request, answer, cx, turn));
            }
            Command::BlockStatus => return Ok(self.block_status(&request, answer, cx, turn)),
            _ => {}
        }
        self.consume_header();
        self.tally.request(request.command);
        turn.spend(0);
        let (target, fua) = (self.target.clone(), request.has(flag::FUA));
        let Request { offset, length, .. } = request;
        match request.command {
            Command::Disconnect => self.over = true,
            Command::Read => self.begin_large_read(&request, answer),
            Command::Write => self.begin_large_write(&request, answer),
            Command::Flush => self.launch(cx, 0, async move { Done::acted(answer, target.flush().await) }),
            // A trim of nothing, and the like.
            _ if length == 0 => self.acknowledge(&answer),
            Command::Trim | Command::WriteZeroes => {
                self.launch(cx, 0, async move { Done::acted(answer, target.zero(offset, length, fua).await) })
            }
            Command::Cache => {
                self.launch(cx, 0, async move { Done::acted(answer, target.prefetch(offset, length).await) })
            }
            Command::BlockStatus | Command::Unknown(_) => unreachable!("handled or refused above"),
        }
        Ok(None)
    }

    fn consume_header(&mut self) {
        self.input.advance(header_bytes(self.style));
        self.after_large = false;
    }

    /// Whether the request can be carried out at all.
    fn check(&self, request: &Request) -> Result<(), Refusal> {
        let invalid = |what: &'static str| Err((Errno::Inval, Cow::Borrowed(what)));
        let Request { command, length, .. } = *request;
        let mut flags_valid = command.flags_valid();
        if self.style == Style::Extended && matches!(command, Command::Write | Command::BlockStatus) {
            flags_valid |= flag::PAYLOAD_LEN;
        }
        if request.flags & !flags_valid != 0 {
            return invalid("the request carries flags that do not belong to it");
        }
        match command {
            Command::Unknown(_) => return invalid("unknown command"),
            Command::Disconnect | Command::Flush => return Ok(()),
            Command::BlockStatus => return self.check_status(request),
            Command::Write | Command::Trim | Command::WriteZeroes if self.read_only => {
                return Err((Errno::Perm, "the export is read-only".into()));
            }
            Command::Read | Command::Write if length > u64::from(REQUEST_BYTES_MAX) => {
                return invalid("the request is longer than 32 MiB");
            }
            Command::Read if request.has(flag::DF) && length > PART_BYTES as u64 => {
                return Err((Errno::Overflow, "too long for a reply in one piece".into()));
            }
            _ => {}
        }
        if self.contains(request.offset, length) {
            return Ok(());
        }
        // The protocol wants ENOSPC where writing is tried beyond the end, and EINVAL elsewhere.
        let grows = matches!(command, Command::Write | Command::WriteZeroes);
        let errno = if grows { Errno::NoSpc } else { Errno::Inval };
        Err((errno, format!("the export ends at {} bytes", self.size_bytes).into()))
    }

    #[inline]
    fn contains(&self, offset: u64, length: u64) -> bool {
        offset.checked_add(length).is_some_and(|end| end <= self.size_bytes)
    }

    fn check_status(&self, request: &Request) -> Result<(), Refusal> {
        let invalid = |what: &'static str| Err((Errno::Inval, Cow::Borrowed(what)));
        if self.contexts.is_empty() {
            return invalid("no meta context was selected");
        }
        if request.payload_bytes(self.style) > 0 {
            if request.length < 8 || request.length > 8 + 4 * CONTEXTS_MAX as u64 {
                return invalid("malformed status request");
            }
            return Ok(());
        }
        if request.length == 0 || !self.contains(request.offset, request.length) {
            return invalid("the range is empty or not within the export");
        }
        Ok(())
    }

    fn refuse_and_discard(
        &mut self,
        request: &Request,
        answer: Answer,
        refusal: Refusal,
    ) -> Result<(), Fault> {
        let left = request.payload_bytes(self.style);
        if left > DISCARD_BYTES_MAX {
            return Err(Fault::Protocol(format!("a payload of {left} bytes")));
        }
        self.consume_header();
        self.tally.request(request.command);
        self.taking = Taking::Discard { left, answer, refusal };
        Ok(())
    }

    fn discard(&mut self) -> Option<Stop> {
        let Taking::Discard { left, .. } = &mut self.taking else { return None };
        let gone = self.input.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
        *left -= gone as u64;
        let finished = *left == 0;
        self.input.advance(gone);
        if !finished {
            return Some(Stop::Dry);
        }
        if let Taking::Discard { answer, refusal: (errno, message), .. } =
            std::mem::replace(&mut self.taking, Taking::Header)
        {
            self.refuse(&answer, errno, &message);
        }
        None
    }

    /// A read that fits the output buffer: the hottest path of the house.
    #[inline]
    fn read_short(&mut self, request: &Request, answer: Answer, turn: &mut Turn) -> Option<Stop> {
        let len = request.length as usize;
        if len == 0 {
            self.consume_header();
            self.tally.request(Command::Read);
            self.output.put(&if self.style == Style::Simple { answer.done() } else { answer.end() });
            return None;
        }
        let head = answer.data(request.offset, len, true);
        let room = self.output.room(head.len() + len);
        room[..head.len()].copy_from_slice(&head);
        match self.target.read_cached(request.offset, &mut room[head.len()..]) {
            Some(Ok(())) => {
                self.output.commit(head.len() + len);
                self.tally.read_bytes(len);
            }
            Some(Err(error)) => self.fail(&answer, &error),
            None => {
                if !self.lease.allows(len) {
                    return Some(Stop::Full);
                }
                self.push_read(ReadTo::Whole(answer), request.offset, self.lease.buffer(len));
            }
        }
        self.consume_header();
        self.tally.request(Command::Read);
        turn.spend(len);
        None
    }

    /// A write whose payload fits the input buffer.
    #[inline]
    fn write_short(
        &mut self,
        request: &Request,
        answer: Answer,
        cx: &mut Context<'_>,
        turn: &mut Turn,
    ) -> Option<Stop> {
        let len = request.length as usize;
        let data = match self.take_payload(len) {
            Ok(data) => data,
            Err(stop) => return Some(stop),
        };
        self.tally.request(Command::Write);
        self.tally.written_bytes(len);
        turn.spend(len);
        if len == 0 {
            self.acknowledge(&answer);
            return None;
        }
        let (target, offset, fua) = (self.target.clone(), request.offset, request.has(flag::FUA));
        self.launch(cx, len, async move { Done::acted(answer, target.write(offset, &data, fua).await) });
        None
    }

    fn block_status(
        &mut self,
        request: &Request,
        answer: Answer,
        cx: &mut Context<'_>,
        turn: &mut Turn,
    ) -> Option<Stop> {
        let named = request.payload_bytes(self.style) > 0;
        let payload = match self.take_payload(if named { request.length as usize } else { 0 }) {
            Ok(payload) => payload,
            Err(stop) => return Some(stop),
        };
        self.tally.request(Command::BlockStatus);
        turn.spend(0);
        let (length, wanted) = if named {
            let parsed = StatusPayload::parse(&payload)
                .and_then(|asked| Some((asked.length, self.contexts_named(&asked.ids)?)))
                .filter(|(length, _)| *length > 0 && self.contains(request.offset, *length));
            let Some(parsed) = parsed else {
                self.refuse(&answer, Errno::Inval, "malformed status request");
                return None;
            };
            parsed
        } else {
            (request.length, (0..self.contexts.len()).collect())
        };
        let (target, contexts) = (self.target.clone(), self.contexts.clone());
        let (offset, one) = (request.offset, request.has(flag::REQ_ONE));
        self.launch(cx, 0, async move {
            let result = status::survey(&target, &contexts, &wanted, offset..offset + length, one).await;
            Done::Status { answer, result }
        });
        None
    }

    /// Indices of the contexts with these ids, each once; `None` when one is unknown or named twice.
    fn contexts_named(&self, ids: &[u32]) -> Option<Vec<usize>> {
        let mut indices: Vec<usize> = Vec::with_capacity(ids.len());
        for id in ids {
            let index = (0..self.contexts.len()).find(|i| crate::handshake::context_id(*i) == *id)?;
            if indices.contains(&index) {
                return None;
            }
            indices.push(index);
        }
        (!indices.is_empty()).then_some(indices)
    }

    /// Takes a header and the short payload behind it, without copying.
    fn take_payload(&mut self, len: usize) -> Result<Bytes, Stop> {
        let total = header_bytes(self.style) + len;
        if self.input.len() < total {
            self.input.reserve(total - self.input.len());
            return Err(Stop::Dry);
        }
        if !self.lease.allows(len) {
            return Err(Stop::Full);
        }
        self.consume_header();
        Ok(if len == 0 { Bytes::new() } else { self.input.split_to(len).freeze() })
    }

    /// Starts a job, and finishes it at once if it can.
    fn launch(
        &mut self,
        cx: &mut Context<'_>,
        bytes: usize,
        job: impl Future<Output = Done> + Send + 'static,
    ) {
        let mut job = Box::pin(job);
        match job.as_mut().poll(cx) {
            Poll::Ready(done) => self.complete(done, cx),
            Poll::Pending => {
                self.jobs.push(InFlight::new(job, (bytes > 0).then(|| self.lease.charge(bytes))));
                self.fresh = true;
            }
        }
    }

    /// Starts a read that will have to wait.
    fn push_read(&mut self, to: ReadTo, at: u64, mut buffer: crate::memory::Buffer) {
        let target = self.target.clone();
        let job = Box::pin(async move {
            let result = target.read(at, &mut buffer).await;
            Done::Read { to, at, buffer, result }
        });
        self.jobs.push(InFlight::new(job, None));
        self.fresh = true;
    }
}
