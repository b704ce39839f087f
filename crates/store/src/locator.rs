//! Where a block lies in a segment that was written anew.
//!
//! A map entry's hint says where its frame lay when the entry was made. Reclaim writes segments anew and leaves the maps alone, so of a later
//! form hints are worth nothing; the index at the form's end knows. It is sorted by slot, and its records are of one length: a *piece* of it,
//! found by interpolation, is enough for a block. A piece has no checksum of its own and needs none: the frame that it leads to proves by
//! itself that it is the one that was sought, and whoever finds another there asks the whole index, which is verified.
//!
//! Why so: docs/decisions/0023-a-piece-of-the-index.md.
//!
//! *Promises*: a block costs one piece, or a few where what died lies unevenly, and none when it is in memory; what is in memory is bounded.
//! *May be called by*: segments.

#[cfg(test)]
mod tests;

use crate::cache::Cache;
use crate::segments::Segments;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stonefold_format::entry::{Entry, FRAME_STORED_MAX, SEGMENT_BYTES_MAX, SegmentId};
use stonefold_format::segment::{Footer, INDEX_RECORD, IndexRecord};
use stonefold_types::Result;

/// Records of a piece: 8 KiB of the index.
const PIECE_RECORDS: u32 = 256;
/// Steps by interpolation; then the rest is halved. More are taken only where what died lies very unevenly.
const INTERPOLATIONS: u32 = 4;
/// Memory for what is known of forms, in bytes: some 27,000 of them, 256 GiB of data.
const FORM_CACHE_BYTES: u64 = 4 << 20;

/// What is in memory of indexes.
pub(crate) struct Locator {
    forms: Cache<Form>,
    pieces: Cache<Arc<[Place]>>,
}

/// What is known of a form.
#[derive(Clone, Copy)]
struct Form {
    index_offset: u64,
    frames: u32,
    /// Blocks that were alive when it was written.
    blocks: u32,
}

/// Where a frame lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The slot of its first block.
    pub(crate) first_slot: u32,
    blocks: u8,
    /// Byte offset in the object.
    pub(crate) offset: u32,
    /// Stored bytes.
    pub(crate) length: u32,
}

impl Place {
    fn new(record: &IndexRecord) -> Self {
        let IndexRecord { first_slot, blocks, offset, length, .. } = *record;
        Place { first_slot, blocks, offset, length }
    }

    fn end_slot(&self) -> u32 {
        self.first_slot.saturating_add(self.blocks.into())
    }

    /// Whether a frame can be read there at all: nobody has verified it.
    fn is_sane(&self) -> bool {
        let end = u64::from(self.offset) + u64::from(self.length);
        self.length > 0 && self.length as usize <= FRAME_STORED_MAX && end <= SEGMENT_BYTES_MAX as u64
    }
}

impl Locator {
    /// With so many bytes for pieces.
    pub(crate) fn new(bytes_max: u64) -> Self {
        Locator { forms: Cache::new(FORM_CACHE_BYTES), pieces: Cache::new(bytes_max) }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.pieces.bytes()
    }

    #[cfg(test)]
    pub(crate) fn bytes_max(&self) -> u64 {
        self.pieces.bytes_max()
    }

    pub(crate) fn resize(&self, bytes_max: u64) {
        self.pieces.resize(bytes_max);
    }

    pub(crate) fn clear(&self) {
        self.forms.clear();
        self.pieces.clear();
    }
}

impl Segments {
    /// Where the frame of a block lies in a later form of its segment; `None` when its index does not say, or is not read as it is
    /// written.
    pub(crate) async fn locate(&self, entry: &Entry, generation: u8) -> Option<Place> {
        self.counters.stale_hints.fetch_add(1, Ordering::Relaxed);
        let segment = entry.segment();
        // Whatever is wrong is met again, and told, where the whole index is asked.
        let form = self.form(segment, generation).await.ok()?;
        let slot = entry.slot();
        let mut search = Search::new(&form, slot);
        while let Some(number) = search.next() {
            let piece = self.piece(segment, generation, &form, number).await.ok()?;
            if let Some(found) = search.look(number, &piece) {
                return Some(found);
            }
        }
        None
    }

