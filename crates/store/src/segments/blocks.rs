//! Blocks out of segments: from the cache, or where their frames lie, neighbours together.
//!
//! A block is sought by its hint; in a segment that was written anew, by a piece of its index ([`crate::locator`]). Neither is verified before
//! the frame is: it is the one whose address it was sealed with, or it is none. The whole index comes last.

use super::Segments;
use crate::locator::Place;
use bytes::Bytes;
use stonefold_format::entry::{Entry, FRAME_STORED_MAX};
use stonefold_types::{BLOCK_BYTES, Error, Kind, Result};

/// One engine read fetches frames that lie no further apart than this, in bytes: skipping costs less than asking again.
const READ_GAP_MAX: u64 = 16 << 10;
/// One engine read is at most this long, in bytes.
const READ_BYTES_MAX: u64 = 1 << 20;

impl Segments {
    /// The block at `entry`, if it is in memory.
    ///
    /// What is cached under an address begins with the block of that address; the rest of its frame follows.
    pub(crate) fn cached_block(&self, entry: &Entry) -> Option<Bytes> {
        let frame = self.blocks.get(entry.frame_address());
        let block = frame.and_then(|frame| block_of(&frame, entry.hint.index()));
        // A block whose hint did not hold is kept under its own address.
        let alone = || self.blocks.get(entry.address).and_then(|frame| block_of(&frame, 0));
        if entry.hint.index() == 0 { block } else { block.or_else(alone) }
    }

    /// The blocks at `entries`, none of them a hole, in their order. Neighbours in a segment are read together.
    pub(crate) async fn blocks(&self, entries: &[Entry]) -> Result<Vec<Bytes>> {
        let mut found: Vec<Option<Bytes>> = entries.iter().map(|entry| self.cached_block(entry)).collect();
        let missing = entries.iter().enumerate().filter(|(at, _)| found[*at].is_none());
        let mut sought: Vec<Sought> = missing.map(|(at, entry)| Sought::by_hint(at, entry)).collect();
        self.find_moved(&mut sought).await;
        sought.sort_unstable_by_key(|one| (one.entry.segment(), one.offset));
        let mut reads = Vec::new();
        let mut rest = &sought[..];
        while let Some(first) = rest.first() {
            let together = 1 + rest.windows(2).take_while(|w| near(first, &w[0], &w[1])).count();
            let (run, others) = rest.split_at(together);
            reads.push(self.read_run(run));
            rest = others;
        }
        let contents = futures::future::try_join_all(reads).await?;
        for (one, content) in sought.iter().zip(contents.into_iter().flatten()) {
            found[one.at] = Some(content);
        }
        Ok(found.into_iter().map(|content| content.expect("every missing block was read")).collect())
    }

    /// Replaces the hints of blocks in segments that were written anew by where they lie now.
    pub(super) async fn find_moved(&self, sought: &mut [Sought]) {
        let generation = |one: &Sought| self.accounts.generation(one.entry.segment());
        if sought.iter().all(|one| generation(one) == 0) {
            return;
        }
        // Blocks of one segment share pieces of its index; segments do not wait for one another.
        sought.sort_unstable_by_key(|one| one.entry.address);
        let of_segments = sought.chunk_by_mut(|a, b| a.entry.segment() == b.entry.segment());
        let each = of_segments.map(|blocks| async move {
            let generation = generation(&blocks[0]);
            for one in blocks.iter_mut().filter(|_| generation > 0) {
                if let Some(place) = self.locate(&one.entry, generation).await {
                    one.move_to(&place);
                }
            }
        });
        futures::future::join_all(each).await;
    }

    /// Reads blocks whose frames lie near one another, in ascending order, with one engine read.
    async fn read_run(&self, run: &[Sought]) -> Result<Vec<Bytes>> {
        let (first, last) = (&run[0], &run[run.len() - 1]);
        let (start, segment) = (first.offset, first.entry.segment());
        let (raw, form) = self.read(segment, start, (last.end() - start) as usize).await?;
        let mut blocks: Vec<Bytes> = Vec::with_capacity(run.len());
        let mut last: Option<(u64, Bytes)> = None;
        for one in run {
            // Several blocks of one frame may be asked for at once.
            if last.as_ref().is_none_or(|(decoded, _)| *decoded != one.frame) {
                let at = (one.offset - start) as usize;
                let found = self.content(raw.get(at..).unwrap_or_default(), one.frame, form).await;
                last = found.ok().map(|content| {
                    self.blocks.insert(one.frame, content.clone(), content.len() as u64);
                    (one.frame, content)
                });
            }
            let content = last.as_ref().and_then(|(_, content)| block_of(content, one.index()));
            blocks.push(match content {
                Some(block) => {
                    // Where its hint does not lead.
                    if one.frame != one.entry.frame_address() {
                        self.keep_alone(&one.entry, &block);
                    }
                    block
                }
                None => self.block_elsewhere(one).await?,
            });
        }
        Ok(blocks)
    }

