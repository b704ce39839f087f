//! A volume while it is loaded: what is written to it, and what must come back.

use crate::chaos::Promise;
use crate::durability::Durability;
use crate::erased::{Erased, How};
use crate::generations::Generations;
use crate::payload::{Payload, SECTOR_BYTES, SECTORS};
use crate::verify::{Expected, Verification, Verifier};
use stonefold_types::BLOCK_BYTES;

/// One volume's content. With `generations` what is read is verified.
pub(crate) struct Content {
    pub number: u16,
    pub payload: Payload,
    pub generations: Option<Generations>,
    erased: Erased,
    /// What was flushed, where that is kept.
    durability: Option<Durability>,
    /// Generations where none are kept: each write has a new one.
    written: u32,
    /// What is read is made to be what it has to be, and looked at all the same: so much work is that.
    rehearses: bool,
}

/// The sectors of one block that an I/O touches.
#[derive(Clone, Copy)]
struct Piece {
    block: u64,
    from: usize,
    to: usize,
}

impl Content {
    pub(crate) fn new(number: u16, payload: Payload, generations: Option<Generations>) -> Self {
        let erased = Erased::default();
        Content { number, payload, generations, erased, durability: None, written: 0, rehearses: false }
    }

    /// From here on the target keeps nothing, and reads are looked at as if it did.
    pub(crate) fn rehearse(&mut self) {
        self.rehearses = true;
    }

    /// From here on it is known what was flushed; all that was acknowledged until now was.
    pub(crate) fn keep_durability(&mut self) {
        self.durability = self.generations.is_some().then(Durability::default);
    }

    /// Nobody asks any more what was flushed.
    pub(crate) fn forget_durability(&mut self) {
        self.durability = None;
    }

    /// A flush is about to be issued; `issued` is told its number, where that is kept.
    pub(crate) fn begin_flush(&mut self, issued: &mut Vec<u32>) {
        issued.clear();
        issued.extend(self.durability.as_mut().map(Durability::begin_flush));
    }

    /// A flush was answered.
    pub(crate) fn flushed(&mut self, issued: &[u32]) {
        if let (Some(durability), [number]) = (&mut self.durability, issued) {
            durability.flushed(*number);
        }
    }

    /// The target has died: what it has not promised may be gone.
    pub(crate) fn crash(&mut self, promise: Promise) {
        if let (Some(durability), Some(generations)) = (&mut self.durability, &mut self.generations) {
            durability.crash(generations, promise);
        }
    }

    /// Fills `bytes`, which are about to be written to `offset`; `issued` is told the generation of each block.
    pub(crate) fn write(&mut self, offset: u64, bytes: &mut [u8], issued: &mut Vec<u32>) {
        issued.clear();
        self.written = self.written.wrapping_add(1).max(1);
        let mut rest = bytes;
        for piece in pieces(offset, rest.len()) {
            let (part, left) = rest.split_at_mut((piece.to - piece.from) * SECTOR_BYTES);
            rest = left;
            let again = self.as_it_is(&piece);
            let generation = match (&mut self.generations, again) {
                (Some(generations), Some(generation)) => {
                    generations.begin_again(piece.block, piece.from, piece.to);
                    generation
                }
                (Some(generations), None) => generations.begin(piece.block, piece.from, piece.to),
                (None, _) => self.written,
            };
            self.payload.fill(piece.block, generation, piece.from, part);
            issued.push(generation);
        }
    }

    /// What a part of a block is to be written as that has content from the pool: as it is. Else the block would be equal to none from then on, and
    /// what a load of small or unaligned writes leaves would reduce by less than was declared.
    fn as_it_is(&self, piece: &Piece) -> Option<u32> {
        let is_part = (piece.from, piece.to) != (0, SECTORS);
        let generation = self.generations.as_ref().filter(|_| is_part)?.settled(piece.block)?;
        let is_shared = self.payload.shared(piece.block, generation).is_some();
        (is_shared && self.erased.how(piece.block, generation).is_none()).then_some(generation)
    }

    /// `bytes`, which were read from this place of another volume, are about to be written here. Where this volume is no
    /// equal copy, or has been written before, they become content of its own.
    pub(crate) fn copy(&mut self, offset: u64, bytes: &mut [u8], issued: &mut Vec<u32>) {
        issued.clear();
        self.written = self.written.wrapping_add(1).max(1);
        let mut rest = bytes;
        for piece in pieces(offset, rest.len()) {
            let (part, left) = rest.split_at_mut((piece.to - piece.from) * SECTOR_BYTES);
            rest = left;
            let (generation, copied) = match &mut self.generations {
                Some(generations) => {
                    let generation = generations.begin(piece.block, piece.from, piece.to);
                    (generation, self.payload.is_copied(generation))
                }
                None => (self.written, self.payload.is_copied(1)),
            };
            if !copied {
                self.payload.fill(piece.block, generation, piece.from, part);
            }
            issued.push(generation);
        }
    }

