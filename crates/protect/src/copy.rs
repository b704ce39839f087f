//! From an export into a disk of ours: what of the disk is not what the export holds is written, and nothing else.
//!
//! The export tells what reads as zeros, which is given back on the disk; the rest is read and compared with what the disk holds, block by
//! block. So the disk is the export when this is done, whatever it was before: empty, the last point, half of a run that was cut off, or
//! changed by somebody else. Where a bitmap tells what of the export has changed since the last point, only that is looked at, and what of
//! the disk has changed since; small pieces of the first are written without a look; where the other end tells [sums](sums), what has another than the disk. *Never*: drops a write of its own half done; whoever stops it is heard before the next step.

mod sums;

use crate::copying::Live;
use crate::origin::Origin;
use futures::StreamExt;
use std::future::Future;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use stonefold_env::Env;
use stonefold_store::Attachment;
use stonefold_types::{BLOCK_BYTES, Error, Kind, Result};
use tokio::sync::Semaphore;

/// It is asked what reads as zeros for so much at a time, in bytes: a few thousand runs where every second block is one.
const LOOK_BYTES: u64 = 64 << 20;
/// What a bitmap of small grains marks differs as a rule, so that a read of what the disk holds would cost more than it saves; of large ones a part
/// does. In bytes.
const SMALL_BYTES: u64 = 16 << 10;
/// Pieces under way at once, and blocks that they may come to together. Whole pieces are few, and enough for a network with some milliseconds of
/// delay; of a guest's scattered changes each is a block or some, and it takes more of them to keep both ends at work. Each block takes two of memory.
const IN_FLIGHT: usize = 64;
const BLOCKS_IN_FLIGHT: u32 = 2048;
/// Beside a guest: what it asks of its disk waits behind these, and behind what its hypervisor's one thread does for each. So they are short; and
/// while it asks for something, one at a time: it takes as much of the room as so many.
const BLOCKS_IN_FLIGHT_BESIDE: u32 = 256;
const PIECE_BYTES_BESIDE: u64 = 128 << 10;
const WEIGHT_BESIDE_A_BUSY_GUEST: u32 = 8;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// One copy.
pub(crate) struct Copy<'a> {
    pub(crate) env: &'a Env,
    pub(crate) from: &'a Origin,
    pub(crate) to: &'a Attachment,
    pub(crate) live: &'a Live,
    /// Reads all of it, also what the export says reads as zeros.
    pub(crate) full: bool,
    /// What of the disk has changed since it held what the export's bitmap knows of; the bitmap is believed. Nothing: all is looked at.
    pub(crate) since: Option<Vec<Range<u64>>>,
}

/// What is done about one part.
enum Step {
    /// It reads as zeros.
    Clear(Range<u64>),
    Piece(Range<u64>),
}

/// What a copy has done so far.
#[derive(Default)]
pub(crate) struct Figures {
    /// Bytes of the source that were read.
    pub(crate) read: AtomicU64,
    /// Of these, what came over the wire.
    pub(crate) sent: AtomicU64,
    /// Bytes written to the disk.
    pub(crate) written: AtomicU64,
    /// Bytes of the disk that could not be read, and were written anew.
    pub(crate) mended: AtomicU64,
}

