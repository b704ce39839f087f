//! Reads and writes too long for the input and output buffers. They are carried out in parts, each with a buffer of its
//! own; parts finish in any order, and the request is answered with the last.

use std::task::Context;

use super::jobs::{Done, ReadTo};
use super::{Session, Stop, Taking, Turn};
use crate::limits::PART_BYTES;
use crate::memory::Buffer;
use crate::target::Target;
use crate::wire::Style;
use crate::wire::reply::Answer;
use crate::wire::request::{Command, Request, flag};
use bytes::Buf;
use stonefold_types::Error;

/// A large write whose payload is arriving.
pub(super) struct LargeWrite {
    whole: usize,
    at: u64,
    left: u64,
    pub(super) part: Option<Filling>,
}

/// A part whose payload is arriving.
pub(super) struct Filling {
    buffer: Buffer,
    pub(super) filled: usize,
}

impl Filling {
    pub(super) fn unfilled(&mut self) -> &mut [u8] {
        &mut self.buffer[self.filled..]
    }
}

/// A large read whose parts are being started.
pub(super) struct LargeRead {
    whole: usize,
    at: u64,
    left: u64,
    /// The reply cannot be cut.
    in_one: bool,
}

/// A large request, from its header to its answer.
pub(super) struct Whole {
    pub(super) answer: Answer,
    pub(super) in_one: bool,
    fua: bool,
    parts_in_flight: usize,
    all_started: bool,
    failed: Option<Error>,
}

/// Large requests not yet answered, by slot.
#[derive(Default)]
pub(super) struct Wholes(Vec<Option<Whole>>);

impl Wholes {
    fn insert(&mut self, whole: Whole) -> usize {
        // A connection has a few dozen at most: what it may have in flight divided by what makes a request large.
        if let Some(free) = self.0.iter().position(Option::is_none) {
            self.0[free] = Some(whole);
            return free;
        }
        self.0.push(Some(whole));
        self.0.len() - 1
    }

    fn get(&mut self, slot: usize) -> &mut Whole {
        self.0[slot].as_mut().expect("a slot is kept until its request is answered")
    }

    fn remove(&mut self, slot: usize) -> Whole {
        self.0[slot].take().expect("a request is answered once")
    }
}

fn part_len(at: u64, left: u64) -> usize {
    let to_boundary = PART_BYTES as u64 - at % PART_BYTES as u64;
    left.min(to_boundary) as usize
}

impl<T: Target> Session<T> {
    fn insert_whole(&mut self, request: &Request, answer: Answer, in_one: bool) -> usize {
        self.wholes.insert(Whole {
            answer,
            in_one,
            fua: request.has(flag::FUA),
            parts_in_flight: 0,
            all_started: false,
            failed: None,
        })
    }

    pub(super) fn begin_large_read(&mut self, request: &Request, answer: Answer) {
        debug_assert_eq!(request.command, Command::Read);
        let in_one = self.style == Style::Simple || request.has(flag::DF);
        let whole = self.insert_whole(request, answer, in_one);
        self.taking = Taking::Read(LargeRead { whole, at: request.offset, left: request.length, in_one });
    }

    pub(super) fn begin_large_write(&mut self, request: &Request, answer: Answer) {
        let whole = self.insert_whole(request, answer, false);
        self.taking =
            Taking::Write(LargeWrite { whole, at: request.offset, left: request.length, part: None });
    }

    /// Starts the next part of a large read.
    pub(super) fn issue_read_part(&mut self, turn: &mut Turn) -> Option<Stop> {
        let Taking::Read(read) = &mut self.taking else { return None };
        let len = if read.in_one { read.left as usize } else { part_len(read.at, read.left) };
        if !self.lease.allows(len.max(PART_BYTES)) {
            return Some(Stop::Full);
        }
        let (slot, at) = (read.whole, read.at);
        read.at += len as u64;
        read.left -= len as u64;
        let last = read.left == 0;
        if last {
            self.taking = Taking::Header;
        }
        let whole = self.wholes.get(slot);
        whole.parts_in_flight += 1;
        whole.all_started = last;
        turn.spend(len);
        let mut buffer = self.lease.buffer(len);
        match self.target.read_cached(at, &mut buffer) {
            Some(result) => self.finish_read_part(slot, at, buffer, result),
            None => self.push_read(ReadTo::Part(slot), at, buffer),
        }
        None
    }

    /// Moves the payload of a large write into parts, and starts those that are complete.
    pub(super) fn take_write_part(&mut self, cx: &mut Context<'_>, turn: &mut Turn) -> Option<Stop> {
        let Taking::Write(write) = &mut self.taking else { return None };
        if write.part.is_none() {
            if !self.lease.allows(PART_BYTES) {
                return Some(Stop::Full);
            }
            let buffer = self.lease.buffer(part_len(write.at, write.left));
            write.part = Some(Filling { buffer, filled: 0 });
        }
        let part = write.part.as_mut()?;
        let unfilled = part.unfilled();
        let taken = unfilled.len().min(self.input.len());
        self.input.copy_to_slice(&mut unfilled[..taken]);
        part.filled += taken;
        if part.filled < part.buffer.len() {
            return Some(Stop::Dry);
        }
        let buffer = write.part.take()?.buffer;
        let (slot, at, len) = (write.whole, write.at, buffer.len());
        write.at += len as u64;
        write.left -= len as u64;
        let last = write.left == 0;
        if last {
            self.taking = Taking::Header;
            self.after_large = true;
        }
        let whole = self.wholes.get(slot);
        whole.parts_in_flight += 1;
        whole.all_started = last;
        turn.spend(len);
        self.tally.written_bytes(len);
        let target = self.target.clone();
        self.launch_change(cx, 0, async move {
            // One flush at the end makes all parts durable with one wait, so none asks for it alone.
            let result = target.write(at, &buffer, false).await;
            Done::WritePart { whole: slot, result }
        });
        None
    }

    /// A part of a large read has its data, or has failed.
    pub(super) fn finish_read_part(
        &mut self,
        slot: usize,
        at: u64,
        buffer: Buffer,
        result: Result<(), Error>,
    ) {
        let whole = self.wholes.get(slot);
        whole.parts_in_flight -= 1;
        let finished = whole.all_started && whole.parts_in_flight == 0;
        if let Err(error) = result {
            whole.failed.get_or_insert(error);
        }
        let (answer, in_one) = (whole.answer, whole.in_one);
        if whole.failed.is_none() {
            self.send_data(&answer, at, buffer, finished, in_one);
        }
        if finished {
            if let Some(error) = self.wholes.remove(slot).failed {
                self.fail(&answer, &error);
            }
        }
    }

    /// A part of a large write is done, or has failed.
    pub(super) fn finish_write_part(&mut self, slot: usize, result: Result<(), Error>, cx: &mut Context<'_>) {
        let whole = self.wholes.get(slot);
        whole.parts_in_flight -= 1;
        if let Err(error) = result {
            whole.failed.get_or_insert(error);
        }
        if !whole.all_started || whole.parts_in_flight > 0 {
            return;
        }
        let Whole { answer, fua, failed, .. } = self.wholes.remove(slot);
        match failed {
            Some(error) => self.fail(&answer, &error),
            None if fua => {
                let target = self.target.clone();
                self.launch_change(cx, 0, async move { Done::acted(answer, target.flush().await) });
            }
            None => self.acknowledge(&answer),
        }
    }
}
