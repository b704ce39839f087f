//! Taking requests from the input: framing, and those that are short.

use bytes::{Buf, Bytes};
use std::task::Context;

use super::jobs::{Done, InFlight, ReadTo};
use super::{Refusal, Session, Stop, Taking, Turn, status};
use crate::fault::Fault;
use crate::limits::{DISCARD_BYTES_MAX, INLINE_READ_BYTES_MAX, INLINE_WRITE_BYTES_MAX, PREFETCH_BYTES};
use crate::target::Target;
use crate::wire::reply::Answer;
use crate::wire::request::{Command, Request, StatusPayload, flag, header_bytes};
use crate::wire::{Errno, Style};
use stonefold_store::trace::Op;

impl<T: Target> Session<T> {
    #[inline]
    pub(super) fn take_request(
        &mut self,
        cx: &mut Context<'_>,
        turn: &mut Turn,
    ) -> Result<Option<Stop>, Fault> {
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
            Command::BlockStatus => return Ok(self.block_status(&request, answer, turn)),
            Command::Cache if !self.lease.allows(PREFETCH_BYTES) => return Ok(Some(Stop::Full)),
            _ => {}
        }
        self.consume_header();
        self.tally.request(request.command);
        self.note(&request);
        turn.spend(0);
        let (target, fua) = (self.target.clone(), request.has(flag::FUA));
        let Request { offset, length, .. } = request;
        match request.command {
            Command::Disconnect => self.over = true,
            Command::Read => self.begin_large_read(&request, answer),
            Command::Write => self.begin_large_write(&request, answer),
            Command::Flush => {
                self.launch_change(cx, 0, async move { Done::acted(answer, target.flush().await) })
            }
            // A trim of nothing, and the like.
            _ if length == 0 => self.acknowledge(&answer),
            Command::Trim => self.launch_change(cx, 0, async move {
                Done::acted(answer, target.trim(offset, length, fua).await)
            }),
            Command::WriteZeroes => self.launch_change(cx, 0, async move {
                Done::acted(answer, target.zero(offset, length, fua).await)
            }),
            Command::Cache => {
                // One answer for however much it is, and memory for one step.
                let charge = self.lease.charge(PREFETCH_BYTES);
                self.push(InFlight::look(Box::pin(async move {
                    let _held = charge;
                    Done::acted(answer, target.prefetch(offset, length).await)
                })));
            }
            Command::BlockStatus | Command::Unknown(_) => unreachable!("handled or refused above"),
        }
        Ok(None)
    }

    /// Tells the target of a request that is taken up. One of no bytes reaches no disk.
    #[inline]
    fn note(&self, request: &Request) {
        let op = match request.command {
            Command::Flush => return self.target.note(Op::Flush, 0, 0, false),
            Command::Read => Op::Read,
            Command::Write => Op::Write,
            Command::Trim => Op::Trim,
            Command::WriteZeroes => Op::Zero,
            Command::Disconnect | Command::Cache | Command::BlockStatus | Command::Unknown(_) => return,
        };
        if request.length > 0 {
            self.target.note(op, request.offset, request.length, request.has(flag::FUA));
        }
    }

    fn consume_header(&mut self) {
        self.input.advance(header_bytes(self.style));
        self.after_large = false;
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

    pub(super) fn discard(&mut self) -> Option<Stop> {
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
        self.note(request);
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
        self.note(request);
        turn.spend(len);
        if len == 0 {
            self.acknowledge(&answer);
            return None;
        }
        let (target, offset, fua) = (self.target.clone(), request.offset, request.has(flag::FUA));
        self.launch_change(
            cx,
            len,
            async move { Done::acted(answer, target.write(offset, &data, fua).await) },
        );
        None
    }

    fn block_status(&mut self, request: &Request, answer: Answer, turn: &mut Turn) -> Option<Stop> {
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
        self.push(InFlight::look(Box::pin(async move {
            let result = status::survey(&target, &contexts, &wanted, offset..offset + length, one).await;
            Done::Status { answer, result }
        })));
        None
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
}
