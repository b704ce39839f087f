//! What becomes of an I/O when it was answered, and of those in flight when nobody is there to answer.

use super::{Part, Running};
use crate::address::Draw;
use crate::chaos::Allowance;
use crate::load::Gap;
use crate::target::{Completion, Op, Request};
use std::io;
use std::time::Duration;

/// A time without answers that is longer than this is noted, in nanoseconds.
const GAP_NANOS: u64 = 250_000_000;

impl Part {
    pub(super) fn complete(&mut self, completion: Completion, now: u64, running: &mut Running<'_>) {
        let slot = &mut self.slots[completion.slot as usize];
        let draw = slot.draw.take().expect("what completes was in flight");
        let content = &mut self.volumes[slot.volume].content;
        let (failed, bytes) = (completion.error != 0, draw.bytes as usize);
        let of_before = slot.phase != self.phase;
        match draw.op {
            Op::Read if !failed && !of_before => {
                // SAFETY: the request is over, so the backend has let go of the buffer.
                let read = unsafe { self.buffers.slice(completion.slot, bytes) };
                content.check(draw.offset, read, &slot.expected, &mut running.verification);
            }
            Op::Read => {}
            Op::Flush if failed => {}
            Op::Flush => content.flushed(&slot.generations),
            Op::Write | Op::Trim | Op::Zero => {
                content.written(draw.offset, bytes, &slot.generations, failed);
            }
        }
        if of_before {
            self.free.push(completion.slot);
            return;
        }
        let index = slot.source;
        if !failed && running.watched {
            running.note_answer(now);
        }
        self.count(completion, &draw, now, running);
        match self.sources[index].copies_to {
            Some(to) if draw.op == Op::Read && !failed => self.pass_on(completion.slot, draw, to, now),
            _ => {
                self.sources[index].in_flight -= 1;
                self.free.push(completion.slot);
            }
        }
        // A follower keeps step with its leader's I/Os: a flush is none.
        if !failed && !matches!(draw.op, Op::Flush) {
            for (number, source) in self.sources.iter_mut().enumerate() {
                if number != index {
                    source.led(index, now);
                }
            }
        }
    }

    fn count(&mut self, completion: Completion, draw: &Draw, now: u64, running: &mut Running<'_>) {
        let slot = &self.slots[completion.slot as usize];
        let source = &mut self.sources[slot.source];
        running.last_completion = now;
        if completion.error != 0 {
            *source.record.errors.entry(completion.error).or_default() += 1;
            return;
        }
        let direction = match draw.op {
            Op::Read => &mut source.record.read,
            Op::Write => &mut source.record.write,
            Op::Flush | Op::Trim | Op::Zero => &mut source.record.control,
        };
        let response = now - slot.intended;
        direction.response.record(response);
        direction.service.record(now - slot.issued);
        if now < running.end {
            direction.ios += 1;
            direction.bytes += draw.bytes;
            running.count(now, draw, response);
        }
    }

    /// What was read is written to another volume, from the same buffer.
    fn pass_on(&mut self, number: u32, read: Draw, to: usize, now: u64) {
        let slot = &mut self.slots[number as usize];
        let record = &mut self.sources[slot.source].record;
        record.requests[Op::Write as usize] += 1;
        *record.sizes.entry(read.bytes).or_default() += 1;
        let draw = Draw { op: Op::Write, ..read };
        (slot.draw, slot.volume, slot.intended, slot.issued) = (Some(draw), to, now, now);
        let behind = &mut self.volumes[to];
        // SAFETY: the read is over and the write not issued yet, so nothing else has the slot's buffer.
        let buffer = unsafe { self.buffers.slice(number, draw.bytes as usize) };
        behind.content.copy(draw.offset, buffer, &mut slot.generations);
        let (volume, offset, bytes) = (behind.target, behind.base + draw.offset, draw.bytes as u32);
        self.backend.submit(Request { slot: number, volume, op: Op::Write, fua: false, offset, bytes });
    }

    /// What had been answered until now was answered by whoever is gone; what comes is answered by whoever is back.
    pub(super) fn note_breaks(&mut self, running: &mut Running<'_>) -> io::Result<()> {
        for (target, error) in self.backend.broken_off() {
            // Nobody has struck it: then it is as broken as any other.
            let Some(allowance) = running.control.allowance() else { return Err(error) };
            running.breaks += 1;
            for behind in self.volumes.iter_mut().filter(|behind| behind.target == target) {
                if let Allowance::Unpromised(promise) = allowance {
                    behind.content.crash(promise);
                }
            }
            // Reads in flight are asked again, and may return what was not promised to be kept.
            for slot in &mut self.slots {
                let Some(draw) = slot.draw.filter(|draw| draw.op == Op::Read) else { continue };
                let behind = &self.volumes[slot.volume];
                if behind.target == target {
                    behind.content.expect(draw.offset, draw.bytes as usize, &mut slot.expected);
                }
            }
        }
        Ok(())
    }
}

impl Running<'_> {
    /// Something was answered without an error.
    fn note_answer(&mut self, now: u64) {
        if now - self.last_completion > GAP_NANOS {
            let (from, to) = (Duration::from_nanos(self.last_completion), Duration::from_nanos(now));
            self.gaps.push(Gap { from, to });
        }
        self.control.answered(now);
    }
}
