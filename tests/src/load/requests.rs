//! What a client asks for next, and the steps in which that may take effect.

use super::Client;
use super::session::{Flight, Session};
use crate::judge::GRAIN;
use stonefold_dice::{Dice, mix};
use stonefold_guest::time::Stopwatch;
use stonefold_model::Step;
use stonefold_nbd::wire::request::{Command, Request, flag};

/// The store's block: a zeroing that does not keep to it may take effect in three steps.
const BLOCK: u64 = 4096;
/// Where the NBD door cuts a write that is longer than [`WHOLE_BYTES_MAX`]: at multiples of this.
const PART: u64 = 256 << 10;
/// A write up to this length takes effect in one step wherever it lies.
const WHOLE_BYTES_MAX: u64 = 64 << 10;
/// Kinds of data that clients write again and again.
const KINDS: u64 = 6;

impl Client {
    /// The next thing to do, begun in the story; `None` when the place chosen is busy.
    pub(super) fn next(&mut self, session: &Session<'_>) -> Option<Flight> {
        let what = self.chance.below(100);
        if what < 8 {
            return Some(self.flight(Command::Flush, 0, (0, 0)));
        }
        let range = self.range();
        let busy = session.lock().open.values().any(|flight| {
            let (offset, len) = flight.range;
            len > 0 && offset < range.0 + range.1 && range.0 < offset + len
        });
        if busy {
            return None;
        }
        let fua = if self.chance.percent(10) { flag::FUA } else { 0 };
        Some(match what {
            8..20 => self.read(range.0, range.1),
            20..28 => self.zero(fua | flag::NO_HOLE, range),
            28..34 => self.zero(fua, range),
            34..40 if self.world.trims => self.trim(fua, range),
            _ => self.write(fua, range),
        })
    }

    /// Offset and length: half of them in a small part that is overwritten again and again, many off the store's blocks.
    fn range(&mut self) -> (u64, u64) {
        let len = match self.chance.below(100) {
            0..45 => BLOCK * self.chance.between(1, 4),
            45..75 => GRAIN * self.chance.between(1, 40),
            75..92 => GRAIN * self.chance.between(1, 128),
            _ => GRAIN * self.chance.between(128, 512),
        };
        let within = if self.chance.percent(50) { self.bytes.min(512 << 10) } else { self.bytes };
        let grain = if self.chance.percent(60) { BLOCK } else { GRAIN };
        (self.chance.below((within - len) / grain + 1) * grain, len)
    }

    pub(super) fn flight(&self, command: Command, flags: u16, range: (u64, u64)) -> Flight {
        let offset = if range.1 == 0 { 0 } else { self.base + range.0 };
        let request = Request { flags, command, cookie: 0, offset, length: range.1 };
        Flight { request, entries: Vec::new(), expected: None, range, since: Stopwatch::start() }
    }

    pub(super) fn read(&self, offset: u64, len: u64) -> Flight {
        let expected = self.world.story().expected(self.number, offset, len as usize);
        Flight { expected: Some(expected), ..self.flight(Command::Read, 0, (offset, len)) }
    }

    fn write(&mut self, flags: u16, (offset, len): (u64, u64)) -> Flight {
        let data = data(&mut self.chance, len as usize);
        let entries = self.world.story().begin(self.number, writing(self.base, offset, &data));
        Flight { entries, ..self.flight(Command::Write, flags, (offset, len)) }
    }

    fn trim(&self, flags: u16, (offset, len): (u64, u64)) -> Flight {
        let entries = self.world.story().begin(self.number, trimming(self.base, offset, len));
        Flight { entries, ..self.flight(Command::Trim, flags, (offset, len)) }
    }

    fn zero(&self, flags: u16, (offset, len): (u64, u64)) -> Flight {
        let entries = self.world.story().begin(self.number, zeroing(self.base, offset, len));
        Flight { entries, ..self.flight(Command::WriteZeroes, flags, (offset, len)) }
    }
}

/// The whole blocks of a range, of which nothing is left when it was trimmed.
fn trimming(base: u64, offset: u64, len: u64) -> Vec<Step> {
    let (start, end) = ((base + offset).next_multiple_of(BLOCK), (base + offset + len) / BLOCK * BLOCK);
    let whole = (start < end).then(|| Step::Zero { offset: start - base, len: end - start });
    whole.into_iter().collect()
}

/// A write as the steps in which it may take effect.
fn writing(base: u64, offset: u64, data: &[u8]) -> Vec<Step> {
    let (start, end) = (base + offset, base + offset + data.len() as u64);
    let mut cuts = vec![start];
    if end - start > WHOLE_BYTES_MAX {
        cuts.extend((start / PART * PART + PART..end).step_by(PART as usize));
    }
    cuts.push(end);
    cuts.windows(2)
        .map(|cut| Step::Write {
            offset: cut[0] - base,
            data: data[(cut[0] - start) as usize..(cut[1] - start) as usize].to_vec(),
        })
        .collect()
}

/// A zeroing as the steps in which it may take effect: the parts of blocks at its ends, and the blocks between.
fn zeroing(base: u64, offset: u64, len: u64) -> Vec<Step> {
    let (start, end) = (base + offset, base + offset + len);
    let (first, last) = (start.next_multiple_of(BLOCK).min(end), (end / BLOCK * BLOCK).max(start));
    let cuts = if first <= last { vec![start, first, last, end] } else { vec![start, end] };
    cuts.windows(2)
        .filter(|cut| cut[0] < cut[1])
        .map(|cut| Step::Zero { offset: cut[0] - base, len: cut[1] - cut[0] })
        .collect()
}

/// Bytes of which every 16 are unlike any others, unless they are of the few kinds that come again and again and are there
/// to be deduplicated. Half of each compresses well in half of the cases.
fn data(chance: &mut Dice, len: usize) -> Vec<u8> {
    let mark = if chance.percent(30) { mix(1 + chance.below(KINDS)) } else { chance.number() };
    let compressible = chance.percent(50);
    let mut bytes = Vec::with_capacity(len);
    for cell in 0..(len / 16) as u64 {
        bytes.extend_from_slice(&mark.wrapping_add(cell).to_le_bytes());
        bytes.extend_from_slice(&if compressible { mark } else { mix(mark ^ cell) }.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zeroing_is_cut_where_the_store_cuts_it() {
        let cut = |base, offset, len| {
            zeroing(base, offset, len)
                .into_iter()
                .map(|step| if let Step::Zero { offset, len } = step { (offset, len) } else { (0, 0) })
                .collect::<Vec<_>>()
        };
        assert_eq!(cut(0, 0, 8192), [(0, 8192)]);
        assert_eq!(cut(0, 512, 8192), [(512, 3584), (4096, 4096), (8192, 512)]);
        assert_eq!(cut(512, 0, 512), [(0, 512)]);
        assert_eq!(cut(3584, 0, 1024), [(0, 512), (512, 512)]);
    }

    #[test]
    fn a_long_write_is_cut_where_the_door_cuts_it() {
        let cut = |base, offset, len| -> Vec<usize> {
            let steps = writing(base, offset, &vec![0; len]);
            steps
                .iter()
                .map(|step| if let Step::Write { data, .. } = step { data.len() } else { 0 })
                .collect()
        };
        assert_eq!(cut(0, PART - 512, 65536), [65536]);
        assert_eq!(cut(512, PART - 1024, 66048), [512, 65536]);
        assert_eq!(cut(0, 0, 1 << 18), [1 << 18]);
    }
}