    /// Reads a block whose frame is not where it was sought.
    async fn block_elsewhere(&self, one: &Sought) -> Result<Bytes> {
        if let Some((frame, content)) = self.frame_elsewhere(one).await {
            if let Some(block) = block_of(&content, (one.entry.address - frame) as usize) {
                self.keep_alone(&one.entry, &block);
                return Ok(block);
            }
        }
        self.block_by_index(&one.entry).await
    }

    /// The frame of a block by all that is not verified: by its hint, where that was not tried; by a piece of the index, where that was not
    /// asked because nobody had heard yet of the segment's later form, or where it is wrong about the length. What is damaged of the
    /// index may be none of these. The first block's address, and the content.
    pub(super) async fn frame_elsewhere(&self, one: &Sought) -> Option<(u64, Bytes)> {
        let (entry, generation) = (&one.entry, self.accounts.generation(one.entry.segment()));
        if generation == 0 {
            return None;
        }
        let mut moved = Sought::by_hint(one.at, entry);
        if let Some(place) = self.locate(entry, generation).await {
            moved.move_to(&place);
        }
        let by_hint = (entry.frame_address(), entry.hint.offset(), entry.hint.length());
        for (frame, offset, length) in [(moved.frame, moved.offset, FRAME_STORED_MAX), by_hint] {
            let Ok((raw, form)) = self.read(entry.segment(), offset, length).await else { continue };
            if let Ok(content) = self.content(&raw, frame, form).await {
                return Some((frame, content));
            }
        }
        None
    }

    /// Reads a block whose hint did not hold, and keeps it under its own address.
    async fn block_by_index(&self, entry: &Entry) -> Result<Bytes> {
        let (first_slot, content) = self.frame_by_index(entry).await?;
        let index = (entry.slot() - first_slot) as usize;
        let absent = || Error::new(Kind::Corrupt, format!("the frame of {entry:?} is too short"));
        let block = block_of(&content, index).ok_or_else(absent)?;
        let address = entry.segment().0 << 20 | u64::from(first_slot);
        self.blocks.insert(address, content.clone(), content.len() as u64);
        self.keep_alone(entry, &block);
        Ok(block)
    }

    /// Keeps a block under its own address: a copy, or all of its frame would stay in memory with it.
    fn keep_alone(&self, entry: &Entry, block: &Bytes) {
        self.blocks.insert(entry.address, Bytes::copy_from_slice(block), BLOCK_BYTES as u64);
    }
}

/// One block of a frame's content, when it is long enough.
fn block_of(content: &Bytes, index: usize) -> Option<Bytes> {
    let range = index * BLOCK_BYTES..(index + 1) * BLOCK_BYTES;
    (content.len() >= range.end).then(|| content.slice(range))
}

/// A block that must be read, and where its frame lies as far as is known.
pub(super) struct Sought {
    /// Which of those asked for.
    pub(super) at: usize,
    pub(super) entry: Entry,
    /// The address of the frame's first block.
    pub(super) frame: u64,
    /// Byte offset and length in the object.
    pub(super) offset: u64,
    pub(super) length: usize,
}

impl Sought {
    pub(super) fn by_hint(at: usize, entry: &Entry) -> Self {
        let (offset, length) = (entry.hint.offset(), entry.hint.length());
        Sought { at, entry: *entry, frame: entry.frame_address(), offset, length }
    }

    fn move_to(&mut self, place: &Place) {
        self.frame = self.entry.segment().0 << 20 | u64::from(place.first_slot);
        (self.offset, self.length) = (place.offset.into(), place.length as usize);
    }

    /// Which block of its frame it is.
    fn index(&self) -> usize {
        (self.entry.address - self.frame) as usize
    }

    fn end(&self) -> u64 {
        self.offset + self.length as u64
    }
}

/// Whether `next`, behind `last`, is read together with a run that began at `first`.
fn near(first: &Sought, last: &Sought, next: &Sought) -> bool {
    next.entry.segment() == last.entry.segment()
        && next.offset <= last.end() + READ_GAP_MAX
        && next.end().saturating_sub(first.offset) <= READ_BYTES_MAX
}
