//! References counted by address, within a window of segments that memory has room for.

use std::collections::{BTreeMap, HashMap};
use stonefold_format::entry::SegmentId;

/// What is counted of a block, reference by reference.
pub(crate) trait Count: Copy + Default {
    /// Adds what another reference counts for.
    fn add(&mut self, other: &Self);
    /// In four bytes, where it fits. The two lowest bits of the last belong to the cell.
    fn pack(&self) -> Option<[u8; CELL_BYTES]>;
    /// What was packed.
    fn unpack(cell: [u8; CELL_BYTES]) -> Self;
}

/// How many of the references to a block are released in which case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// By what was removed already.
    pub(crate) now: u32,
    /// When the disk is removed, too.
    pub(crate) without: u32,
    /// If the disk were forgotten even where clones hold it.
    pub(crate) forgotten: u32,
    /// The disk, or a snapshot of it, refers to it.
    pub(crate) referred: bool,
}

/// Bytes of a cell; see [`super::WINDOW_BYTES`].
const CELL_BYTES: usize = 4;

/// A block's count in four bytes. What does not fit is kept apart: few blocks have so many references.
#[derive(Clone, Copy, Default)]
struct Cell([u8; CELL_BYTES]);
const _: () = assert!(size_of::<Cell>() == CELL_BYTES);

/// Bits of a cell's last byte: something was counted, and that is in the list beside.
const KNOWN: u8 = 1;
const MANY: u8 = 2;
/// A bit of [`Counts`]'.
const REFERRED: u8 = 4;

impl Cell {
    fn is(self, bit: u8) -> bool {
        self.0[CELL_BYTES - 1] & bit != 0
    }

    fn set(&mut self, bits: u8) {
        self.0[CELL_BYTES - 1] |= bits;
    }
}

/// Counts from one segment on, up to where memory ends.
pub(crate) struct Cells<C = Counts> {
    from: SegmentId,
    /// Not this one, which did not fit any more, nor later ones.
    end: Option<SegmentId>,
    segments: BTreeMap<SegmentId, Vec<Cell>>,
    many: HashMap<u64, C>,
    bytes: usize,
    bytes_max: usize,
}

impl<C: Count> Cells<C> {
    /// Nothing, from a segment on, for so much memory; one segment always fits.
    pub(crate) fn new(from: SegmentId, bytes_max: usize) -> Self {
        Cells { from, end: None, segments: BTreeMap::new(), many: HashMap::new(), bytes: 0, bytes_max }
    }

    /// Where the next window begins; `None` when this was the last.
    pub(crate) fn end(&self) -> Option<SegmentId> {
        self.end
    }

    /// Counts a reference, if it is in the window.
    pub(crate) fn add(&mut self, address: u64, counts: &C) {
        let (segment, slot) = (SegmentId(address >> 20), (address & 0xf_ffff) as usize);
        if segment < self.from || self.end.is_some_and(|end| segment >= end) {
            return;
        }
        let cells = self.segments.entry(segment).or_default();
        if cells.len() <= slot {
            self.bytes += (slot + 1 - cells.len()) * CELL_BYTES;
            cells.resize(slot + 1, Cell::default());
        }
        let cell = &mut cells[slot];
        let mut sum = if cell.is(MANY) { self.many[&address] } else { C::unpack(cell.0) };
        sum.add(counts);
        match sum.pack() {
            Some(small) => *cell = Cell(small),
            None => {
                cell.set(MANY);
                self.many.insert(address, sum);
            }
        }
        cell.set(KNOWN);
        while self.bytes > self.bytes_max && self.segments.len() > 1 {
            let (last, cells) = self.segments.pop_last().expect("there are several");
            self.bytes -= cells.len() * CELL_BYTES;
            self.end = Some(last);
        }
    }

    /// The slots that were counted, by segment, in ascending order.
    pub(crate) fn segments(&self) -> impl Iterator<Item = (SegmentId, impl Iterator<Item = (u32, C)>)> {
        self.segments.iter().map(|(segment, cells)| {
            let known = cells.iter().enumerate().filter(|(_, cell)| cell.is(KNOWN));
            let counts = known.map(|(slot, cell)| {
                let address = segment.0 << 20 | slot as u64;
                (slot as u32, if cell.is(MANY) { self.many[&address] } else { C::unpack(cell.0) })
            });
            (*segment, counts)
        })
    }
}

impl Count for Counts {
    fn add(&mut self, other: &Self) {
        self.now += other.now;
        self.without += other.without;
        self.forgotten += other.forgotten;
        self.referred |= other.referred;
    }

    fn pack(&self) -> Option<[u8; CELL_BYTES]> {
        let referred = if self.referred { REFERRED } else { 0 };
        let count = |references: u32| u8::try_from(references).ok();
        Some([count(self.now)?, count(self.without)?, count(self.forgotten)?, referred])
    }

    fn unpack([now, without, forgotten, flags]: [u8; CELL_BYTES]) -> Self {
        Counts {
            now: now.into(),
            without: without.into(),
            forgotten: forgotten.into(),
            referred: flags & REFERRED != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However small the windows, together they count everything once.
    #[test]
    fn windows_add_up() {
        let references = (0..2000u64).map(|at| ((at * 7 % 13 + 1) * (1 << 20) + at % 31, at % 3 == 0));
        let one = |referred| Counts { now: 1, without: 2, forgotten: 2, referred };
        let mut all: BTreeMap<u64, Counts> = BTreeMap::new();
        for (address, referred) in references.clone() {
            let sum = all.entry(address).or_default();
            sum.now += 1;
            (sum.without, sum.forgotten) = (sum.without + 2, sum.forgotten + 2);
            sum.referred |= referred;
        }
        for bytes_max in [0, 300, 1 << 20] {
            let (mut found, mut windows) = (BTreeMap::new(), 0);
            let mut next = Some(SegmentId(0));
            while let Some(from) = next {
                let mut cells: Cells = Cells::new(from, bytes_max);
                references.clone().for_each(|(address, referred)| cells.add(address, &one(referred)));
                for (segment, slots) in cells.segments() {
                    found.extend(slots.map(|(slot, counts)| (segment.0 << 20 | u64::from(slot), counts)));
                }
                next = cells.end();
                windows += 1;
            }
            assert_eq!(found, all, "{bytes_max} bytes");
            assert_eq!(
                windows,
                match bytes_max {
                    0 => 13,
                    300 => 7,
                    _ => 1,
                }
            );
        }
    }

    #[test]
    fn many_references_are_not_forgotten() {
        let mut cells: Cells = Cells::new(SegmentId(0), 1 << 10);
        let one = Counts { now: 0, without: 1, forgotten: 1, referred: true };
        (0..1000).for_each(|_| cells.add(5 << 20 | 3, &one));
        let (segment, mut slots) = cells.segments().next().unwrap();
        assert_eq!(segment, SegmentId(5));
        assert_eq!(
            slots.next(),
            Some((3, Counts { now: 0, without: 1000, forgotten: 1000, referred: true }))
        );
    }
}
