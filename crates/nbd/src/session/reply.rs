//! Finished work to bytes.

use bytes::Bytes;
use std::task::Context;

use super::Session;
use super::jobs::{Done, ReadTo};
use super::status::Status;
use crate::fault::errno_of;
use crate::limits::{COPY_BYTES_MAX, HOLE_BYTES_MIN, SPARSE_BYTES_MIN};
use crate::memory::Buffer;
use crate::target::Target;
use crate::wire::reply::Answer;
use crate::wire::{Errno, Style};
use stonefold_types::{BLOCK_BYTES, Error};

impl<T: Target> Session<T> {
    /// Answers what a job has finished.
    pub(super) fn complete(&mut self, done: Done, cx: &mut Context<'_>) {
        match done {
            Done::Acted { answer, result: Ok(()) } => self.acknowledge(&answer),
            Done::Acted { answer, result: Err(error) } => self.fail(&answer, &error),
            Done::Read { to: ReadTo::Whole(answer), at, buffer, result: Ok(()) } => {
                self.send_data(&answer, at, buffer, true, true);
            }
            Done::Read { to: ReadTo::Whole(answer), result: Err(error), .. } => self.fail(&answer, &error),
            Done::Read { to: ReadTo::Part(slot), at, buffer, result } => {
                self.finish_read_part(slot, at, buffer, result);
            }
            Done::WritePart { whole, result } => self.finish_write_part(whole, result, cx),
            Done::Status { answer, result: Ok(statuses) } => self.send_status(&answer, &statuses),
            Done::Status { answer, result: Err(error) } => self.fail(&answer, &error),
        }
    }

    pub(super) fn acknowledge(&mut self, answer: &Answer) {
        self.output.put(&answer.done());
    }

    /// An error of the store. The operator is told as well where it is not the client's doing, but not for each of the
    /// thousands of times a client may try again.
    pub(super) fn fail(&mut self, answer: &Answer, error: &Error) {
        let errno = errno_of(error);
        if errno == Errno::Io {
            self.failures += 1;
            if self.failures.is_power_of_two() {
                let (export, failures) = (&self.name, self.failures);
                tracing::warn!(export, offset = answer.offset, failures, %error, "a request failed");
            }
        }
        self.refuse(answer, errno, &error.to_string());
    }

    pub(super) fn refuse(&mut self, answer: &Answer, errno: Errno, message: &str) {
        self.tally.error();
        let mut bytes = Vec::new();
        answer.error(errno, message, &mut bytes);
        self.output.put(&bytes);
    }

    /// Sends data, long runs of zeros as holes where the client takes the reply in pieces.
    pub(super) fn send_data(&mut self, answer: &Answer, at: u64, buffer: Buffer, done: bool, in_one: bool) {
        self.tally.read_bytes(buffer.len());
        if buffer.len() <= COPY_BYTES_MAX {
            self.output.put(&answer.data(at, buffer.len(), done));
            self.output.put(&buffer);
            return;
        }
        if in_one || answer.style == Style::Simple || buffer.len() < SPARSE_BYTES_MIN {
            self.output.put(&answer.data(at, buffer.len(), done));
            self.output.put_large(Bytes::from_owner(buffer));
            return;
        }
        let runs = runs(&buffer, at);
        let data = Bytes::from_owner(buffer);
        let mut start = 0;
        for (index, run) in runs.iter().enumerate() {
            let done = done && index == runs.len() - 1;
            let (from, len) = (at + start as u64, run.len);
            if run.zero {
                self.output.put(&answer.hole(from, len as u32, done));
            } else {
                self.output.put(&answer.data(from, len, done));
                self.output.put_large(data.slice(start..start + len));
            }
            start += len;
        }
    }

    fn send_status(&mut self, answer: &Answer, statuses: &[Status]) {
        let mut bytes = Vec::new();
        for (index, status) in statuses.iter().enumerate() {
            answer.status(status.id, &status.extents, index == statuses.len() - 1, &mut bytes);
        }
        if bytes.len() <= COPY_BYTES_MAX {
            self.output.put(&bytes);
        } else {
            self.output.put_large(bytes.into());
        }
    }
}

/// Consecutive bytes that are all zero, or are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    len: usize,
    zero: bool,
}

/// Divides data that begins at `at` into runs. Zeros shorter than a worthwhile hole count as data.
fn runs(data: &[u8], at: u64) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut push = |len: usize, zero: bool| match runs.last_mut() {
        Some(last) if last.zero == zero => last.len += len,
        _ => runs.push(Run { len, zero }),
    };
    let to_boundary = (BLOCK_BYTES - (at % BLOCK_BYTES as u64) as usize) % BLOCK_BYTES;
    let (front, blocks) = data.split_at(to_boundary.min(data.len()));
    if !front.is_empty() {
        push(front.len(), false);
    }
    for block in blocks.chunks(BLOCK_BYTES) {
        push(block.len(), is_zero(block));
    }
    if runs.iter().all(|run| !run.zero) {
        return runs;
    }
    let mut merged: Vec<Run> = Vec::with_capacity(runs.len());
    for run in runs {
        let zero = run.zero && run.len >= HOLE_BYTES_MIN;
        match merged.last_mut() {
            Some(last) if last.zero == zero => last.len += run.len,
            _ => merged.push(Run { len: run.len, zero }),
        }
    }
    merged
}

fn is_zero(block: &[u8]) -> bool {
    // In lines, so that data is recognised by its first bytes and zeros are tested by vectors.
    block.chunks(64).all(|line| line.iter().fold(0, |any, byte| any | byte) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Runs cover the data in order, alternate, and are called zero only where every byte is.
        #[test]
        fn runs_cover_and_tell_the_truth(
            pieces in prop::collection::vec((1usize..60_000, any::<bool>()), 1..8),
            at in 0u64..10_000,
        ) {
            let data: Vec<u8> = pieces.iter().flat_map(|(len, zero)| vec![u8::from(!zero); *len]).collect();
            let runs = runs(&data, at);
            prop_assert_eq!(runs.iter().map(|run| run.len).sum::<usize>(), data.len());
            prop_assert!(runs.windows(2).all(|pair| pair[0].zero != pair[1].zero));
            let mut start = 0;
            for run in runs {
                let bytes = &data[start..start + run.len];
                if run.zero {
                    prop_assert!(run.len >= HOLE_BYTES_MIN && bytes.iter().all(|byte| *byte == 0));
                }
                start += run.len;
            }
        }
    }
}
