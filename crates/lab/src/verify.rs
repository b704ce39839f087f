//! What was read, held against what must be there; and what is wrong told by kind.

use crate::durability::Lines;
use crate::erased::{Erased, How};
use crate::generations::{Generations, Lows};
use crate::payload::{Payload, SECTOR_BYTES, SECTORS, Told};
use serde::{Deserialize, Serialize};
use stonefold_types::BLOCK_BYTES;

/// Faults kept with their places; all are counted.
const FAULTS_KEPT_MAX: usize = 32;
/// How many generations back the content of the pool is looked for: a stale block of it names none.
const GENERATIONS_BACK_MAX: u32 = 4096;

/// What is wrong with a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// Reads as zeros, or as what was there before the lab: an acknowledged write is gone.
    Lost,
    /// Holds what was written here earlier: an acknowledged overwrite is gone.
    Stale,
    /// Holds what was written elsewhere.
    Misplaced,
    /// Holds what nobody wrote.
    Corrupt,
}

/// A fault and where it was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What is wrong.
    pub fault: Fault,
    /// The volume that was read.
    pub volume: u16,
    /// Byte offset of the sector in it.
    pub offset: u64,
    /// The lowest generation that would have been right.
    pub expected: u32,
    /// What the sector says it is, in words.
    pub found: String,
}

/// What verification has seen. Counts are sectors of 512 bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verification {
    /// Compared and found right.
    pub right: u64,
    /// Never written by the lab, so that nothing is known of them: a run that reads such is void.
    pub unwritten: u64,
    /// In ranges that had been trimmed, of which storage may answer anything.
    #[serde(default)]
    pub free: u64,
    /// See [`Fault::Lost`].
    pub lost: u64,
    /// See [`Fault::Stale`].
    pub stale: u64,
    /// See [`Fault::Misplaced`].
    pub misplaced: u64,
    /// See [`Fault::Corrupt`].
    pub corrupt: u64,
    /// Older than what had been acknowledged, be that excused or not: among [`Verification::right`] where the target died
    /// and had not promised it.
    #[serde(default)]
    pub gone_acknowledged: u64,
    /// Of these, older than what had been flushed.
    #[serde(default)]
    pub gone_flushed: u64,
    /// Blocks of 4 KiB of which each sector may be what it is, and which no one write has left: old and new in one block, or, where
    /// a write was in flight beside the read or beside another write, in one sector.
    #[serde(default)]
    pub torn: u64,
    /// The first of them, with their places.
    pub findings: Vec<Finding>,
}

impl Verification {
    /// Sectors that were not what they had to be.
    pub fn faults(&self) -> u64 {
        self.lost + self.stale + self.misplaced + self.corrupt
    }

    /// Sectors that were read.
    pub fn checked(&self) -> u64 {
        self.right + self.faults() + self.unwritten + self.free
    }

    /// Adds what another thread or host has seen.
    pub fn add(&mut self, other: &Verification) {
        self.right += other.right;
        self.unwritten += other.unwritten;
        self.free += other.free;
        self.lost += other.lost;
        self.stale += other.stale;
        self.misplaced += other.misplaced;
        self.corrupt += other.corrupt;
        self.gone_acknowledged += other.gone_acknowledged;
        self.gone_flushed += other.gone_flushed;
        self.torn += other.torn;
        let room = FAULTS_KEPT_MAX.saturating_sub(self.findings.len());
        self.findings.extend(other.findings.iter().take(room).cloned());
    }

    fn count(&mut self, finding: Finding) {
        *match finding.fault {
            Fault::Lost => &mut self.lost,
            Fault::Stale => &mut self.stale,
            Fault::Misplaced => &mut self.misplaced,
            Fault::Corrupt => &mut self.corrupt,
        } += 1;
        if self.findings.len() < FAULTS_KEPT_MAX {
            self.findings.push(finding);
        }
    }
}

/// Checks what is read from one volume.
pub struct Verifier<'a> {
    /// What its blocks hold.
    pub payload: &'a Payload,
    /// Its number.
    pub volume: u16,
    /// Which generation of each, as of now.
    pub generations: &'a Generations,
    /// Which generations have no content of the lab's.
    pub erased: &'a Erased,
}