    /// A range is about to be zeroed or trimmed; `issued` is told the generation of each block.
    pub(crate) fn erase(&mut self, offset: u64, bytes: usize, is_trim: bool, issued: &mut Vec<u32>) {
        issued.clear();
        let Some(generations) = &mut self.generations else { return };
        let how = if is_trim { How::Trimmed } else { How::Zeroed };
        for piece in pieces(offset, bytes) {
            let lows = generations.lows(piece.block).oldest();
            let behind = self.durability.as_ref().and_then(|durability| durability.oldest(piece.block));
            let oldest = behind.map_or(lows, |behind| behind.min(lows));
            let generation = generations.begin(piece.block, piece.from, piece.to);
            self.erased.note(piece.block, generation, how, oldest);
            issued.push(generation);
        }
    }

    /// A write, a zeroing or a trim was answered.
    pub(crate) fn written(&mut self, offset: u64, bytes: usize, issued: &[u32], failed: bool) {
        let Some(generations) = &mut self.generations else { return };
        for (piece, generation) in pieces(offset, bytes).zip(issued) {
            let before = generations.lows(piece.block);
            generations.end(piece.block, piece.from, piece.to, *generation, failed);
            if let Some(durability) = self.durability.as_mut().filter(|_| !failed) {
                let since = generations.lows(piece.block);
                durability.acknowledged(piece.block, piece.from, piece.to, before, since);
            }
        }
    }

    /// The generations of a block's sectors, where each was written and is known; nothing of one that is empty in part.
    pub(crate) fn held(&self, block: u64) -> Option<[u32; SECTORS]> {
        let lows = self.generations.as_ref()?.lows(block);
        let sectors: [u32; SECTORS] = std::array::from_fn(|place| lows.of(place));
        let is_written = |generation: &u32| *generation > 0 && self.erased.how(block, *generation).is_none();
        sectors.iter().all(is_written).then_some(sectors)
    }

    /// A read is about to be issued: what it may return.
    pub(crate) fn expect(&self, offset: u64, bytes: usize, expected: &mut Vec<Expected>) {
        expected.clear();
        let Some(generations) = &self.generations else { return };
        expected.extend(pieces(offset, bytes).map(|piece| {
            let lows = generations.lows(piece.block);
            let lines = self.durability.as_ref().and_then(|durability| durability.lines(piece.block, lows));
            Expected::of(generations, piece.block, lines)
        }));
    }

    /// A read was answered with `bytes`.
    pub(crate) fn check(
        &self,
        offset: u64,
        bytes: &mut [u8],
        expected: &[Expected],
        seen: &mut Verification,
    ) {
        if self.rehearses {
            return self.check_as_if(offset, bytes, seen);
        }
        if let Some(generations) = &self.generations {
            let (payload, erased) = (&self.payload, &self.erased);
            let verifier = Verifier { payload, volume: self.number, generations, erased };
            verifier.check(offset, bytes, expected, seen);
        }
    }

    fn check_as_if(&self, offset: u64, bytes: &mut [u8], seen: &mut Verification) {
        let mut rest = bytes;
        for piece in pieces(offset, rest.len()) {
            let (part, left) = rest.split_at_mut((piece.to - piece.from) * SECTOR_BYTES);
            rest = left;
            let mut expected = [0; BLOCK_BYTES];
            let expected = &mut expected[..part.len()];
            self.payload.fill(piece.block, 1, piece.from, expected);
            part.copy_from_slice(expected);
            // For all that a compiler knows the device had a hand in it.
            if std::hint::black_box(&*part) == expected {
                seen.right += (part.len() / SECTOR_BYTES) as u64;
            }
        }
    }
}

fn pieces(offset: u64, bytes: usize) -> impl Iterator<Item = Piece> {
    let (block_bytes, end) = (BLOCK_BYTES as u64, offset + bytes as u64);
    (offset / block_bytes..end.div_ceil(block_bytes)).map(move |block| {
        let sector = |at: u64| {
            (at.clamp(block * block_bytes, (block + 1) * block_bytes) - block * block_bytes) as usize
                / SECTOR_BYTES
        };
        let (from, to) = (sector(offset), sector(end));
        debug_assert!(from < to && to <= SECTORS);
        Piece { block, from, to }
    })
}