    async fn form(&self, segment: SegmentId, generation: u8) -> Result<Form> {
        let cached_as = segment.0 << 8 | u64::from(generation);
        if let Some(form) = self.locator.forms.get(cached_as) {
            return Ok(form);
        }
        let (_, footer) = self.ends(segment).await?;
        let Footer { index_offset, frames, slots: blocks, .. } = footer;
        let form = Form { index_offset, frames, blocks };
        if self.accounts.generation(segment) == generation {
            self.locator.forms.insert(cached_as, form, size_of::<Form>() as u64);
        }
        Ok(form)
    }

    async fn piece(
        &self,
        segment: SegmentId,
        generation: u8,
        form: &Form,
        number: u32,
    ) -> Result<Arc<[Place]>> {
        let cached_as = segment.0 << 20 | u64::from(generation) << 12 | u64::from(number);
        if let Some(piece) = self.locator.pieces.get(cached_as) {
            return Ok(piece);
        }
        let first = number * PIECE_RECORDS;
        let records = PIECE_RECORDS.min(form.frames - first) as usize;
        let offset = form.index_offset + u64::from(first) * INDEX_RECORD as u64;
        let (bytes, read_from) = self.read(segment, offset, records * INDEX_RECORD).await?;
        let piece: Arc<[Place]> = IndexRecord::decode_unverified(&bytes).map(|r| Place::new(&r)).collect();
        if read_from == generation {
            self.locator.pieces.insert(cached_as, piece.clone(), size_of_val(&*piece) as u64);
        }
        Ok(piece)
    }
}

/// Which piece to look at next. What is left becomes less with each, so that it ends whatever the pieces hold.
struct Search {
    slot: u32,
    /// Pieces that may have it, and the slots between which these lie, as far as is known.
    pieces: std::ops::Range<u32>,
    slots: std::ops::Range<u32>,
    steps: u32,
}

impl Search {
    fn new(form: &Form, slot: u32) -> Self {
        // A form is written anew when about a quarter of its blocks is dead.
        let likely = form.blocks.saturating_mul(4) / 3;
        Search {
            slot,
            pieces: 0..form.frames.div_ceil(PIECE_RECORDS),
            slots: 0..likely.max(slot + 1),
            steps: 0,
        }
    }

    fn next(&mut self) -> Option<u32> {
        if self.pieces.is_empty() {
            return None;
        }
        self.steps += 1;
        let span = u64::from(self.pieces.end - self.pieces.start);
        if self.steps > INTERPOLATIONS {
            return Some(self.pieces.start + (span / 2) as u32);
        }
        let (ahead, slots) = (self.slot - self.slots.start, self.slots.end - self.slots.start);
        let guess = u64::from(ahead) * span / u64::from(slots.max(1));
        Some(self.pieces.start + guess.min(span - 1) as u32)
    }

    fn look(&mut self, number: u32, piece: &[Place]) -> Option<Place> {
        let (Some(first), Some(last)) = (piece.first(), piece.last()) else {
            self.pieces = 0..0;
            return None;
        };
        if self.slot < first.first_slot {
            self.pieces.end = number;
            self.slots.end = first.first_slot;
        } else if self.slot >= last.end_slot() {
            self.pieces.start = number + 1;
            self.slots = last.end_slot()..self.slots.end.max(self.slot + 1);
        } else {
            self.pieces = 0..0;
            let at = piece.partition_point(|place| place.first_slot <= self.slot);
            let found = at.checked_sub(1).map(|at| piece[at]);
            let holds = |place: &Place| place.first_slot <= self.slot && self.slot < place.end_slot();
            return found.filter(|place| holds(place) && place.is_sane());
        }
        None
    }
}