impl Copy<'_> {
    /// Copies all of it; `look` is asked now and then whether to go on. The disk is as long as the export, up to its last block.
    ///
    /// What has begun is ended, also when a step has failed.
    pub(crate) async fn run(&self, look: impl Fn() -> Result<()>) -> Result<()> {
        let (end, look, room) = (self.from.bytes(), &look, &Semaphore::new(self.blocks_in_flight() as usize));
        let stretches = (0..end).step_by(LOOK_BYTES as usize).map(|at| at..end.min(at + LOOK_BYTES));
        // Looked at with each, as they are asked for.
        let stretches = stretches.take_while(|_| self.live.check().is_ok());
        // One at a time, while what lies in the last is read: one that has begun goes on with each step that ends. Of two, the second would have stood
        // still until there was room for its steps, with whatever of the store it had just then.
        let told = stretches.map(|stretch| async move {
            look()?;
            self.live.until_resumed().await?;
            self.parts(stretch).await
        });
        let steps = futures::stream::iter(told).buffered(1).flat_map(|parts| {
            let steps = match parts {
                Ok(parts) => parts.into_iter().flat_map(|part| self.steps(part)).map(Ok).collect(),
                Err(error) => vec![Err(error)],
            };
            futures::stream::iter(steps)
        });
        let steps = steps.map(|step| async move {
            match step? {
                Step::Clear(part) => self.clear(part).await,
                Step::Piece(part) => self.piece(part, room).await,
            }
        });
        let mut under_way = std::pin::pin!(steps.buffer_unordered(IN_FLIGHT));
        let mut done = Ok(());
        while let Some(step) = under_way.next().await {
            if step.is_err() && done.is_ok() {
                done = step;
                self.live.stop();
            }
        }
        done.and_then(|()| self.live.check())
    }

    /// A part of the export in runs, each of whole blocks of both ends.
    async fn parts(&self, all: Range<u64>) -> Result<Vec<(Range<u64>, bool)>> {
        if let (Origin::Remote(disk), false) = (self.from, self.full) {
            return self.differing_chunks(disk, all).await;
        }
        let tells_nothing = !self.from.tells_zeros() && self.since.is_none();
        if self.full || tells_nothing {
            return Ok(vec![(all, false)]);
        }
        let (mut at, mut data, mut changed) = (all.start, Vec::new(), Vec::new());
        while at < all.end {
            let told = self.unless_stopped(self.from.runs(at, (all.end - at) as u32)).await?;
            for run in told {
                let range = at..at + run.bytes;
                at = range.end;
                if run.changed {
                    changed.push(range.clone());
                }
                if !run.zero {
                    data.push(range);
                }
            }
        }
        let parts = whole(&data, all.clone(), self.grain());
        let Some(since) = &self.since else { return Ok(parts) };
        let of_disk = since.iter().map(|range| range.start.max(all.start)..range.end.min(all.end));
        changed.extend(of_disk.filter(|range| range.start < range.end));
        changed.sort_unstable_by_key(|range| range.start);
        let looked_at = whole(&changed, all, self.grain());
        Ok(common(&parts, looked_at.iter().filter(|(_, unchanged)| !unchanged).map(|(range, _)| range)))
    }

    fn blocks_in_flight(&self) -> u32 {
        if self.live.is_beside_a_guest() { BLOCKS_IN_FLIGHT_BESIDE } else { BLOCKS_IN_FLIGHT }
    }

    fn grain(&self) -> u64 {
        BLOCK.max(self.from.block_bytes())
    }

    /// What is done about a part, which reads as zeros or does not.
    fn steps(&self, (part, zero): (Range<u64>, bool)) -> Vec<Step> {
        if zero {
            return vec![Step::Clear(part)];
        }
        let grain = self.grain();
        // Of a server that takes little at once, whole blocks of its own.
        let most = if self.live.is_beside_a_guest() { PIECE_BYTES_BESIDE } else { u64::MAX };
        let piece = (self.from.read_bytes_max().min(most) / grain * grain).max(grain);
        let starts = (part.start..part.end).step_by(piece as usize);
        starts.map(|at| Step::Piece(at..part.end.min(at + piece))).collect()
    }

    /// Gives back what the disk holds of a part that reads as zeros.
    async fn clear(&self, part: Range<u64>) -> Result<()> {
        self.live.check()?;
        let end = part.end.next_multiple_of(BLOCK);
        let mut at = part.start;
        for extent in self.to.extents(at, end - at).await? {
            if !extent.hole {
                self.to.trim(at, extent.bytes, false).await?;
            }
            at += extent.bytes;
        }
        self.env.yield_now().await;
        Ok(())
    }

    /// Reads a piece, once there is room for it, and writes what of it the disk does not hold.
    async fn piece(&self, part: Range<u64>, room: &Semaphore) -> Result<()> {
        let weight = if self.live.guest_is_busy() { WEIGHT_BESIDE_A_BUSY_GUEST } else { 1 };
        let blocks = (part.end - part.start).div_ceil(BLOCK) as u32 * weight;
        // One that is longer than all of it has it to itself.
        let _room = room.acquire_many(blocks.min(self.blocks_in_flight())).await;
        self.live.check()?;
        self.live.may_move(self.env, part.end - part.start).await?;
        let read = self.unless_stopped(self.from.read(part.start, (part.end - part.start) as u32)).await?;
        let figures = &self.live.figures;
        figures.read.fetch_add(part.end - part.start, Ordering::Relaxed);
        figures.sent.fetch_add(read.sent, Ordering::Relaxed);
        let mut source = read.bytes;
        // Behind an export that ends in the midst of a block there are zeros.
        source.resize(source.len().next_multiple_of(BLOCK_BYTES), 0);
        let runs = match self.differs(&part) {
            true => std::iter::once(0..source.len()).collect(),
            false => self.differing(part.start, &source).await?,
        };
        for run in runs {
            self.live.check()?;
            let (at, data) = (part.start + run.start as u64, &source[run]);
            if data.iter().all(|byte| *byte == 0) {
                self.to.trim(at, data.len() as u64, false).await?;
            } else {
                self.to.write(at, data, false).await?;
                figures.written.fetch_add(data.len() as u64, Ordering::Relaxed);
            }
        }
        self.env.yield_now().await;
        Ok(())
    }

    /// Whether a piece is taken to differ without a look: its source's bitmap marks it, and the disk has it as the bitmap's beginning left it.
    fn differs(&self, part: &Range<u64>) -> bool {
        let Some(since) = self.since.as_ref().filter(|_| !self.full) else { return false };
        let next = since.get(since.partition_point(|range| range.end <= part.start));
        part.end - part.start <= SMALL_BYTES && next.is_none_or(|next| next.start >= part.end)
    }

    /// What of a piece the disk does not hold, in bytes from its beginning.
    async fn differing(&self, at: u64, source: &[u8]) -> Result<Vec<Range<usize>>> {
        let mut disk = vec![0; source.len()];
        match self.to.read(at, &mut disk).await {
            Ok(()) => Ok(differing(source, &disk)),
            // What is damaged is written anew, and so is sound again.
            Err(error) if error.kind() == Kind::Corrupt => {
                self.live.figures.mended.fetch_add(source.len() as u64, Ordering::Relaxed);
                Ok(std::iter::once(0..source.len()).collect())
            }
            Err(error) => Err(error),
        }
    }

    /// What comes of a question to the server, unless the copy is stopped meanwhile.
    async fn unless_stopped<T>(&self, what: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            () = self.live.stopped() => Err(stopped()),
            done = what => done,
        }
    }
}