/// What a read of a block may return, taken when it was issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// At least this.
    pub lows: Lows,
    /// What had been acknowledged and what flushed, where something else is known of it.
    pub lines: Option<Box<Lines>>,
    /// The first generation that was in flight, or was the next to be issued.
    moving: Lows,
}

impl Expected {
    /// Of a read that is issued now.
    pub(crate) fn of(generations: &Generations, block: u64, lines: Option<Lines>) -> Self {
        Expected {
            lows: generations.lows(block),
            lines: lines.map(Box::new),
            moving: generations.moving(block),
        }
    }

    /// Counts what is older than what was acknowledged, and than what was flushed.
    fn hold_against_lines(&self, place: usize, held: u32, seen: &mut Verification) {
        let low = self.lows.of(place);
        let (acknowledged, flushed) =
            self.lines.as_ref().map_or((low, low), |lines| (lines.acknowledged[place], lines.flushed[place]));
        seen.gone_acknowledged += u64::from(held < acknowledged);
        seen.gone_flushed += u64::from(held < flushed);
    }
}

impl Verifier<'_> {
    /// Checks `bytes`, read from `offset` on (both multiples of 512); `expected` has one entry for each block that the read
    /// touches.
    pub fn check(&self, offset: u64, bytes: &[u8], expected: &[Expected], seen: &mut Verification) {
        let mut at = 0;
        for expected in expected {
            let place = offset + at as u64;
            let (block, from) = (place / BLOCK_BYTES as u64, place as usize % BLOCK_BYTES / SECTOR_BYTES);
            let len = ((SECTORS - from) * SECTOR_BYTES).min(bytes.len() - at);
            self.check_block(block, from, &bytes[at..at + len], expected, seen);
            at += len;
        }
        debug_assert_eq!(at, bytes.len(), "one entry for each block");
    }

    fn check_block(
        &self,
        block: u64,
        from: usize,
        bytes: &[u8],
        expected: &Expected,
        seen: &mut Verification,
    ) {
        let (lows, highs) = (expected.lows, self.generations.highs(block));
        match (lows, highs) {
            (Lows::Same(low), Lows::Same(high))
                if low == high && low > 0 && self.erased.how(block, low).is_none() =>
            {
                let mut expected = [0; BLOCK_BYTES];
                let expected = &mut expected[..bytes.len()];
                self.payload.fill(block, low, from, expected);
                if bytes == expected {
                    seen.right += (bytes.len() / SECTOR_BYTES) as u64;
                    return;
                }
            }
            _ => {}
        }
        let (mut first, mut torn) = (None, false);
        for (place, sector) in (from..).zip(bytes.chunks_exact(SECTOR_BYTES)) {
            if let Some(older) = self.torn_over(block, place, sector, expected, highs.of(place)) {
                seen.right += 1;
                expected.hold_against_lines(place, older, seen);
                torn = true;
                continue;
            }
            let found = self.check_sector((block, place), sector, expected, highs.of(place), seen);
            torn |= found.is_some() && first.is_some() && found != first;
            first = first.or(found);
        }
        // Sectors that were written each for itself differ by right.
        let uniform = |lows: Lows| (1..SECTORS).all(|place| lows.of(place) == lows.of(0));
        seen.torn += u64::from(torn && uniform(lows) && uniform(highs));
    }

    /// The generation over which writes that were in flight beside the read, or beside one another, have left a part of theirs; nothing where the sector is
    /// whole, or cannot be that. Nobody promises what is read of a place that is written meanwhile, nor what is there after two at once, but that each byte is
    /// of one of them: of NBD not even a sector is one.
    fn torn_over(
        &self,
        block: u64,
        place: usize,
        sector: &[u8],
        expected: &Expected,
        high: u32,
    ) -> Option<u32> {
        let (low, moving) = (expected.lows.of(place), expected.moving.of(place));
        if low == 0 || moving > high || low == high {
            return None;
        }
        let mut known = [false; SECTOR_BYTES];
        let mut older = Vec::new();
        for generation in low..=high {
            let mut whole = [0; SECTOR_BYTES];
            match self.erased.how(block, generation) {
                None => self.payload.fill(block, generation, place, &mut whole),
                Some(How::Zeroed) => {}
                Some(How::Trimmed) => return None,
            }
            if sector == whole {
                return None;
            }
            if generation < moving {
                older.push((generation, whole));
                continue;
            }
            known
                .iter_mut()
                .zip(sector.iter().zip(&whole))
                .for_each(|(known, (is, new))| *known |= is == new);
        }
        if known.iter().all(|known| *known) {
            return Some(older.last().map_or(moving, |(generation, _)| *generation));
        }
        let is_rest = |whole: &[u8; SECTOR_BYTES]| {
            known.iter().zip(sector.iter().zip(whole)).all(|(known, (is, was))| *known || is == was)
        };
        older.iter().rev().find(|(_, whole)| is_rest(whole)).map(|(generation, _)| *generation)
    }

    /// The generation that it holds, where that is right.
    fn check_sector(
        &self,
        (block, place): (u64, usize),
        sector: &[u8],
        expected: &Expected,
        high: u32,
        seen: &mut Verification,
    ) -> Option<u32> {
        let low = expected.lows.of(place);
        if low == 0 {
            // Also while its first write is in flight: what is there otherwise is not ours to judge.
            seen.unwritten += 1;
            return None;
        }
        // The newest is the likeliest.
        for generation in (low..=high).rev() {
            let right = match self.erased.how(block, generation) {
                None => self.payload.holds(block, generation, place, sector),
                Some(How::Zeroed) => sector.iter().all(|byte| *byte == 0),
                Some(How::Trimmed) => {
                    seen.free += 1;
                    return None;
                }
            };
            if right {
                seen.right += 1;
                expected.hold_against_lines(place, generation, seen);
                return Some(generation);
            }
        }
        let told = self.payload.tell(place, sector);
        let (fault, held) = self.fault(block, place, sector, low, told);
        if let Some(held) = held {
            expected.hold_against_lines(place, held, seen);
        }
        seen.count(Finding {
            fault,
            volume: self.volume,
            offset: block * BLOCK_BYTES as u64 + (place * SECTOR_BYTES) as u64,
            expected: low,
            found: words(told, sector),
        });
        None
    }

    /// What is wrong, and with what is old its generation.
    fn fault(
        &self,
        block: u64,
        place: usize,
        sector: &[u8],
        low: u32,
        told: Option<Told>,
    ) -> (Fault, Option<u32>) {
        match told {
            Some(Told::Own { volume, block: other, generation }) => {
                if other == block && self.payload.is_own(volume, generation) && generation < low {
                    (Fault::Stale, Some(generation))
                } else {
                    (Fault::Misplaced, None)
                }
            }
            Some(Told::Shared(number)) => {
                let oldest = low.saturating_sub(GENERATIONS_BACK_MAX).max(1);
                let was = (oldest..low)
                    .rev()
                    .find(|generation| self.payload.shared(block, *generation) == Some(number));
                (if was.is_some() { Fault::Stale } else { Fault::Misplaced }, was)
            }
            // A sector that is whole but for its place within the block.
            None if (0..SECTORS)
                .any(|other| other != place && self.payload.tell(other, sector).is_some()) =>
            {
                (Fault::Misplaced, None)
            }
            None if sector.iter().all(|byte| *byte == 0) => (Fault::Lost, Some(0)),
            None => (Fault::Corrupt, None),
        }
    }
}

fn words(told: Option<Told>, sector: &[u8]) -> String {
    match told {
        Some(Told::Own { volume, block, generation }) => {
            format!("generation {generation} of byte {} of volume {volume}", block * BLOCK_BYTES as u64)
        }
        Some(Told::Shared(number)) => format!("content {number} of the pool of equal blocks"),
        None if sector.iter().all(|byte| *byte == 0) => "zeros".into(),
        None => {
            let first: String = sector[..16].iter().map(|byte| format!("{byte:02x}")).collect();
            format!("bytes that were never written, {first}…")
        }
    }
}

#[cfg(test)]
mod tests;