/// What a step says that is not begun any more.
pub(crate) fn stopped() -> Error {
    Error::new(Kind::Conflict, "the copy was stopped")
}

/// A part in runs of whole grains, each with whether it reads as zeros: a grain in which any data lies is data. It begins with a whole
/// grain, and only its end may lie in the midst of one.
fn whole(data: &[Range<u64>], all: Range<u64>, grain: u64) -> Vec<(Range<u64>, bool)> {
    let mut runs: Vec<(Range<u64>, bool)> = Vec::new();
    let mut at = all.start;
    for run in data {
        let (start, end) = (run.start / grain * grain, run.end.next_multiple_of(grain).min(all.end));
        let start = start.max(at);
        if start >= end {
            continue;
        }
        if start > at {
            runs.push((at..start, true));
        }
        match runs.last_mut() {
            Some((last, false)) if last.end == start => last.end = end,
            _ => runs.push((start..end, false)),
        }
        at = end;
    }
    if at < all.end {
        runs.push((at..all.end, true));
    }
    runs
}

/// Of parts, those that lie in the ranges, both in order.
fn common<'a>(
    parts: &[(Range<u64>, bool)],
    ranges: impl Iterator<Item = &'a Range<u64>>,
) -> Vec<(Range<u64>, bool)> {
    let (mut found, mut first) = (Vec::new(), 0);
    for range in ranges {
        first += parts[first..].iter().take_while(|(part, _)| part.end <= range.start).count();
        let touched = parts[first..].iter().take_while(|(part, _)| part.start < range.end);
        found.extend(
            touched.map(|(part, zero)| (part.start.max(range.start)..part.end.min(range.end), *zero)),
        );
    }
    found
}

/// Runs of whole blocks that differ, in bytes. Both are as long, and whole blocks.
fn differing(one: &[u8], other: &[u8]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    let blocks = one.chunks_exact(BLOCK_BYTES).zip(other.chunks_exact(BLOCK_BYTES));
    for (at, _) in blocks.enumerate().filter(|(_, (one, other))| one != other) {
        let block = at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES;
        match runs.last_mut() {
            Some(last) if last.end == block.start => last.end = block.end,
            _ => runs.push(block),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_whole_grains_and_cover_everything() {
        let of = |data: &[Range<u64>], all: Range<u64>| whole(data, all, 4096);
        assert_eq!(of(&[], 4096..10_000), [(4096..10_000, true)]);
        assert_eq!(
            of(&[0..1, 5000..5001, 8000..8200, 20_480..20_481], 0..20_992),
            [(0..12_288, false), (12_288..20_480, true), (20_480..20_992, false)]
        );
        assert_eq!(of(&[0..4096, 4096..8192], 0..8192), [(0..8192, false)]);
        assert_eq!(
            of(&[9000..9001, 9001..9002], 0..16_384),
            [(0..8192, true), (8192..12_288, false), (12_288..16_384, true)]
        );
    }

    #[test]
    fn what_lies_in_ranges_is_found() {
        let parts = [(0..10, false), (10..20, true), (20..50, false), (50..60, true)];
        let of = |ranges: &[Range<u64>]| common(&parts, ranges.iter());
        assert!(of(&[]).is_empty());
        let all = [(0..10, false), (10..20, true), (20..30, false), (30..50, false), (50..60, true)];
        assert_eq!(of(&[0..30, 30..60]), all);
        assert_eq!(of(&[2..4, 8..12]), [(2..4, false), (8..10, false), (10..12, true)]);
        assert_eq!(of(&[20..25, 30..31, 55..60]), [(20..25, false), (30..31, false), (55..60, true)]);
    }

    #[test]
    fn blocks_that_differ_make_runs() {
        let (mut one, other) = (vec![0; 5 * BLOCK_BYTES], vec![0; 5 * BLOCK_BYTES]);
        assert!(differing(&one, &other).is_empty());
        for at in [0, 3 * BLOCK_BYTES - 1, 3 * BLOCK_BYTES] {
            one[at] = 1;
        }
        assert_eq!(differing(&one, &other), [0..BLOCK_BYTES, 2 * BLOCK_BYTES..4 * BLOCK_BYTES]);
    }
}
